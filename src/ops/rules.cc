#include "ops/rules.h"

#include <algorithm>
#include <numeric>

#include <tessera/error.h>

#include "base/leaf_tree.h"

namespace tessera::ops {

namespace {

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

template <typename T>
const T& attribute_of(const ShapeContext& c, std::string_view attribute, const char* kind) {
  for (const auto& [name, value] : c.attributes.items()) {
    if (name != attribute) continue;
    if (const T* found = std::get_if<T>(&value)) return *found;
  }
  c.fail("attribute " + quoted(attribute) + " is of the wrong kind",
         std::string(attribute) + " is " + kind, "write " + std::string(attribute) + " as " + kind);
}

}  // namespace

// --- shapes

void expect_operands(const ShapeContext& c, std::size_t count) {
  if (c.operands.size() == count) return;
  c.fail("wrong number of operands", std::to_string(count) + " operands",
         "pass " + std::to_string(count) + " arrays");
}

void expect_same_types(const ShapeContext& c, std::size_t first) {
  for (std::size_t i = first + 1; i < c.operands.size(); ++i) {
    if (c.operands[i].dtype != c.operands[first].dtype) {
      const DType one = c.operands[first].dtype;
      const DType wanted = one == DType::boolean ? c.operands[i].dtype : one;
      c.fail(
          "operands have different dtypes", "the same dtype for all operands",
          "convert one of them, for example astype(x, DType::" + std::string(name(wanted)) + ")");
    }
    if (c.operands[i].shape != c.operands[first].shape) {
      c.fail("operands have different shapes", "the same shape for all operands",
             "broadcast the smaller one with broadcast_to, or transpose or reshape one of them");
    }
  }
}

void expect_indices(const ShapeContext& c, std::size_t operand) {
  if (c.operands[operand].dtype == DType::i32) return;
  c.fail("the indices have dtype " + std::string(name(c.operands[operand].dtype)),
         "indices of dtype i32", "convert them with astype(indices, DType::i32)");
}

const Ints& ints_of(const ShapeContext& c, std::string_view attribute) {
  return attribute_of<Ints>(c, attribute, "a list of integers");
}

std::int64_t integer_of(const ShapeContext& c, std::string_view attribute) {
  return attribute_of<std::int64_t>(c, attribute, "an integer");
}

double number_of(const ShapeContext& c, std::string_view attribute) {
  return attribute_of<double>(c, attribute, "a number");
}

bool boolean_of(const ShapeContext& c, std::string_view attribute) {
  return attribute_of<bool>(c, attribute, "true or false");
}

DType dtype_of(const ShapeContext& c, std::string_view attribute) {
  return attribute_of<DType>(c, attribute, "a dtype");
}

const std::string& string_of(const ShapeContext& c, std::string_view attribute) {
  return attribute_of<std::string>(c, attribute, "a string");
}

std::int64_t dim_of(const ShapeContext& c, std::string_view attribute, std::int64_t rank) {
  const std::int64_t dim = integer_of(c, attribute);
  if (dim < 0 || dim >= rank) {
    c.fail("dimension " + std::to_string(dim) + " does not exist in an array of rank " +
               std::to_string(rank),
           rank == 0 ? "an array with at least one dimension"
                     : "a dimension from 0 to " + std::to_string(rank - 1),
           "name an existing dimension; only the public functions accept -1, which counts from the "
           "end");
  }
  return dim;
}

const Ints& dims_of(const ShapeContext& c, std::string_view attribute, std::int64_t rank) {
  const Ints& dims = ints_of(c, attribute);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || dims[i] >= rank) {
      c.fail(std::string(attribute) + " = " + tessera::to_string(dims) + " names dimension " +
                 std::to_string(dims[i]) + " of an array of rank " + std::to_string(rank),
             "dimensions from 0 to " + std::to_string(rank - 1), "name existing dimensions only");
    }
    if (std::count(dims.begin(), dims.end(), dims[i]) > 1) {
      c.fail(std::string(attribute) + " = " + tessera::to_string(dims) + " names dimension " +
                 std::to_string(dims[i]) + " twice",
             "each dimension at most once", "drop the repeated dimension");
    }
  }
  return dims;
}

const Ints& shape_of(const ShapeContext& c, std::string_view attribute) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;
  const Ints& shape = ints_of(c, attribute);
  std::int64_t elements = 1;
  for (std::int64_t size : shape) {
    if (size < 0) {
      c.fail(std::string(attribute) + " = " + tessera::to_string(shape) + " has a negative size",
             "sizes of 0 or more", "compute the missing size and write it out");
    }
    if (size > 0 && elements > kMaxElements / size) {
      c.fail(std::string(attribute) + " = " + tessera::to_string(shape) + " is too large",
             "fewer than 2^62 elements", "check the sizes");
    }
    elements *= std::max<std::int64_t>(size, 1);
  }
  return shape;
}

bool contains_dim(const Ints& dims, std::int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

Ints dims_from(std::int64_t start, std::size_t count) {
  Ints dims(count);
  std::iota(dims.begin(), dims.end(), start);
  return dims;
}

bool is_permutation(Ints numbers, std::int64_t size) {
  std::sort(numbers.begin(), numbers.end());
  return static_cast<std::int64_t>(numbers.size()) == size && numbers == dims_from(0, at(size));
}

Ints inverse_of(const Ints& permutation) {
  Ints inverse(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    inverse[at(permutation[i])] = static_cast<std::int64_t>(i);
  }
  return inverse;
}

Shape without_dims(const Shape& shape, const Ints& dims) {
  Shape result;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!contains_dim(dims, static_cast<std::int64_t>(i))) result.push_back(shape[i]);
  }
  return result;
}

void expect_grains(const ShapeContext& c, std::size_t count) {
  if (!c.attributes.has(kGrains)) return;
  constexpr std::int64_t kMost = std::int64_t{1} << 24U;  // all of them are listed
  const Ints& grains = ints_of(c, kGrains);
  std::int64_t all = 1;
  for (std::int64_t n : grains) {
    if (all > 0) all = n < 1 || n > kMost / all ? 0 : all * n;
  }
  if (grains.size() == count && all > 0) return;
  c.fail("grains = " + tessera::to_string(grains) + " does not fit the dimensions of the sum",
         std::to_string(count) + " numbers of 1 or more, whose product is at most 2^24",
         "remove 'grains', or write one number for each dimension that is summed over");
}

Ints grains_of(const Attributes& attributes, const Shape& sizes, std::int64_t grains) {
  if (attributes.has(kGrains)) return attributes.ints(kGrains);
  return leaf_counts(sizes, grains);
}

std::vector<Type> same_as_operand(const ShapeContext& c) {
  expect_operands(c, 1);
  return {c.operands[0]};
}

std::vector<Type> same_as_both(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_same_types(c);
  return {c.operands[0]};
}

std::vector<Type> same_as_operands(const ShapeContext& c) { return c.operands; }

// --- derivatives

VjpRule per_operand(std::vector<std::function<ValueId(VjpContext&)>> rules) {
  return [rules = std::move(rules)](VjpContext& c) -> Cotangents {
    Cotangents cotangents(rules.size(), ir::kNoValue);
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (c.is_wanted[i]) cotangents[i] = rules[i](c);
    }
    return cotangents;
  };
}

Cotangents zero_vjp(VjpContext& c) { return Cotangents(c.equation.operands.size(), ir::kNoValue); }

// --- batching

std::vector<ValueId> elementwise_batch(BatchContext& c) {
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < c.operands.size(); ++i) operands.push_back(c.batched(i));
  return c.b.emit_all(*c.equation.op, c.equation.attributes, std::move(operands));
}

BatchRule shifted_batch(std::string attribute) {
  return [attribute = std::move(attribute)](BatchContext& c) {
    Attributes attributes = c.equation.attributes;
    for (const auto& [name, value] : c.equation.attributes.items()) {
      if (name != attribute) continue;
      if (const auto* dim = std::get_if<std::int64_t>(&value)) attributes.set(name, *dim + 1);
      if (const auto* dims = std::get_if<Ints>(&value)) attributes.set(name, behind_batch(*dims));
    }
    std::vector<ValueId> operands;
    for (std::size_t i = 0; i < c.operands.size(); ++i) operands.push_back(c.batched(i));
    return c.b.emit_all(*c.equation.op, std::move(attributes), std::move(operands));
  };
}

Ints behind_batch(Ints dims) {
  for (std::int64_t& dim : dims) ++dim;
  return dims;
}

Ints with_first(std::int64_t first, Ints sizes) {
  sizes.insert(sizes.begin(), first);
  return sizes;
}

ValueId repeat(Builder& b, ValueId x, std::int64_t size) {
  const Shape shape = b.type(x).shape;
  Ints dims(shape.size());
  std::iota(dims.begin(), dims.end(), std::int64_t{1});
  return broadcast_in_dim(b, x, std::move(dims), with_first(size, shape));
}

ValueId move_to_front(Builder& b, ValueId x, std::int64_t from) {
  Ints permutation = {from};
  for (std::int64_t dim = 0; dim < b.type(x).rank(); ++dim) {
    if (dim != from) permutation.push_back(dim);
  }
  return transpose(b, x, std::move(permutation));
}

// --- sharding factors

int add_factor(Factors& factors, std::int64_t size, FactorKind kind) {
  factors.factors.push_back({.size = size, .kind = kind});
  return static_cast<int>(factors.factors.size()) - 1;
}

Factors::Dims add_dims(Factors& factors, const Shape& shape, FactorKind kind) {
  Factors::Dims dims;
  for (std::int64_t size : shape) dims.push_back({add_factor(factors, size, kind)});
  return dims;
}

void add_window(Factors& factors, OperandWindow window) {
  const auto rows = [&](const OperandWindow::Term& term) {
    return std::abs(term.step) * factors.factors[at(term.factor)].size;
  };
  // The factor that covers most of the dimension stands for it: its shards need the fewest rows
  // from other shards.
  const auto widest =
      std::max_element(window.terms.begin(), window.terms.end(),
                       [&](const auto& a, const auto& b) { return rows(a) < rows(b); });
  factors.operands[window.operand][window.dim] = {widest->factor};
  factors.windows.push_back(std::move(window));
}

Factors elementwise_factors(const Attributes&, const std::vector<Type>& operands,
                            const std::vector<Type>& results) {
  Factors factors;
  const Factors::Dims dims = add_dims(factors, results[0].shape);
  factors.operands.assign(operands.size(), dims);
  factors.results.assign(results.size(), dims);
  return factors;
}

Factors whole_factors(const Attributes&, const std::vector<Type>& operands,
                      const std::vector<Type>& results) {
  Factors factors;
  for (const Type& type : operands) {
    factors.operands.push_back(add_dims(factors, type.shape, FactorKind::replicate));
  }
  for (const Type& type : results) {
    factors.results.push_back(add_dims(factors, type.shape, FactorKind::replicate));
  }
  return factors;
}

std::vector<std::size_t> permuted_dims(const Factors& factors) {
  std::vector<std::size_t> permuted;
  if (factors.operands.empty()) return permuted;
  for (std::size_t dim = 0; dim < factors.operands[0].size(); ++dim) {
    for (int factor : factors.operands[0][dim]) {
      if (factors.factors[at(factor)].kind == FactorKind::permute) permuted.push_back(dim);
    }
  }
  return permuted;
}

Factors identity_factors(const Attributes&, const std::vector<Type>& operands,
                         const std::vector<Type>&) {
  Factors factors;
  for (const Type& type : operands) {
    factors.operands.push_back(add_dims(factors, type.shape));
  }
  factors.results = factors.operands;
  return factors;
}

// --- cost

CostRule flops_per_element(double flops) {
  return [flops](const Attributes&, const std::vector<Type>&, const std::vector<Type>& results) {
    return flops * static_cast<double>(num_elements(results[0].shape));
  };
}

CostRule flops_per_operand_element(double flops) {
  return [flops](const Attributes&, const std::vector<Type>& operands, const std::vector<Type>&) {
    return flops * static_cast<double>(num_elements(operands[0].shape));
  };
}

double no_flops(const Attributes&, const std::vector<Type>&, const std::vector<Type>&) {
  return 0.0;
}

// --- samples

namespace {

Sample sample_of(std::size_t num_operands, const SampleOperand& operand, double max_ulp = 0.0) {
  return {.operands = std::vector<SampleOperand>(num_operands, operand), .max_ulp = max_ulp};
}

}  // namespace

Samples float_samples(std::size_t num_operands, double low, double high, double max_ulp) {
  Samples samples;
  for (const Shape& shape : {Shape{5, 6}, Shape{12, 1}, Shape{10}, Shape{}}) {
    samples.push_back(sample_of(num_operands, {f32(shape), low, high}, max_ulp));
  }
  samples.push_back(sample_of(num_operands, {bf16({3, 6}), low, high}, max_ulp));
  return samples;
}

Samples number_samples(std::size_t num_operands, double low, double high) {
  Samples samples = float_samples(num_operands, low, high);
  samples.push_back(sample_of(num_operands, {i32({3, 10}), -9.0, 9.0}));
  samples.push_back(sample_of(num_operands, {u32({1, 6}), 1.0, 4e9}));
  return samples;
}

Samples integer_samples(std::size_t num_operands) {
  return {sample_of(num_operands, {i32({3, 10}), -2e9, 2e9}),
          sample_of(num_operands, {u32({1, 6}), 0.0, 4e9}),
          sample_of(num_operands, {i32({12, 1}), 0.0, 99.0})};
}

Samples bit_samples(std::size_t num_operands, double high) {
  return {sample_of(num_operands, {boolean({5, 6}), 0.0, 1.0}),
          sample_of(num_operands, {i32({12, 1}), 0.0, std::min(high, 2e9)}),
          sample_of(num_operands, {u32({10}), 0.0, high})};
}

}  // namespace tessera::ops
