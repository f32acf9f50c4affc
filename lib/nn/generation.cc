// Draws tokens from logits.
#include <limits>
#include <sstream>

#include <tessera/error.h>
#include <tessera/nn.h>

namespace tessera::nn {

namespace {

void check_sampling(const SamplingOptions& options, const std::source_location& where) {
  const auto refuse = [&](const std::string& found, const std::string& wanted,
                          const std::string& cure) {
    throw UserError({.what = "sample: the options are not valid",
                     .where = where,
                     .found = found,
                     .wanted = wanted,
                     .cure = cure});
  };
  const auto text = [](const char* name, double value) {
    std::ostringstream out;
    out << name << " = " << value;
    return out.str();
  };
  if (!(options.temperature >= 0 && options.temperature < 1e30)) {
    refuse(text("temperature", options.temperature), "a number of at least 0",
           "choose 1 for the probabilities of the model, 0 for the most likely token");
  }
  if (options.top_k < 0) {
    refuse("top_k = " + std::to_string(options.top_k), "a number of at least 0",
           "choose 0 for all tokens");
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    refuse(text("top_p", options.top_p), "a probability above 0 and at most 1",
           "choose 1 for all tokens");
  }
}

/// Logits below `least` [..,1] become -infinity.
Array without_less(const Array& logits, const Array& least) {
  return where(less(logits, least), -std::numeric_limits<float>::infinity(), logits);
}

/// The smallest logit that belongs to the most likely tokens with probability top_p together, of
/// logits in descending order: the first token, and all that follow less than top_p.
Array least_of_top_p(const Array& sorted, double top_p) {
  const Array shares = softmax(sorted);
  const Array before = cumsum(shares) - shares;
  const Array first = equal(iota(sorted.shape(), sorted.rank() - 1), 0);
  const Array is_kept = logical_or(first, less(before, top_p));
  return min(where(is_kept, sorted, std::numeric_limits<float>::infinity()), -1, keepdims);
}

}  // namespace

Array sample(const Key& key, Operand logits, const SamplingOptions& options) {
  const CallScope call(logits.where);
  check_sampling(options, logits.where);
  // Dividing by less would make all large logits infinite.
  constexpr double kLeastTemperature = 1e-30;
  if (options.temperature < kLeastTemperature) return argmax(logits.array);
  Array x = astype(logits.array, DType::f32) / options.temperature;
  const bool has_top_k = options.top_k > 0 && options.top_k < x.dim(-1);
  if (has_top_k || options.top_p < 1) {
    const Array sorted = has_top_k ? top_k(x, options.top_k).first : reverse(sort(x), -1);
    x = without_less(x, options.top_p < 1 ? least_of_top_p(sorted, options.top_p)
                                          : sorted.slice(-1, sorted.dim(-1) - 1));
  }
  return random::categorical(key, x);
}

}  // namespace tessera::nn
