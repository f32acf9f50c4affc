// Slices whose start indices are known only at run time.
#include <algorithm>

#include "ops/indexing/batched_places.h"
#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

/// The operands from `first` on must be one i32 scalar per dimension of the first operand.
void expect_starts(const ShapeContext& c, std::size_t first) {
  const std::size_t rank = c.operands.empty() ? 0 : c.operands[0].shape.size();
  expect_operands(c, first + rank);
  for (std::size_t i = first; i < c.operands.size(); ++i) {
    if (c.operands[i] == i32({})) continue;
    c.fail("a start is " + tessera::to_string(c.operands[i]),
           "scalars of dtype i32, one per dimension",
           "convert it with astype(start, DType::i32); pass lists as separate numbers");
  }
}

/// `part` must be sizes that fit inside the shape of the first operand.
void expect_part(const ShapeContext& c, const Shape& part, const std::string& what) {
  const Shape& shape = c.operands[0].shape;
  bool fits = part.size() == shape.size();
  for (std::size_t i = 0; fits && i < part.size(); ++i) fits = part[i] >= 0 && part[i] <= shape[i];
  if (fits) return;
  c.fail(what + " " + tessera::to_string(part) + " does not fit in an array of shape " +
             tessera::to_string(shape),
         "one size per dimension, each from 0 to the size of the array", "ask for a smaller part");
}

std::vector<Type> dynamic_slice_shape(const ShapeContext& c) {
  if (c.operands.empty()) expect_operands(c, 1);
  expect_starts(c, 1);
  expect_part(c, ints_of(c, "sizes"), "sizes");
  return {{.dtype = c.operands[0].dtype, .shape = ints_of(c, "sizes")}};
}

std::vector<Type> update_shape(const ShapeContext& c) {
  if (c.operands.size() < 2) expect_operands(c, 2);
  expect_starts(c, 2);
  if (c.operands[0].dtype != c.operands[1].dtype) {
    c.fail("the array and the update have different dtypes", "the same dtype",
           "convert the update with astype");
  }
  expect_part(c, c.operands[1].shape, "the update");
  return {c.operands[0]};
}

std::vector<ValueId> starts_of(const std::vector<ValueId>& operands, std::size_t first) {
  return {operands.begin() + static_cast<std::ptrdiff_t>(first), operands.end()};
}

Cotangents dynamic_slice_vjp(VjpContext& c) {
  Cotangents cotangents(c.equation.operands.size(), ir::kNoValue);
  if (!c.is_wanted[0]) return cotangents;
  const ValueId zeros = full(c.b, 0.0, Type(c.operand_type(0)));
  const std::vector<ValueId> starts = starts_of(c.equation.operands, 1);
  cotangents[0] = dynamic_update_slice(c.b, zeros, c.cotangent(), starts);
  return cotangents;
}

Cotangents update_vjp(VjpContext& c) {
  Cotangents cotangents(c.equation.operands.size(), ir::kNoValue);
  const Type part = c.operand_type(1);
  const std::vector<ValueId> starts = starts_of(c.equation.operands, 2);
  if (c.is_wanted[0]) {
    cotangents[0] = dynamic_update_slice(c.b, c.cotangent(), full(c.b, 0.0, part), starts);
  }
  if (c.is_wanted[1]) cotangents[1] = dynamic_slice(c.b, c.cotangent(), starts, part.shape);
  return cotangents;
}

// --- batching

bool any_batched(const BatchContext& c, std::size_t first) {
  return std::any_of(c.is_batched.begin() + static_cast<std::ptrdiff_t>(first), c.is_batched.end(),
                     [](bool is_batched) { return is_batched; });
}

/// The start indices, preceded by a start of 0 for the batch dimension.
std::vector<ValueId> starts_with_batch(BatchContext& c, std::size_t first) {
  std::vector<ValueId> starts = starts_of(c.operands, first);
  starts.insert(starts.begin(), scalar(c.b, 0.0, DType::i32));
  return starts;
}

Shape with_batch(Shape shape, std::int64_t size) {
  shape.insert(shape.begin(), size);
  return shape;
}

/// The start in one dimension for each element of the batch, clamped so that the part lies inside.
ValueId clamped_starts(BatchContext& c, std::size_t operand, std::int64_t size, std::int64_t part) {
  const ValueId starts = c.batched(operand);
  const ValueId first = full_like(c.b, 0.0, starts);
  return clamp(c.b, first, starts, full_like(c.b, static_cast<double>(size - part), starts));
}

std::vector<ValueId> dynamic_slice_batch(BatchContext& c) {
  const Ints sizes = c.equation.attributes.ints("sizes");
  const Shape shape = c.types[0].shape;
  ValueId x = c.batched(0);
  if (!any_batched(c, 1)) {
    return {dynamic_slice(c.b, x, starts_with_batch(c, 1), with_batch(sizes, c.size))};
  }
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    const ValueId starts = clamped_starts(c, dim + 1, shape[dim], sizes[dim]);
    const ValueId steps = iota(c.b, DType::i32, {c.size, sizes[dim]}, 1);
    const ValueId places =
        add(c.b, broadcast_in_dim(c.b, starts, {0}, {c.size, sizes[dim]}), steps);
    x = gather_places(c.b, x, places, static_cast<std::int64_t>(dim) + 1);
  }
  return {x};
}

std::vector<ValueId> update_batch(BatchContext& c) {
  const Shape shape = c.types[0].shape;
  const Shape part = c.types[1].shape;
  Builder& b = c.b;
  const ValueId x = c.batched(0);
  ValueId update = c.batched(1);
  if (!any_batched(c, 2)) return {dynamic_update_slice(b, x, update, starts_with_batch(c, 2))};
  if (num_elements(part) == 0) return {x};
  // Gathers the update into an array of the whole shape; `is_inside` marks where it belongs.
  ValueId is_inside = full(b, 1.0, boolean(with_batch(shape, c.size)));
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const Shape lines = {c.size, shape[dim]};
    const ValueId starts = clamped_starts(c, dim + 2, shape[dim], part[dim]);
    const ValueId rows = iota(b, DType::i32, lines, 1);
    const ValueId places = sub(b, rows, broadcast_in_dim(b, starts, {0}, lines));
    const ValueId zero = full_like(b, 0.0, places);
    const ValueId last = full_like(b, static_cast<double>(part[dim] - 1), places);
    const ValueId hits = in_range(b, places, part[dim]);
    const auto batched_dim = static_cast<std::int64_t>(dim) + 1;
    is_inside = bitwise_and(b, is_inside,
                            broadcast_in_dim(b, hits, {0, batched_dim}, with_batch(shape, c.size)));
    update = gather_places(b, update, clamp(b, zero, places, last), batched_dim);
  }
  return {select(b, is_inside, update, x)};
}

// --- factors, references

/// The factors of an array and of a part of it. Dimensions of the part that are smaller than the
/// array's have a separate factor, which must not be split.
struct PartFactors {
  Factors f;
  Factors::Dims array;
  Factors::Dims part;
};

PartFactors part_factors(const Shape& shape, const Shape& part) {
  PartFactors factors;
  factors.array = add_dims(factors.f, shape);
  factors.part = factors.array;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == part[i]) continue;
    factors.part[i] = {add_factor(factors.f, part[i], FactorKind::replicate)};
  }
  return factors;
}

/// Dimensions that are sliced may be split: each shard returns the elements that it holds.
Factors dynamic_slice_factors(const Attributes&, const std::vector<Type>& operands,
                              const std::vector<Type>& results) {
  auto [f, array, part] = part_factors(operands[0].shape, results[0].shape);
  f.reduction = Reduction::bit_or;
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (array[i] == part[i]) continue;
    f.factors[at(array[i][0])].kind = FactorKind::reduce;
    f.reduced.push_back(array[i][0]);
  }
  f.operands.assign(operands.size(), {});
  f.operands[0] = array;
  f.results = {part};
  return f;
}

/// Dimensions that the update does not fill may be split: each shard writes what lies inside it.
Factors update_factors(const Attributes&, const std::vector<Type>& operands,
                       const std::vector<Type>&) {
  auto [f, array, part] = part_factors(operands[0].shape, operands[1].shape);
  f.operands.assign(operands.size(), {});
  f.operands[0] = array;
  f.operands[1] = part;
  f.results = {array};
  return f;
}

/// The offset at which the part begins, clamped so that the part lies inside the array.
std::size_t base_of(const ReferenceContext& c, const Shape& part, std::size_t first) {
  const Shape& shape = c.operands[0]->type().shape;
  Ints index;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t start = c.operands[first + i]->data<std::int32_t>()[0];
    index.push_back(std::clamp<std::int64_t>(start, 0, shape[i] - part[i]));
  }
  return offset_of(row_major_strides(shape), index);
}

std::vector<HostArray> dynamic_slice_reference(const ReferenceContext& c) {
  const std::size_t base = base_of(c, c.results[0].shape, 1);
  const auto strides = row_major_strides(c.operands[0]->type().shape);
  return one_result(rearranged(*c.operands[0], c.results[0], [&](const auto& index) {
    return base + offset_of(strides, index);
  }));
}

std::vector<HostArray> update_reference(const ReferenceContext& c) {
  HostArray result = *c.operands[0];
  const Shape& part = c.operands[1]->type().shape;
  const std::size_t base = base_of(c, part, 2);
  const auto strides = row_major_strides(result.type().shape);
  std::size_t at_update = 0;
  for_each_index(part, [&](const std::vector<std::int64_t>& index) {
    copy_element(result, base + offset_of(strides, index), *c.operands[1], at_update++);
  });
  return one_result(std::move(result));
}

// --- samples: the starts range from before the array to beyond its end

Sample dynamic_slice_sample(Type operand, Ints sizes) {
  Sample sample{.operands = {{operand}}, .attributes = {{"sizes", std::move(sizes)}}};
  for (std::int64_t size : operand.shape) {
    sample.operands.push_back({i32({}), -1.0, static_cast<double>(size) + 1.0});
  }
  return sample;
}

Sample update_sample(const Type& operand, Shape part) {
  Sample sample = dynamic_slice_sample(operand, {});
  sample.attributes = {};
  sample.operands.insert(sample.operands.begin() + 1,
                         SampleOperand{{operand.dtype, std::move(part)}});
  return sample;
}

// --- StableHLO

/// A start, clamped here as well: XLA adds up the starts of successive slices without clamping the
/// first one.
hlo::Value clamped_start(hlo::Writer& w, const hlo::Value& start, std::int64_t most) {
  if (most == 0) return w.scalar(0, DType::i32);
  const hlo::Value low = w.binary("maximum", start, w.scalar(0, DType::i32));
  return w.binary("minimum", low, w.scalar(static_cast<double>(most), DType::i32));
}

/// The starts of a part of an array. Where the device holds only part of a dimension, the array
/// gets `part` more rows at both ends, so that parts that begin elsewhere lie in these rows.
hlo::Values local_starts(hlo::FormContext& c, const Shape& part, std::size_t first) {
  hlo::Values starts;
  const ir::ValueId array = c.equation.operands[0];
  for (std::size_t i = 0; i < part.size(); ++i) {
    const std::int64_t most = c.whole(array)[i] - part[i];
    hlo::Value start = clamped_start(c.w, c.x(first + i), most);
    if (c.is_split(array, i) && most > 0) {
      const hlo::Value own = c.w.binary("subtract", start, c.start(array, i));
      start = c.w.binary("add", own, c.w.scalar(static_cast<double>(part[i]), DType::i32));
    }
    starts.push_back(start);
  }
  return starts;
}

/// How many rows are added at both ends of each dimension.
Ints margins_of(const hlo::FormContext& c, const Shape& part) {
  Ints margins(part.size(), 0);
  const ir::ValueId array = c.equation.operands[0];
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (c.is_split(array, i) && c.whole(array)[i] != part[i]) margins[i] = part[i];
  }
  return margins;
}

/// Elements that other devices hold are zeros.
hlo::Values dynamic_slice_form(hlo::FormContext& c) {
  const Shape& part = c.whole(c.equation.results[0]);
  const Ints margins = margins_of(c, part);
  Ints cut;
  for (std::size_t i = 0; i < margins.size(); ++i) {
    if (margins[i] > 0) cut.push_back(static_cast<std::int64_t>(i));
  }
  const hlo::Value own = c.masked_operand(0, cut, 0);
  const hlo::Value padded = c.w.pad(own, c.w.scalar(0, own.type.dtype), margins, margins);
  return {c.w.dynamic_slice(padded, local_starts(c, part, 1), c.results[0].shape)};
}

hlo::Values update_form(hlo::FormContext& c) {
  const Shape& part = c.whole(c.equation.operands[1]);
  const Ints margins = margins_of(c, part);
  const hlo::Value padded = c.w.pad(c.x(0), c.w.scalar(0, c.x(0).type.dtype), margins, margins);
  hlo::Value result = c.w.dynamic_update_slice(padded, c.x(1), local_starts(c, part, 2));
  for (std::size_t i = 0; i < margins.size(); ++i) {
    result = c.w.slice_dim(result, i, margins[i], margins[i] + c.results[0].shape[i]);
  }
  return {result};
}

}  // namespace

const OpRecord dynamic_slice_op{
    .name = "dynamic_slice",
    .doc =
        "The part of the first operand that has the given sizes and starts at the other operands, "
        "one i32 per dimension. The starts are clamped so that the part lies inside the array.",
    .source = "StableHLO, dynamic_slice",
    .attributes = AttributeNames{"sizes"},
    .types = TypeSet::any,
    .shape = dynamic_slice_shape,
    .vjp = dynamic_slice_vjp,
    .batch = dynamic_slice_batch,
    .factors = dynamic_slice_factors,
    .pattern = Pattern::opaque,
    .host = "dynamic_slice",
    .stablehlo = dynamic_slice_form,
    .reference = dynamic_slice_reference,
    .cost = no_flops,
    .samples =
        Samples{dynamic_slice_sample(f32({5, 6}), {3, 6}),
                dynamic_slice_sample(f32({12, 1, 10}), {1, 1, 7}),
                dynamic_slice_sample(f32({}), {}), dynamic_slice_sample(i32({10, 3}), {5, 2}),
                dynamic_slice_sample(bf16({5, 6}), {3, 6}),
                dynamic_slice_sample(f32({6, 2}), {0, 2})},
};

const OpRecord dynamic_update_slice_op{
    .name = "dynamic_update_slice",
    .doc =
        "The first operand with a part replaced by the second, which starts at the other operands, "
        "one i32 per dimension. The starts are clamped so that the part lies inside the array.",
    .source = "StableHLO, dynamic_update_slice",
    .attributes = AttributeNames{},
    .types = TypeSet::any,
    .shape = update_shape,
    .vjp = update_vjp,
    .batch = update_batch,
    .factors = update_factors,
    .pattern = Pattern::opaque,
    .host = "dynamic_update_slice",
    .stablehlo = update_form,
    .reference = update_reference,
    .cost = no_flops,
    .samples =
        Samples{update_sample(f32({5, 6}), {3, 6}), update_sample(f32({12, 1, 10}), {1, 1, 7}),
                update_sample(f32({}), {}), update_sample(i32({10, 3}), {5, 2}),
                update_sample(bf16({5, 6}), {3, 6}), update_sample(f32({6, 2}), {0, 2})},
};

OpFamily dynamic_slice_ops() { return {&dynamic_slice_op, &dynamic_update_slice_op}; }

}  // namespace tessera::ops
