// Cross-entropies with derivatives of their own. Per row,
//   loss = lse - logit of the label,  d logits = (softmax - one_hot(label)) d loss,
// so that logits and lse are all that the derivative reads, and it may write where the logits lie.
// Classes are read in blocks: a region computes whole rows of a block in one pass, and a block can
// be made again. The sums of the blocks are joined relative to the greatest logit.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include <tessera/functions.h>
#include <tessera/transform.h>

#include "api/operands.h"

namespace tessera {

using detail::as_array;

namespace {

/// The classes that a region reduces in one pass, at most.
constexpr std::int64_t kRow = 4096;
/// More classes than that are cut into this many groups, if their number can be divided: a mesh
/// that splits the classes splits the groups.
constexpr std::int64_t kMaxGroups = 16;

/// The same run of classes of each group.
struct Block {
  std::int64_t first;
  std::int64_t last;
};

/// The dtype that losses of these logits have. f64 stays, and all others are too narrow.
DType wide(DType logits) { return logits == DType::f64 ? logits : DType::f32; }

/// Copies that no pass takes for the originals: what is made of them is made again, and after all
/// that stands in front.
std::vector<Array> again(const std::vector<Array>& arrays) {
  return detail::emit_all("optimization_barrier", arrays);
}

/// The labels [..] of rows, and how their classes are cut: logits are [..,groups,classes].
class Labels {
 public:
  Labels(Array labels, std::int64_t num_classes)
      : labels_(std::move(labels)),
        num_groups_(num_classes > kRow ? std::gcd(num_classes, kMaxGroups) : 1),
        group_(num_classes / num_groups_) {
    places_ = expand_dims(labels_, -1);
    if (num_groups_ == 1) return;
    Shape shape = labels_.shape();
    shape.push_back(num_groups_);
    places_ = places_ - iota(shape, -1, DType::i32) * group_;
  }
  /// What blocks share is computed in front of them: otherwise a region that computes it would hold
  /// all blocks at once.
  Labels in_front() const {
    Labels labels = *this;
    labels.places_ = again({places_})[0];
    return labels;
  }

  /// The last dimension as groups of classes.
  Array grouped(const Array& x) const {
    Shape shape = x.shape();
    shape.back() = num_groups_;
    shape.push_back(group_);
    return reshape(x, shape);
  }
  Block all() const { return {.first = 0, .last = group_}; }
  /// Blocks with at most `most` classes of each group.
  std::vector<Block> blocks(std::int64_t most) const {
    const std::int64_t count = std::max<std::int64_t>(1, (group_ + most - 1) / most);
    std::vector<Block> blocks;
    for (std::int64_t i = 0; i < count; ++i) {
      blocks.push_back({i * group_ / count, (i + 1) * group_ / count});
    }
    return blocks;
  }
  /// Blocks with at most kRow classes of all groups.
  std::vector<Block> small_blocks() const { return blocks(kRow / num_groups_); }

  struct Losses {
    Array loss;
    Array lse;  // log(sum(exp(logits)))
  };
  /// `logits_of` gives the logits of a block.
  Losses losses(const std::vector<Block>& blocks,
                const std::function<Array(const Block&)>& logits_of) const {
    std::vector<Part> parts;
    for (const Block& block : blocks) parts.push_back(part_of(block, logits_of(block)));
    return parts.size() == 1 && num_groups_ == 1 ? whole(parts[0]) : joined(parts);
  }

  /// The cotangent of the losses, and 0 where the label is no class.
  Array scale(const Array& cotangent) const { return counted(cotangent); }
  /// The cotangent of the logits of a block.
  Array logits_cotangent(const Array& logits, const Block& block, const Array& lse,
                         const Array& scale) const {
    const auto of_rows = [](const Array& x) { return expand_dims(expand_dims(x, -1), -1); };
    const Array s = astype(logits, wide(logits.dtype()));
    const Array one_hot = astype(is_label(block, s.shape()), s.dtype());
    return astype((exp(s - of_rows(lse)) - one_hot) * of_rows(scale), logits.dtype());
  }

 private:
  /// What is known of rows from one block: [..,groups,1].
  struct Part {
    Array highest;  // logit
    Array sum;      // of exp(logits - highest)
    Array found;    // the logit of the label - highest, or 0
    Array holds;    // whether the label is in the block
  };
  Part part_of(const Block& block, const Array& logits) const {
    const Array s = astype(logits, wide(logits.dtype()));
    const Array highest = max(s, -1, keepdims);
    const Array shifted = s - finite(highest);
    return {.highest = highest,
            .sum = sum(exp(shifted), -1, keepdims),
            .found = sum(where(is_label(block, s.shape()), shifted, 0), -1, keepdims),
            .holds = expand_dims(is_within(block), -1)};
  }
  Losses joined(const std::vector<Part>& parts) const {
    const auto all_of = [&](Array Part::*member) {
      std::vector<Array> list;
      for (const Part& part : parts) list.push_back(part.*member);
      return concatenate(list, -1);
    };
    const Axes all = {-2, -1};
    const Array highest = all_of(&Part::highest);
    const Array base = finite(max(highest, all, keepdims));
    const Array log_sum = log(sum(all_of(&Part::sum) * exp(highest - base), all, keepdims));
    const Array losses = log_sum + (base - finite(highest)) - all_of(&Part::found);
    return {.loss = sum(where(all_of(&Part::holds), losses, 0), all),
            .lse = squeeze(log_sum + base, all)};
  }
  /// The same for a single part, so that its rows need no second reduction.
  Losses whole(const Part& part) const {
    const Axes all = {-2, -1};
    const Array log_sum = log(part.sum);
    return {.loss = counted(squeeze(log_sum - part.found, all)),
            .lse = squeeze(log_sum + finite(part.highest), all)};
  }
  /// x [..] where the label is a class, otherwise 0.
  Array counted(const Array& x) const {
    return where(logical_and(greater_equal(labels_, 0), less(labels_, num_groups_ * group_)), x, 0);
  }
  /// bool [..,groups,classes]
  Array is_label(const Block& block, const Shape& shape) const {
    return equal(expand_dims(places_ - block.first, -1), iota(shape, -1, DType::i32));
  }
  /// bool [..,groups]
  Array is_within(const Block& block) const {
    return logical_and(greater_equal(places_, block.first), less(places_, block.last));
  }
  /// Infinite maxima would give inf - inf.
  static Array finite(const Array& x) { return where(is_finite(x), x, 0); }

  Array labels_;
  Array places_;  // i32 [..,groups]: the labels, counted from the first class of each group
  std::int64_t num_groups_;
  std::int64_t group_;  // classes of a group
};

Array checked_labels(const char* op, const Operand& labels, const Array& rows) {
  const Array list = as_array(op, labels);
  const Shape wanted(rows.shape().begin(), rows.shape().end() - (rows.rank() == 0 ? 0 : 1));
  if (rows.rank() == 0 || list.dtype() != DType::i32 || list.shape() != wanted) {
    detail::fail(op, "the labels do not match the rows",
                 detail::describe(list) + " for " + detail::describe(rows),
                 "i32 labels with every dimension of the rows but the last",
                 "pass the index of the correct class of each row");
  }
  return list;
}

void check_kernel(const char* op, const Array& kernel, const Array& rows) {
  if (kernel.rank() == 2 && kernel.dim(0) == rows.dim(-1)) return;
  detail::fail(op, "the kernel does not match the rows",
               detail::describe(kernel) + " for " + detail::describe(rows),
               "rows [..,F] and a kernel [F,C]", "transpose a table [C,F] first");
}

/// Logits x kernel and their derivatives, a block of classes at a time.
struct LinearLogits {
  Array x;       // [..,F]
  Array kernel;  // [F,groups,classes]

  Array kernel_of(const Block& block) const { return kernel.slice(2, block.first, block.last); }
  Array operator()(const Block& block) const {
    return dot_general(x, kernel_of(block), {{x.rank() - 1}, {0}});
  }
  /// Of x and kernel.
  std::pair<Array, Array> cotangents(const Labels& labels, const Array& lse,
                                     const Array& scale) const {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i + 1 < x.rank(); ++i) rows.push_back(i);
    Array of_x;
    std::vector<Array> of_kernel;
    for (const Block& block : labels.small_blocks()) {
      const Array d = labels.logits_cotangent((*this)(block), block, lse, scale);
      const Array term = dot_general(d, kernel_of(block), {{x.rank() - 1, x.rank()}, {1, 2}});
      of_x = of_x.is_empty() ? term : of_x + term;
      of_kernel.push_back(dot_general(x, d, {rows, rows}));
    }
    return {of_x, concatenate(of_kernel, 2)};
  }
};

}  // namespace

Array cross_entropy(Operand logits, Operand labels, double label_smoothing) {
  return detail::public_op(logits.where, [&] {
    const char* const name = "cross_entropy";
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
      detail::fail(name, "the label smoothing is out of range", fmt::format("{}", label_smoothing),
                   "a number from 0 to 1", "pass for example 0.1");
    }
    const Array rows = as_array(name, logits);
    const Labels of_rows(checked_labels(name, labels, rows), rows.dim(-1));
    const auto forward = [=](const Array& x) {
      const Array groups = of_rows.grouped(x);
      const auto [loss, lse] = of_rows.losses(of_rows.blocks(kRow), [&](const Block& block) {
        return groups.slice(-1, block.first, block.last);
      });
      return std::pair(loss, std::tuple(x, lse));
    };
    const auto backward = [=](const std::tuple<Array, Array>& saved, const Array& cotangent) {
      const auto& [x, lse] = saved;
      const Array groups = of_rows.grouped(x);
      return reshape(of_rows.logits_cotangent(groups, of_rows.all(), lse, of_rows.scale(cotangent)),
                     x.shape());
    };
    const Array loss =
        custom_vjp([=](const Array& x) { return forward(x).first; }, forward, backward)(rows);
    if (label_smoothing == 0) return loss;
    // The mean over all classes of -log(softmax).
    const Array s = astype(rows, wide(rows.dtype()));
    const Array of_all = of_rows.scale(logsumexp(s, -1) - mean(s, -1));
    return loss * (1.0 - label_smoothing) + of_all * label_smoothing;
  });
}

Array sigmoid_binary_cross_entropy(Operand logits, Operand labels) {
  const CallScope scope(logits.where);
  return softplus(logits) - logits * labels;
}

Array huber_loss(Operand predictions, Operand targets, double delta) {
  const CallScope scope(predictions.where);
  if (!(delta > 0)) {
    detail::fail("huber_loss", "delta is not valid", fmt::format("delta = {}", delta),
                 "a number above 0",
                 "choose the error at which the loss becomes linear, such as 1");
  }
  const Array error = predictions - targets;
  // Without abs, whose derivative is 0 at 0, the second derivative is right there too.
  const Array clipped = clamp(-delta, error, delta);
  return clipped * (error - clipped * 0.5);
}

Array kl_divergence(Operand log_predictions, Operand targets) {
  return detail::public_op(log_predictions.where, [&] {
    const Array p = as_array("kl_divergence", log_predictions);
    const Array t = as_array("kl_divergence", targets);
    const Array is_zero = equal(t, 0);
    const Array log_t = where(is_zero, 0, log(where(is_zero, 1, t)));
    return sum(t * (log_t - p), -1);
  });
}

Array cosine_similarity(Operand a, Operand b, double epsilon) {
  return detail::public_op(a.where, [&] {
    const auto unit = [&](const Operand& x) {
      const Array v = as_array("cosine_similarity", x);
      return v / maximum(norm(v, -1, keepdims), epsilon);
    };
    return sum(unit(a) * unit(b), -1);
  });
}

Array hinge_loss(Operand predictions, Operand targets) {
  const CallScope scope(predictions.where);
  return maximum(1.0 - predictions * targets, 0.0);
}

Array triplet_margin_loss(Operand anchors, Operand positives, Operand negatives, double margin,
                          double epsilon) {
  return detail::public_op(anchors.where, [&] {
    const char* const name = "triplet_margin_loss";
    const DType dtype = detail::common_dtype(name, {anchors, positives, negatives});
    const Array from = as_array(name, anchors, dtype);
    const auto distance = [&](const Operand& to) {
      return sqrt(sum(square(from - as_array(name, to, dtype)), -1) + epsilon);
    };
    return maximum(distance(positives) - distance(negatives) + margin, 0.0);
  });
}

Array linear_cross_entropy(Operand x, Operand kernel, Operand labels) {
  return detail::public_op(x.where, [&] {
    const char* const name = "linear_cross_entropy";
    const DType dtype = detail::common_dtype(name, {x, kernel});
    const Array rows = as_array(name, x, dtype);
    const Array matrix = as_array(name, kernel, dtype);
    const Array list = checked_labels(name, labels, rows);
    check_kernel(name, matrix, rows);
    const Labels of_rows = Labels(list, matrix.dim(1)).in_front();
    const auto forward = [=](const Array& a, const Array& b) {
      const LinearLogits logits{a, of_rows.grouped(b)};
      const auto [loss, lse] = of_rows.losses(of_rows.small_blocks(), logits);
      return std::pair(loss, std::tuple(a, b, lse));
    };
    const auto backward = [=](const std::tuple<Array, Array, Array>& saved,
                              const Array& cotangent) {
      const auto& [a, b, lse] = saved;
      const Labels of_late = of_rows.in_front();
      const std::vector<Array> late = again({a, b, lse, of_rows.scale(cotangent)});
      const LinearLogits logits{late[0], of_rows.grouped(late[1])};
      const auto [of_x, of_kernel] = logits.cotangents(of_late, late[2], late[3]);
      return std::tuple(of_x, reshape(of_kernel, b.shape()));
    };
    const auto primal = [=](const Array& a, const Array& b) { return forward(a, b).first; };
    return custom_vjp(primal, forward, backward)(rows, matrix);
  });
}

}  // namespace tessera
