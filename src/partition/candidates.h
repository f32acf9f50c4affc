// The few ways to split an equation that are worth pricing.
#pragma once

#include <vector>

#include "partition/project.h"

namespace tessera::partition {

/// A tensor of an equation and the sharding that it has or, for a result, should have.
struct TensorView {
  const ops::Factors::Dims* dims;
  const Sharding* sharding;
  std::int64_t size;  // in elements
  bool is_late;       // stored state: its sharding has the lowest priority
};

struct CandidateContext {
  const EquationFactors& factors;
  const std::vector<Atom>& atoms;
  std::int64_t grains;
};

/// All shardings merged: larger tensors first, stored state last.
Assignment merge_all(const CandidateContext& context, std::vector<TensorView> tensors);

/// Each sharding on its own, and each merged with the others, beginning with itself. Not all are
/// legal.
std::vector<Assignment> merge_each(const CandidateContext& context,
                                   std::vector<TensorView> tensors);

/// Each sharding on its own; each merged with the others, beginning with itself; and all of these
/// with the atoms of reduced factors, or of factors that must not be split, moved to other factors.
/// All are legal. The unsplit assignment is not listed.
std::vector<Assignment> make_candidates(const CandidateContext& context,
                                        const std::vector<TensorView>& tensors);

/// Floating-point operations, summed over all devices.
double work_of(const ir::Function& function, const ir::Equation& equation);
/// Over how many devices the assignment splits an equation.
double split_between(const std::vector<Atom>& atoms, const Assignment& assignment);

}  // namespace tessera::partition
