// Ops that rearrange elements: broadcast, reshape, transpose.
#include <algorithm>
#include <numeric>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

// --- broadcast_in_dim

std::vector<Type> broadcast_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const Type& operand = c.operands[0];
  const Ints& shape = shape_of(c, "shape");
  const Ints& dims = dims_of(c, "dims", static_cast<std::int64_t>(shape.size()));
  if (dims.size() != operand.shape.size() || !std::is_sorted(dims.begin(), dims.end())) {
    c.fail("dims = " + tessera::to_string(dims) +
               " does not map the operand's dimensions to those of the result",
           "one increasing result dimension for each of the " + std::to_string(operand.rank()) +
               " operand dimensions",
           "transpose the operand first if its dimensions come in another order");
  }
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (operand.shape[i] == 1 || operand.shape[i] == shape[at(dims[i])]) continue;
    c.fail("cannot repeat dimension " + std::to_string(i) + " of size " +
               std::to_string(operand.shape[i]) + " to size " + std::to_string(shape[at(dims[i])]),
           "operand sizes that are 1 or equal the result's " + tessera::to_string(shape),
           "reshape the operand so that its sizes line up with the result's from the right");
  }
  return {{.dtype = operand.dtype, .shape = shape}};
}

ValueId broadcast_vjp(VjpContext& c) {
  const Ints dims = c.equation.attributes.ints("dims");
  const Shape operand = c.operand_type(0).shape;
  const Shape result = c.equation.attributes.ints("shape");
  Ints summed;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto place = std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(i));
    const bool is_new = place == dims.end();
    // Nothing is summed along a dimension that stays 1: the reshape drops it.
    const std::int64_t from = is_new ? 1 : operand[static_cast<std::size_t>(place - dims.begin())];
    if (from != result[i]) summed.push_back(static_cast<std::int64_t>(i));
  }
  return reshape(c.b, reduce_sum(c.b, c.cotangent(), summed), operand);
}

Factors broadcast_factors(const Attributes& attributes, const std::vector<Type>& operands,
                          const std::vector<Type>& results) {
  Factors factors;
  const Ints& dims = attributes.ints("dims");
  factors.results = {add_dims(factors, results[0].shape)};
  factors.operands.emplace_back();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const bool is_kept = operands[0].shape[i] == results[0].shape[at(dims[i])];
    factors.operands[0].push_back(is_kept ? factors.results[0][at(dims[i])] : std::vector<int>{});
  }
  return factors;
}

std::vector<HostArray> broadcast_reference(const ReferenceContext& c) {
  const Shape& shape = c.operands[0]->type().shape;
  const Ints& dims = c.attributes.ints("dims");
  const auto strides = row_major_strides(shape);
  return one_result(rearranged(*c.operands[0], c.results[0], [&](const auto& index) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (shape[i] != 1) offset += strides[i] * index[at(dims[i])];
    }
    return at(offset);
  }));
}

std::vector<ValueId> broadcast_batch(BatchContext& c) {
  const Attributes& attributes = c.equation.attributes;
  const Ints dims = with_first(0, behind_batch(attributes.ints("dims")));
  return {broadcast_in_dim(c.b, c.operands[0], dims, with_first(c.size, attributes.ints("shape")))};
}

Sample broadcast_sample(Type operand, Ints dims, Shape shape) {
  return {.operands = {{std::move(operand)}},
          .attributes = {{"dims", std::move(dims)}, {"shape", std::move(shape)}}};
}

// --- reshape

std::vector<Type> reshape_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const Ints& shape = shape_of(c, "shape");
  const std::int64_t wanted = num_elements(c.operands[0].shape);
  if (num_elements(shape) != wanted) {
    c.fail("shape " + tessera::to_string(shape) + " has " + std::to_string(num_elements(shape)) +
               " elements",
           "a shape with the operand's " + std::to_string(wanted) + " elements",
           "change one size so that the product is " + std::to_string(wanted));
  }
  return {{.dtype = c.operands[0].dtype, .shape = shape}};
}

/// Walks over both shapes from the major end and splits their dimensions into common factors.
class ReshapeWalk {
 public:
  ReshapeWalk(const Shape& from, const Shape& to) : from_{from}, to_{to} {}

  Factors run() {
    while (advance(from_) && advance(to_)) share_or_replicate();
    // Only dimensions of size 1 are left; they have no factors.
    result_.operands = {std::move(from_.dims)};
    result_.results = {std::move(to_.dims)};
    return std::move(result_);
  }

 private:
  struct Side {
    explicit Side(const Shape& side_shape) : shape(side_shape), dims(side_shape.size()) {
      if (!shape.empty()) rest = shape[0];
    }
    const Shape& shape;
    Factors::Dims dims;
    std::size_t dim = 0;
    std::int64_t rest = 1;  // the part of shape[dim] that no factor covers yet
  };

  /// Moves to the next dimension that factors do not fully cover; false at the end.
  static bool advance(Side& side) {
    while (side.dim < side.shape.size() && side.rest == 1) {
      if (++side.dim < side.shape.size()) side.rest = side.shape[side.dim];
    }
    return side.dim < side.shape.size();
  }

  static void take(Side& side, std::int64_t size, int factor) {
    side.dims[side.dim].push_back(factor);
    side.rest /= size;
  }

  void share_or_replicate() {
    const std::int64_t common = std::gcd(from_.rest, to_.rest);
    if (common > 1) {
      const int factor = add_factor(result_, common);
      take(from_, common, factor);
      take(to_, common, factor);
      return;
    }
    // There is no common split until both sides have covered the same number of elements.
    std::int64_t from_covered = replicate_rest(from_);
    std::int64_t to_covered = replicate_rest(to_);
    while (from_covered != to_covered) {
      Side& behind = from_covered < to_covered ? from_ : to_;
      std::int64_t& covered = from_covered < to_covered ? from_covered : to_covered;
      if (!advance(behind)) break;
      covered *= replicate_rest(behind);
    }
  }

  std::int64_t replicate_rest(Side& side) {
    const std::int64_t size = side.rest;
    take(side, size, add_factor(result_, size, FactorKind::replicate));
    return size;
  }

  Factors result_;
  Side from_;
  Side to_;
};

Factors reshape_factors(const Attributes&, const std::vector<Type>& operands,
                        const std::vector<Type>& results) {
  if (num_elements(results[0].shape) > 0) {
    return ReshapeWalk(operands[0].shape, results[0].shape).run();
  }
  Factors factors;
  factors.operands = {add_dims(factors, operands[0].shape, FactorKind::replicate)};
  factors.results = {add_dims(factors, results[0].shape, FactorKind::replicate)};
  return factors;
}

std::vector<ValueId> reshape_batch(BatchContext& c) {
  const Shape shape = with_first(c.size, c.equation.attributes.ints("shape"));
  return {reshape(c.b, c.operands[0], shape)};
}

Sample reshape_sample(Type operand, Shape shape) {
  return {.operands = {{std::move(operand)}}, .attributes = {{"shape", std::move(shape)}}};
}

// --- transpose

std::vector<Type> transpose_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  const Type& operand = c.operands[0];
  const Ints& permutation = dims_of(c, "permutation", operand.rank());
  if (permutation.size() != operand.shape.size()) {
    c.fail("permutation " + tessera::to_string(permutation) + " does not list every dimension",
           "each of the " + std::to_string(operand.rank()) + " dimensions once",
           "list all dimensions in their new order");
  }
  Type result{.dtype = operand.dtype, .shape = {}};
  for (std::int64_t dim : permutation) result.shape.push_back(operand.shape[at(dim)]);
  return {result};
}

ValueId transpose_vjp(VjpContext& c) {
  return transpose(c.b, c.cotangent(), inverse_of(c.equation.attributes.ints("permutation")));
}

Factors transpose_factors(const Attributes& attributes, const std::vector<Type>& operands,
                          const std::vector<Type>&) {
  Factors factors;
  factors.operands = {add_dims(factors, operands[0].shape)};
  factors.results.emplace_back();
  for (std::int64_t dim : attributes.ints("permutation")) {
    factors.results[0].push_back(factors.operands[0][at(dim)]);
  }
  return factors;
}

std::vector<HostArray> transpose_reference(const ReferenceContext& c) {
  const Ints& permutation = c.attributes.ints("permutation");
  const auto strides = row_major_strides(c.operands[0]->type().shape);
  return one_result(rearranged(*c.operands[0], c.results[0], [&](const auto& index) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < permutation.size(); ++i) {
      offset += strides[at(permutation[i])] * index[i];
    }
    return at(offset);
  }));
}

std::vector<ValueId> transpose_batch(BatchContext& c) {
  const Ints& permutation = c.equation.attributes.ints("permutation");
  return {transpose(c.b, c.operands[0], with_first(0, behind_batch(permutation)))};
}

Sample transpose_sample(Type operand, Ints permutation) {
  return {.operands = {{std::move(operand)}},
          .attributes = {{"permutation", std::move(permutation)}}};
}

}  // namespace

const OpRecord broadcast_in_dim_op{
    .name = "broadcast_in_dim",
    .doc =
        "The operand repeated to `shape`. Its dimension i becomes dimension dims[i] of the result; "
        "the two sizes are equal, or the operand's is 1. dims are in increasing order.",
    .source = "StableHLO, broadcast_in_dim",
    .hlo = "broadcast",
    .attributes = AttributeNames{"dims", "shape"},
    .types = TypeSet::any,
    .shape = broadcast_shape,
    .vjp = per_operand({broadcast_vjp}),
    .batch = broadcast_batch,
    .factors = broadcast_factors,
    .pattern = Pattern::view,
    .host = "broadcast_in_dim",
    .stablehlo = "stablehlo.broadcast_in_dim {0}, dims = {dims} : ({type0}) -> {type}",
    .reference = broadcast_reference,
    .cost = no_flops,
    .samples =
        Samples{broadcast_sample(f32({6}), {1}, {5, 6}),
                broadcast_sample(f32({12, 1}), {0, 2}, {12, 3, 10}),
                broadcast_sample(f32({}), {}, {5, 2}), broadcast_sample(f32({5}), {1}, {1, 5, 1}),
                broadcast_sample(i32({1, 10}), {0, 1}, {6, 10}),
                broadcast_sample(bf16({6}), {1}, {5, 6})},
    .linearity = Linearity::each,
};

const OpRecord reshape_op{
    .name = "reshape",
    .doc = "The elements in row-major order with another shape.",
    .source = "StableHLO, reshape",
    .hlo = "reshape",
    .attributes = AttributeNames{"shape"},
    .types = TypeSet::any,
    .shape = reshape_shape,
    .vjp = per_operand({[](VjpContext& c) {
      const Shape shape = c.operand_type(0).shape;
      return reshape(c.b, c.cotangent(), shape);
    }}),
    .batch = reshape_batch,
    .factors = reshape_factors,
    .pattern = Pattern::view,
    .host = "reshape",
    .stablehlo = "stablehlo.reshape {0} : ({type0}) -> {type}",
    .reference =
        [](const ReferenceContext& c) {
          HostArray result(c.results[0]);
          if (!result.bytes().empty()) {
            std::memcpy(result.bytes().data(), c.operands[0]->bytes().data(),
                        result.bytes().size());
          }
          return one_result(std::move(result));
        },
    .cost = no_flops,
    .samples =
        Samples{reshape_sample(f32({5, 12}), {5, 3, 4}), reshape_sample(f32({4, 3}), {6, 2}),
                reshape_sample(f32({6, 10, 1}), {60}), reshape_sample(f32({8, 12}), {16, 6}),
                reshape_sample(f32({1, 10}), {10, 1}), reshape_sample(f32({1, 1}), {}),
                reshape_sample(i32({24}), {2, 12}), reshape_sample(bf16({5, 12}), {5, 3, 4})},
    .linearity = Linearity::each,
};

const OpRecord transpose_op{
    .name = "transpose",
    .doc = "Dimension i of the result is dimension permutation[i] of the operand.",
    .source = "StableHLO, transpose",
    .hlo = "transpose",
    .attributes = AttributeNames{"permutation"},
    .types = TypeSet::any,
    .shape = transpose_shape,
    .vjp = per_operand({transpose_vjp}),
    .batch = transpose_batch,
    .factors = transpose_factors,
    .pattern = Pattern::view,
    .host = "transpose",
    .stablehlo = "stablehlo.transpose {0}, dims = {permutation} : ({type0}) -> {type}",
    .reference = transpose_reference,
    .cost = no_flops,
    .samples =
        Samples{transpose_sample(f32({5, 6}), {1, 0}), transpose_sample(f32({3, 1, 10}), {2, 0, 1}),
                transpose_sample(f32({2, 5, 3, 4}), {0, 2, 1, 3}),
                transpose_sample(i32({12, 6}), {1, 0}), transpose_sample(bf16({5, 12}), {1, 0})},
    .linearity = Linearity::each,
};

OpFamily shape_ops() { return {&broadcast_in_dim_op, &reshape_op, &transpose_op}; }

}  // namespace tessera::ops
