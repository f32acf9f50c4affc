// Reductions. Sums are added in the order that base/leaf_tree.h defines.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/leaf_tree.h"
#include "ops/ops.h"
#include "ops/reference/extremes.h"
#include "ops/reference/leaves.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> reduce_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const Type& operand = c.operands[0];
  const Ints& dims = dims_of(c, "dims", operand.rank());
  expect_grains(c, dims.size());
  return {{.dtype = operand.dtype, .shape = without_dims(operand.shape, dims)}};
}

FactorRule reduce_factors(Reduction reduction) {
  return [reduction](const Attributes& attributes, const std::vector<Type>& operands,
                     const std::vector<Type>&) {
    Factors factors;
    factors.reduction = reduction;
    factors.operands = {add_dims(factors, operands[0].shape)};
    const Ints& dims = attributes.ints("dims");
    for (std::int64_t dim : dims) {
      const int factor = factors.operands[0][at(dim)][0];
      factors.factors[static_cast<std::size_t>(factor)].kind = FactorKind::reduce;
      factors.reduced.push_back(factor);
    }
    factors.results.emplace_back();
    for (std::size_t i = 0; i < operands[0].shape.size(); ++i) {
      if (contains_dim(dims, static_cast<std::int64_t>(i))) continue;
      factors.results[0].push_back(factors.operands[0][i]);
    }
    return factors;
  };
}

/// Calls `visit(offset in the result, offset of its first reduced element in the operand)`.
template <typename Visit>
void for_each_result(const ReferenceContext& c, const Ints& dims, Visit visit) {
  const Shape& shape = c.operands[0]->type().shape;
  const auto strides = row_major_strides(shape);
  std::vector<std::int64_t> kept_strides;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!contains_dim(dims, static_cast<std::int64_t>(i))) kept_strides.push_back(strides[i]);
  }
  std::size_t at_result = 0;
  for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
    visit(at_result++, offset_of(kept_strides, index));
  });
}

/// Sizes and strides of the reduced dimensions, in the order in which the op lists them.
struct ReducedDims {
  ReducedDims(const Shape& shape, const Ints& dims) {
    const auto all_strides = row_major_strides(shape);
    for (std::int64_t dim : dims) {
      sizes.push_back(shape[at(dim)]);
      strides.push_back(all_strides[at(dim)]);
    }
    ends_with_last_dim =
        !dims.empty() && dims.back() == static_cast<std::int64_t>(shape.size()) - 1;
  }
  Shape sizes;
  std::vector<std::int64_t> strides;
  bool ends_with_last_dim;
};

/// The sum of one grain. It uses one accumulator in index order, or kLanes accumulators: an element
/// goes to the one given by its offset along the last dimension modulo kLanes. The accumulators are
/// then folded to 8, 4, 2 and 1.
template <typename T>
T leaf_sum(std::span<const T> x, std::size_t base, const ReducedDims& dims, const Leaf& leaf) {
  std::array<T, kLanes> lanes{};
  for_each_index(leaf.size, [&](const std::vector<std::int64_t>& index) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      offset += dims.strides[i] * (leaf.start[i] + index[i]);
    }
    const std::int64_t lane = dims.ends_with_last_dim ? index.back() % kLanes : 0;
    T& sum = lanes[static_cast<std::size_t>(lane)];
    sum = wrapping_add(sum, x[base + static_cast<std::size_t>(offset)]);
  });
  if (!dims.ends_with_last_dim) return lanes[0];
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] = wrapping_add(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}

std::vector<HostArray> sum_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const Ints& dims = c.attributes.ints("dims");
  const ReducedDims reduced(c.operands[0]->type().shape, dims);
  const std::vector<Leaf> leaves =
      leaves_of(reduced.sizes, grains_of(c.attributes, reduced.sizes, c.grains));
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[0]->data<T>();
    const auto out = result.data<T>();
    for_each_result(c, dims, [&](std::size_t at_result, std::size_t base) {
      TreeSum<Wrapping<T>> tree;
      for (const Leaf& leaf : leaves) tree.push({leaf_sum<T>(x, base, reduced, leaf)});
      out[at_result] = tree.finish().value;
    });
  });
  return one_result(std::move(result));
}

/// For max, min, and, or: the order of the operands does not matter.
template <typename T, typename Combine>
HostArray folded(const ReferenceContext& c, T start, Combine combine) {
  HostArray result(c.results[0]);
  const Ints& dims = c.attributes.ints("dims");
  const ReducedDims reduced(c.operands[0]->type().shape, dims);
  const auto x = c.operands[0]->template data<T>();
  const auto out = result.template data<T>();
  for_each_result(c, dims, [&](std::size_t at_result, std::size_t base) {
    T value = start;
    for_each_index(reduced.sizes, [&](const std::vector<std::int64_t>& index) {
      value = combine(value, x[base + offset_of(reduced.strides, index)]);
    });
    out[at_result] = value;
  });
  return result;
}

std::vector<HostArray> max_reference(const ReferenceContext& c) {
  HostArray result;
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    result = folded<T>(c, lowest_value<T>(), [](T x, T y) { return greater_of(x, y); });
  });
  return one_result(std::move(result));
}

std::vector<HostArray> min_reference(const ReferenceContext& c) {
  HostArray result;
  Numbers::visit(c.results[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    result = folded<T>(c, highest_value<T>(), [](T x, T y) { return lesser_of(x, y); });
  });
  return one_result(std::move(result));
}

/// The cotangent is shared equally by the elements that equal the extreme.
ValueId extreme_vjp(VjpContext& c) {
  Builder& b = c.b;
  const Ints dims = c.equation.attributes.ints("dims");
  const Type type = c.operand_type(0);
  const ValueId extreme = expand_dims(b, c.result(), dims, type.shape);
  const ValueId is_extreme = compare(b, "eq", c.operand(0), extreme);
  const ValueId share = convert(b, is_extreme, type.dtype);
  const ValueId count = reduce_sum(b, share, dims);
  const ValueId cotangent = expand_dims(b, div(b, c.cotangent(), count), dims, type.shape);
  return mul(b, cotangent, share);
}

ValueId sum_vjp(VjpContext& c) {
  const Shape shape = c.operand_type(0).shape;
  return expand_dims(c.b, c.cotangent(), c.equation.attributes.ints("dims"), shape);
}

Sample reduce_sample(SampleOperand operand, Ints dims) {
  return {.operands = {std::move(operand)}, .attributes = {{"dims", std::move(dims)}}};
}

Samples reduce_number_samples() {
  return {reduce_sample({f32({5, 6})}, {1}),
          reduce_sample({f32({12, 1, 10})}, {0}),
          reduce_sample({f32({6, 5, 10})}, {0, 1, 2}),
          reduce_sample({f32({10, 70})}, {1}),
          reduce_sample({f32({5, 6, 4})}, {2, 0}),
          reduce_sample({f32({1, 6})}, {0}),
          reduce_sample({f32({40, 3, 12})}, {0, 2}),
          reduce_sample({i32({10, 6}), -99.0, 99.0}, {0}),
          reduce_sample({u32({5, 12}), 0.0, 4e9}, {0, 1})};
}

Samples reduce_extreme_samples() {
  Samples samples = reduce_number_samples();
  samples.push_back(reduce_sample({bf16({12, 5, 10})}, {0}));
  samples.push_back(reduce_sample({bf16({5, 6})}, {1}));
  return samples;
}

/// Numbers are drawn from [low, 1]; any number but 0 is true.
Samples reduce_boolean_samples(double low) {
  return {reduce_sample({boolean({5, 6}), low, 1.0}, {1}),
          reduce_sample({boolean({12, 1, 10}), low, 1.0}, {0}),
          reduce_sample({boolean({6, 2}), low, 1.0}, {0, 1})};
}

// --- argmax

std::vector<Type> argmax_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const Type& operand = c.operands[0];
  const std::int64_t dim = dim_of(c, "dim", operand.rank());
  if (operand.shape[at(dim)] == 0) {
    c.fail("dimension " + std::to_string(dim) + " is empty", "at least one element",
           "take " + std::string(c.op) + " over a dimension that has elements");
  }
  return {i32(without_dims(operand.shape, {dim}))};
}

Factors argmax_factors(const Attributes& attributes, const std::vector<Type>& operands,
                       const std::vector<Type>&) {
  Factors factors;
  const std::size_t dim = at(attributes.integer("dim"));
  factors.operands = {add_dims(factors, operands[0].shape)};
  factors.factors[dim].kind = FactorKind::replicate;
  factors.results = {factors.operands[0]};
  factors.results[0].erase(factors.results[0].begin() + attributes.integer("dim"));
  return factors;
}

/// The first position whose element no other element beats, or the position of the first NaN.
template <typename Beats>
std::vector<HostArray> first_position(const ReferenceContext& c, Beats beats) {
  HostArray result(c.results[0]);
  const std::int64_t dim = c.attributes.integer("dim");
  const ReducedDims reduced(c.operands[0]->type().shape, {dim});
  Numbers::visit(c.operands[0]->type().dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[0]->data<T>();
    const auto out = result.data<std::int32_t>();
    for_each_result(c, {dim}, [&](std::size_t at_result, std::size_t base) {
      auto element = [&](std::int64_t i) { return x[base + at(i * reduced.strides[0])]; };
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < reduced.sizes[0] && !is_nan(element(best)); ++i) {
        if (beats(element(i), element(best)) || is_nan(element(i))) best = i;
      }
      out[at_result] = static_cast<std::int32_t>(best);
    });
  });
  return one_result(std::move(result));
}

std::vector<HostArray> argmax_reference(const ReferenceContext& c) {
  return first_position(c, [](auto x, auto y) { return x > y; });
}

std::vector<HostArray> argmin_reference(const ReferenceContext& c) {
  return first_position(c, [](auto x, auto y) { return x < y; });
}

Sample argmax_sample(SampleOperand operand, std::int64_t dim) {
  return {.operands = {std::move(operand)}, .attributes = {{"dim", dim}}};
}

// --- StableHLO

/// Whether `x` beats `y`, as in the reference: NaN first, then the first of equal elements.
StableHloRule argmax_form(const char* beats) {
  return [beats](hlo::FormContext& c) -> hlo::Values {
    const std::int64_t dim = c.attributes().integer("dim");
    const Type scalar{c.x().type.dtype, {}};
    const char* const extreme = std::string_view(beats) == "gt" ? "maximum" : "minimum";
    const hlo::Value place = c.w.iota(dim, DType::i32, c.x().type.shape);
    const hlo::Value start = c.w.constant(hlo::identity_of(extreme, scalar.dtype), scalar);
    const hlo::Value last = c.w.scalar(hlo::identity_of("minimum", DType::i32), DType::i32);
    const Type index{DType::i32, {}};
    const std::string region = c.w.region(
        {scalar, index, scalar, index}, [&](hlo::Writer& w, const hlo::Values& v) -> hlo::Values {
          const hlo::Value is_nan = w.compare("ne", v[0], v[0]);
          const hlo::Value is_other_nan = w.compare("ne", v[2], v[2]);
          const hlo::Value are_nan = w.binary("and", is_nan, is_other_nan);
          const hlo::Value is_equal = w.binary("or", are_nan, w.compare("eq", v[0], v[2]));
          const hlo::Value is_only_nan = w.binary("and", is_nan, w.unary("not", is_other_nan));
          const hlo::Value is_ahead = w.binary("or", is_only_nan, w.compare(beats, v[0], v[2]));
          const hlo::Value is_first = w.binary("and", is_equal, w.compare("lt", v[1], v[3]));
          const hlo::Value wins = w.binary("or", is_ahead, is_first);
          return {w.select(wins, v[0], v[2]), w.select(wins, v[1], v[3])};
        });
    const Type values{scalar.dtype, c.results[0].shape};
    const hlo::Values operands = {c.x(), place, start, last};
    return {c.w.ops(fmt::format("\"stablehlo.reduce\"({}) ({}) {{dimensions = array<i64: {}>}} : "
                                "({}) -> ({})",
                                hlo::names_text(operands), region, dim, hlo::types_text(operands),
                                hlo::types_text({values, c.results[0]})),
                    {values, c.results[0]})[1]};
  };
}

}  // namespace

const OpRecord argmax_op{
    .name = "argmax",
    .doc =
        "The position of the greatest element along `dim`, as i32: the first of equal elements (-0 "
        "equals +0), or the first NaN.",
    .source = "jax.lax.argmax",
    .attributes = AttributeNames{"dim"},
    .types = TypeSet::numbers,
    .shape = argmax_shape,
    .vjp = zero_vjp,
    .batch = shifted_batch("dim"),
    .factors = argmax_factors,
    .pattern = Pattern::opaque,
    .host = "argmax",
    .stablehlo = argmax_form("gt"),
    .reference = argmax_reference,
    .cost = flops_per_operand_element(1),
    .samples =
        Samples{argmax_sample({f32({5, 6})}, 1), argmax_sample({f32({12, 1, 10})}, 0),
                argmax_sample({f32({10, 1})}, 1), argmax_sample({i32({6, 10}), -3.0, 3.0}, 0),
                argmax_sample({bf16({5, 6})}, 1)},
};

const OpRecord argmin_op{
    .name = "argmin",
    .doc =
        "The position of the least element along `dim`, as i32: the first of equal elements (-0 "
        "equals +0), or the first NaN.",
    .source = "jax.lax.argmin",
    .attributes = AttributeNames{"dim"},
    .types = TypeSet::numbers,
    .shape = argmax_shape,
    .vjp = zero_vjp,
    .batch = shifted_batch("dim"),
    .factors = argmax_factors,
    .pattern = Pattern::opaque,
    .host = "argmax",
    .stablehlo = argmax_form("lt"),
    .reference = argmin_reference,
    .cost = flops_per_operand_element(1),
    .samples =
        Samples{argmax_sample({f32({5, 6})}, 1), argmax_sample({f32({12, 1, 10})}, 0),
                argmax_sample({f32({10, 1})}, 1), argmax_sample({i32({6, 10}), -3.0, 3.0}, 0),
                argmax_sample({bf16({5, 6})}, 1)},
};

const OpRecord reduce_and_op{
    .name = "reduce_and",
    .doc = "Whether all elements along `dims` are true.",
    .source = "StableHLO, reduce",
    .attributes = AttributeNames{"dims"},
    .types = TypeSet::boolean,
    .shape = reduce_shape,
    .vjp = zero_vjp,
    .batch = shifted_batch("dims"),
    .factors = reduce_factors(Reduction::logical_and),
    .pattern = Pattern::opaque,
    .host = "reduce",
    .stablehlo = hlo::reduce_form("and"),
    .reference =
        [](const ReferenceContext& c) {
          return one_result(folded<bool>(c, true, [](bool x, bool y) { return x && y; }));
        },
    .cost = no_flops,
    .samples = reduce_boolean_samples(-6.0),
};

const OpRecord reduce_max_op{
    .name = "reduce_max",
    .doc =
        "The greatest element along `dims`; NaN wins and -0 < +0. Equal greatest elements "
        "share the cotangent.",
    .source = "StableHLO, reduce",
    .hlo = "reduce",
    .attributes = AttributeNames{"dims"},
    .types = TypeSet::numbers,
    .shape = reduce_shape,
    .vjp = per_operand({extreme_vjp}),
    .batch = shifted_batch("dims"),
    .factors = reduce_factors(Reduction::max),
    .pattern = Pattern::opaque,
    .host = "reduce",
    .stablehlo = hlo::reduce_form("maximum"),
    .reference = max_reference,
    .cost = flops_per_operand_element(1),
    .samples = reduce_extreme_samples(),
};

const OpRecord reduce_min_op{
    .name = "reduce_min",
    .doc =
        "The least element along `dims`; NaN wins and -0 < +0. Equal least elements share the "
        "cotangent.",
    .source = "StableHLO, reduce",
    .hlo = "reduce",
    .attributes = AttributeNames{"dims"},
    .types = TypeSet::numbers,
    .shape = reduce_shape,
    .vjp = per_operand({extreme_vjp}),
    .batch = shifted_batch("dims"),
    .factors = reduce_factors(Reduction::min),
    .pattern = Pattern::opaque,
    .host = "reduce",
    .stablehlo = hlo::reduce_form("minimum"),
    .reference = min_reference,
    .cost = flops_per_operand_element(1),
    .samples = reduce_extreme_samples(),
};

const OpRecord reduce_or_op{
    .name = "reduce_or",
    .doc = "Whether any element along `dims` is true.",
    .source = "StableHLO, reduce",
    .attributes = AttributeNames{"dims"},
    .types = TypeSet::boolean,
    .shape = reduce_shape,
    .vjp = zero_vjp,
    .batch = shifted_batch("dims"),
    .factors = reduce_factors(Reduction::logical_or),
    .pattern = Pattern::opaque,
    .host = "reduce",
    .stablehlo = hlo::reduce_form("or"),
    .reference =
        [](const ReferenceContext& c) {
          return one_result(folded<bool>(c, false, [](bool x, bool y) { return x || y; }));
        },
    .cost = no_flops,
    .samples = reduce_boolean_samples(0.0),
};

const OpRecord reduce_sum_op{
    .name = "reduce_sum",
    .doc =
        "The sum along `dims`, added in the order of the summation tree, whose grains are ordered "
        "by `dims`. Integers wrap around.",
    .source = "StableHLO, reduce",
    .hlo = "reduce",
    .attributes = AttributeNames{"dims"},
    .types = TypeSet::wide_numbers,
    .shape = reduce_shape,
    .vjp = per_operand({sum_vjp}),
    .batch = shifted_batch("dims"),
    .factors = reduce_factors(Reduction::sum),
    .pattern = Pattern::opaque,
    .host = "reduce",
    .stablehlo = hlo::reduce_form("add"),
    .reference = sum_reference,
    .cost = flops_per_operand_element(1),
    .samples = reduce_number_samples(),
    .linearity = Linearity::each,
    .optional_attributes = {std::string(kGrains)},
};

OpFamily reduce_ops() {
  return {&argmax_op,     &argmin_op,    &reduce_and_op, &reduce_max_op,
          &reduce_min_op, &reduce_or_op, &reduce_sum_op};
}

}  // namespace tessera::ops
