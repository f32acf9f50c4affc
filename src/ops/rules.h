// Rules that several records share, and helpers for writing other rules.
//
// These are functions, not constants, because the order in which files initialise their records is
// undefined.
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

/// Converts a size or a dimension number, which are signed, to an index into a vector.
inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void expect_operands(const ShapeContext& c, std::size_t count);
/// Operand `first` and all operands after it must have the same type.
void expect_same_types(const ShapeContext& c, std::size_t first = 0);
/// The operand must hold indices.
void expect_indices(const ShapeContext& c, std::size_t operand);
/// The attribute's value. Throws UserError if the attribute is missing or has another kind.
const Ints& ints_of(const ShapeContext& c, std::string_view attribute);
std::int64_t integer_of(const ShapeContext& c, std::string_view attribute);
double number_of(const ShapeContext& c, std::string_view attribute);
bool boolean_of(const ShapeContext& c, std::string_view attribute);
DType dtype_of(const ShapeContext& c, std::string_view attribute);
const std::string& string_of(const ShapeContext& c, std::string_view attribute);
/// The attribute must be a dimension of an array of rank `rank`.
std::int64_t dim_of(const ShapeContext& c, std::string_view attribute, std::int64_t rank);
/// The attribute must list distinct dimensions of an array of rank `rank`.
const Ints& dims_of(const ShapeContext& c, std::string_view attribute, std::int64_t rank);
/// The attribute must be a shape without negative sizes whose element count fits in 62 bits.
const Ints& shape_of(const ShapeContext& c, std::string_view attribute);
bool contains_dim(const Ints& dims, std::int64_t dim);
/// `count` consecutive dimension numbers from `start` on.
Ints dims_from(std::int64_t start, std::size_t count);
/// Whether `numbers` contains every number from 0 to size - 1 exactly once.
bool is_permutation(Ints numbers, std::int64_t size);
/// The inverse permutation.
Ints inverse_of(const Ints& permutation);
Shape without_dims(const Shape& shape, const Ints& dims);

// --- the order of sums

/// The optional attribute of sums that says how many grains each reduced dimension has.
inline constexpr std::string_view kGrains = "grains";
/// If the attribute is there, it must list a number of grains for each of `count` dimensions.
void expect_grains(const ShapeContext& c, std::size_t count);
/// How many grains each reduced dimension has, from the attribute or else from leaf_counts().
Ints grains_of(const Attributes& attributes, const Shape& sizes, std::int64_t grains);

/// Requires one operand; the result has its type.
std::vector<Type> same_as_operand(const ShapeContext& c);
/// Requires two operands of one type; the result has that type.
std::vector<Type> same_as_both(const ShapeContext& c);
/// Takes any number of operands; the results have their types.
std::vector<Type> same_as_operands(const ShapeContext& c);

// --- derivatives

/// One function per operand; it is called only if the cotangent of that operand is wanted.
VjpRule per_operand(std::vector<std::function<ValueId(VjpContext&)>> rules);
/// For ops whose derivative is zero wherever it exists.
Cotangents zero_vjp(VjpContext& c);

// --- batching

/// Applies the same op to the whole batch. For elementwise ops without attributes that refer to
/// dimensions.
std::vector<ValueId> elementwise_batch(BatchContext& c);
/// Applies the same op to the whole batch, with the dimensions in `attribute` shifted by one to
/// make room for the batch dimension.
BatchRule shifted_batch(std::string attribute);
/// Dimension numbers shifted by one, to make room for a batch dimension at the front.
Ints behind_batch(Ints dims);
/// `sizes` preceded by `first`, the size of a batch dimension.
Ints with_first(std::int64_t first, Ints sizes);
/// Broadcasts `x` along a new batch dimension of this size at the front.
ValueId repeat(Builder& b, ValueId x, std::int64_t size);
/// Transposes `x` so that dimension `from` comes first.
ValueId move_to_front(Builder& b, ValueId x, std::int64_t from);

// --- sharding factors

int add_factor(Factors& factors, std::int64_t size, FactorKind kind = FactorKind::pass);
/// Adds one new factor per dimension.
Factors::Dims add_dims(Factors& factors, const Shape& shape, FactorKind kind = FactorKind::pass);
/// Adds the window and, in `operands`, the factor that stands for its dimension.
void add_window(Factors& factors, OperandWindow window);
/// For elementwise ops: all operands and results have the same shape.
Factors elementwise_factors(const Attributes& attributes, const std::vector<Type>& operands,
                            const std::vector<Type>& results);
/// For ops none of whose dimensions may be split.
Factors whole_factors(const Attributes& attributes, const std::vector<Type>& operands,
                      const std::vector<Type>& results);
/// The dimensions of operand 0 whose factors are of kind `permute`.
std::vector<std::size_t> permuted_dims(const Factors& factors);
/// Result i equals operand i elementwise; different pairs may have different shapes.
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

/// The error that transcendental functions may have, in ulp: host against reference.
inline constexpr double kFunctionUlp = 4.0;

/// f32 operands of equal shapes with values in [low, high].
Samples float_samples(std::size_t num_operands, double low, double high, double max_ulp = 0.0);
/// The same for all number types.
Samples number_samples(std::size_t num_operands, double low = -2.0, double high = 2.0);
/// Samples of i32 and of u32.
Samples integer_samples(std::size_t num_operands);
/// Booleans and integers with values in [0, high].
Samples bit_samples(std::size_t num_operands, double high = 4e9);

}  // namespace tessera::ops
