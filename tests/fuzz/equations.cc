// How equations of each op are generated. Ops without a recipe here use their records: elementwise
// ops take the shapes of existing values, the others use their samples. So a new op is covered
// immediately.
#include <algorithm>

#include "ops/ops.h"
#include "partition/moves.h"
#include "tests/fuzz/program.h"

namespace tessera::fuzz {

namespace {

using Ids = std::vector<ValueId>;

Ints all_dims(std::int64_t rank) {
  Ints dims;
  for (std::int64_t i = 0; i < rank; ++i) dims.push_back(i);
  return dims;
}

/// `count` of the dimensions, in random order.
Ints some_dims(Program& p, std::int64_t rank, std::int64_t count) {
  Ints dims = all_dims(rank);
  p.random().shuffle(dims);
  dims.resize(at(count));
  return dims;
}

// --- shapes

void broadcast(Program& p) {
  const ValueId x = p.any();
  Shape shape = p.shape(x);
  for (std::int64_t& size : shape) {
    if (size == 1 && p.random().chance(60)) size = p.size();
  }
  Ints dims = all_dims(p.type(x).rank());
  for (std::int64_t n = p.random().between(0, 2); n > 0; --n) {
    const std::size_t place = p.random().pick(shape.size() + 1);
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(place), p.size());
    for (std::int64_t& dim : dims) dim += dim >= static_cast<std::int64_t>(place) ? 1 : 0;
  }
  p.emit("broadcast_in_dim", {{"dims", dims}, {"shape", shape}}, {x});
}

void merge_dims(Program& p, Shape& shape) {
  if (shape.size() < 2) return;
  const std::size_t dim = p.random().pick(shape.size() - 1);
  shape[dim] *= shape[dim + 1];
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1);
}

void split_dim(Program& p, Shape& shape) {
  if (shape.empty()) return;
  const std::size_t dim = p.random().pick(shape.size());
  Ints divisors;
  for (std::int64_t d = 2; d <= shape[dim]; ++d) {
    if (shape[dim] % d == 0) divisors.push_back(d);
  }
  if (divisors.empty()) return;
  const std::int64_t part = p.random().choose(divisors);
  shape[dim] /= part;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim + p.random().pick(2)), part);
}

void reshape(Program& p) {
  const ValueId x = p.any();
  Shape shape = p.shape(x);
  for (std::int64_t n = p.random().between(1, 3); n > 0; --n) {
    const std::size_t kind = p.random().pick(5);
    if (kind < 2) merge_dims(p, shape);
    if (kind == 2 || kind == 3) split_dim(p, shape);
    if (kind != 4) continue;
    const auto one = std::find(shape.begin(), shape.end(), 1);
    if (one != shape.end() && p.random().chance(50)) {
      shape.erase(one);
    } else {
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(p.random().pick(shape.size() + 1)),
                   1);
    }
  }
  p.emit("reshape", {{"shape", shape}}, {x});
}

void transpose(Program& p) {
  const ValueId x = p.any(1);
  p.emit("transpose", {{"permutation", some_dims(p, p.type(x).rank(), p.type(x).rank())}}, {x});
}

void slice(Program& p) {
  const ValueId x = p.any(1);
  Ints start, limit, stride;
  for (std::int64_t size : p.shape(x)) {
    const bool is_whole = size == 0 || p.random().chance(50);
    start.push_back(is_whole ? 0 : p.random().between(0, size - 1));
    limit.push_back(is_whole ? size : p.random().between(start.back() + 1, size));
    stride.push_back(is_whole || p.random().chance(50) ? 1 : p.random().between(1, 3));
  }
  p.emit("slice", {{"limit", limit}, {"start", start}, {"stride", stride}}, {x});
}

void pad(Program& p) {
  const ValueId x = p.any(1);
  Ints low, high, interior;
  for (std::size_t i = 0; i < p.shape(x).size(); ++i) {
    low.push_back(p.random().chance(50) ? 0 : p.random().between(0, 3));
    high.push_back(p.random().chance(50) ? 0 : p.random().between(0, 3));
    interior.push_back(p.random().chance(80) ? 0 : p.random().between(1, 2));
  }
  const ValueId fill = p.of_type({p.type(x).dtype, {}});
  p.emit("pad", {{"high", high}, {"interior", interior}, {"low", low}}, {x, fill});
}

void reverse(Program& p) {
  const ValueId x = p.any(1);
  const std::int64_t rank = p.type(x).rank();
  p.emit("reverse", {{"dims", some_dims(p, rank, p.random().between(1, rank))}}, {x});
}

void concatenate(Program& p) {
  const ValueId x = p.any(1);
  const std::int64_t dim = any_dim(p, x);
  Ids parts = {x};
  for (std::int64_t n = p.random().between(0, 2); n > 0; --n) {
    Type type = p.type(x);
    if (p.random().chance(50)) type.shape[at(dim)] = p.size();
    if (num_elements(type.shape) <= 1000) parts.push_back(p.of_type(type));
  }
  p.random().shuffle(parts);
  p.emit("concatenate", {{"dim", dim}}, parts);
}

// --- reductions and contractions

void reduce(Program& p, const ops::OpRecord& op) {
  const bool is_logical = *op.types == ops::TypeSet::boolean;
  const DType dtype = is_logical              ? DType::boolean
                      : p.random().chance(80) ? any_float(p)
                      : p.random().chance(50) ? DType::i32
                                              : DType::u32;
  const ValueId x = fitting(p, op, p.any(dtype, 1));
  const std::int64_t rank = p.type(x).rank();
  const std::int64_t count = p.random().between(1, std::min<std::int64_t>(rank, 3));
  p.emit(*op.name, {{"dims", some_dims(p, rank, count)}}, {x});
}

void argmax(Program& p, std::string_view op) {
  const ValueId x = p.any(p.random().chance(80) ? any_float(p) : DType::i32, 1);
  const std::int64_t dim = any_dim(p, x);
  if (p.shape(x)[at(dim)] > 0) p.emit(op, {{"dim", dim}}, {x});
}

/// Gives each dimension of the left operand a random role, and takes an existing or new right
/// operand that fits.
void dot_general(Program& p) {
  const DType dtype = p.random().chance(85) ? any_float(p) : DType::i32;
  static const std::vector<std::int64_t> long_sizes = {40, 70, 130, 257};
  ValueId x = p.any(dtype);
  if (p.random().chance(25)) {
    Shape shape = {p.random().between(1, 9), p.random().choose(long_sizes)};
    p.random().shuffle(shape);
    x = p.of_type({dtype, shape});
  }
  Ints batch, contract;
  for (std::int64_t dim = 0; dim < p.type(x).rank(); ++dim) {
    const std::size_t role = p.random().pick(10);
    if (role < 2) batch.push_back(dim);
    if (role >= 2 && role < 7) contract.push_back(dim);
  }
  p.random().shuffle(batch);
  p.random().shuffle(contract);
  // Dimensions of the right operand: the left dimension that each corresponds to, or -1 for free
  // ones.
  Ints labels = batch;
  labels.insert(labels.end(), contract.begin(), contract.end());
  for (std::int64_t n = p.random().between(0, 2); n > 0; --n) labels.push_back(-1);
  p.random().shuffle(labels);
  Shape shape;
  Ints rhs_batch(batch.size()), rhs_contract(contract.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    shape.push_back(labels[i] < 0 ? p.random().between(1, 9) : p.shape(x)[at(labels[i])]);
    const auto in_batch = std::find(batch.begin(), batch.end(), labels[i]);
    const auto in_contract = std::find(contract.begin(), contract.end(), labels[i]);
    const auto dim = static_cast<std::int64_t>(i);
    if (in_batch != batch.end()) rhs_batch[at(in_batch - batch.begin())] = dim;
    if (in_contract != contract.end()) rhs_contract[at(in_contract - contract.begin())] = dim;
  }
  if (num_elements(shape) > 2000 || shape.size() > 6) return;
  const ValueId y = p.of_type({dtype, shape});
  p.emit("dot_general",
         {{"lhs_batch", batch},
          {"lhs_contract", contract},
          {"rhs_batch", rhs_batch},
          {"rhs_contract", rhs_contract}},
         {x, y});
}

// --- indexing, sorting, random bits

std::int64_t any_num_batch(Program& p, std::int64_t dim) {
  return p.random().chance(30) ? p.random().between(0, dim) : 0;
}

void gather(Program& p) {
  const ValueId x = p.any(1);
  const std::int64_t dim = any_dim(p, x);
  const std::int64_t num_batch = any_num_batch(p, dim);
  Shape rows = p.shape_of_rank(p.random().between(0, 2));
  const Shape shape = p.shape(x);
  rows.insert(rows.begin(), shape.begin(), shape.begin() + num_batch);
  p.emit("gather", {{"dim", dim}, {"num_batch", num_batch}}, {x, indices(p, rows, shape[at(dim)])});
}

/// `op`: scatter_add, scatter_max or scatter_min.
void scatter_join(Program& p, const char* op) {
  const ValueId updates = p.any(p.random().chance(80) ? DType::f32 : DType::i32, 1);
  const std::int64_t dim = any_dim(p, updates);
  const std::int64_t end = p.random().between(dim, p.type(updates).rank());
  const Shape shape = p.shape(updates);
  const std::int64_t num_batch = any_num_batch(p, dim);
  Shape rows(shape.begin() + dim, shape.begin() + end);
  rows.insert(rows.begin(), shape.begin(), shape.begin() + num_batch);
  const std::int64_t size = p.size();
  const ValueId where = indices(p, rows, size);
  p.emit(op, {{"dim", dim}, {"num_batch", num_batch}, {"size", size}}, {where, updates});
}

void sort(Program& p) {
  const ValueId key = p.any(1);
  Ids operands = {key};
  for (std::int64_t n = p.random().between(0, 2); n > 0; --n) {
    operands.push_back(p.of_type({p.type(p.any()).dtype, p.shape(key)}));
  }
  p.emit("sort", {{"dim", any_dim(p, key)}}, operands);
}

/// A scalar key, or an array of keys.
ValueId any_key(Program& p) {
  Shape shape = p.random().chance(30) ? p.shape_of_rank(p.random().between(1, 2)) : Shape{};
  shape.push_back(2);
  return p.like({{DType::u32, std::move(shape)}, 0.0, 4294967295.0});
}

void random_bits(Program& p) { p.emit("random_bits", {{"shape", p.any_shape()}}, {any_key(p)}); }

void random_split(Program& p) { p.emit("random_split", {{"num", p.size()}}, {any_key(p)}); }

void random_fold_in(Program& p) {
  const ValueId key = any_key(p);
  Shape batch = p.shape(key);
  batch.pop_back();
  p.emit("random_fold_in", {}, {key, p.like({{DType::u32, std::move(batch)}, 0.0, 100.0})});
}

// --- creation, placement

DType any_dtype(Program& p) {
  static const std::vector<DType> dtypes = {DType::f32, DType::f32, DType::i32, DType::u32};
  static const std::vector<DType> others = {DType::bf16, DType::bf16, DType::bf16, DType::i8,
                                            DType::i16,  DType::i64,  DType::u8,   DType::u16,
                                            DType::u64,  DType::f16,  DType::f64};
  return p.random().choose(p.random().chance(25) ? others : dtypes);
}

void constant(Program& p) {
  static const std::vector<double> numbers = {0.0, -0.0, 1.0, -2.5, 1e-40, 0.1};
  p.emit("constant",
         {{"dtype", p.random().chance(10) ? DType::boolean : any_dtype(p)},
          {"shape", p.any_shape()},
          {"value", p.random().choose(numbers)}},
         {});
}

void iota(Program& p) {
  const Shape shape = p.shape_of_rank(p.random().between(1, 3));
  const std::int64_t dim = p.random().between(0, static_cast<std::int64_t>(shape.size()) - 1);
  p.emit("iota", {{"dim", dim}, {"dtype", any_dtype(p)}, {"shape", shape}}, {});
}

void sharding_constraint(Program& p) {
  const ValueId x = p.any(1);
  Sharding sharding = random_sharding(p.random(), p.function().mesh, p.shape(x));
  for (std::size_t dim = 0; dim < sharding.dims.size(); ++dim) {
    if (p.random().chance(25)) sharding.open.push_back(dim);
  }
  p.emit("sharding_constraint", {{"sharding", sharding}}, {x});
}

/// NaN bits may differ between engines, so NaNs become zeros before their bits are read.
void bitcast(Program& p) {
  static const std::vector<DType> dtypes = {DType::f32, DType::i32, DType::u32};
  ValueId x = p.any(p.random().choose(dtypes));
  if (p.type(x).dtype == DType::f32) {
    const ValueId is_number =
        p.emit_anyway("compare", {{"direction", std::string("eq")}}, {x, x}).at(0);
    const ValueId zero =
        p.emit_anyway("constant", {{"dtype", DType::f32}, {"shape", p.shape(x)}, {"value", 0.0}},
                      {})
            .at(0);
    x = p.emit_anyway("select", {}, {is_number, x, zero}).at(0);
  }
  p.emit("bitcast", {{"dtype", p.random().choose(dtypes)}}, {x});
}

// --- all others

/// Uses a sample of an elementwise op, with the shape of an existing value.
void elementwise(Program& p, const ops::OpRecord& op) {
  ops::Sample sample = p.random().choose(*op.samples);
  const ValueId first = p.any(sample.operands.at(0).type.dtype);
  Ids operands = {first};
  for (std::size_t i = 1; i < sample.operands.size(); ++i) {
    sample.operands[i].type.shape = p.shape(first);
    operands.push_back(p.like(sample.operands[i]));
  }
  if (sample.attributes.has("direction")) {
    static const std::vector<std::string> directions = {"eq", "ne", "lt", "le", "gt", "ge"};
    sample.attributes.set("direction", p.random().choose(directions));
  }
  p.emit(*op.name, sample.attributes, operands);
}

void from_sample(Program& p, const ops::OpRecord& op) {
  const ops::Sample& sample = p.random().choose(*op.samples);
  Ids operands;
  for (const ops::SampleOperand& operand : sample.operands) operands.push_back(p.like(operand));
  p.emit(*op.name, sample.attributes, operands);
}

/// Tokens are 0 until the compiler connects them.
void host_callback(Program& p) {
  const ValueId token =
      p.emit_anyway("constant", {{"dtype", DType::u32}, {"shape", Ints{}}, {"value", 0.0}}, {})
          .at(0);
  const ops::Sample& sample = p.random().choose(*ops::host_callback_op.samples);
  Ids operands = {token};
  for (std::size_t i = 1; i < sample.operands.size(); ++i) {
    operands.push_back(p.like(sample.operands[i]));
  }
  p.emit("host_callback", sample.attributes, operands);
}

Recipe recipe_of(const ops::OpRecord& op, const Recipes& recipes) {
  const auto found = recipes.find(*op.name);
  if (found != recipes.end()) return found->second;
  const bool is_reduction = *op.host == "reduce" || *op.host == "reduce_prod";
  if (is_reduction) {
    const int weight = *op.name == "reduce_sum" ? 10 : 3;
    return {weight, [&op](Program& p) { reduce(p, op); }};
  }
  const bool is_elementwise =
      *op.pattern == ops::Pattern::elementwise || *op.name == "stop_gradient";
  if (is_elementwise) return {2, [&op](Program& p) { elementwise(p, op); }};
  // Programs with ops that other compilers lack are not compared with these.
  const int weight = op.stablehlo.has_form() ? 2 : 1;
  return {weight, [&op](Program& p) { from_sample(p, op); }};
}

/// The recipes of all ops, each repeated as often as its weight. Left out are collectives, which
/// the partitioner inserts, and tasks and transfers, which are made from partitioned programs.
std::vector<Recipe> weighted_recipes() {
  Recipes special = leaf_recipes();
  special.merge(axis_recipes());
  special.merge(window_and_index_recipes());
  special.merge(control_recipes());
  std::vector<Recipe> recipes;
  for (const ops::OpRecord* op : ops::all_ops()) {
    const bool is_late = partition::kind_of(*op) || op == &ops::task_op || op == &ops::transfer_op;
    if (is_late) continue;
    const Recipe recipe = recipe_of(*op, special);
    for (int i = 0; i < recipe.weight; ++i) recipes.push_back(recipe);
  }
  return recipes;
}

}  // namespace

DType any_float(Program& p) {
  static const std::vector<DType> halves = {DType::bf16, DType::bf16, DType::f16};
  return p.random().chance(25) ? p.random().choose(halves) : DType::f32;
}

ValueId fitting(Program& p, const ops::OpRecord& op, ValueId x) {
  if (ops::contains(*op.types, p.type(x).dtype)) return x;
  return p.emit_anyway("convert", {{"dtype", DType::f32}}, {x}).at(0);
}

std::int64_t any_dim(Program& p, ValueId x) { return p.random().between(0, p.type(x).rank() - 1); }

ValueId indices(Program& p, Shape shape, std::int64_t size) {
  return p.add_input({.type = {DType::i32, std::move(shape)},
                      .low = p.random().chance(30) ? -2.0 : 0.0,
                      .high = static_cast<double>(size - (p.random().chance(70) ? 1 : 0))});
}

Recipes leaf_recipes() {
  return {{"argmax", {3, [](Program& p) { argmax(p, "argmax"); }}},
          {"argmin", {1, [](Program& p) { argmax(p, "argmin"); }}},
          {"bitcast", {2, bitcast}},
          {"broadcast_in_dim", {7, broadcast}},
          {"concatenate", {6, concatenate}},
          {"constant", {2, constant}},
          {"dot_general", {14, dot_general}},
          {"gather", {6, gather}},
          {"host_callback", {1, host_callback}},
          {"iota", {2, iota}},
          {"pad", {4, pad}},
          {"random_bits", {3, random_bits}},
          {"random_fold_in", {1, random_fold_in}},
          {"random_split", {1, random_split}},
          {"reshape", {10, reshape}},
          {"reverse", {3, reverse}},
          {"scatter_add", {6, [](Program& p) { scatter_join(p, "scatter_add"); }}},
          {"scatter_max", {2, [](Program& p) { scatter_join(p, "scatter_max"); }}},
          {"scatter_min", {1, [](Program& p) { scatter_join(p, "scatter_min"); }}},
          {"sharding_constraint", {9, sharding_constraint}},
          {"slice", {5, slice}},
          {"sort", {3, sort}},
          {"transpose", {6, transpose}}};
}

void add_random_equation(Program& program) {
  static const std::vector<Recipe> recipes = weighted_recipes();
  program.random().choose(recipes).add(program);
}

}  // namespace tessera::fuzz
