// Carries the shardings of inputs, outputs and constraints to every value.
//
// Each equation relates its tensors by factors. The shardings of an equation's tensors are
// projected onto its factors, and the atoms on which they agree are written back to tensors that
// are still open. This is repeated until nothing changes. Simple equations come first: elementwise
// ones, then factors that pass through, then conflicts between free dimensions of products, then
// all. Annotated values never change, except for open dimensions of constraints. Constants do not
// take part: each use builds its own copy in the sharding that it needs.
//
// Stored state enters after the batch has been propagated: first the atoms that do not split the
// batch (tensor parallel), last those that do (FSDP). Thus weights move, not activations.
#pragma once

#include <vector>

#include "partition/flatten.h"
#include "partition/partition.h"
#include "partition/project.h"

namespace tessera::partition {

struct Propagated {
  std::vector<std::shared_ptr<const EquationFactors>> factors;  // per equation
  std::vector<Sharding> wanted;   // per value; meaningless for constants
  std::vector<bool> is_constant;  // per value: whether it is cheap to build again in any sharding
  /// Per value: whether it is stored state that entered last because its atoms also split the
  /// batch.
  std::vector<bool> is_late;
  /// Per output: the requested sharding, or that of the input whose buffer it reuses.
  std::vector<std::optional<Sharding>> outputs;
};

/// Whether all dimensions of a sharding_constraint are open.
bool asks_nothing(const ir::Equation& constraint);

/// For all nested functions at once; indices are those of the flat function.
Propagated propagate(const FlatFunction& flat, const PartitionOptions& options);

}  // namespace tessera::partition
