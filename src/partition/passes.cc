// The passes of partitioning, in order.
#include <functional>

#include <tessera/error.h>

#include "ir/text.h"
#include "partition/combine_collectives.h"
#include "partition/flatten.h"
#include "partition/partition.h"
#include "partition/propagate.h"
#include "partition/split.h"

namespace tessera::partition {

namespace {

void check_sharding(const ir::Function& function, ir::ValueId id, const Sharding& sharding) {
  const Layout layout(function.mesh, sharding, function.type(id).shape);
  require(sharding.partial.empty(), "inputs and outputs are not partial");
}

void check_options(const ir::Function& function, const PartitionOptions& options) {
  require(options.inputs.size() == function.inputs.size(), "one sharding per input");
  require(options.is_storage.size() <= function.inputs.size(), "one storage flag per input");
  require(options.outputs.size() <= function.outputs.size(), "one asked sharding per output");
  require(options.output_alias.size() <= function.outputs.size(), "one alias per output");
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    check_sharding(function, function.inputs[i], options.inputs[i]);
  }
  for (std::size_t i = 0; i < options.outputs.size(); ++i) {
    if (options.outputs[i]) check_sharding(function, function.outputs[i], *options.outputs[i]);
  }
  for (std::size_t i = 0; i < options.output_alias.size(); ++i) {
    const int alias = options.output_alias[i];
    if (alias < 0) continue;
    require(static_cast<std::size_t>(alias) < function.inputs.size(), "an alias names an input");
    require(function.type(function.inputs[static_cast<std::size_t>(alias)]) ==
                function.type(function.outputs[i]),
            "an output takes the buffer of an input of its type");
  }
}

using Pass = std::function<ir::Function(const ir::Function&)>;

ir::Function run_pass(const char* name, const Pass& pass, const ir::Function& function,
                      const PartitionOptions& options) {
  ir::Function result = pass(function);
  if (options.verify) {
    ir::verify(result, name);
    verify_partitioned(result, name);
  }
  return result;
}

}  // namespace

ir::Function partition(const ir::Function& function, const PartitionOptions& options) {
  check_options(function, options);
  // First what every value should look like, from annotations alone.
  const FlatFunction flat = flatten(function);
  const Propagated propagated = propagate(flat, options);
  // Then where data moves; this needs to know what the users of each value want.
  ir::Function result = run_pass(
      "split", [&](const ir::Function& f) { return split(f, flat, propagated); }, function,
      options);
  // Last, once all collectives stand.
  return run_pass(
      "combine_collectives",
      [](const ir::Function& f) {
        const auto combine = [](const ir::Function& body) { return combine_collectives(body); };
        return combine(ir::with_changed_bodies(f, combine));
      },
      result, options);
}

}  // namespace tessera::partition
