// dot_general: batched contractions of two arrays.
#include <algorithm>
#include <fmt/format.h>

#include "base/leaf_tree.h"
#include "ops/ops.h"
#include "ops/reference/leaves.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

/// The dimensions of one operand, sorted by their role in the contraction.
struct Side {
  Ints batch;
  Ints contract;
  Ints free;
};

Side side_of(const Attributes& attributes, const std::string& prefix, std::int64_t rank) {
  Side side{.batch = attributes.ints(prefix + "_batch"),
            .contract = attributes.ints(prefix + "_contract"),
            .free = {}};
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    if (!contains_dim(side.batch, dim) && !contains_dim(side.contract, dim)) {
      side.free.push_back(dim);
    }
  }
  return side;
}

void append_sizes(Shape& shape, const Type& type, const Ints& dims) {
  for (std::int64_t dim : dims) shape.push_back(type.shape[at(dim)]);
}

void expect_paired(const ShapeContext& c, const std::string& role) {
  const Ints& lhs = ints_of(c, "lhs_" + role);
  const Ints& rhs = ints_of(c, "rhs_" + role);
  if (lhs.size() != rhs.size()) {
    c.fail("lhs_" + role + " and rhs_" + role + " have different lengths",
           "as many " + role + " dimensions in the left as in the right operand",
           "list the dimensions in pairs");
  }
  for (std::size_t i = 0; i < lhs.size(); ++i) {
    const std::int64_t left = c.operands[0].shape[at(lhs[i])];
    const std::int64_t right = c.operands[1].shape[at(rhs[i])];
    if (left == right) continue;
    c.fail("dimension " + std::to_string(lhs[i]) + " of the left operand (size " +
               std::to_string(left) + ") does not match dimension " + std::to_string(rhs[i]) +
               " of the right operand (size " + std::to_string(right) + ")",
           "equal sizes, for example f32[8,16] with f32[16,32] in matmul",
           "transpose or reshape one operand, or check the layer's input size");
  }
}

std::vector<Type> dot_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  if (c.operands[0].dtype != c.operands[1].dtype) {
    c.fail("operands have different dtypes", "the same dtype for both operands",
           "convert one of them, for example astype(x, DType::" +
               std::string(name(c.operands[0].dtype)) + ")");
  }
  constexpr std::string_view kPrefixes[] = {"lhs", "rhs"};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string prefix(kPrefixes[i]);
    const Ints& batch = dims_of(c, prefix + "_batch", c.operands[i].rank());
    for (std::int64_t dim : dims_of(c, prefix + "_contract", c.operands[i].rank())) {
      if (!contains_dim(batch, dim)) continue;
      c.fail("dimension " + std::to_string(dim) + " is both a batch and a contracting dimension",
             "each dimension in one role", "name the dimension once");
    }
  }
  expect_paired(c, "batch");
  expect_paired(c, "contract");
  expect_grains(c, c.attributes.ints("lhs_contract").size());
  const Side lhs = side_of(c.attributes, "lhs", c.operands[0].rank());
  const Side rhs = side_of(c.attributes, "rhs", c.operands[1].rank());
  Type result{.dtype = sum_dtype(c.operands[0].dtype), .shape = {}};
  append_sizes(result.shape, c.operands[0], lhs.batch);
  append_sizes(result.shape, c.operands[0], lhs.free);
  append_sizes(result.shape, c.operands[1], rhs.free);
  return {result};
}

// --- derivative

Ints joined(Ints first, const Ints& second, const Ints& third) {
  first.insert(first.end(), second.begin(), second.end());
  first.insert(first.end(), third.begin(), third.end());
  return first;
}

/// Dimension i of an array is dimension labels[i] of the wanted array. Returns the permutation that
/// transposes the former into the latter.
Ints permutation_to_order(const Ints& labels) {
  Ints permutation(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    permutation[at(labels[i])] = static_cast<std::int64_t>(i);
  }
  return permutation;
}

/// The cotangent of operand `i`: the result's cotangent contracted with the other operand over the
/// other operand's free dimensions. Which of the two comes first is chosen to avoid a transpose
/// where possible.
ValueId dot_vjp(VjpContext& c, std::size_t i) {
  const Attributes& attributes = c.equation.attributes;
  const bool is_lhs = i == 0;
  const Side mine = side_of(attributes, is_lhs ? "lhs" : "rhs", c.operand_type(i).rank());
  const Side other = side_of(attributes, is_lhs ? "rhs" : "lhs", c.operand_type(1 - i).rank());
  const std::size_t num_batch = mine.batch.size();
  const std::size_t other_start = num_batch + (is_lhs ? mine.free.size() : 0);
  const Ints cotangent_batch = dims_from(0, num_batch);
  const Ints cotangent_contract =
      dims_from(static_cast<std::int64_t>(other_start), other.free.size());
  // The contracting dimensions of the other operand come out in that operand's order.
  Ints sorted_contract = other.contract;
  std::sort(sorted_contract.begin(), sorted_contract.end());
  Ints contract_labels;
  for (std::int64_t dim : sorted_contract) {
    const auto place = std::find(other.contract.begin(), other.contract.end(), dim);
    contract_labels.push_back(mine.contract[at(place - other.contract.begin())]);
  }
  const ValueId cotangent = convert(c.b, c.cotangent(), c.operand_type(i).dtype);
  const Ints cotangent_first = joined(mine.batch, mine.free, contract_labels);
  const Ints cotangent_last = joined(mine.batch, contract_labels, mine.free);
  if (!std::is_sorted(cotangent_first.begin(), cotangent_first.end()) &&
      std::is_sorted(cotangent_last.begin(), cotangent_last.end())) {
    const ValueId product = dot_general(c.b, c.operand(1 - i), cotangent,
                                        {.lhs_contract = other.free,
                                         .rhs_contract = cotangent_contract,
                                         .lhs_batch = other.batch,
                                         .rhs_batch = cotangent_batch});
    return convert(c.b, product, c.operand_type(i).dtype);
  }
  const ValueId product = dot_general(c.b, cotangent, c.operand(1 - i),
                                      {.lhs_contract = cotangent_contract,
                                       .rhs_contract = other.free,
                                       .lhs_batch = cotangent_batch,
                                       .rhs_batch = other.batch});
  return transpose(c.b, convert(c.b, product, c.operand_type(i).dtype),
                   permutation_to_order(cotangent_first));
}

// --- batching

/// The new dimension is a batch dimension if both operands have it, otherwise a free dimension.
std::vector<ValueId> dot_batch(BatchContext& c) {
  const Attributes& attributes = c.equation.attributes;
  Side lhs = side_of(attributes, "lhs", c.types[0].rank());
  Side rhs = side_of(attributes, "rhs", c.types[1].rank());
  for (Side* side : {&lhs, &rhs}) {
    if (!c.is_batched[side == &lhs ? 0 : 1]) continue;
    side->contract = behind_batch(side->contract);
    side->batch = behind_batch(side->batch);
  }
  const bool is_shared = c.is_batched[0] && c.is_batched[1];
  if (is_shared) {
    lhs.batch = with_first(0, lhs.batch);
    rhs.batch = with_first(0, rhs.batch);
  }
  Attributes batched = attributes;  // the grains stay as they are
  batched.set("lhs_batch", lhs.batch);
  batched.set("lhs_contract", lhs.contract);
  batched.set("rhs_batch", rhs.batch);
  batched.set("rhs_contract", rhs.contract);
  const ValueId product = c.b.emit(dot_general_op, batched, {c.operands[0], c.operands[1]});
  if (is_shared) return {product};
  const std::size_t before = lhs.batch.size() + (c.is_batched[1] ? lhs.free.size() : 0);
  return {move_to_front(c.b, product, static_cast<std::int64_t>(before))};
}

// --- factors

Factors dot_factors(const Attributes& attributes, const std::vector<Type>& operands,
                    const std::vector<Type>&) {
  const Side lhs = side_of(attributes, "lhs", operands[0].rank());
  const Side rhs = side_of(attributes, "rhs", operands[1].rank());
  Factors factors;
  factors.operands = {Factors::Dims(operands[0].shape.size()),
                      Factors::Dims(operands[1].shape.size())};
  factors.results.emplace_back();
  auto add = [&](std::int64_t lhs_dim, std::int64_t rhs_dim, FactorKind kind) {
    const std::int64_t size =
        lhs_dim >= 0 ? operands[0].shape[at(lhs_dim)] : operands[1].shape[at(rhs_dim)];
    const int factor = add_factor(factors, size, kind);
    if (lhs_dim >= 0) factors.operands[0][at(lhs_dim)] = {factor};
    if (rhs_dim >= 0) factors.operands[1][at(rhs_dim)] = {factor};
    if (kind == FactorKind::pass) factors.results[0].push_back({factor});
    if (kind == FactorKind::reduce) factors.reduced.push_back(factor);
  };
  for (std::size_t i = 0; i < lhs.batch.size(); ++i) {
    add(lhs.batch[i], rhs.batch[i], FactorKind::pass);
  }
  for (std::int64_t dim : lhs.free) add(dim, -1, FactorKind::pass);
  for (std::int64_t dim : rhs.free) add(-1, dim, FactorKind::pass);
  for (std::size_t i = 0; i < lhs.contract.size(); ++i) {
    add(lhs.contract[i], rhs.contract[i], FactorKind::reduce);
  }
  return factors;
}

// --- reference

struct Term {
  std::size_t lhs;
  std::size_t rhs;
};

Ints picked(const Ints& values, const Ints& dims) {
  Ints result;
  for (std::int64_t dim : dims) result.push_back(values[at(dim)]);
  return result;
}

/// The offsets in both operands of every term, one list per grain of the summation tree.
std::vector<std::vector<Term>> terms_of(const Shape& sizes, const Ints& lhs_strides,
                                        const Ints& rhs_strides, const Ints& grains) {
  std::vector<std::vector<Term>> leaves;
  for (const Leaf& leaf : leaves_of(sizes, grains)) {
    std::vector<Term> terms;
    for_each_index(leaf.size, [&](std::vector<std::int64_t> index) {
      for (std::size_t i = 0; i < index.size(); ++i) index[i] += leaf.start[i];
      terms.push_back({offset_of(lhs_strides, index), offset_of(rhs_strides, index)});
    });
    leaves.push_back(std::move(terms));
  }
  return leaves;
}

std::vector<HostArray> dot_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const Type& lhs_type = c.operands[0]->type();
  const Type& rhs_type = c.operands[1]->type();
  const Side lhs = side_of(c.attributes, "lhs", lhs_type.rank());
  const Side rhs = side_of(c.attributes, "rhs", rhs_type.rank());
  const Ints lhs_strides = row_major_strides(lhs_type.shape);
  const Ints rhs_strides = row_major_strides(rhs_type.shape);
  const Ints sizes = picked(lhs_type.shape, lhs.contract);
  const auto leaves =
      terms_of(sizes, picked(lhs_strides, lhs.contract), picked(rhs_strides, rhs.contract),
               grains_of(c.attributes, sizes, c.grains));
  // How far the operands move along each dimension of the result; 0 where they do not move.
  const Ints lhs_steps = joined(picked(lhs_strides, lhs.batch), picked(lhs_strides, lhs.free),
                                Ints(rhs.free.size(), 0));
  const Ints rhs_steps = joined(picked(rhs_strides, rhs.batch), Ints(lhs.free.size(), 0),
                                picked(rhs_strides, rhs.free));
  Numbers::visit(lhs_type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[0]->data<T>();
    const auto y = c.operands[1]->data<T>();
    const auto out = result.data<T>();
    std::size_t at_result = 0;
    for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
      const std::size_t lhs_base = offset_of(lhs_steps, index);
      const std::size_t rhs_base = offset_of(rhs_steps, index);
      TreeSum<Wrapping<T>> tree;
      for (const std::vector<Term>& terms : leaves) {
        ProductSum<T> sum(c.dot_unit);
        for (const Term& term : terms) sum.add(x[lhs_base + term.lhs], y[rhs_base + term.rhs]);
        tree.push({sum.value()});
      }
      out[at_result++] = tree.finish().value;
    });
  });
  return one_result(std::move(result));
}

double dot_cost(const Attributes& attributes, const std::vector<Type>& operands,
                const std::vector<Type>& results) {
  double flops = 2.0 * static_cast<double>(num_elements(results[0].shape));
  for (std::int64_t dim : attributes.ints("lhs_contract")) {
    flops *= static_cast<double>(operands[0].shape[at(dim)]);
  }
  return flops;
}

Sample dot_sample(Type lhs, Type rhs, const DotDims& dims) {
  return {.operands = {{std::move(lhs)}, {std::move(rhs)}},
          .attributes = {{"lhs_batch", dims.lhs_batch},
                         {"lhs_contract", dims.lhs_contract},
                         {"rhs_batch", dims.rhs_batch},
                         {"rhs_contract", dims.rhs_contract}}};
}

Samples dot_samples() {
  return {
      dot_sample(f32({5, 12}), f32({12, 6}), {.lhs_contract = {1}, .rhs_contract = {0}}),
      dot_sample(f32({2, 5, 10}), f32({10, 3}), {.lhs_contract = {2}, .rhs_contract = {0}}),
      dot_sample(f32({12, 1}), f32({1, 10}), {.lhs_contract = {1}, .rhs_contract = {0}}),
      dot_sample(
          f32({2, 5, 3, 4}), f32({2, 6, 3, 4}),
          {.lhs_contract = {3}, .rhs_contract = {3}, .lhs_batch = {0, 2}, .rhs_batch = {0, 2}}),
      dot_sample(f32({6, 10, 3}), f32({6, 10, 5}),
                 {.lhs_contract = {0, 1}, .rhs_contract = {0, 1}}),
      dot_sample(f32({4, 6, 3}), f32({5, 3, 6}), {.lhs_contract = {2, 1}, .rhs_contract = {1, 2}}),
      dot_sample(f32({70}), f32({70}), {.lhs_contract = {0}, .rhs_contract = {0}}),
      dot_sample(f32({5}), f32({6}), {}),
      dot_sample(i32({5, 6}), i32({6, 2}), {.lhs_contract = {1}, .rhs_contract = {0}}),
      dot_sample(bf16({5, 12}), bf16({12, 6}), {.lhs_contract = {1}, .rhs_contract = {0}}),
      dot_sample(bf16({6, 10, 3}), bf16({6, 10, 5}),
                 {.lhs_contract = {0, 1}, .rhs_contract = {0, 1}})};
}

// --- StableHLO

/// An operand with its large dimensions padded with zeros, unless they are multiples of 16 bytes.
hlo::Value padded(hlo::FormContext& c, const hlo::Value& x, const Side& side) {
  constexpr std::int64_t kMultiple = 8;  // elements of 2 bytes
  constexpr std::int64_t kPadded = 64;   // to a multiple of this
  if (c.pads_products_from == 0 || !is_half(x.type.dtype)) return x;
  const Shape& shape = x.type.shape;
  Ints more(shape.size(), 0);
  for (const Ints* dims : {&side.free, &side.contract}) {
    for (const std::int64_t dim : *dims) {
      const std::int64_t size = shape[at(dim)];
      if (size >= c.pads_products_from && size % kMultiple != 0)
        more[at(dim)] = kPadded - size % kPadded;
    }
  }
  if (std::all_of(more.begin(), more.end(), [](std::int64_t n) { return n == 0; })) return x;
  return c.w.pad(x, c.w.scalar(0, x.type.dtype), Ints(shape.size(), 0), more);
}

hlo::Values dot_general_form(hlo::FormContext& c) {
  const auto list = [&](const char* name) { return c.attributes().ints(name); };
  const auto operand = [&](std::size_t i, const Side& side) {
    return c.factor(padded(c, c.masked_operand(i, side.contract, 0), side));
  };
  const Side left = side_of(c.attributes(), "lhs", c.x(0).type.rank());
  const Side right = side_of(c.attributes(), "rhs", c.x(1).type.rank());
  const hlo::Value lhs = operand(0, left), rhs = operand(1, right);
  const Type type{c.results[0].dtype,
                  joined(picked(lhs.type.shape, left.batch), picked(lhs.type.shape, left.free),
                         picked(rhs.type.shape, right.free))};
  std::string text = fmt::format("stablehlo.dot_general {}, {}, ", lhs.name, rhs.name);
  if (!list("lhs_batch").empty()) {
    text += fmt::format("batching_dims = {} x {}, ", hlo::list_text(list("lhs_batch")),
                        hlo::list_text(list("rhs_batch")));
  }
  text += fmt::format("contracting_dims = {} x {}", hlo::list_text(list("lhs_contract")),
                      hlo::list_text(list("rhs_contract")));
  // The default precision is lower than f32 on some platforms.
  if (lhs.type.dtype == DType::f32) text += ", precision = [HIGHEST, HIGHEST]";
  text += fmt::format(" : ({}, {}) -> {}", hlo::type_text(lhs.type), hlo::type_text(rhs.type),
                      hlo::type_text(type));
  const hlo::Value product = c.w.op(text, type);
  const Shape& shape = c.results[0].shape;
  if (type.shape == shape) return {product};
  return {c.w.slice(product, Ints(shape.size(), 0), shape)};
}

}  // namespace

const OpRecord dot_general_op{
    .name = "dot_general",
    .doc =
        "Products of elements of the operands, summed over the contracting dimensions in the order "
        "of the summation tree, for each index of the batch and free dimensions. The result has "
        "the batch dimensions, then the free dimensions of the left and of the right operand. Sums "
        "of products of bf16 are f32.",
    .source = "StableHLO, dot_general",
    .hlo = "dot",
    .attributes = AttributeNames{"lhs_batch", "lhs_contract", "rhs_batch", "rhs_contract"},
    .types = TypeSet::numbers,
    .shape = dot_shape,
    .vjp = per_operand(
        {[](VjpContext& c) { return dot_vjp(c, 0); }, [](VjpContext& c) { return dot_vjp(c, 1); }}),
    .batch = dot_batch,
    .factors = dot_factors,
    .pattern = Pattern::opaque,
    .host = "dot_general",
    .stablehlo = dot_general_form,
    .reference = dot_reference,
    .cost = dot_cost,
    .samples = dot_samples(),
    .linearity = Linearity::each,
    .optional_attributes = {std::string(kGrains)},
};

OpFamily contract_ops() { return {&dot_general_op}; }

}  // namespace tessera::ops
