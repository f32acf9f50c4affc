// Operands and attributes in IR text that do not fit their op.
#include <gtest/gtest.h>

#include "ir/text.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

/// The error of a function with these inputs and one equation, which computes %9.
std::string error_of(const std::string& inputs, const std::string& equation) {
  const std::string text = "function f[mesh=\"data=2\", grains=8](" + inputs +
                           ") {\n  %9: " + equation + "\n  return %9\n}\n";
  return caught([&] { ir::parse(text); }).text;
}

TEST(OpErrors, NoSuchReduction) {
  const std::string text = error_of("%0: f32[4]", "f32[4] = all_reduce[reduction=\"mean\"] %0");
  EXPECT_EQ(text,
            "parse: line 2: unknown reduction 'mean'\n"
            "  found:  mean in '%9: f32[4] = all_reduce[reduction=\"mean\"] %0'\n"
            "  wanted: sum, max, min, and, or, bit_or\n"
            "  cure:   use one of these names");
}

TEST(OpErrors, ReductionOfBools) {
  const std::string text = error_of("%0: bool[4]", "bool[4] = all_reduce[reduction=\"sum\"] %0");
  EXPECT_EQ(text,
            "parse: line 2: all_reduce: the reduction 'sum' does not support this dtype\n"
            "  found:  bool[4] in '%9: bool[4] = all_reduce[reduction=\"sum\"] %0'\n"
            "  wanted: and, or for booleans; sum, max, min for numbers; bit_or for both\n"
            "  cure:   use a reduction that supports the dtype");
}

TEST(OpErrors, ConstraintOfAnotherRank) {
  const std::string text =
      error_of("%0: f32[4]", "f32[4] = sharding_constraint[sharding=<{},{}>] %0");
  EXPECT_EQ(text,
            "parse: line 2: sharding_constraint: the sharding has the wrong rank\n"
            "  found:  f32[4] in '%9: f32[4] = sharding_constraint[sharding=<{},{}>] %0'\n"
            "  wanted: a sharding with 1 dimensions\n"
            "  cure:   give with_sharding_constraint a spec with one entry per dimension");
}

TEST(OpErrors, NoSuchComparison) {
  const std::string text = error_of("%0: f32[4]", "bool[4] = compare[direction=\"above\"] %0, %0");
  EXPECT_EQ(text,
            "parse: line 2: compare: unknown comparison 'above'\n"
            "  found:  f32[4], f32[4] in '%9: bool[4] = compare[direction=\"above\"] %0, %0'\n"
            "  wanted: eq, ne, lt, le, gt or ge\n"
            "  cure:   use one of these names");
}

TEST(OpErrors, ConditionIsNoBool) {
  const std::string text = error_of("%0: f32[4]", "f32[4] = select %0, %0, %0");
  EXPECT_EQ(text,
            "parse: line 2: select: the condition is not boolean\n"
            "  found:  f32[4], f32[4], f32[4] in '%9: f32[4] = select %0, %0, %0'\n"
            "  wanted: a bool array as the first operand\n"
            "  cure:   compare first, for example where(not_equal(x, 0), ...)");
}

TEST(OpErrors, ConditionOfAnotherShape) {
  const std::string text = error_of("%0: bool[2], %1: f32[4]", "f32[4] = select %0, %1, %1");
  EXPECT_EQ(text,
            "parse: line 2: select: the condition and the values have different shapes\n"
            "  found:  bool[2], f32[4], f32[4] in '%9: f32[4] = select %0, %1, %1'\n"
            "  wanted: the same shape for all operands\n"
            "  cure:   broadcast the condition with broadcast_to");
}

TEST(OpErrors, UnpairedDimensions) {
  const std::string text = error_of("%0: f32[4,4]",
                                    "f32[4] = dot_general[lhs_batch=[], lhs_contract=[0,1], "
                                    "rhs_batch=[], rhs_contract=[0]] %0, %0");
  EXPECT_EQ(text,
            "parse: line 2: dot_general: lhs_contract and rhs_contract have different lengths\n"
            "  found:  f32[4,4], f32[4,4] in '%9: f32[4] = dot_general[lhs_batch=[], "
            "lhs_contract=[0,1], rhs_batch=[], rhs_contract=[0]] %0, %0'\n"
            "  wanted: as many contract dimensions in the left as in the right operand\n"
            "  cure:   list the dimensions in pairs");
}

TEST(OpErrors, ContractedSizes) {
  const std::string text = error_of("%0: f32[4,3]",
                                    "f32[4,3] = dot_general[lhs_batch=[], lhs_contract=[1], "
                                    "rhs_batch=[], rhs_contract=[0]] %0, %0");
  EXPECT_EQ(text,
            "parse: line 2: dot_general: dimension 1 of the left operand (size 3) does not match "
            "dimension 0 of the right operand (size 4)\n"
            "  found:  f32[4,3], f32[4,3] in '%9: f32[4,3] = dot_general[lhs_batch=[], "
            "lhs_contract=[1], rhs_batch=[], rhs_contract=[0]] %0, %0'\n"
            "  wanted: equal sizes, for example f32[8,16] with f32[16,32] in matmul\n"
            "  cure:   transpose or reshape one operand, or check the layer's input size");
}

TEST(OpErrors, ContractedDtypes) {
  const std::string text = error_of("%0: f32[4,4], %1: i32[4,4]",
                                    "f32[4,4] = dot_general[lhs_batch=[], lhs_contract=[1], "
                                    "rhs_batch=[], rhs_contract=[0]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: dot_general: operands have different dtypes\n"
            "  found:  f32[4,4], i32[4,4] in '%9: f32[4,4] = dot_general[lhs_batch=[], "
            "lhs_contract=[1], rhs_batch=[], rhs_contract=[0]] %0, %1'\n"
            "  wanted: the same dtype for both operands\n"
            "  cure:   convert one of them, for example astype(x, DType::f32)");
}

TEST(OpErrors, DimensionInTwoRoles) {
  const std::string text = error_of("%0: f32[4,4]",
                                    "f32[4] = dot_general[lhs_batch=[0], lhs_contract=[0], "
                                    "rhs_batch=[0], rhs_contract=[0]] %0, %0");
  EXPECT_EQ(text,
            "parse: line 2: dot_general: dimension 0 is both a batch and a contracting dimension\n"
            "  found:  f32[4,4], f32[4,4] in '%9: f32[4] = dot_general[lhs_batch=[0], "
            "lhs_contract=[0], rhs_batch=[0], rhs_contract=[0]] %0, %0'\n"
            "  wanted: each dimension in one role\n"
            "  cure:   name the dimension once");
}

TEST(OpErrors, BodyIsNoFunction) {
  const std::string text = error_of("%0: f32[4]", "f32[4] = call[body=1, name=\"f\"] %0");
  EXPECT_EQ(text,
            "parse: line 2: call: attribute 'body' is not one function\n"
            "  found:  f32[4] in '%9: f32[4] = call[body=1, name=\"f\"] %0'\n"
            "  wanted: body is one nested function\n"
            "  cure:   write body={(%0: f32[]) { ... }}");
}

TEST(OpErrors, BodyOfOtherTypes) {
  const std::string text =
      error_of("%0: f32[4]", "f32[2] = call[body={(%0: f32[2]) { return %0 }}, name=\"f\"] %0");
  EXPECT_EQ(text,
            "parse: line 2: call: the body's list of inputs has types (f32[2])\n"
            "  found:  f32[4] in '%9: f32[2] = call[body={(%0: f32[2]) { ...'\n"
            "  wanted: the body's list of inputs with types (f32[4])\n"
            "  cure:   write the nested function for the types that it receives and must return");
}

TEST(OpErrors, MoreCarriesThanOperands) {
  const std::string text = error_of("%0: f32[]",
                                    "f32[] = scan[body={(%0: f32[]) { return %0 }}, length=3, "
                                    "num_carry=2, num_consts=0, reverse=false] %0");
  EXPECT_EQ(text,
            "parse: line 2: scan: num_carry = 2 with 1 operands\n"
            "  found:  f32[] in '%9: f32[] = scan[body={(%0: f32[]) { ...'\n"
            "  wanted: num_carry from 0 to 1\n"
            "  cure:   count the operands again");
}

TEST(OpErrors, NegativeLength) {
  const std::string text = error_of("%0: f32[]",
                                    "f32[] = scan[body={(%0: f32[]) { return %0 }}, length=-1, "
                                    "num_carry=1, num_consts=0, reverse=false] %0");
  EXPECT_EQ(text,
            "parse: line 2: scan: the length is negative\n"
            "  found:  f32[] in '%9: f32[] = scan[body={(%0: f32[]) { ...'\n"
            "  wanted: a length of 0 or more\n"
            "  cure:   count the slices again");
}

TEST(OpErrors, TooFewSlices) {
  const std::string text = error_of("%0: f32[], %1: f32[2]",
                                    "f32[] = scan[body={(%0: f32[], %1: f32[]) { return %0 }}, "
                                    "length=3, num_carry=1, num_consts=0, reverse=false] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: scan: operand 1 does not have 3 slices along dimension 0\n"
            "  found:  f32[], f32[2] in '%9: f32[] = scan[body={(%0: f32[], %1: f32[]) { ...'\n"
            "  wanted: arrays whose first dimension is the length of the scan\n"
            "  cure:   scan arrays of equal length, or pass the others as constants");
}

TEST(OpErrors, BranchNumberIsNoInteger) {
  const std::string text =
      error_of("%0: f32[]", "f32[] = cond[branches={(%0: f32[]) { return %0 }}] %0");
  EXPECT_EQ(text,
            "parse: line 2: cond: operand 0 is not the number of a branch\n"
            "  found:  f32[] in '%9: f32[] = cond[branches={(%0: f32[]) { ...'\n"
            "  wanted: an i32[] as operand 0\n"
            "  cure:   convert the predicate with astype(pred, DType::i32)");
}

TEST(OpErrors, NoBranch) {
  const std::string text = error_of("%0: i32[]", "f32[] = cond[branches=1] %0");
  EXPECT_EQ(text,
            "parse: line 2: cond: there are no branches\n"
            "  found:  i32[] in '%9: f32[] = cond[branches=1] %0'\n"
            "  wanted: at least one branch\n"
            "  cure:   write branches={(...) {...}, (...) {...}}");
}

TEST(OpErrors, NoSuchPolicy) {
  const std::string text =
      error_of("%0: f32[]", "f32[] = remat[body={(%0: f32[]) { return %0 }}, policy=\"all\"] %0");
  EXPECT_EQ(text,
            "parse: line 2: remat: unknown policy 'all'\n"
            "  found:  f32[] in '%9: f32[] = remat[body={(%0: f32[]) { ...'\n"
            "  wanted: nothing_saveable, everything_saveable, dots_saveable or "
            "dots_with_no_batch_dims_saveable\n"
            "  cure:   use one of these names");
}

TEST(OpErrors, BitsOfAnotherWidth) {
  const std::string text = error_of("%0: f32[4]", "f64[4] = bitcast[dtype=f64] %0");
  EXPECT_EQ(text,
            "parse: line 2: bitcast: cannot read the bits of f32 as f64\n"
            "  found:  f32[4] in '%9: f64[4] = bitcast[dtype=f64] %0'\n"
            "  wanted: dtypes of the same size, such as i32, u32 and f32\n"
            "  cure:   convert values with astype(x, DType::f64) instead of reinterpreting bits");
}

TEST(OpErrors, ConstantIsNoNumber) {
  const std::string text = error_of("%0: f32[4]", "f32[] = constant[dtype=f32, shape=[], value=1]");
  EXPECT_EQ(text,
            "parse: line 2: constant: the value is not a number\n"
            "  found:  no operands in '%9: f32[] = constant[dtype=f32, shape=[], value=1]'\n"
            "  wanted: a number with a decimal point\n"
            "  cure:   write value as 1.0");
}

TEST(OpErrors, IotaOfBools) {
  const std::string text = error_of("%0: f32[4]", "bool[4] = iota[dim=0, dtype=bool, shape=[4]]");
  EXPECT_EQ(text,
            "parse: line 2: iota: cannot count in bool\n"
            "  found:  no operands in '%9: bool[4] = iota[dim=0, dtype=bool, shape=[4]]'\n"
            "  wanted: a dtype of numbers\n"
            "  cure:   use arange with dtype i32");
}

TEST(OpErrors, IotaAlongNoDimension) {
  const std::string text = error_of("%0: f32[4]", "i32[4] = iota[dim=1, dtype=i32, shape=[4]]");
  EXPECT_EQ(text,
            "parse: line 2: iota: dimension 1 does not exist in an array of rank 1\n"
            "  found:  no operands in '%9: i32[4] = iota[dim=1, dtype=i32, shape=[4]]'\n"
            "  wanted: a dimension from 0 to 0\n"
            "  cure:   name an existing dimension; only the public functions accept -1, which "
            "counts from the end");
}

TEST(OpErrors, NegativeShape) {
  const std::string text = error_of("%0: f32[4]", "i32[4] = iota[dim=0, dtype=i32, shape=[-4]]");
  EXPECT_EQ(text,
            "parse: line 2: iota: shape = [-4] has a negative size\n"
            "  found:  no operands in '%9: i32[4] = iota[dim=0, dtype=i32, shape=[-4]]'\n"
            "  wanted: sizes of 0 or more\n"
            "  cure:   compute the missing size and write it out");
}

TEST(OpErrors, EndlessShape) {
  const std::string text =
      error_of("%0: f32[4]", "i32[4] = iota[dim=0, dtype=i32, shape=[4294967296,4294967296]]");
  EXPECT_EQ(text,
            "parse: line 2: iota: shape = [4294967296,4294967296] is too large\n"
            "  found:  no operands in '%9: i32[4] = iota[dim=0, dtype=i32, "
            "shape=[4294967296,4294967296]]'\n"
            "  wanted: fewer than 2^62 elements\n"
            "  cure:   check the sizes");
}

TEST(OpErrors, MoreBatchesThanDimensions) {
  const std::string text =
      error_of("%0: f32[4,3], %1: i32[2]", "f32[4,2] = gather[dim=1, num_batch=1] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: gather: num_batch = 1 does not match the operands\n"
            "  found:  f32[4,3], i32[2] in '%9: f32[4,2] = gather[dim=1, num_batch=1] %0, %1'\n"
            "  wanted: num_batch <= dim, and as many equal leading dimensions in both operands\n"
            "  cure:   repeat the operand that lacks a batch dimension with broadcast_to");
}

TEST(OpErrors, UpdatesOfOtherIndices) {
  const std::string text = error_of("%0: i32[2], %1: f32[3,4]",
                                    "f32[8,4] = scatter_add[dim=0, num_batch=0, size=8] %0, %1");
  EXPECT_EQ(
      text,
      "parse: line 2: scatter_add: the updates' dimensions from 0 on differ from the indices'\n"
      "  found:  i32[2], f32[3,4] in '%9: f32[8,4] = scatter_add[dim=0, num_batch=0, size=8] %0, "
      "%1'\n"
      "  wanted: updates of shape [before.., indices.., after..]\n"
      "  cure:   reshape the updates");
}

TEST(OpErrors, IndicesAreFloats) {
  const std::string text = error_of("%0: f32[2], %1: f32[2,4]",
                                    "f32[8,4] = scatter_add[dim=0, num_batch=0, size=8] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: scatter_add: the indices have dtype f32\n"
            "  found:  f32[2], f32[2,4] in '%9: f32[8,4] = scatter_add[dim=0, num_batch=0, size=8] "
            "%0, %1'\n"
            "  wanted: indices of dtype i32\n"
            "  cure:   convert them with astype(indices, DType::i32)");
}

TEST(OpErrors, IndicesAlongOtherRows) {
  const std::string text =
      error_of("%0: f32[2,3], %1: i32[3,3]", "f32[2,3] = gather_along[dim=1] %0, %1");
  EXPECT_EQ(
      text,
      "parse: line 2: gather_along: the indices differ from the array in a dimension other than 1\n"
      "  found:  f32[2,3], i32[3,3] in '%9: f32[2,3] = gather_along[dim=1] %0, %1'\n"
      "  wanted: indices [a.., k, b..] for an array [a.., n, b..]\n"
      "  cure:   broadcast the indices, or take whole slices with take");
}

TEST(OpErrors, UpdatesAlongOtherRows) {
  const std::string text =
      error_of("%0: i32[2,3], %1: f32[3,3]", "f32[2,9] = scatter_add_along[dim=1, size=9] %0, %1");
  EXPECT_EQ(
      text,
      "parse: line 2: scatter_add_along: the indices and the updates differ in shape, or size is "
      "negative\n"
      "  found:  i32[2,3], f32[3,3] in '%9: f32[2,9] = scatter_add_along[dim=1, size=9] %0, %1'\n"
      "  wanted: indices and updates of the same shape, size >= 0\n"
      "  cure:   broadcast the indices");
}

TEST(OpErrors, StartIsAFloat) {
  const std::string text =
      error_of("%0: f32[4], %1: f32[]", "f32[2] = dynamic_slice[sizes=[2]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: dynamic_slice: a start is f32[]\n"
            "  found:  f32[4], f32[] in '%9: f32[2] = dynamic_slice[sizes=[2]] %0, %1'\n"
            "  wanted: scalars of dtype i32, one per dimension\n"
            "  cure:   convert it with astype(start, DType::i32); pass lists as separate numbers");
}

TEST(OpErrors, PartIsTooLarge) {
  const std::string text =
      error_of("%0: f32[4], %1: i32[]", "f32[5] = dynamic_slice[sizes=[5]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: dynamic_slice: sizes [5] does not fit in an array of shape [4]\n"
            "  found:  f32[4], i32[] in '%9: f32[5] = dynamic_slice[sizes=[5]] %0, %1'\n"
            "  wanted: one size per dimension, each from 0 to the size of the array\n"
            "  cure:   ask for a smaller part");
}

TEST(OpErrors, UpdateOfAnotherDtype) {
  const std::string text =
      error_of("%0: f32[4], %1: i32[2], %2: i32[]", "f32[4] = dynamic_update_slice %0, %1, %2");
  EXPECT_EQ(text,
            "parse: line 2: dynamic_update_slice: the array and the update have different dtypes\n"
            "  found:  f32[4], i32[2], i32[] in '%9: f32[4] = dynamic_update_slice %0, %1, %2'\n"
            "  wanted: the same dtype\n"
            "  cure:   convert the update with astype");
}

TEST(OpErrors, MoreThanThereAre) {
  const std::string text = error_of("%0: f32[4]", "f32[5], %99: i32[5] = top_k[dim=0, k=5] %0");
  EXPECT_EQ(text,
            "parse: line 2: top_k: k = 5 of 4 elements\n"
            "  found:  f32[4] in '%9: f32[5], %99: i32[5] = top_k[dim=0, k=5] %0'\n"
            "  wanted: 0 <= k <= 4\n"
            "  cure:   ask for fewer elements");
}

TEST(OpErrors, KeyOfIntegers) {
  const std::string text = error_of("%0: i32[2]", "u32[2] = random_bits[shape=[2]] %0");
  EXPECT_EQ(text,
            "parse: line 2: random_bits: the first operand is not a key\n"
            "  found:  i32[2] in '%9: u32[2] = random_bits[shape=[2]] %0'\n"
            "  wanted: a key, u32[2], or an array of keys, u32[..,2]\n"
            "  cure:   make one with Key(seed), split or fold_in");
}

TEST(OpErrors, FewerThanNoKeys) {
  const std::string text = error_of("%0: u32[2]", "u32[2] = random_split[num=-1] %0");
  EXPECT_EQ(text,
            "parse: line 2: random_split: the number of keys is negative\n"
            "  found:  u32[2] in '%9: u32[2] = random_split[num=-1] %0'\n"
            "  wanted: num >= 0\n"
            "  cure:   pass a num of 0 or more");
}

TEST(OpErrors, FoldInOfAFloat) {
  const std::string text = error_of("%0: u32[2], %1: u32[3]", "u32[2] = random_fold_in %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: random_fold_in: the data is not one u32 for each key\n"
            "  found:  u32[2], u32[3] in '%9: u32[2] = random_fold_in %0, %1'\n"
            "  wanted: a scalar of dtype u32 for a key u32[2]\n"
            "  cure:   fold in one number at a time, converted with astype(n, DType::u32)");
}

TEST(OpErrors, PositionInNothing) {
  const std::string text = error_of("%0: f32[0]", "i32[] = argmax[dim=0] %0");
  EXPECT_EQ(text,
            "parse: line 2: argmax: dimension 0 is empty\n"
            "  found:  f32[0] in '%9: i32[] = argmax[dim=0] %0'\n"
            "  wanted: at least one element\n"
            "  cure:   take argmax over a dimension that has elements");
}

TEST(OpErrors, DifferentDtypes) {
  const std::string text = error_of("%0: f32[4], %1: i32[4]", "f32[4] = add %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: add: operands have different dtypes\n"
            "  found:  f32[4], i32[4] in '%9: f32[4] = add %0, %1'\n"
            "  wanted: the same dtype for all operands\n"
            "  cure:   convert one of them, for example astype(x, DType::f32)");
}

TEST(OpErrors, DimensionTwice) {
  const std::string text = error_of("%0: f32[4,4]", "f32[] = reduce_sum[dims=[0,0]] %0");
  EXPECT_EQ(text,
            "parse: line 2: reduce_sum: dims = [0,0] names dimension 0 twice\n"
            "  found:  f32[4,4] in '%9: f32[] = reduce_sum[dims=[0,0]] %0'\n"
            "  wanted: each dimension at most once\n"
            "  cure:   drop the repeated dimension");
}

TEST(OpErrors, DimensionsDoNotPlace) {
  const std::string text =
      error_of("%0: f32[4]", "f32[2,4] = broadcast_in_dim[dims=[], shape=[2,4]] %0");
  EXPECT_EQ(text,
            "parse: line 2: broadcast_in_dim: dims = [] does not map the operand's dimensions to "
            "those of the result\n"
            "  found:  f32[4] in '%9: f32[2,4] = broadcast_in_dim[dims=[], shape=[2,4]] %0'\n"
            "  wanted: one increasing result dimension for each of the 1 operand dimensions\n"
            "  cure:   transpose the operand first if its dimensions come in another order");
}

TEST(OpErrors, RepeatsASize) {
  const std::string text =
      error_of("%0: f32[3]", "f32[2,4] = broadcast_in_dim[dims=[1], shape=[2,4]] %0");
  EXPECT_EQ(
      text,
      "parse: line 2: broadcast_in_dim: cannot repeat dimension 0 of size 3 to size 4\n"
      "  found:  f32[3] in '%9: f32[2,4] = broadcast_in_dim[dims=[1], shape=[2,4]] %0'\n"
      "  wanted: operand sizes that are 1 or equal the result's [2,4]\n"
      "  cure:   reshape the operand so that its sizes line up with the result's from the right");
}

TEST(OpErrors, ElementsAreLost) {
  const std::string text = error_of("%0: f32[4]", "f32[3] = reshape[shape=[3]] %0");
  EXPECT_EQ(text,
            "parse: line 2: reshape: shape [3] has 3 elements\n"
            "  found:  f32[4] in '%9: f32[3] = reshape[shape=[3]] %0'\n"
            "  wanted: a shape with the operand's 4 elements\n"
            "  cure:   change one size so that the product is 4");
}

TEST(OpErrors, HalfAPermutation) {
  const std::string text = error_of("%0: f32[4,4]", "f32[4] = transpose[permutation=[1]] %0");
  EXPECT_EQ(text,
            "parse: line 2: transpose: permutation [1] does not list every dimension\n"
            "  found:  f32[4,4] in '%9: f32[4] = transpose[permutation=[1]] %0'\n"
            "  wanted: each of the 2 dimensions once\n"
            "  cure:   list all dimensions in their new order");
}

TEST(OpErrors, NothingToSort) {
  const std::string text = error_of("%0: f32[4]", "f32[4] = sort[dim=0]");
  EXPECT_EQ(text,
            "parse: line 2: sort: nothing to sort\n"
            "  found:  no operands in '%9: f32[4] = sort[dim=0]'\n"
            "  wanted: at least one operand\n"
            "  cure:   pass an array");
}

TEST(OpErrors, SortOfOtherShapes) {
  const std::string text =
      error_of("%0: f32[4], %1: f32[2]", "f32[4], %99: f32[2] = sort[dim=0] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: sort: operands have different shapes\n"
            "  found:  f32[4], f32[2] in '%9: f32[4], %99: f32[2] = sort[dim=0] %0, %1'\n"
            "  wanted: the same shape for all operands\n"
            "  cure:   broadcast the smaller ones with broadcast_to");
}

TEST(OpErrors, EntriesPerDimension) {
  const std::string text =
      error_of("%0: f32[4]", "f32[2] = slice[limit=[2,2], start=[0], stride=[1]] %0");
  EXPECT_EQ(text,
            "parse: line 2: slice: limit has 2 entries\n"
            "  found:  f32[4] in '%9: f32[2] = slice[limit=[2,2], start=[0], stride=[1]] %0'\n"
            "  wanted: 1 entries, one per dimension\n"
            "  cure:   give one entry per dimension");
}

TEST(OpErrors, NoRange) {
  const std::string text =
      error_of("%0: f32[4]", "f32[2] = slice[limit=[5], start=[3], stride=[1]] %0");
  EXPECT_EQ(text,
            "parse: line 2: slice: dimension 0 has no range [3, 5) with stride 1\n"
            "  found:  f32[4] in '%9: f32[2] = slice[limit=[5], start=[3], stride=[1]] %0'\n"
            "  wanted: 0 <= start <= limit <= 4, stride >= 1\n"
            "  cure:   slice inside the array, for example slice(x, 0, 0, 4)");
}

TEST(OpErrors, PaddingOfAnotherDtype) {
  const std::string text =
      error_of("%0: f32[4], %1: i32[]", "f32[6] = pad[high=[1], interior=[0], low=[1]] %0, %1");
  EXPECT_EQ(
      text,
      "parse: line 2: pad: the padding value has the wrong type\n"
      "  found:  f32[4], i32[] in '%9: f32[6] = pad[high=[1], interior=[0], low=[1]] %0, %1'\n"
      "  wanted: a scalar of dtype f32\n"
      "  cure:   pass one number as the padding value");
}

TEST(OpErrors, NegativePadding) {
  const std::string text =
      error_of("%0: f32[4], %1: f32[]", "f32[3] = pad[high=[-1], interior=[0], low=[0]] %0, %1");
  EXPECT_EQ(
      text,
      "parse: line 2: pad: an amount of padding is negative\n"
      "  found:  f32[4], f32[] in '%9: f32[3] = pad[high=[-1], interior=[0], low=[0]] %0, %1'\n"
      "  wanted: amounts of 0 or more\n"
      "  cure:   slice the array instead");
}

TEST(OpErrors, NothingToJoin) {
  const std::string text = error_of("%0: f32[4]", "f32[4] = concatenate[dim=0]");
  EXPECT_EQ(text,
            "parse: line 2: concatenate: no arrays to join\n"
            "  found:  no operands in '%9: f32[4] = concatenate[dim=0]'\n"
            "  wanted: at least one operand\n"
            "  cure:   pass at least one array");
}

TEST(OpErrors, PartsDoNotFit) {
  const std::string text =
      error_of("%0: f32[4,2], %1: f32[4,3]", "f32[8,2] = concatenate[dim=0] %0, %1");
  EXPECT_EQ(
      text,
      "parse: line 2: concatenate: operands cannot be joined along dimension 0\n"
      "  found:  f32[4,2], f32[4,3] in '%9: f32[8,2] = concatenate[dim=0] %0, %1'\n"
      "  wanted: equal dtypes, and equal sizes in all other dimensions\n"
      "  cure:   reshape, transpose or convert the operands first; stack adds a new dimension");
}

TEST(OpErrors, DilationOfAnotherRank) {
  const std::string text = error_of("%0: f32[1,8,8,3], %1: f32[3,3,3,4]",
                                    "f32[1,6,6,4] = conv[dilation=[1], high=[0,0], low=[0,0], "
                                    "spread=[1,1], stride=[1,1]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: conv: dilation and stride have different lengths\n"
            "  found:  f32[1,8,8,3], f32[3,3,3,4] in '%9: f32[1,6,6,4] = conv[dilation=[1], "
            "high=[0,0], low=[0,0], spread=[1,1], stride=[1,1]] %0, %1'\n"
            "  wanted: one entry per dimension of the window\n"
            "  cure:   give both lists the same length");
}

TEST(OpErrors, StrideOfZero) {
  const std::string text = error_of("%0: f32[1,8,8,3], %1: f32[3,3,3,4]",
                                    "f32[1,6,6,4] = conv[dilation=[1,1], high=[0,0], low=[0,0], "
                                    "spread=[1,1], stride=[0,1]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: conv: stride = [0,1] has an entry below 1\n"
            "  found:  f32[1,8,8,3], f32[3,3,3,4] in '%9: f32[1,6,6,4] = conv[dilation=[1,1], "
            "high=[0,0], low=[0,0], spread=[1,1], stride=[0,1]] %0, %1'\n"
            "  wanted: entries of 1 or more\n"
            "  cure:   write 1 where nothing is skipped");
}

TEST(OpErrors, PaddingOfAnArrayBeyondBounds) {
  const std::string text =
      error_of("%0: f32[1,8,3], %1: f32[3,3,4]",
               "f32[1,6,4] = conv[dilation=[1], high=[0], low=[2199023255552], spread=[1], "
               "stride=[1]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: conv: low = [2199023255552] has an entry above 2^40\n"
            "  found:  f32[1,8,3], f32[3,3,4] in '%9: f32[1,6,4] = conv[dilation=[1], high=[0], "
            "low=[2199023255552], spread=[1], stride=[1]] %0, %1'\n"
            "  wanted: entries from -1099511627776 to 1099511627776\n"
            "  cure:   write 0 where nothing is added");
}

TEST(OpErrors, ChannelsOfAnotherKernel) {
  const std::string text = error_of("%0: f32[1,8,8,3], %1: f32[3,3,2,4]",
                                    "f32[1,6,6,4] = conv[dilation=[1,1], high=[0,0], low=[0,0], "
                                    "spread=[1,1], stride=[1,1]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: conv: the array has 3 channels, the kernel 2\n"
            "  found:  f32[1,8,8,3], f32[3,3,2,4] in '%9: f32[1,6,6,4] = conv[dilation=[1,1], "
            "high=[0,0], low=[0,0], spread=[1,1], stride=[1,1]] %0, %1'\n"
            "  wanted: equal numbers of channels\n"
            "  cure:   give the array the shape [batch.., n, space.., c] and the kernel [batch.., "
            "window.., c, o]");
}

TEST(OpErrors, KernelOfAnotherRank) {
  const std::string text = error_of("%0: f32[1,8,8,3], %1: f32[3,3,4]",
                                    "f32[1,6,6,4] = conv[dilation=[1,1], high=[0,0], low=[0,0], "
                                    "spread=[1,1], stride=[1,1]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: conv: the array and the kernel do not match a window of rank 2\n"
            "  found:  f32[1,8,8,3], f32[3,3,4] in '%9: f32[1,6,6,4] = conv[dilation=[1,1], "
            "high=[0,0], low=[0,0], spread=[1,1], stride=[1,1]] %0, %1'\n"
            "  wanted: an array [batch.., n, space.., c] and a kernel [batch.., window.., c, o] of "
            "one dtype\n"
            "  cure:   reshape or convert one of them");
}

TEST(OpErrors, KernelHasNoPlace) {
  const std::string text = error_of("%0: f32[1,2,8,3], %1: f32[3,3,3,4]",
                                    "f32[1,6,6,4] = conv[dilation=[1,1], high=[0,0], low=[0,0], "
                                    "spread=[1,1], stride=[1,1]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: conv: dimension 0 of the window does not fit: 3 elements in 2\n"
            "  found:  f32[1,2,8,3], f32[3,3,3,4] in '%9: f32[1,6,6,4] = conv[dilation=[1,1], "
            "high=[0,0], low=[0,0], spread=[1,1], stride=[1,1]] %0, %1'\n"
            "  wanted: a window of 1 or more elements that fits in the array\n"
            "  cure:   use a smaller kernel, or pad the array first");
}

TEST(OpErrors, WindowOfAnotherRank) {
  const std::string text =
      error_of("%0: f32[4,4]", "f32[3,3] = reduce_window_sum[stride=[1,1], window=[2]] %0");
  EXPECT_EQ(
      text,
      "parse: line 2: reduce_window_sum: window = [2] does not match the array\n"
      "  found:  f32[4,4] in '%9: f32[3,3] = reduce_window_sum[stride=[1,1], window=[2]] %0'\n"
      "  wanted: one entry of 1 or more per dimension\n"
      "  cure:   write 1 for dimensions without a window");
}

TEST(OpErrors, WindowHasNoPlace) {
  const std::string text =
      error_of("%0: f32[4]", "f32[1] = reduce_window_sum[stride=[1], window=[5]] %0");
  EXPECT_EQ(text,
            "parse: line 2: reduce_window_sum: a window of 5 elements does not fit in dimension 0\n"
            "  found:  f32[4] in '%9: f32[1] = reduce_window_sum[stride=[1], window=[5]] %0'\n"
            "  wanted: at most 4 elements\n"
            "  cure:   use a smaller window, or pad the array first");
}

TEST(OpErrors, ElementsToFindDoNotMatchTheWindows) {
  const std::string text =
      error_of("%0: f32[4,4], %1: f32[4,3]",
               "i32[3,3] = find_in_windows[stride=[1,1], window=[2,2]] %0, %1");
  EXPECT_EQ(text,
            "parse: line 2: find_in_windows: the elements to find do not match the windows\n"
            "  found:  f32[4,4], f32[4,3] in '%9: i32[3,3] = find_in_windows[stride=[1,1], "
            "window=[2,2]] %0, %1'\n"
            "  wanted: f32[3,3], one element per window\n"
            "  cure:   reshape or convert them");
}

TEST(OpErrors, NumbersDoNotMatchTheValues) {
  const std::string text = error_of(
      "%0: i32[3,3], %1: i32[3,3]",
      "i32[4,4] = spread_from_windows[low=[0,0], shape=[4,4], stride=[1,1], window=[2,2]] %0, %1");
  EXPECT_EQ(
      text,
      "parse: line 2: spread_from_windows: the operands do not match the shape or each other\n"
      "  found:  i32[3,3], i32[3,3] in '%9: i32[4,4] = spread_from_windows[low=[0,0], "
      "shape=[4,4], stride=[1,1], window=[2,2]] %0, %1'\n"
      "  wanted: i32 numbers and floats of the same shape, with the rank of the attributes, "
      "whose entries are at most 2^40\n"
      "  cure:   check the operands, low and shape");
}

TEST(OpErrors, UpdatesDoNotFit) {
  const std::string text =
      error_of("%0: f32[4,3], %1: i32[2], %2: f32[3,3]", "f32[4,3] = scatter[dim=0] %0, %1, %2");
  EXPECT_EQ(text,
            "parse: line 2: scatter: the updates have the wrong type\n"
            "  found:  f32[4,3], i32[2], f32[3,3] in '%9: f32[4,3] = scatter[dim=0] %0, %1, %2'\n"
            "  wanted: updates f32[2,3]: the array's shape with dimension 0 replaced by the "
            "dimensions of the indices\n"
            "  cure:   reshape, broadcast or convert the updates");
}

TEST(OpErrors, CallbackWithoutToken) {
  const std::string text =
      error_of("%0: f32[4]", "u32[] = host_callback[callback=host_callback, num_batch=0] %0");
  EXPECT_EQ(text,
            "parse: line 2: host_callback: operand 0 is not a token\n"
            "  found:  f32[4] in '%9: u32[] = host_callback[callback=host_callback, num_batch=0] "
            "%0'\n"
            "  wanted: a u32[] as operand 0\n"
            "  cure:   write constant 0 as the token");
}

TEST(OpErrors, CallbackOfAnotherKind) {
  const std::string text =
      error_of("%0: u32[]", "u32[] = host_callback[callback=3, num_batch=0] %0");
  EXPECT_EQ(text,
            "parse: line 2: host_callback: the attribute callback is of the wrong kind\n"
            "  found:  u32[] in '%9: u32[] = host_callback[callback=3, num_batch=0] %0'\n"
            "  wanted: callback=host_callback\n"
            "  cure:   write callback=host_callback; functions are passed to debug::callback and "
            "pure_callback");
}

TEST(OpErrors, PureCallbackOfNothing) {
  const std::string text =
      error_of("%0: u32[]", "f32[2] = pure_callback[callback=host_callback(f32[2]), num_batch=0]");
  EXPECT_EQ(text,
            "parse: line 2: pure_callback: there are no operands\n"
            "  found:  no operands in '%9: f32[2] = "
            "pure_callback[callback=host_callback(f32[2]), num_batch=0]'\n"
            "  wanted: at least one operand\n"
            "  cure:   pass a constant");
}

TEST(OpErrors, CallbackOfDifferentBatches) {
  const std::string text =
      error_of("%0: u32[], %1: f32[2,3], %2: f32[4]",
               "u32[] = host_callback[callback=host_callback, num_batch=1] %0, %1, %2");
  EXPECT_EQ(text,
            "parse: line 2: host_callback: the operands do not share num_batch leading "
            "dimensions\n"
            "  found:  u32[], f32[2,3], f32[4] in '%9: u32[] = "
            "host_callback[callback=host_callback, num_batch=1] %0, %1, %2'\n"
            "  wanted: the same 1 leading dimensions in all operands\n"
            "  cure:   count the dimensions that vmap has added");
}

}  // namespace
}  // namespace tessera
