// Elements that windows select: finding where they are, and spreading what windows give back to
// them.
#include <algorithm>
#include <cstdlib>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"
#include "ops/window/windows.h"

namespace tessera::ops {

namespace {

/// The element of an array that has this place in a window.
Ints element_of(const Attributes& attributes, const Ints& window, const Ints& place) {
  Ints element;
  for (std::size_t i = 0; i < place.size(); ++i)
    element.push_back(window[i] * attributes.ints("stride")[i] + place[i]);
  return element;
}

/// From the element that the first of `windows` has at `place` to that of the last.
Ints limit_of(const Attributes& attributes, const Shape& windows, const Ints& place) {
  Ints last;
  for (const std::int64_t size : windows) last.push_back(size - 1);
  Ints limit = element_of(attributes, last, place);
  for (std::int64_t& index : limit) ++index;
  return limit;
}

// --- find_in_windows

std::vector<Type> find_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  const Type wanted{c.operands[0].dtype, windows_of(c, c.operands[0].shape)};
  if (c.operands[1] != wanted) {
    c.fail("the elements to find do not match the windows",
           tessera::to_string(wanted) + ", one element per window", "reshape or convert them");
  }
  return {{DType::i32, wanted.shape}};
}

std::vector<ValueId> find_batch(BatchContext& c) {
  Attributes attributes = c.equation.attributes;
  for (const char* name : {"stride", "window"})
    attributes.set(name, with_first(1, attributes.ints(name)));
  return c.b.emit_all(*c.equation.op, attributes, {c.batched(0), c.batched(1)});
}

Factors find_factors(const Attributes& attributes, const std::vector<Type>& operands,
                     const std::vector<Type>& results) {
  Factors f;
  f.results = {add_dims(f, results[0].shape)};
  f.operands = {f.results[0], f.results[0]};
  add_windows_of(f, attributes, operands[0].shape);
  return f;
}

std::vector<HostArray> find_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const auto strides = row_major_strides(c.operands[0]->type().shape);
  Floats::visit(c.operands[0]->type().dtype, [&](auto zero) {
    using T = decltype(zero);
    std::size_t n = 0;
    for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
      std::int32_t number = 0;
      std::int32_t found = -1;
      for_each_index(c.attributes.ints("window"), [&](const std::vector<std::int64_t>& place) {
        const Ints element = element_of(c.attributes, index, place);
        const bool is_equal =
            c.operands[0]->data<T>()[offset_of(strides, element)] == c.operands[1]->data<T>()[n];
        if (is_equal && found < 0) found = number;
        ++number;
      });
      result.data<std::int32_t>()[n++] = found;
    });
  });
  return one_result(std::move(result));
}

hlo::Values find_form(hlo::FormContext& c) {
  const hlo::Value x = c.rows_of(0).x;
  const Type& type = c.results[0];
  const hlo::Value none = c.w.constant(-1.0, type);
  hlo::Value found = none;
  double number = 0;
  for_each_index(c.attributes().ints("window"), [&](const Ints& place) {
    const hlo::Value candidate = c.w.slice(x, place, limit_of(c.attributes(), type.shape, place),
                                           c.attributes().ints("stride"));
    const hlo::Value is_wanted = c.w.compare("eq", candidate, c.x(1));
    const hlo::Value is_first = c.w.binary("and", is_wanted, c.w.compare("eq", found, none));
    found = c.w.select(is_first, c.w.constant(number++, type), found);
  });
  return {found};
}

Sample find_sample(Type array, Type elements, Ints window, Ints stride) {
  // Few numbers, so that some are found.
  return {.operands = {{std::move(array), 0.0, 2.0}, {std::move(elements), 0.0, 2.0}},
          .attributes = {{"stride", std::move(stride)}, {"window", std::move(window)}}};
}

// --- spread_from_windows

std::vector<Type> spread_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  const Shape& shape = shape_of(c, "shape");
  const Type& values = c.operands[1];
  expect_windows(c, shape.size());
  bool fits = c.operands[0] == Type{DType::i32, values.shape} && is_float(values.dtype) &&
              values.shape.size() == shape.size() && ints_of(c, "low").size() == shape.size();
  for (const char* attribute : {"low", "stride", "window"}) {
    for (const std::int64_t step : ints_of(c, attribute)) fits &= std::abs(step) <= kFarthest;
  }
  if (!fits) {
    c.fail("the operands do not match the shape or each other",
           "i32 numbers and floats of the same shape, with the rank of the attributes, whose "
           "entries are at most 2^40",
           "check the operands, low and shape");
  }
  return {{values.dtype, shape}};
}

/// The cotangents of the elements that the numbers name.
ValueId spread_vjp(VjpContext& c) {
  Builder& b = c.b;
  const Attributes attributes = c.equation.attributes;
  const ValueId numbers = c.operand(0);
  const Type type = c.operand_type(1);
  if (num_elements(type.shape) == 0) return full(b, 0.0, type);
  const Ints& low = attributes.ints("low");
  // The windows begin at index 0, and all of them lie inside.
  const Shape shape = b.type(c.cotangent()).shape;
  const Ints all = limit_of(attributes, type.shape, attributes.ints("window"));
  Ints before, after, start;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    before.push_back(std::max<std::int64_t>(low[i], 0));
    start.push_back(before[i] - low[i]);
    after.push_back(std::max<std::int64_t>(start[i] + all[i] - 1 - before[i] - shape[i], 0));
  }
  const ValueId padded =
      pad(b, c.cotangent(), scalar(b, 0.0, type.dtype), std::move(before), std::move(after));
  ValueId taken = full(b, 0.0, type);
  double number = 0;
  for_each_index(attributes.ints("window"), [&](const Ints& place) {
    Ints first = start, limit = limit_of(attributes, type.shape, place);
    for (std::size_t i = 0; i < place.size(); ++i) {
      first[i] += place[i];
      limit[i] += start[i];
    }
    const ValueId candidate = slice(b, padded, first, limit, attributes.ints("stride"));
    const ValueId takes = compare(b, "eq", numbers, full_like(b, number++, numbers));
    taken = select(b, takes, candidate, taken);
  });
  return taken;
}

std::vector<ValueId> spread_batch(BatchContext& c) {
  Attributes attributes = c.equation.attributes;
  for (const char* name : {"stride", "window"})
    attributes.set(name, with_first(1, attributes.ints(name)));
  attributes.set("shape", with_first(c.size, attributes.ints("shape")));
  attributes.set("low", with_first(0, attributes.ints("low")));
  return c.b.emit_all(*c.equation.op, attributes, {c.batched(0), c.batched(1)});
}

/// Element i is at place q of window (i + low - q) / stride.
Factors spread_factors(const Attributes& attributes, const std::vector<Type>& operands,
                       const std::vector<Type>& results) {
  Factors f;
  f.results = {add_dims(f, results[0].shape)};
  f.operands = {f.results[0], f.results[0]};
  for (std::size_t i = 0; i < results[0].shape.size(); ++i) {
    const std::int64_t window = attributes.ints("window")[i];
    const std::int64_t stride = attributes.ints("stride")[i];
    const std::int64_t low = attributes.ints("low")[i];
    const std::int64_t windows = operands[0].shape[i];
    if (window == 1 && stride == 1 && low == 0 && windows == results[0].shape[i]) continue;
    for (const std::size_t operand : {0U, 1U}) {
      add_window(f, {.operand = operand,
                     .dim = i,
                     .size = windows,
                     .offset = low + 1 - window,
                     .terms = {{.factor = f.results[0][i][0]}},
                     .extent = window,
                     .divisor = stride});
    }
  }
  return f;
}

std::vector<HostArray> spread_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const Shape& windows = c.operands[0]->type().shape;
  const auto strides = row_major_strides(windows);
  const Ints& stride = c.attributes.ints("stride");
  const Ints& low = c.attributes.ints("low");
  const auto numbers = c.operands[0]->data<std::int32_t>();
  Floats::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    std::size_t n = 0;
    for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
      T sum{};
      bool is_first = true;
      std::int32_t number = -1;
      for_each_index(c.attributes.ints("window"), [&](const std::vector<std::int64_t>& place) {
        ++number;
        std::vector<std::int64_t> window;
        bool is_inside = true;
        for (std::size_t i = 0; i < place.size(); ++i) {
          const std::int64_t distance = index[i] + low[i] - place[i];
          if (distance % stride[i] != 0) return;
          window.push_back(distance / stride[i]);
          is_inside = is_inside && distance >= 0 && window[i] < windows[i];
        }
        T part{};
        if (is_inside) {
          const std::size_t from = offset_of(strides, window);
          if (numbers[from] == number) part = c.operands[1]->data<T>()[from];
        }
        sum = is_first ? part : sum + part;
        is_first = false;
      });
      result.data<T>()[n++] = sum;
    });
  });
  return one_result(std::move(result));
}

/// An operand with its elements as far apart as the windows are, and `fill` between and around
/// them: element i + window - 1 - q of the result meets place q.
hlo::Value spread_operand(hlo::FormContext& c, std::size_t i, double fill) {
  const hlo::Value value = c.w.scalar(fill, c.x(i).type.dtype);
  const hlo::FormContext::Rows rows = c.rows_of(i, &value);
  const Shape& result = c.results[0].shape;
  Ints low(result.size(), 0), high = low, interior = low;
  for (std::size_t d = 0; d < result.size(); ++d) {
    if (rows.is_cut[d]) continue;
    const std::int64_t stride = c.attributes().ints("stride")[d];
    const std::int64_t window = c.attributes().ints("window")[d];
    const std::int64_t size = rows.x.type.shape[d];
    low[d] = window - 1 - c.attributes().ints("low")[d];
    interior[d] = size > 1 ? stride - 1 : 0;
    high[d] = result[d] + window - 1 - low[d] - (size == 0 ? 0 : (size - 1) * stride + 1);
  }
  return c.w.pad(rows.x, value, low, high, interior);
}

hlo::Values spread_form(hlo::FormContext& c) {
  const hlo::Value numbers = spread_operand(c, 0, -1.0);
  const hlo::Value values = spread_operand(c, 1, 0.0);
  const Type& type = c.results[0];
  const hlo::Value none = c.w.constant(0.0, type);
  hlo::Value sum = none;
  double number = 0;
  const Ints& window = c.attributes().ints("window");
  for_each_index(window, [&](const Ints& place) {
    Ints start, limit;
    for (std::size_t d = 0; d < place.size(); ++d) {
      start.push_back(window[d] - 1 - place[d]);
      limit.push_back(start[d] + type.shape[d]);
    }
    const hlo::Value wanted = c.w.constant(number, {DType::i32, type.shape});
    const hlo::Value takes = c.w.compare("eq", c.w.slice(numbers, start, limit), wanted);
    const hlo::Value part = c.w.select(takes, c.w.slice(values, start, limit), none);
    sum = number == 0 ? part : c.w.binary("add", sum, part);
    ++number;
  });
  return {sum};
}

Sample spread_sample(Type values, Shape shape, Ints window, Ints stride, Ints low = {}) {
  const double last = static_cast<double>(num_elements(window)) - 1.0;
  const SampleOperand numbers{i32(values.shape), -1.0, last};
  low.resize(shape.size(), 0);
  return {.operands = {numbers, {std::move(values)}},
          .attributes = {{"low", std::move(low)},
                         {"shape", std::move(shape)},
                         {"stride", std::move(stride)},
                         {"window", std::move(window)}}};
}

}  // namespace

const OpRecord find_in_windows_op{
    .name = "find_in_windows",
    .doc =
        "For each window of the array, the position of its first element that equals the window's "
        "element of the second operand, as i32; -1 if there is none. Positions within a window "
        "count in row-major order; windows are those of reduce_window_max.",
    .source = "StableHLO, select_and_scatter with select EQ, its first half",
    .attributes = AttributeNames{"stride", "window"},
    .types = TypeSet::floats,
    .shape = find_shape,
    .vjp = zero_vjp,
    .batch = find_batch,
    .factors = find_factors,
    .pattern = Pattern::opaque,
    .host = "find_in_windows",
    .stablehlo = find_form,
    .reference = find_reference,
    .cost = window_cost,
    .samples =
        Samples{find_sample(f32({3, 6, 5, 2}), f32({3, 3, 2, 2}), {1, 2, 2, 1}, {1, 2, 2, 1}),
                find_sample(f32({10, 6}), f32({4, 3}), {3, 1}, {2, 2}),
                find_sample(f32({5, 1}), f32({1, 1}), {5, 1}, {1, 1}),
                find_sample(bf16({3, 6, 5}), bf16({3, 5, 4}), {1, 2, 2}, {1, 1, 1})},
};

const OpRecord spread_from_windows_op{
    .name = "spread_from_windows",
    .doc =
        "An array of this shape from two numbers per window: a position within the window, in "
        "row-major order, and a value. The value of a window is added to the element at that "
        "position; an element adds its values in the order of their positions. Windows begin "
        "`stride` apart, the first one at index -`low`. Windows with another position, and those "
        "that would contain an element but do not exist, add +0.0.",
    .source = "StableHLO, select_and_scatter with scatter ADD, its second half",
    .attributes = AttributeNames{"low", "shape", "stride", "window"},
    .types = TypeSet::any,
    .shape = spread_shape,
    .vjp = per_operand({[](VjpContext&) { return ir::kNoValue; }, spread_vjp}),
    .batch = spread_batch,
    .factors = spread_factors,
    .pattern = Pattern::opaque,
    .host = "spread_from_windows",
    .stablehlo = spread_form,
    .reference = spread_reference,
    .cost = window_cost,
    .samples = Samples{spread_sample(f32({3, 3, 2, 2}), {3, 6, 5, 2}, {1, 2, 2, 1}, {1, 2, 2, 1}),
                       spread_sample(f32({2, 5, 4, 3}), {2, 7, 9, 3}, {1, 3, 3, 1}, {1, 1, 2, 1}),
                       spread_sample(f32({4, 3}), {10, 6}, {3, 1}, {2, 2}),
                       spread_sample(f32({2, 4, 5, 3}), {2, 7, 9, 3}, {1, 3, 3, 1}, {1, 2, 2, 1},
                                     {0, 1, 1, 0}),
                       spread_sample(f32({6, 4}), {9, 3}, {3, 2}, {2, 1}, {-1, 2}),
                       spread_sample(f32({1, 1}), {5, 1}, {5, 1}, {1, 1}),
                       spread_sample(bf16({3, 5, 4}), {3, 6, 5}, {1, 2, 2}, {1, 1, 1})},
    .linearity = Linearity::rest,
};

namespace {

/// Windows at every index of a padded array: those of a slice are windows of an array with less
/// padding.
std::optional<ValueId> windows_of_less_padding(Builder& b, const Attributes& attributes,
                                               const Equation& padding, const Ints& start,
                                               const Ints& limit) {
  const Shape shape = b.type(padding.results[0]).shape;
  const Attributes of_padding = padding.attributes;
  const std::vector<ValueId> operands = padding.operands;
  Ints low = of_padding.ints("low"), high = of_padding.ints("high");
  for (std::size_t i = 0; i < shape.size(); ++i) {
    low[i] -= start[i];
    high[i] -= shape[i] - (limit[i] + attributes.ints("window")[i] - 1);
    if (low[i] < 0 || high[i] < 0 || attributes.ints("stride")[i] != 1) return std::nullopt;
  }
  const ValueId padded = pad(b, operands[0], operands[1], std::move(low), std::move(high),
                             of_padding.ints("interior"));
  return b.emit("reduce_window_sum", attributes, {padded});
}

}  // namespace

std::optional<ValueId> slice_of_windows(Builder& b, ValueId from, const Ints& start,
                                        const Ints& limit) {
  const Equation* found = definition_of(b.function(), from);
  if (found == nullptr) return std::nullopt;
  Attributes attributes = found->attributes;
  if (is(*found, reduce_window_sum_op)) {
    const Equation* padding = definition_of(b.function(), found->operands[0]);
    if (padding == nullptr || !is(*padding, pad_op)) return std::nullopt;
    return windows_of_less_padding(b, attributes, *padding, start, limit);
  }
  if (!is(*found, spread_from_windows_op)) return std::nullopt;
  const std::vector<ValueId> operands = found->operands;
  Ints low = attributes.ints("low"), shape;
  for (std::size_t i = 0; i < start.size(); ++i) {
    low[i] += start[i];
    shape.push_back(limit[i] - start[i]);
  }
  attributes.set("low", low);
  attributes.set("shape", shape);
  return b.emit("spread_from_windows", attributes, operands);
}

OpFamily window_number_ops() { return {&find_in_windows_op, &spread_from_windows_op}; }

}  // namespace tessera::ops
