// Carries the shardings of inputs, outputs and constraints to every value.
//
// Each equation relates its tensors by factors. To a fix-point: project the shardings of an
// equation's tensors onto its factors, take the atoms that agree, and write them back to tensors
// that are still open. Cheap and certain equations go first: elementwise, then factors that pass
// through, then all. Annotated values never change, but for open dimensions
// of constraints. Constants take part in nothing: they are
// built again in the sharding of each use.
//
// Stored state enters after the batch has spread: first the atoms that do not split the batch
// (tensor parallel), last those that do (FSDP). So weights move, not activations.
#pragma once

#include <vector>

#include "partition/flatten.h"
#include "partition/partition.h"
#include "partition/project.h"

namespace tessera::partition {

struct Propagated {
  std::vector<std::shared_ptr<const EquationFactors>> factors;  // per equation
  std::vector<Sharding> wanted;   // per value; meaningless for constants
  std::vector<bool> is_constant;  // per value: cheap to build again in any sharding
  /// Per value: a storage input that shares atoms with the batch, which entered last.
  std::vector<bool> is_late;
  /// Per output: the asked sharding, or that of the input whose buffer it takes.
  std::vector<std::optional<Sharding>> outputs;
};

/// For all nested functions at once; indices are those of the flat function.
Propagated propagate(const FlatFunction& flat, const PartitionOptions& options);

}  // namespace tessera::partition
