// ZeRO on one data axis: which parts of the training state are split instead of replicated. The
// batch is split over the same axis.
#pragma once

#include <tessera/optim.h>
#include <tessera/tessera.h>

namespace layouts {

using namespace tessera;

enum class Zero {
  optimizer = 1,   // the optimiser's slots are split
  gradients = 2,   // also the gradients: a reduce-scatter instead of an all-reduce
  parameters = 3,  // also the parameters (FSDP): gathered where they are used
};

/// The shardings of a TrainState, which may be abstract. Leaves are split as by fsdp_shardings.
template <typename State>
Shardings zero_shardings(const Mesh& mesh, const State& state, Zero level,
                         const std::string& axis = "data") {
  const Shardings split = fsdp_shardings(mesh, state, axis);
  Shardings shardings;
  for (const Shardings::Entry& leaf : split.entries()) {
    const bool is_split = level == Zero::parameters || leaf.path.starts_with("opt_state/");
    shardings.set(leaf.path, NamedSharding(mesh, is_split ? leaf.spec : P{}));
  }
  return shardings;
}

/// Gradients with the sharding of the level: replicated, or split like the optimiser's slots.
template <typename Model>
Model placed_gradients(const Mesh& mesh, const Model& gradients, Zero level,
                       const std::string& axis = "data") {
  const Shardings split = fsdp_shardings(mesh, gradients, axis);
  std::vector<Array> leaves = tree_leaves(gradients);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const P spec = level == Zero::optimizer ? P{} : split.entries()[i].spec;
    leaves[i] = with_sharding_constraint(leaves[i], NamedSharding(mesh, spec));
  }
  return tree_replace(gradients, leaves);
}

}  // namespace layouts
