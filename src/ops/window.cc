// Ops that cut parts from arrays or build arrays from parts: slice, pad, reverse, concatenate.
#include <algorithm>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"
#include "ops/window/windows.h"

namespace tessera::ops {

namespace {

/// Row i of the result reads row (offset + step * i) / divisor of the operand.
struct RowMap {
  std::int64_t offset = 0;
  std::int64_t step = 1;
  std::int64_t divisor = 1;  // if it does not divide the sum, no row is read
};

/// Factors of an op that reads rows of its operand as a map per dimension says. The result keeps
/// the split of the operand: its shards get missing rows from other shards of the operand.
Factors row_factors(const std::vector<Type>& operands, const std::vector<Type>& results,
                    const std::function<RowMap(std::size_t)>& map_of) {
  Factors factors;
  factors.results = {add_dims(factors, results[0].shape)};
  factors.operands = {factors.results[0]};
  for (std::size_t i = 0; i < results[0].shape.size(); ++i) {
    const RowMap map = map_of(i);
    const std::int64_t size = operands[0].shape[i];
    const bool is_same = map.offset == 0 && map.step == 1 && map.divisor == 1;
    if (is_same && size == results[0].shape[i]) continue;
    const int factor = factors.results[0][i][0];
    add_window(factors, {.operand = 0,
                         .dim = i,
                         .size = size,
                         .offset = map.offset,
                         .terms = {{.factor = factor, .step = map.step}},
                         .divisor = map.divisor});
  }
  return factors;
}

// --- slice

void expect_one_per_dim(const ShapeContext& c, std::string_view attribute, std::int64_t rank) {
  if (static_cast<std::int64_t>(ints_of(c, attribute).size()) == rank) return;
  c.fail(
      std::string(attribute) + " has " + std::to_string(ints_of(c, attribute).size()) + " entries",
      std::to_string(rank) + " entries, one per dimension", "give one entry per dimension");
}

std::vector<Type> slice_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const Type& operand = c.operands[0];
  for (const char* attribute : {"limit", "start", "stride"}) {
    expect_one_per_dim(c, attribute, operand.rank());
  }
  Type result{.dtype = operand.dtype, .shape = {}};
  for (std::size_t i = 0; i < operand.shape.size(); ++i) {
    const std::int64_t start = ints_of(c, "start")[i];
    const std::int64_t limit = ints_of(c, "limit")[i];
    const std::int64_t stride = ints_of(c, "stride")[i];
    if (start < 0 || limit < start || limit > operand.shape[i] || stride < 1) {
      c.fail("dimension " + std::to_string(i) + " has no range [" + std::to_string(start) + ", " +
                 std::to_string(limit) + ") with stride " + std::to_string(stride),
             "0 <= start <= limit <= " + std::to_string(operand.shape[i]) + ", stride >= 1",
             "slice inside the array, for example slice(x, " + std::to_string(i) + ", 0, " +
                 std::to_string(operand.shape[i]) + ")");
    }
    result.shape.push_back(limit == start ? 0 : (limit - start - 1) / stride + 1);
  }
  return {result};
}

ValueId slice_vjp(VjpContext& c) {
  const Attributes attributes = c.equation.attributes;
  const Shape wanted = c.operand_type(0).shape;
  return spread_in_zeros(c.b, c.cotangent(), attributes.ints("stride"), attributes.ints("start"),
                         wanted);
}

Factors slice_factors(const Attributes& attributes, const std::vector<Type>& operands,
                      const std::vector<Type>& results) {
  return row_factors(operands, results, [&](std::size_t i) -> RowMap {
    return {.offset = attributes.ints("start")[i], .step = attributes.ints("stride")[i]};
  });
}

std::vector<HostArray> slice_reference(const ReferenceContext& c) {
  const Ints& start = c.attributes.ints("start");
  const Ints& stride = c.attributes.ints("stride");
  const auto strides = row_major_strides(c.operands[0]->type().shape);
  return one_result(rearranged(*c.operands[0], c.results[0], [&](const auto& index) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      offset += strides[i] * (start[i] + index[i] * stride[i]);
    }
    return at(offset);
  }));
}

std::vector<ValueId> slice_batch(BatchContext& c) {
  const Attributes& attributes = c.equation.attributes;
  return {slice(c.b, c.operands[0], with_first(0, attributes.ints("start")),
                with_first(c.size, attributes.ints("limit")),
                with_first(1, attributes.ints("stride")))};
}

Sample slice_sample(Type operand, Ints start, Ints limit, Ints stride) {
  return {
      .operands = {{std::move(operand)}},
      .attributes = {
          {"limit", std::move(limit)}, {"start", std::move(start)}, {"stride", std::move(stride)}}};
}

// --- pad

constexpr std::int64_t kMostPadded = std::int64_t{1} << 62;

/// The distance in the result between neighbouring elements of the operand.
Ints pad_steps(const Attributes& attributes, const Shape& operand) {
  Ints steps = attributes.ints("interior");
  // With fewer than two elements there is no distance; 1 avoids large numbers.
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = operand[i] > 1 ? steps[i] + 1 : 1;
  return steps;
}

[[noreturn]] void fail_too_large(const ShapeContext& c, std::size_t dim) {
  c.fail("dimension " + std::to_string(dim) + " would be too large", "at most 2^62 elements",
         "check the amounts of padding");
}

std::vector<Type> pad_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  const Type& operand = c.operands[0];
  if (c.operands[1] != Type{.dtype = operand.dtype, .shape = {}}) {
    c.fail("the padding value has the wrong type",
           "a scalar of dtype " + std::string(name(operand.dtype)),
           "pass one number as the padding value");
  }
  Type result = operand;
  for (const char* attribute : {"high", "interior", "low"}) {
    expect_one_per_dim(c, attribute, operand.rank());
    for (std::size_t i = 0; i < operand.shape.size(); ++i) {
      const std::int64_t amount = ints_of(c, attribute)[i];
      if (amount < 0) {
        c.fail("an amount of padding is negative", "amounts of 0 or more",
               "slice the array instead");
      }
      const bool is_interior = std::string_view(attribute) == "interior";
      const std::int64_t times =
          is_interior ? std::max<std::int64_t>(operand.shape[i] - 1, 0) : std::int64_t{1};
      if (times > 0 && amount > (kMostPadded - result.shape[i]) / times) fail_too_large(c, i);
      result.shape[i] += amount * times;
    }
  }
  return {result};
}

ValueId pad_vjp_operand(VjpContext& c) {
  const Ints low = c.equation.attributes.ints("low");
  const Shape shape = c.operand_type(0).shape;
  const Ints steps = pad_steps(c.equation.attributes, shape);
  Ints limit = low;
  for (std::size_t i = 0; i < low.size(); ++i) {
    limit[i] += std::max<std::int64_t>((shape[i] - 1) * steps[i] + 1, 0);
  }
  if (std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; })) {
    if (const auto windows = slice_of_windows(c.b, c.cotangent(), low, limit)) return *windows;
  }
  return slice(c.b, c.cotangent(), low, limit, steps);
}

/// Marks the elements of the result that come from the operand, which has this shape.
ValueId inside_of_padding(Builder& b, const Shape& shape, const Ints& low, const Ints& high,
                          const Ints& interior) {
  const ValueId inside = full(b, 1.0, boolean(shape));
  return pad(b, inside, scalar(b, 0.0, DType::boolean), low, high, interior);
}

ValueId pad_vjp_value(VjpContext& c) {
  const Attributes attributes = c.equation.attributes;
  const Shape shape = c.operand_type(0).shape;
  const ValueId is_inside = inside_of_padding(c.b, shape, attributes.ints("low"),
                                              attributes.ints("high"), attributes.ints("interior"));
  const ValueId zero = full_like(c.b, 0.0, c.cotangent());
  return reduce_sum(c.b, select(c.b, is_inside, zero, c.cotangent()), dims_from(0, shape.size()));
}

Factors pad_factors(const Attributes& attributes, const std::vector<Type>& operands,
                    const std::vector<Type>& results) {
  const Ints steps = pad_steps(attributes, operands[0].shape);
  Factors factors = row_factors(operands, results, [&](std::size_t i) -> RowMap {
    return {.offset = -attributes.ints("low")[i], .divisor = steps[i]};
  });
  factors.operands.emplace_back();  // the value is a scalar
  return factors;
}

std::vector<HostArray> pad_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const HostArray& operand = *c.operands[0];
  const Ints& low = c.attributes.ints("low");
  const Ints steps = pad_steps(c.attributes, operand.type().shape);
  const auto strides = row_major_strides(operand.type().shape);
  std::size_t at_result = 0;
  for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
    bool is_inside = true;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      const std::int64_t place = index[i] - low[i];
      const std::int64_t position = place / steps[i];
      is_inside =
          is_inside && place >= 0 && place % steps[i] == 0 && position < operand.type().shape[i];
      offset += strides[i] * position;
    }
    if (is_inside) {
      copy_element(result, at_result, operand, at(offset));
    } else {
      copy_element(result, at_result, *c.operands[1], 0);
    }
    ++at_result;
  });
  return one_result(std::move(result));
}

/// A padding value that differs between batch elements is inserted by a select.
std::vector<ValueId> pad_batch(BatchContext& c) {
  const Ints low = with_first(0, c.equation.attributes.ints("low"));
  const Ints high = with_first(0, c.equation.attributes.ints("high"));
  const Ints interior = with_first(0, c.equation.attributes.ints("interior"));
  const ValueId x = c.batched(0);
  if (!c.is_batched[1]) return {pad(c.b, x, c.operands[1], low, high, interior)};
  const ValueId padded = pad(c.b, x, scalar(c.b, 0.0, c.types[0].dtype), low, high, interior);
  const Shape shape = c.b.type(padded).shape;
  const Shape inside = with_first(c.size, c.types[0].shape);
  const ValueId is_inside = inside_of_padding(c.b, inside, low, high, interior);
  return {select(c.b, is_inside, padded, broadcast_in_dim(c.b, c.operands[1], {0}, shape))};
}

Sample pad_sample(Type operand, Ints low, Ints high, Ints interior) {
  const Type value{.dtype = operand.dtype, .shape = {}};
  return {
      .operands = {{std::move(operand)}, {value}},
      .attributes = {
          {"high", std::move(high)}, {"interior", std::move(interior)}, {"low", std::move(low)}}};
}

// --- reverse

std::vector<Type> reverse_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  dims_of(c, "dims", c.operands[0].rank());
  return {c.operands[0]};
}

ValueId reverse_vjp(VjpContext& c) {
  return reverse(c.b, c.cotangent(), c.equation.attributes.ints("dims"));
}

Factors reverse_factors(const Attributes& attributes, const std::vector<Type>& operands,
                        const std::vector<Type>& results) {
  return row_factors(operands, results, [&](std::size_t i) -> RowMap {
    if (!contains_dim(attributes.ints("dims"), static_cast<std::int64_t>(i))) return {};
    return {.offset = operands[0].shape[i] - 1, .step = -1};
  });
}

std::vector<HostArray> reverse_reference(const ReferenceContext& c) {
  const Ints& dims = c.attributes.ints("dims");
  const Shape& shape = c.results[0].shape;
  const auto strides = row_major_strides(shape);
  return one_result(rearranged(*c.operands[0], c.results[0], [&](std::vector<std::int64_t> index) {
    for (std::int64_t dim : dims) index[at(dim)] = shape[at(dim)] - 1 - index[at(dim)];
    return offset_of(strides, index);
  }));
}

Sample reverse_sample(Type operand, Ints dims) {
  return {.operands = {{std::move(operand)}}, .attributes = {{"dims", std::move(dims)}}};
}

// --- concatenate

std::vector<Type> concatenate_shape(const ShapeContext& c) {
  if (c.operands.empty()) {
    c.fail("no arrays to join", "at least one operand", "pass at least one array");
  }
  Type result = c.operands[0];
  const std::size_t dim = at(dim_of(c, "dim", result.rank()));
  result.shape[dim] = 0;
  for (const Type& operand : c.operands) {
    Type fitting = result;
    if (operand.rank() == result.rank()) fitting.shape[dim] = operand.shape[dim];
    if (operand != fitting) {
      c.fail("operands cannot be joined along dimension " + std::to_string(dim),
             "equal dtypes, and equal sizes in all other dimensions",
             "reshape, transpose or convert the operands first; stack adds a new dimension");
    }
    result.shape[dim] += operand.shape[dim];
  }
  return {result};
}

Cotangents concatenate_vjp(VjpContext& c) {
  const std::int64_t dim = c.equation.attributes.integer("dim");
  Cotangents cotangents;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < c.equation.operands.size(); ++i) {
    const std::int64_t limit = start + c.operand_type(i).shape[at(dim)];
    cotangents.push_back(c.is_wanted[i] ? slice_dim(c.b, c.cotangent(), dim, start, limit)
                                        : ir::kNoValue);
    start = limit;
  }
  return cotangents;
}

Factors concatenate_factors(const Attributes& attributes, const std::vector<Type>& operands,
                            const std::vector<Type>& results) {
  Factors factors;
  const std::size_t dim = at(attributes.integer("dim"));
  factors.results = {add_dims(factors, results[0].shape)};
  factors.operands.assign(operands.size(), factors.results[0]);
  std::int64_t start = 0;
  for (std::size_t i = 0; i < operands.size() && operands.size() > 1; ++i) {
    const std::int64_t size = operands[i].shape[dim];
    add_window(factors, {.operand = i,
                         .dim = dim,
                         .size = size,
                         .offset = -start,
                         .terms = {{.factor = factors.results[0][dim][0]}}});
    start += size;
  }
  return factors;
}

std::vector<HostArray> concatenate_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const std::size_t dim = at(c.attributes.integer("dim"));
  const auto strides = row_major_strides(c.results[0].shape);
  std::int64_t start = 0;
  for (const HostArray* operand : c.operands) {
    std::size_t at_operand = 0;
    for_each_index(operand->type().shape, [&](std::vector<std::int64_t> index) {
      index[dim] += start;
      copy_element(result, offset_of(strides, index), *operand, at_operand++);
    });
    start += operand->type().shape[dim];
  }
  return one_result(std::move(result));
}

Sample concatenate_sample(std::vector<SampleOperand> operands, std::int64_t dim) {
  return {.operands = std::move(operands), .attributes = {{"dim", dim}}};
}

// --- StableHLO

hlo::Values slice_form(hlo::FormContext& c) {
  const hlo::FormContext::Rows rows = c.rows_of(0);
  Ints start = c.attributes().ints("start");
  Ints limit = c.attributes().ints("limit");
  for (std::size_t i = 0; i < start.size(); ++i) {
    const bool is_whole = c.x().type.shape[i] == c.results[0].shape[i];
    if (!rows.is_cut[i] && !is_whole) continue;
    start[i] = 0;
    limit[i] = rows.x.type.shape[i];
  }
  return {c.w.slice(rows.x, start, limit, c.attributes().ints("stride"))};
}

hlo::Values reverse_form(hlo::FormContext& c) {
  return {c.w.reverse(c.rows_of(0).x, c.attributes().ints("dims"))};
}

/// The rows of the operand from which the tile of the result is made, spread and padded along one
/// dimension.
hlo::Value padded_tile(hlo::FormContext& c, const hlo::Value& x, std::size_t dim) {
  const std::int64_t step = pad_steps(c.attributes(), c.whole(c.equation.operands[0]))[dim];
  const std::int64_t low = c.attributes().ints("low")[dim];
  const std::int64_t size = c.results[0].shape[dim];
  hlo::Ints starts;
  for (const IndexRange& range : c.ranges(c.equation.results[0], dim)) {
    starts.push_back(range.start - low);
  }
  return hlo::spread_rows_from(c.w, x, dim, c.ranges(c.equation.operands[0], dim),
                               {.starts = starts, .size = size, .step = step, .fill = c.x(1)});
}

hlo::Values pad_form(hlo::FormContext& c) {
  Ints low = c.attributes().ints("low");
  Ints high = c.attributes().ints("high");
  Ints interior = c.attributes().ints("interior");
  hlo::Value x = c.x();
  for (std::size_t i = 0; i < low.size(); ++i) {
    const bool is_same = c.whole(c.equation.operands[0])[i] == c.whole(c.equation.results[0])[i];
    const bool is_split =
        c.is_split(c.equation.results[0], i) || c.is_split(c.equation.operands[0], i);
    if (is_split && !is_same) x = padded_tile(c, x, i);
    if (is_split) low[i] = high[i] = interior[i] = 0;
  }
  return {c.w.pad(x, c.x(1), low, high, interior)};
}

/// Where the dimension is split, each device selects from the rows that it needs of every operand.
hlo::Values concatenate_form(hlo::FormContext& c) {
  hlo::Writer& w = c.w;
  const std::size_t dim = at(c.attributes().integer("dim"));
  if (!c.is_split(c.equation.results[0], dim) || c.operands.size() == 1) {
    return {w.concatenate(c.operands, dim)};
  }
  const Shape& shape = c.results[0].shape;
  const hlo::Value own = w.iota(static_cast<std::int64_t>(dim), DType::i32, shape);
  const hlo::Value start = w.fill(c.start(c.equation.results[0], dim), shape);
  const hlo::Value place = w.binary("add", own, start);
  hlo::Value result = c.rows_of(0).x;
  std::int64_t end = 0;
  for (std::size_t i = 1; i < c.operands.size(); ++i) {
    end += c.whole(c.equation.operands[i - 1])[dim];
    const hlo::Value is_before =
        w.compare("lt", place, w.constant(static_cast<double>(end), place.type));
    result = w.select(is_before, result, c.rows_of(i).x);
  }
  return {result};
}

}  // namespace

const OpRecord concatenate_op{
    .name = "concatenate",
    .doc = "The operands joined along `dim`.",
    .source = "StableHLO, concatenate",
    .hlo = "concatenate",
    .attributes = AttributeNames{"dim"},
    .types = TypeSet::any,
    .shape = concatenate_shape,
    .vjp = concatenate_vjp,
    .batch = shifted_batch("dim"),
    .factors = concatenate_factors,
    .pattern = Pattern::opaque,
    .host = "concatenate",
    .stablehlo = concatenate_form,
    .reference = concatenate_reference,
    .cost = no_flops,
    .samples = Samples{concatenate_sample({{f32({5, 6})}, {f32({3, 6})}, {f32({1, 6})}}, 0),
                       concatenate_sample({{f32({12, 1})}, {f32({12, 1})}}, 1),
                       concatenate_sample({{f32({10})}}, 0),
                       concatenate_sample({{i32({2, 3})}, {i32({2, 0})}, {i32({2, 5})}}, 1),
                       concatenate_sample({{bf16({5, 6})}, {bf16({3, 6})}}, 0)},
    .linearity = Linearity::all,
};

const OpRecord pad_op{
    .name = "pad",
    .doc =
        "The first operand with `low` elements added before it, `high` after it and `interior` "
        "between neighbours in each dimension. The added elements are equal to the second operand, "
        "a scalar.",
    .source = "StableHLO, pad",
    .attributes = AttributeNames{"high", "interior", "low"},
    .types = TypeSet::any,
    .shape = pad_shape,
    .vjp = per_operand({pad_vjp_operand, pad_vjp_value}),
    .batch = pad_batch,
    .factors = pad_factors,
    .pattern = Pattern::opaque,
    .host = "pad",
    .stablehlo = pad_form,
    .reference = pad_reference,
    .cost = no_flops,
    .samples = Samples{pad_sample(f32({5, 6}), {1, 0}, {2, 0}, {0, 0}),
                       pad_sample(f32({12, 1}), {0, 2}, {3, 3}, {0, 4}),
                       pad_sample(f32({10}), {0}, {0}, {0}),
                       pad_sample(f32({7, 3}), {1, 0}, {0, 2}, {1, 3}),
                       pad_sample(f32({8, 2}), {0, 5}, {1, 0}, {1, 0}),
                       pad_sample(i32({2, 3}), {1, 1}, {0, 2}, {2, 0}),
                       pad_sample(bf16({5, 6}), {1, 0}, {2, 0}, {0, 0})},
};

const OpRecord reverse_op{
    .name = "reverse",
    .doc = "The elements in reverse order along `dims`.",
    .source = "StableHLO, reverse",
    .hlo = "reverse",
    .attributes = AttributeNames{"dims"},
    .types = TypeSet::any,
    .shape = reverse_shape,
    .vjp = per_operand({reverse_vjp}),
    .batch = shifted_batch("dims"),
    .factors = reverse_factors,
    .pattern = Pattern::view,
    .host = "reverse",
    .stablehlo = reverse_form,
    .reference = reverse_reference,
    .cost = no_flops,
    .samples = Samples{reverse_sample(f32({5, 6}), {1}), reverse_sample(f32({12, 1}), {0, 1}),
                       reverse_sample(i32({3, 2, 5}), {2, 0}), reverse_sample(bf16({5, 6}), {1})},
    .linearity = Linearity::each,
};

const OpRecord slice_op{
    .name = "slice",
    .doc = "The elements start, start + stride, ... below limit of each dimension.",
    .source = "StableHLO, slice",
    .hlo = "slice",
    .attributes = AttributeNames{"limit", "start", "stride"},
    .types = TypeSet::any,
    .shape = slice_shape,
    .vjp = per_operand({slice_vjp}),
    .batch = slice_batch,
    .factors = slice_factors,
    .pattern = Pattern::view,
    .host = "slice",
    .stablehlo = slice_form,
    .reference = slice_reference,
    .cost = no_flops,
    .samples = Samples{slice_sample(f32({5, 6}), {1, 0}, {4, 6}, {1, 1}),
                       slice_sample(f32({12, 1}), {1, 0}, {12, 1}, {3, 1}),
                       slice_sample(f32({10, 6}), {0, 1}, {10, 6}, {4, 2}),
                       slice_sample(f32({5}), {2}, {2}, {1}),
                       slice_sample(i32({6, 3}), {2, 0}, {6, 3}, {2, 1}),
                       slice_sample(bf16({5, 6}), {1, 0}, {4, 6}, {1, 1})},
    .linearity = Linearity::each,
};

OpFamily window_ops() { return {&concatenate_op, &pad_op, &reverse_op, &slice_op}; }

}  // namespace tessera::ops
