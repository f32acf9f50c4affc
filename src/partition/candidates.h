// The few ways to split an equation that are worth pricing.
#pragma once

#include <vector>

#include "partition/project.h"

namespace tessera::partition {

/// One tensor of an equation and the layout that it has, or, for a result, should have.
struct TensorView {
  const ops::Factors::Dims* dims;
  const Sharding* sharding;
  std::int64_t size;  // in elements
  bool is_late;       // stored state: its layout counts least
};

struct CandidateContext {
  const EquationFactors& factors;
  const std::vector<Atom>& atoms;
  std::int64_t grains;
};

/// All layouts joined: larger tensors before smaller ones, stored state last.
Assignment merge_all(const CandidateContext& context, std::vector<TensorView> tensors);

/// Each layout on its own, each first with the others joined, and these with atoms of reduced
/// factors moved to factors where a split is exact. All are legal; the unsplit one is not listed.
std::vector<Assignment> make_candidates(const CandidateContext& context,
                                        const std::vector<TensorView>& tensors);

}  // namespace tessera::partition
