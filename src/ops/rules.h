// Rules that several records share, and helpers to write the others.
//
// These are functions, not constants: records are initialised in any order of files.
#pragma once

#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ops/emit.h"
#include "ops/record.h"

namespace tessera::ops {

// --- shapes

/// A dimension number; sizes and dimensions are signed, positions in vectors are not.
inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void expect_operands(const ShapeContext& c, std::size_t count);
/// Operands `first` and after all have the same type.
void expect_same_types(const ShapeContext& c, std::size_t first = 0);
/// The operand holds indices.
void expect_indices(const ShapeContext& c, std::size_t operand);
/// Attributes of the right kind, or a UserError.
const Ints& ints_of(const ShapeContext& c, std::string_view attribute);
std::int64_t integer_of(const ShapeContext& c, std::string_view attribute);
bool boolean_of(const ShapeContext& c, std::string_view attribute);
DType dtype_of(const ShapeContext& c, std::string_view attribute);
const std::string& string_of(const ShapeContext& c, std::string_view attribute);
/// The attribute names a dimension of an array of rank `rank`.
std::int64_t dim_of(const ShapeContext& c, std::string_view attribute, std::int64_t rank);
/// The attribute lists distinct dimensions of an array of rank `rank`.
const Ints& dims_of(const ShapeContext& c, std::string_view attribute, std::int64_t rank);
/// The attribute is a shape: no negative sizes, no more elements than fit in 62 bits.
const Ints& shape_of(const ShapeContext& c, std::string_view attribute);
bool contains_dim(const Ints& dims, std::int64_t dim);
/// Consecutive dimension numbers from `start`.
Ints dims_from(std::int64_t start, std::size_t count);
/// Whether `numbers` has every number from 0 to size - 1 once.
bool is_permutation(Ints numbers, std::int64_t size);
/// Where each number stands in a permutation.
Ints inverse_of(const Ints& permutation);
Shape without_dims(const Shape& shape, const Ints& dims);

/// One operand; the result has its type.
std::vector<Type> same_as_operand(const ShapeContext& c);
/// Two operands of one type, which the result has.
std::vector<Type> same_as_both(const ShapeContext& c);
/// Any number of operands; the results have their types.
std::vector<Type> same_as_operands(const ShapeContext& c);

// --- derivatives

/// One function per operand, called only where its cotangent is wanted.
VjpRule per_operand(std::vector<std::function<ValueId(VjpContext&)>> rules);
/// The derivative is zero wherever it exists.
Cotangents zero_vjp(VjpContext& c);

// --- batching

/// The same op on whole batches: for ops that work element by element without attributes that
/// name dimensions.
std::vector<ValueId> elementwise_batch(BatchContext& c);
/// The same op on whole batches, with its dimension or dimensions in `attribute` behind the batch
/// dimension.
BatchRule shifted_batch(std::string attribute);
/// Dimension numbers behind a batch dimension.
Ints behind_batch(Ints dims);
/// `sizes` behind `first`, as a batch dimension stands before the others.
Ints with_first(std::int64_t first, Ints sizes);
/// `x` for each element of a batch.
ValueId repeat(Builder& b, ValueId x, std::int64_t size);
/// Moves dimension `from` to the front.
ValueId move_to_front(Builder& b, ValueId x, std::int64_t from);

// --- sharding factors

int add_factor(Factors& factors, std::int64_t size, FactorKind kind = FactorKind::pass);
/// Fresh factors, one per dimension.
Factors::Dims add_dims(Factors& factors, const Shape& shape, FactorKind kind = FactorKind::pass);
/// Adds the window, and its entry in `operands`.
void add_window(Factors& factors, OperandWindow window);
/// All operands and results have the same shape and are worked on element by element.
Factors elementwise_factors(const Attributes& attributes, const std::vector<Type>& operands,
                            const std::vector<Type>& results);
/// Nothing may be split.
Factors whole_factors(const Attributes& attributes, const std::vector<Type>& operands,
                      const std::vector<Type>& results);
/// Where the dimensions of operand 0 are factors of kind `permute`.
std::vector<std::size_t> permuted_dims(const Factors& factors);
/// Result i is operand i, element by element; pairs may differ in shape.
Factors identity_factors(const Attributes& attributes, const std::vector<Type>& operands,
                         const std::vector<Type>& results);

// --- cost

CostRule flops_per_element(double flops);
CostRule flops_per_operand_element(double flops);
double no_flops(const Attributes& attributes, const std::vector<Type>& operands,
                const std::vector<Type>& results);

// --- samples

inline Type f32(Shape shape) { return {DType::f32, std::move(shape)}; }
inline Type bf16(Shape shape) { return {DType::bf16, std::move(shape)}; }
inline Type i32(Shape shape) { return {DType::i32, std::move(shape)}; }
inline Type u32(Shape shape) { return {DType::u32, std::move(shape)}; }
inline Type boolean(Shape shape) { return {DType::boolean, std::move(shape)}; }

/// Transcendental functions: host against reference.
inline constexpr double kFunctionUlp = 4.0;

/// f32 operands of equal shapes with values in [low, high].
Samples float_samples(std::size_t num_operands, double low, double high, double max_ulp = 0.0);
/// The same and integers.
Samples number_samples(std::size_t num_operands, double low = -2.0, double high = 2.0);
/// Integers of both kinds.
Samples integer_samples(std::size_t num_operands);
/// Booleans and integers with values in [0, high].
Samples bit_samples(std::size_t num_operands, double high = 4e9);

}  // namespace tessera::ops
