// How the dimensions of an op's operands and results go together: what partitioning knows of it.
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
  pass,       // a split of this factor splits the work
  reduce,     // a split leaves partial results along it
  permute,    // a split moves elements from shard to shard: the op is a collective then
  replicate,  // must not be split
};

/// bit_or: of the bits of any dtype, where at most one shard has an element and others zero bits.
enum class Reduction : std::uint8_t { sum, max, min, logical_and, logical_or, bit_or };
std::string_view name(Reduction reduction);
Reduction reduction_named(std::string_view name);

struct Factor {
  std::int64_t size;
  FactorKind kind = FactorKind::pass;
  friend bool operator==(const Factor&, const Factor&) = default;
};

/// A dimension of an operand of which the op reads `extent` rows from offset + the sum of step *
/// index over some factors on, as far as there are such rows; of a number that `divisor` divides
/// the quotient is the row, other numbers are none. Devices that compute shards of these
/// factors need windows of the dimension, which reach into the shards of their neighbours: what
/// lacks is exchanged.
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

/// An op seen as a loop nest: each dimension of each operand and result is made of factors (major
/// to minor; none for a dimension that is broadcast), as in einsum.
struct Factors {
  using Dims = std::vector<std::vector<int>>;  // per dimension: factor numbers
  std::vector<Factor> factors;
  std::vector<Dims> operands;
  std::vector<Dims> results;
  std::vector<int> reduced = {};  // the reduce factors in the order of the op's dimension list
  Reduction reduction = Reduction::sum;
  /// Dimensions that no list of factors makes up. `operands` has one factor for such a dimension:
  /// the one whose shards follow those of the dimension, so that propagation keeps the split.
  std::vector<OperandWindow> windows = {};
};
/// `a b, b c -> a c | b: sum`, for docs and explanations; windows as `[2a+b-1]`, `[2a+0:3]`,
/// `[(a-1)/2]`.
std::string to_string(const Factors& factors);

using FactorRule = std::function<Factors(const Attributes&, const std::vector<Type>& operands,
                                         const std::vector<Type>& results)>;

}  // namespace tessera::ops
