// How the dimensions of an op's operands and results correspond, which is what partitioning needs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

#include "ir/ir.h"

namespace tessera::ops {

using ir::Attributes;

enum class FactorKind : std::uint8_t {
  pass,       // splitting this factor splits the work
  reduce,     // splitting it leaves partial results, which a reduction combines
  permute,    // splitting it moves elements between shards: the op becomes a collective
  replicate,  // must not be split
};

/// bit_or is the bitwise or, for any dtype. It combines results of which at most one shard has a
/// given element; the other shards have zero bits there.
enum class Reduction : std::uint8_t { sum, max, min, logical_and, logical_or, bit_or };
std::string_view name(Reduction reduction);
Reduction reduction_named(std::string_view name);

struct Factor {
  std::int64_t size;
  FactorKind kind = FactorKind::pass;
  friend bool operator==(const Factor&, const Factor&) = default;
};

/// A dimension of an operand that the op reads through a window, as convolutions do.
///
/// For each combination of factor indices the op reads `extent` consecutive positions. The first
/// is offset + sum(step * index), summed over `terms`. Position p is row p / divisor of the
/// dimension; positions that `divisor` does not divide, or that lie outside of the dimension, have
/// no row. A device that computes a shard of these factors may need rows of neighbouring shards; it
/// receives them in a halo exchange.
struct OperandWindow {
  struct Term {
    int factor;
    std::int64_t step = 1;  // may be negative
    friend bool operator==(const Term&, const Term&) = default;
  };
  std::size_t operand;
  std::size_t dim;
  std::int64_t size;  // of the dimension
  std::int64_t offset;
  std::vector<Term> terms;
  std::int64_t extent = 1;
  std::int64_t divisor = 1;
  friend bool operator==(const OperandWindow&, const OperandWindow&) = default;
};

/// An op seen as a loop nest, as in einsum: each dimension of each operand and result is a list of
/// factors, major to minor. The list is empty for a dimension that is broadcast.
struct Factors {
  using Dims = std::vector<std::vector<int>>;  // per dimension: indices into `factors`
  std::vector<Factor> factors;
  std::vector<Dims> operands;
  std::vector<Dims> results;
  std::vector<int> reduced = {};  // the reduce factors, in the order in which the op lists them
  Reduction reduction = Reduction::sum;
  /// Dimensions that are read through a window and so are not products of factors. `operands` names
  /// one factor for such a dimension: the one whose shards match those of the dimension, so that
  /// propagation keeps the split.
  std::vector<OperandWindow> windows = {};
};
/// `a b, b c -> a c | b: sum`, for docs and explanations. Windows are written as `[2a+b-1]`,
/// `[2a+0:3]` or `[(a-1)/2]`.
std::string to_string(const Factors& factors);

using FactorRule = std::function<Factors(const Attributes&, const std::vector<Type>& operands,
                                         const std::vector<Type>& results)>;

}  // namespace tessera::ops
