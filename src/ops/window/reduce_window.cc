// Reductions over windows that slide along an array: pooling.
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"
#include "ops/window/windows.h"

namespace tessera::ops {

namespace {

const Ints& steps_of(const ShapeContext& c, std::string_view attribute, std::size_t rank) {
  const Ints& steps = ints_of(c, attribute);
  bool fits = steps.size() == rank;
  for (std::int64_t step : steps) fits = fits && step >= 1;
  if (fits) return steps;
  c.fail(std::string(attribute) + " = " + tessera::to_string(steps) + " does not match the array",
         "one entry of 1 or more per dimension", "write 1 for dimensions without a window");
}

}  // namespace

void expect_windows(const ShapeContext& c, std::size_t rank) {
  for (const char* attribute : {"window", "stride"}) (void)steps_of(c, attribute, rank);
}

Shape windows_of(const ShapeContext& c, Shape array) {
  const Ints& window = steps_of(c, "window", array.size());
  const Ints& stride = steps_of(c, "stride", array.size());
  for (std::size_t i = 0; i < window.size(); ++i) {
    if (array[i] == 0 && window[i] == 1) continue;  // an empty batch
    const std::int64_t room = array[i] - window[i];
    if (room < 0) {
      c.fail("a window of " + std::to_string(window[i]) + " elements does not fit in dimension " +
                 std::to_string(i),
             "at most " + std::to_string(array[i]) + " elements",
             "use a smaller window, or pad the array first");
    }
    array[i] = room / stride[i] + 1;
  }
  return array;
}

void add_windows_of(Factors& factors, const Attributes& attributes, const Shape& array) {
  for (std::size_t i = 0; i < array.size(); ++i) {
    const std::int64_t window = attributes.ints("window")[i];
    const std::int64_t stride = attributes.ints("stride")[i];
    if (window == 1 && stride == 1) continue;
    add_window(factors, {.operand = 0,
                         .dim = i,
                         .size = array[i],
                         .offset = 0,
                         .terms = {{.factor = factors.results[0][i][0], .step = stride}},
                         .extent = window});
  }
}

double window_cost(const Attributes& attributes, const std::vector<Type>&,
                   const std::vector<Type>& results) {
  return static_cast<double>(num_elements(results[0].shape) *
                             num_elements(attributes.ints("window")));
}

namespace {

std::vector<Type> window_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  return {{c.operands[0].dtype, windows_of(c, c.operands[0].shape)}};
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

/// The first element of a window that equals its extreme gets the cotangent.
ValueId window_extreme_vjp(VjpContext& c) {
  const Ints window = c.equation.attributes.ints("window");
  const Ints stride = c.equation.attributes.ints("stride");
  const ValueId numbers = c.b.emit("find_in_windows", {{"stride", stride}, {"window", window}},
                                   {c.operand(0), c.result()});
  return c.b.emit("spread_from_windows",
                  {{"low", Ints(window.size(), 0)},
                   {"shape", c.operand_type(0).shape},
                   {"stride", stride},
                   {"window", window}},
                  {numbers, c.cotangent()});
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
  add_windows_of(f, attributes, operands[0].shape);
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
    .pattern = Pattern::opaque,
    .host = "reduce_window",
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
    .pattern = Pattern::opaque,
    .host = "reduce_window",
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
    .pattern = Pattern::opaque,
    .host = "reduce_window",
    .stablehlo = hlo::reduce_window_form("add"),
    .reference = window_reference([](auto x, auto y) { return wrapping_add(x, y); }),
    .cost = window_cost,
    .samples = window_samples(),
};

OpFamily reduce_window_ops() {
  return {&reduce_window_max_op, &reduce_window_min_op, &reduce_window_sum_op};
}

}  // namespace tessera::ops
