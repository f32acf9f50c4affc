// Activations (activations.h), functions composed of ops, losses, metrics, and ops of networks.
//
//   Array scaled = (x - mean(x, 0, keepdims)) / (stddev(x, 0, keepdims) + 1e-6);
//   Array y = conv(images, kernel, {.strides = {2, 2}, .padding = "SAME"});
//   Array z = max_pool(relu(y), {2, 2}, {2, 2});
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/activations.h>
#include <tessera/linalg.h>
#include <tessera/ops.h>
#include <tessera/random.h>
#include <tessera/statistics.h>
#include <tessera/tree.h>

namespace TESSERA_EXPORT tessera {

// --- losses

/// -log(softmax(logits)) at the labels: logits [..,C] and labels i32 [..] -> f32 (f64 for f64
/// logits) [..]; 0 where a label is not a class. With smoothing s, the weight of the label is
/// 1 - s + s / C, and that of each other class is s / C.
Array cross_entropy(Operand logits, Operand labels, double label_smoothing = 0);
/// The same for logits that are the product of x [..,F] and kernel [F,C]. They are computed in
/// blocks of classes, and again in the derivative: less memory for a third more work.
Array linear_cross_entropy(Operand x, Operand kernel, Operand labels);
/// -y log(sigmoid(logits)) - (1 - y) log(1 - sigmoid(logits)) per element, for labels 0 <= y <= 1.
Array sigmoid_binary_cross_entropy(Operand logits, Operand labels);
/// -log of the probability of the labels, summed over all alignments to the frames (Graves et al.
/// 2006): logits [B,T,C], labels i32 [B,N], and the lengths of both, i32 [B] -> f32 [B]. Class
/// `blank` stands between labels. Infinite, with gradient 0, where the labels do not fit.
Array ctc_loss(Operand logits, Operand logit_lengths, Operand labels, Operand label_lengths,
               std::int64_t blank = 0);
/// The Kullback-Leibler divergence: the sum of t (log t - p) over the last dimension, where p are
/// the log-probabilities of the predictions and t the target probabilities. Terms with t = 0 are 0.
Array kl_divergence(Operand log_predictions, Operand targets);
/// The cosine of the angle between vectors along the last dimension. Norms below `epsilon` are
/// replaced by `epsilon`.
Array cosine_similarity(Operand a, Operand b, double epsilon = 1e-8);
/// Half the square of the difference e where |e| <= delta; linear in |e| beyond.
Array huber_loss(Operand predictions, Operand targets, double delta = 1);
/// max(0, 1 - predictions * targets) per element, for targets of -1 and 1.
Array hinge_loss(Operand predictions, Operand targets);
/// max(0, |anchors - positives| - |anchors - negatives| + margin), where |x| is the square root of
/// the sum of x^2 over the last dimension plus epsilon.
Array triplet_margin_loss(Operand anchors, Operand positives, Operand negatives, double margin = 1,
                          double epsilon = 1e-6);

// --- metrics: sums over batches, on any mesh. They are trees, so jitted functions can take and
// return them, and checkpoints can hold them.

namespace metrics {

/// Whether fewer than k logits are greater than that of the label: [..,C] and i32 [..] -> bool
/// [..]; false where a label is not a class.
Array in_top_k(Operand logits, Operand labels, std::int64_t k = 1);

/// The mean of all values so far, such as losses. The mean of in_top_k is an accuracy; for
/// cross-entropies, exp(value()) is the perplexity.
struct Mean {
  Array total = zeros({});  // f32[]; `rest` is its rounding error so far (Kahan's sum)
  Array rest = zeros({});
  Array count = zeros({}, DType::i64);

  /// Adds numbers or bools; with `is_counted`, of the same shape, only those where it is true.
  void update(Operand values, const std::optional<Array>& is_counted = {});
  /// f32[]; NaN before the first update.
  Array value() const;
  TESSERA_TREE(total, rest, count)
};

/// counts[i, j]: how many examples of class i were predicted as class j.
struct Confusion {
  Array counts;  // i64 [classes, classes]

  explicit Confusion(std::int64_t classes,
                     std::source_location where = std::source_location::current())
      : counts(zeros({classes, classes}, DType::i64, where)) {}
  /// i32 arrays of the same shape. A pair with a number that is not a class is skipped.
  void update(Operand predictions, Operand labels);
  TESSERA_TREE(counts)
};

}  // namespace metrics

// --- shapes

/// Equal parts along `axis`. Throws UserError unless `parts` divides its size.
std::vector<Array> split(Operand x, std::int64_t parts, std::int64_t axis = 0);
/// The parts before, between and after these positions, which must ascend.
std::vector<Array> split_at(Operand x, const std::vector<std::int64_t>& positions,
                            std::int64_t axis = 0);
/// x repeated as a whole, `repeats[i]` times along dimension i. The shorter of `repeats` and the
/// shape is extended by leading ones.
Array tile(Operand x, std::vector<std::int64_t> repeats);
/// Moves elements `shift` positions forward along `axis`; those beyond the end wrap around.
Array roll(Operand x, std::int64_t shift, std::int64_t axis);
/// The same as reverse.
Array flip(Operand x, Axes axes = {});
/// Moves the dimensions `source` to the positions `destination`; the others keep their order.
Array moveaxis(Operand x, Axes source, Axes destination);
/// With ij, result i varies along dimension i; with xy, the first two dimensions are swapped.
enum class Indexing : std::uint8_t { xy, ij };
/// The vectors [n], [m], .. as coordinates of a grid: each repeated to [n, m, ..] or, with xy, to
/// [m, n, ..].
std::vector<Array> meshgrid(const std::vector<Array>& vectors, Indexing indexing = Indexing::xy,
                            std::source_location where = std::source_location::current());
/// Each element along `axis` minus the one before it, n times. For bool: whether they differ.
Array diff(Operand x, std::int64_t n = 1, std::int64_t axis = -1);
/// `count` evenly spaced numbers from `start` to `stop`, both included. Throws UserError unless the
/// dtype is a float.
Array linspace(double start, double stop, std::int64_t count, DType dtype = DType::f32,
               std::source_location where = std::source_location::current());

enum class ResizeMethod : std::uint8_t { nearest, linear, cubic };
/// x resized to `shape`, as by jax.image.resize: nearest picks elements, linear and cubic weight
/// neighbours. With `antialias`, a smaller result averages all elements that it covers.
Array resize(Operand x, Shape shape, ResizeMethod method = ResizeMethod::linear,
             bool antialias = true);

// --- attention

/// Dropout of probabilities p: each becomes 0 with probability `rate`, otherwise p / (1 - rate).
/// Element b of the B in a batch draws as bernoulli of [H,T,S] with row b of split_data(key, B).
struct AttentionDropout {
  double rate;  // 0 <= rate < 1
  Key key;
};

/// Which keys a query sees, and what is added to its scores. Positions count from 0 in both q and
/// k, even if their lengths differ. Keys that no query of a block sees cost nothing.
struct AttentionMask {
  bool is_causal = false;  // query i sees key i and those before it
  /// A sliding window: query i sees the keys from i - before to i + after; -1 for no limit.
  std::int64_t before = -1;
  std::int64_t after = -1;
  /// The number of keys, i32 [batch..]: keys from this position on are padding.
  std::optional<Array> lengths = {};
  /// Added to scores: [batch.., heads, T, S] or 1 each, f32 (f64 for f64 q); bool: the key is seen.
  std::optional<Array> bias = {};
  std::optional<double> scale = {};  // of the scores; 1 / sqrt(D) if absent
  std::optional<AttentionDropout> dropout = {};
};

/// softmax(scale q k^T + bias) v: q [batch..,T,H,D], k [batch..,S,K,D] and v [batch..,S,K,E] ->
/// [batch..,T,H,E]. K must divide H; head h of q reads head h / (H / K) of k and v (grouped-query
/// or, with K = 1, multi-query attention). Scores and sums are f32. A query that sees no key gives
/// zeros. Second derivatives hold all scores in memory.
Array attention(Operand q, Operand k, Operand v, const AttentionMask& mask = {});

// --- sliding windows

/// The padding around an array before windows slide over it: "VALID" for none, "SAME" for
/// ceil(size / stride) windows per dimension, the widths before and after each dimension, as in
/// {{1, 1}, {2, 2}}, or one width for all sides.
class Padding {
 public:
  using Width = std::pair<std::int64_t, std::int64_t>;
  Padding(const char* name) : name_(name) {}                          // NOLINT
  Padding(std::vector<Width> widths) : widths_(std::move(widths)) {}  // NOLINT
  Padding(std::initializer_list<Width> widths) : widths_(widths) {}   // NOLINT
  template <std::integral T>
  Padding(T width) : widths_{Width(width, width)}, is_everywhere_(true) {}  // NOLINT
  /// Empty if widths are given.
  std::string_view name() const { return name_; }
  /// The widths of the dimensions of a window with `rank` dimensions.
  std::vector<Width> widths(std::size_t rank) const {
    return is_everywhere_ ? std::vector<Width>(rank, widths_[0]) : widths_;
  }

 private:
  std::string_view name_;
  std::vector<Width> widths_;
  bool is_everywhere_ = false;
};

/// Each list has one entry per dimension of the window; an empty list means all ones.
struct ConvOptions {
  std::vector<std::int64_t> strides = {};
  Padding padding = "VALID";
  /// Inserts input_dilation - 1 zeros between neighbouring elements of the array.
  std::vector<std::int64_t> input_dilation = {};
  /// The distance between neighbouring elements of the kernel.
  std::vector<std::int64_t> kernel_dilation = {};
  /// The number of groups of channels; each has its own part of the kernel.
  std::int64_t feature_group_count = 1;
};
/// An array [n, space.., channels] and a kernel [window.., channels / groups, features] ->
/// [n, space.., features]. The kernel is not reversed. Padding counts as zeros.
Array conv(Operand x, Operand kernel, const ConvOptions& options = {});

/// The sum, maximum or minimum of each window. `window` has one size per dimension of x. Padding
/// does not affect the result.
Array reduce_window_sum(Operand x, std::vector<std::int64_t> window,
                        std::vector<std::int64_t> strides = {}, const Padding& padding = "VALID");
Array reduce_window_max(Operand x, std::vector<std::int64_t> window,
                        std::vector<std::int64_t> strides = {}, const Padding& padding = "VALID");
Array reduce_window_min(Operand x, std::vector<std::int64_t> window,
                        std::vector<std::int64_t> strides = {}, const Padding& padding = "VALID");

/// For x [n, space.., channels]; `window` has one size per space dimension. As in Flax, avg_pool
/// divides by the size of the window, including padding.
Array max_pool(Operand x, std::vector<std::int64_t> window, std::vector<std::int64_t> strides = {},
               const Padding& padding = "VALID");
Array min_pool(Operand x, std::vector<std::int64_t> window, std::vector<std::int64_t> strides = {},
               const Padding& padding = "VALID");
Array avg_pool(Operand x, std::vector<std::int64_t> window, std::vector<std::int64_t> strides = {},
               const Padding& padding = "VALID");

// --- what layers are made of

namespace nn {

/// What differs in training.
struct Mode {
  std::optional<Key> dropout_key;  // empty: no dropout
  bool is_training = false;        // whether BatchNorm reads the batch and updates its buffers
  static Mode eval() { return {}; }
  static Mode train() { return {.dropout_key = {}, .is_training = true}; }
  static Mode train(Key key) { return {.dropout_key = std::move(key), .is_training = true}; }
  TESSERA_TREE(dropout_key, is_training)
};

/// A function of one array, used as a layer.
class Map {
 public:
  Map(Array (*function)(Operand));       // NOLINT(google-explicit-constructor)
  Map(Array (*function)(const Array&));  // NOLINT(google-explicit-constructor)
  Map(Array (*function)(Array));         // NOLINT(google-explicit-constructor)
  /// An object without state, such as gelu or a lambda without captures.
  template <typename F>
  requires(std::is_empty_v<F>&& std::is_default_constructible_v<F>) Map(F)  // NOLINT
      : call_(call<F>) {}
  Array operator()(Operand x) const { return call_(function_, x); }
  std::string tessera_key() const;

 private:
  using Any = void (*)();
  template <typename F>
  static Array call(Any, const Operand& x) {
    if constexpr (std::is_invocable_r_v<Array, F, Operand>)
      return F()(x);
    else
      return F()(x.array);
  }
  Any function_ = nullptr;
  Array (*call_)(Any, const Operand&);
};
template <typename F, typename... M>
concept MapsArray = std::is_invocable_r_v<Array, F, Operand, M...> ||
    std::is_invocable_r_v<Array, F, const Array&, M...>;
/// The layer that Sequential makes of an argument: a Map for a function, else the argument itself.
template <typename T>
using LayerOf = std::conditional_t<MapsArray<T&> && !MapsArray<T&, const Mode&> &&
                                       !tessera::detail::HasWalk<T> && std::convertible_to<T, Map>,
                                   Map, T>;
/// Calls the layer, with `mode` if it takes one. Without a mode, the layer is not in training.
template <typename Layer, typename... M>
Array call_layer(Layer& layer, const Operand& x, const M&... mode) {
  if constexpr (std::is_invocable_r_v<Array, Layer&, Operand, const M&...>) {
    return layer(x, mode...);
  } else if constexpr (std::is_invocable_r_v<Array, Layer&, const Array&, const M&...>) {
    return layer(x.array, mode...);
  } else if constexpr (sizeof...(M) > 0) {
    return call_layer(layer, x);
  } else {
    static_assert(
        MapsArray<Layer&, Mode>,
        "a layer is called as layer(x) or layer(x, mode), where x is an Operand or a const "
        "Array&, and returns an Array. A function with more arguments is wrapped in a "
        "lambda. In a const model, the call operator must be const.");
    return call_layer(layer, x, Mode::eval());
  }
}

/// softmax(q k^T / sqrt(D)) v: q [B,T,H,D], k and v [B,S,H,D] -> [B,T,H,D]; the softmax is f32.
Array dot_product_attention(Operand q, Operand k, Operand v, bool is_causal = false);
/// PE[pos, 2i] = sin(pos f_i), PE[pos, 2i+1] = cos(pos f_i), f_i = 10000^(-2i / width).
Array sinusoidal_positions(std::int64_t length, std::int64_t width,
                           std::source_location where = std::source_location::current());

struct SamplingOptions {
  double temperature = 1;  // 0: always the most likely token
  std::int64_t top_k = 0;  // only the k most likely tokens; 0: all
  double top_p = 1;        // of these, only the most likely, until their sum reaches this
};
/// One token for each row: logits [..,V] -> i32 [..].
Array sample(const Key& key, Operand logits, const SamplingOptions& options = {});

}  // namespace nn

}  // namespace tessera
