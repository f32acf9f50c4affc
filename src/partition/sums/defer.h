// Sums over devices that wait, in fast numerics: a linear equation passes on what is partial, so
// that it is resolved once, where somebody needs it, instead of where it is made.
#pragma once

#include <optional>
#include <vector>

#include "partition/candidates.h"

namespace tessera::partition {

/// What an operand of an equation is good for.
struct SumOperand {
  const Sharding* sum = nullptr;  // of a partial value
  bool is_any = false;            // may be a sum over any devices, laid out in any way
  bool is_accumulator = false;    // a carry that becomes a sum with what is added to it
};

/// A way to split an equation such that its result is a sum as some of its operands are.
struct Deferral {
  std::vector<std::size_t> group;  // these operands
  AtomList partial;                // over these atoms
  Assignment assignment;
  bool is_accumulating = false;

  bool has(std::size_t operand) const;
};

/// For the first of the linear groups whose operands are all sums over the same devices, laid out
/// alike; other tensors of the equation split what is left.
std::optional<Deferral> find_deferral(const CandidateContext& context,
                                      const std::vector<std::vector<std::size_t>>& groups,
                                      const std::vector<SumOperand>& operands,
                                      const std::vector<TensorView>& tensors);

/// Whether a partial value stays so until somebody needs it whole.
bool may_wait(const ir::Function& function, const EquationFactors& factors, ir::ValueId value);
/// Whether a value, `definition` having the numbers of equations, is a constant zero: a sum of
/// itself.
bool is_zero(const ir::Function& function, const std::vector<std::size_t>& definition,
             ir::ValueId value);

/// Whether all that happens to the input is that something is added to it to give the output.
bool is_sum(const ir::Function& body, const std::vector<int>& users, std::size_t input,
            std::size_t output);

/// The atoms over which results are sums, `deferral` being nullptr for an equation of whole values.
AtomList partial_of(const EquationFactors& factors, const Assignment& assignment,
                    const Deferral* deferral);

/// Puts the reductions with these numbers directly behind what they reduce, where they meet others
/// of the same devices.
void put_early(ir::Function& function, const std::vector<std::size_t>& reductions);

}  // namespace tessera::partition
