// Second moments kept as means of rows and of columns.
#include <algorithm>
#include <numeric>

#include "optim/parts.h"

namespace tessera::optim::detail {

namespace {

/// The largest dimension and the second largest one; of equal ones the later comes first.
struct LargestDims {
  std::int64_t first, second;
};

class FactoredRms final : public Optimizer::Rule {
 public:
  explicit FactoredRms(const AdafactorOptions& options) : o_(options) {}

  /// v_row does not have the largest dimension, v_col not the second largest.
  std::vector<Optimizer::Slot> slots(const Param& parameter) const override {
    const std::optional<LargestDims> dims = factored_dims(parameter.shape());
    if (!dims) return {{"v"}};
    return {{"v_row", {dims->first}}, {"v_col", {dims->second}}};
  }

  std::vector<Array> common(const Array& done,
                            const std::vector<Array>& /*updates*/) const override {
    const Array step = astype(done - o_.decay_offset + 1, DType::f32);
    const Array decay = 1.0 - pow(step, -o_.decay_rate);
    return {decay, 1.0 - decay};
  }

  Array update(const Optimizer::Leaf& leaf, const Array& gradient) const override {
    const Array squares = square(gradient) + o_.epsilon;
    const std::optional<LargestDims> dims = factored_dims(gradient.shape());
    const auto moved = [&](Array& kept, const Array& now) {
      kept = kept * leaf.common[0] + now * leaf.common[1];
      return kept;
    };
    if (!dims) return gradient * rsqrt(moved(leaf.slots[0], squares));
    const Array rows = moved(leaf.slots[0], mean(squares, dims->first));
    const Array columns = moved(leaf.slots[1], mean(squares, dims->second));
    const std::int64_t second = dims->second - (dims->second > dims->first ? 1 : 0);
    const Array row_factor = rsqrt(rows / mean(rows, second, keepdims));
    return gradient * expand_dims(row_factor, dims->first) *
           expand_dims(rsqrt(columns), dims->second);
  }

  std::string key() const override {
    return "factored rms " + text(o_.decay_rate) + " " + std::to_string(o_.decay_offset) + " " +
           std::to_string(o_.min_dim_size_to_factor) + " " + text(o_.epsilon);
  }

 private:
  std::optional<LargestDims> factored_dims(const Shape& shape) const {
    if (shape.size() < 2) return {};
    std::vector<std::int64_t> dims(shape.size());
    std::iota(dims.begin(), dims.end(), 0);
    std::stable_sort(dims.begin(), dims.end(), [&](std::int64_t a, std::int64_t b) {
      return shape[static_cast<std::size_t>(a)] < shape[static_cast<std::size_t>(b)];
    });
    const LargestDims largest{.first = dims.back(), .second = dims[dims.size() - 2]};
    if (shape[static_cast<std::size_t>(largest.second)] < o_.min_dim_size_to_factor) return {};
    return largest;
  }

  AdafactorOptions o_;
};

}  // namespace

Optimizer scale_by_factored_rms(const AdafactorOptions& options) {
  return make<FactoredRms>(options);
}

}  // namespace tessera::optim::detail
