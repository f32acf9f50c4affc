// Reductions over windows that slide along an array: pooling.
#include <map>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

const Ints& steps_of(const ShapeContext& c, std::string_view attribute) {
  const Ints& steps = ints_of(c, attribute);
  bool fits = steps.size() == c.operands[0].shape.size();
  for (std::int64_t step : steps) fits = fits && step >= 1;
  if (fits) return steps;
  c.fail(std::string(attribute) + " = " + tessera::to_string(steps) + " does not match the array",
         "one entry of 1 or more per dimension", "write 1 for dimensions without a window");
}

std::vector<Type> window_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const Ints& window = steps_of(c, "window");
  const Ints& stride = steps_of(c, "stride");
  Type result = c.operands[0];
  for (std::size_t i = 0; i < window.size(); ++i) {
    const std::int64_t room = result.shape[i] - window[i];
    if (room < 0) {
      c.fail("a window of " + std::to_string(window[i]) + " elements does not fit in dimension " +
                 std::to_string(i),
             "at most " + std::to_string(result.shape[i]) + " elements",
             "use a smaller window, or pad the array first");
    }
    result.shape[i] = room / stride[i] + 1;
  }
  return {result};
}

/// Each element gets the sum of the cotangents of all windows that contain it.
ValueId window_sum_vjp(VjpContext& c) {
  const Ints window = c.equation.attributes.ints("window");
  const Ints stride = c.equation.attributes.ints("stride");
  Shape padded = c.operand_type(0).shape;
  Ints low;
  for (std::size_t i = 0; i < window.size(); ++i) {
    low.push_back(window[i] - 1);
    padded[i] += low[i];
  }
  const ValueId spread = spread_in_zeros(c.b, c.cotangent(), stride, low, padded);
  const Ints one_by_one(window.size(), 1);
  return c.b.emit("reduce_window_sum", {{"stride", one_by_one}, {"window", window}}, {spread});
}

/// The cotangents of windows, by the position in the window that takes them.
using Parts = std::map<Ints, ValueId>;

/// The gradient of the array: element p * stride + q gets what position q of window p takes. The
/// elements of one phase, with the same index modulo `stride`, are summed together: no zeros are
/// added for positions that never meet them.
class PhaseSums {
 public:
  PhaseSums(Builder& b, const Parts& parts, const Attributes& attributes, const Shape& shape)
      : b_(b), parts_(parts), stride_(attributes.ints("stride")), shape_(shape) {}

  ValueId interleaved() {
    Ints phase;
    const ValueId all = from_dim(phase);
    return slice(b_, all, Ints(shape_.size(), 0), shape_);
  }

 private:
  /// The elements of the phases whose first indices are given, side by side.
  ValueId from_dim(Ints& phase) {
    const std::size_t dim = phase.size();
    if (dim == shape_.size()) return sum_of(phase);
    std::vector<ValueId> sums;
    for (std::int64_t i = 0; i < stride_[dim]; ++i) {
      phase.push_back(i);
      sums.push_back(from_dim(phase));
      phase.pop_back();
    }
    if (sums.size() == 1) return sums[0];
    Shape apart = b_.type(sums[0]).shape;
    Shape merged = apart;
    merged[dim] *= stride_[dim];
    apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 1);
    for (ValueId& sum : sums) sum = reshape(b_, sum, apart);
    return reshape(b_, concatenate(b_, sums, static_cast<std::int64_t>(dim) + 1), merged);
  }

  /// In row-major order of the window.
  ValueId sum_of(const Ints& phase) {
    const Type type = b_.type(parts_.begin()->second);
    Shape size;
    for (std::size_t i = 0; i < shape_.size(); ++i)
      size.push_back((shape_[i] + stride_[i] - 1) / stride_[i]);
    ValueId total = ir::kNoValue;
    for (const auto& [place, part] : parts_) {
      Ints low, high;
      bool meets = true;
      for (std::size_t i = 0; i < phase.size(); ++i) {
        meets = meets && place[i] % stride_[i] == phase[i];
        low.push_back(place[i] / stride_[i]);
        high.push_back(size[i] - type.shape[i] - low[i]);
      }
      if (!meets) continue;
      const ValueId moved = pad(b_, part, scalar(b_, 0.0, type.dtype), low, high);
      total = total == ir::kNoValue ? moved : add(b_, total, moved);
    }
    return total == ir::kNoValue ? full(b_, 0.0, {type.dtype, size}) : total;
  }

  Builder& b_;
  const Parts& parts_;
  Ints stride_;
  Shape shape_;
};

/// The first element of a window that equals its extreme gets the cotangent.
ValueId window_extreme_vjp(VjpContext& c) {
  Builder& b = c.b;
  const Ints window = c.equation.attributes.ints("window");
  const Ints stride = c.equation.attributes.ints("stride");
  const ValueId extreme = c.result();
  const ValueId zero = full_like(b, 0.0, extreme);
  const Shape shape = b.type(extreme).shape;
  ValueId is_taken = full(b, 0.0, boolean(shape));
  Parts parts;
  for_each_index(window, [&](const Ints& place) {
    Ints limit;
    for (std::size_t i = 0; i < place.size(); ++i) {
      limit.push_back(place[i] + (shape[i] - 1) * stride[i] + 1);
    }
    const ValueId candidate = slice(b, c.operand(0), place, limit, stride);
    const ValueId is_equal = compare(b, "eq", candidate, extreme);
    const ValueId is_first = bitwise_and(b, is_equal, bitwise_not(b, is_taken));
    is_taken = bitwise_or(b, is_taken, is_equal);
    parts.emplace(place, select(b, is_first, c.cotangent(), zero));
  });
  return PhaseSums(b, parts, c.equation.attributes, c.operand_type(0).shape).interleaved();
}

std::vector<ValueId> window_batch(BatchContext& c) {
  Attributes attributes = c.equation.attributes;
  for (const char* name : {"stride", "window"}) {
    Ints steps = attributes.ints(name);
    steps.insert(steps.begin(), 1);
    attributes.set(name, steps);
  }
  return c.b.emit_all(*c.equation.op, attributes, {c.batched(0)});
}

Factors window_factors(const Attributes& attributes, const std::vector<Type>& operands,
                       const std::vector<Type>& results) {
  Factors f;
  f.results = {add_dims(f, results[0].shape)};
  f.operands = {f.results[0]};
  for (std::size_t i = 0; i < operands[0].shape.size(); ++i) {
    const std::int64_t window = attributes.ints("window")[i];
    const std::int64_t stride = attributes.ints("stride")[i];
    if (window == 1 && stride == 1) continue;
    add_window(f, {.operand = 0,
                   .dim = i,
                   .size = operands[0].shape[i],
                   .offset = 0,
                   .terms = {{.factor = f.results[0][i][0], .step = stride}},
                   .extent = window});
  }
  return f;
}

template <typename Combine>
Reference window_reference(Combine combine) {
  return [combine](const ReferenceContext& c) {
    HostArray result(c.results[0]);
    const Ints& window = c.attributes.ints("window");
    const auto strides = row_major_strides(c.operands[0]->type().shape);
    Ints moves = strides;
    for (std::size_t i = 0; i < moves.size(); ++i) moves[i] *= c.attributes.ints("stride")[i];
    Numbers::visit(c.results[0].dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto x = c.operands[0]->data<T>();
      std::size_t n = 0;
      for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
        const std::size_t base = offset_of(moves, index);
        bool is_first = true;
        T value{};
        for_each_index(window, [&](const std::vector<std::int64_t>& place) {
          const T element = x[base + offset_of(strides, place)];
          value = is_first ? element : combine(value, element);
          is_first = false;
        });
        result.data<T>()[n++] = value;
      });
    });
    return one_result(std::move(result));
  };
}

double window_cost(const Attributes& attributes, const std::vector<Type>&,
                   const std::vector<Type>& results) {
  return static_cast<double>(num_elements(results[0].shape) *
                             num_elements(attributes.ints("window")));
}

Sample window_sample(Type operand, Ints window, Ints stride) {
  return {.operands = {{std::move(operand)}},
          .attributes = {{"stride", std::move(stride)}, {"window", std::move(window)}}};
}

Samples window_samples() {
  return {window_sample(f32({3, 6, 5, 2}), {1, 2, 2, 1}, {1, 2, 2, 1}),
          window_sample(f32({2, 7, 1, 3}), {1, 3, 1, 1}, {1, 1, 1, 1}),
          window_sample(f32({10, 6}), {3, 1}, {2, 2}),
          window_sample(f32({5, 1}), {5, 1}, {1, 1}),
          window_sample(f32({}), {}, {}),
          window_sample(i32({3, 9}), {1, 4}, {1, 3})};
}

Samples extreme_samples() {
  Samples samples = window_samples();
  samples.push_back(window_sample(bf16({3, 6, 5}), {1, 2, 2}, {1, 2, 2}));
  return samples;
}

}  // namespace

const OpRecord reduce_window_max_op{
    .name = "reduce_window_max",
    .doc =
        "The greatest element of every window that lies inside the array; windows are `stride` "
        "apart. NaN wins and -0 < +0. The first of equal elements takes the cotangent.",
    .source = "StableHLO, reduce_window, without padding and dilation",
    .attributes = AttributeNames{"stride", "window"},
    .types = TypeSet::numbers,
    .shape = window_shape,
    .vjp = per_operand({window_extreme_vjp}),
    .batch = window_batch,
    .factors = window_factors,
    .host = kernel("reduce_window"),
    .stablehlo = hlo::reduce_window_form("maximum"),
    .reference = window_reference([](auto x, auto y) { return greater_of(x, y); }),
    .cost = window_cost,
    .samples = extreme_samples(),
};

const OpRecord reduce_window_min_op{
    .name = "reduce_window_min",
    .doc =
        "The least element of every window that lies inside the array; windows are `stride` apart. "
        "NaN wins and -0 < +0. The first of equal elements takes the cotangent.",
    .source = "StableHLO, reduce_window, without padding and dilation",
    .attributes = AttributeNames{"stride", "window"},
    .types = TypeSet::numbers,
    .shape = window_shape,
    .vjp = per_operand({window_extreme_vjp}),
    .batch = window_batch,
    .factors = window_factors,
    .host = kernel("reduce_window"),
    .stablehlo = hlo::reduce_window_form("minimum"),
    .reference = window_reference([](auto x, auto y) { return lesser_of(x, y); }),
    .cost = window_cost,
    .samples = extreme_samples(),
};

const OpRecord reduce_window_sum_op{
    .name = "reduce_window_sum",
    .doc =
        "The sum of every window that lies inside the array, added in row-major order of the "
        "window; windows are `stride` apart. Integers wrap around.",
    .source = "StableHLO, reduce_window, without padding and dilation",
    .attributes = AttributeNames{"stride", "window"},
    .types = TypeSet::wide_numbers,
    .shape = window_shape,
    .vjp = per_operand({window_sum_vjp}),
    .batch = window_batch,
    .factors = window_factors,
    .host = kernel("reduce_window"),
    .stablehlo = hlo::reduce_window_form("add"),
    .reference = window_reference([](auto x, auto y) { return wrapping_add(x, y); }),
    .cost = window_cost,
    .samples = window_samples(),
};

OpFamily reduce_window_ops() {
  return {&reduce_window_max_op, &reduce_window_min_op, &reduce_window_sum_op};
}

}  // namespace tessera::ops
