// The passes of partitioning, in order.
#include <algorithm>

#include <tessera/error.h>

#include "ops/control/control.h"
#include "ops/control/mpmd.h"
#include "partition/combine_collectives.h"
#include "partition/flatten.h"
#include "partition/moves.h"
#include "partition/partition.h"
#include "partition/propagate.h"
#include "partition/split/split.h"

namespace tessera::partition {

namespace {

void check_sharding(const ir::Function& function, ir::ValueId id, const Sharding& sharding) {
  const Layout layout(function.mesh, sharding, function.type(id).shape);
  require(sharding.partial.empty(), "inputs and outputs are not partial");
}

void check_has_no_collectives(const ir::Function& function) {
  for (const ir::Equation& equation : function.equations) {
    require(!kind_of(*equation.op), "a program that is not partitioned has no collectives");
    for (const ir::Function* body : bodies_of(equation)) check_has_no_collectives(*body);
  }
}

/// Inputs may have shardings, written after their types. All others are still unknown.
void verify_whole(const ir::Function& function, std::string_view after) {
  ir::verify(function, after);
  std::vector<bool> is_input(function.values.size(), false);
  for (ir::ValueId id : function.inputs) is_input[id] = true;
  for (ir::ValueId id = 0; id < function.values.size(); ++id) {
    require(is_input[id] || !function.values[id].sharding,
            "a program that is not partitioned has shardings on its inputs only");
  }
  check_has_no_collectives(function);
  ops::groups_of(function);  // throws if groups of devices cannot run it
}

void verify_all(const ir::Function& function, std::string_view after) {
  ir::verify(function, after);
  verify_partitioned(function, after);
}

bool has_nested(const ir::Function& function) {
  return std::any_of(function.equations.begin(), function.equations.end(),
                     [](const ir::Equation& equation) { return !bodies_of(equation).empty(); });
}

}  // namespace

void check_options(const ir::Function& function, const PartitionOptions& options) {
  require(options.inputs.size() == function.inputs.size(), "one sharding per input");
  require(options.is_storage.size() <= function.inputs.size(), "one storage flag per input");
  require(options.outputs.size() <= function.outputs.size(), "one asked sharding per output");
  require(options.output_follows.size() <= function.outputs.size(),
          "one input to follow per output");
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    check_sharding(function, function.inputs[i], options.inputs[i]);
  }
  for (std::size_t i = 0; i < options.outputs.size(); ++i) {
    if (options.outputs[i]) check_sharding(function, function.outputs[i], *options.outputs[i]);
  }
  for (std::size_t i = 0; i < options.output_follows.size(); ++i) {
    const int followed = options.output_follows[i];
    if (followed < 0) continue;
    const auto input = static_cast<std::size_t>(followed);
    require(input < function.inputs.size(), "an output follows an input");
    require(function.type(function.inputs[input]) == function.type(function.outputs[i]),
            "an output follows an input of its type");
  }
}

std::vector<ir::Pass> split_passes(const PartitionOptions& options) {
  return {
      {.name = "split",
       .doc = "gives every value a sharding and inserts the collectives that the shardings need",
       .run =
           [&](ir::Function f) {
             const ir::Function whole = ops::with_ordered_effects(
                 ops::dissolve_calls(std::move(f), ops::Dissolve::all_calls));
             const FlatFunction flat = flatten(whole);
             return split(whole, flat, propagate(flat, options));
           },
       .takes = verify_whole,
       .gives = verify_all}};
}

std::vector<ir::Pass> combine_passes() {
  return {{.name = "combine_collectives",
           .doc = "combines reductions over the same devices into a few large ones",
           .run =
               [](ir::Function f) {
                 if (has_nested(f)) f = ir::with_changed_bodies(std::move(f), combine_collectives);
                 return combine_collectives(std::move(f));
               },
           .is_optional = true,
           .takes = verify_all,
           .gives = verify_all}};
}

std::vector<ir::Pass> passes(const PartitionOptions& options) {
  std::vector<ir::Pass> all = split_passes(options);
  for (ir::Pass& pass : combine_passes()) all.push_back(std::move(pass));
  return all;
}

ir::Function partition(const ir::Function& function, const PartitionOptions& options) {
  check_options(function, options);
  return ir::run_passes(passes(options), function, options.passes);
}

}  // namespace tessera::partition
