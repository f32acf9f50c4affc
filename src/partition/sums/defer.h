// Deferred sums over devices, in fast numerics: linear equations are applied to partial values.
// These are resolved only once, where they are needed, instead of where they are made.
#pragma once

#include <optional>
#include <vector>

#include "partition/candidates.h"

namespace tessera::partition {

/// What is known about an operand of an equation.
struct SumOperand {
  const Sharding* sum = nullptr;  // of a partial value
  bool is_any = false;            // may be a sum over any devices, with any sharding
  bool is_accumulator = false;    // a carry that becomes a sum if a sum is added to it
};

/// A way to split an equation so that its result is a partial sum like some of its operands.
struct Deferral {
  std::vector<std::size_t> group;  // these operands
  AtomList partial;                // over these atoms
  Assignment assignment;
  bool is_accumulating = false;

  bool has(std::size_t operand) const;
};

/// Finds the first linear group whose operands are all sums over the same devices with the same
/// sharding. The other tensors split the remaining factors.
std::optional<Deferral> find_deferral(const CandidateContext& context,
                                      const std::vector<std::vector<std::size_t>>& groups,
                                      const std::vector<SumOperand>& operands,
                                      const std::vector<TensorView>& tensors);

/// Whether a partial value stays partial until its sum is needed.
bool may_wait(const ir::Function& function, const EquationFactors& factors, ir::ValueId value);
/// Whether a value is a constant zero, which is a partial sum over any devices. `definition` has
/// the numbers of equations.
bool is_zero(const ir::Function& function, const std::vector<std::size_t>& definition,
             ir::ValueId value);

/// Whether the input is only used to add something to it, and the sum is the output.
bool is_sum(const ir::Function& body, const std::vector<int>& users, std::size_t input,
            std::size_t output);

/// The atoms over which results are sums; `deferral` is nullptr for an equation without partial
/// operands.
AtomList partial_of(const EquationFactors& factors, const Assignment& assignment,
                    const Deferral* deferral);

/// Moves the reductions with these numbers to just after what they reduce, where they can be
/// combined with others over the same devices.
void put_early(ir::Function& function, const std::vector<std::size_t>& reductions);

}  // namespace tessera::partition
