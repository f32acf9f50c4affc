#include "api/call/device_program.h"

#include <tessera/error.h>

#include "run/transport/processes.h"
#include "run/world.h"
#include "stablehlo/stablehlo.h"

namespace tessera::detail {

namespace {

run::DevicePort port_of(const Placement& placement) {
  const Layout& layout = placement.layout;
  run::DevicePort port{.dtype = placement.type.dtype, .room = layout.max_tile_shape(), .tiles = {}};
  for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
    port.tiles.push_back({.shape = layout.tile_shape(layout.digits(tile))});
  }
  for (std::int64_t device = 0; device < placement.mesh.num_devices(); ++device) {
    const std::int64_t tile = layout.tile_at(device_digits(placement.mesh, device));
    port.tiles[static_cast<std::size_t>(tile)].devices.push_back(device);
  }
  return port;
}

std::vector<run::DevicePort> ports_of(const std::vector<PlacementPtr>& placements) {
  std::vector<run::DevicePort> ports;
  for (const PlacementPtr& placement : placements) ports.push_back(port_of(*placement));
  return ports;
}

}  // namespace

std::shared_ptr<const run::DeviceRunnable> compile_for_backend(const Program& program) {
  if (run::transport() != nullptr) {
    throw UserError({.what = "the engine pjrt computes for all devices in one process",
                     .found = "a run of several processes",
                     .wanted = "one process",
                     .cure = "start the program without a launcher and without --isolated"});
  }
  if (program.pipeline) {
    throw UserError({.what = program.name + ": the engine pjrt runs no pipelines",
                     .found = "a step on several groups of devices",
                     .wanted = "a step on one mesh",
                     .cure = "run it without groups (--mesh none), or on the host engine"});
  }
  run::Backend& backend = *program.engine.backend;
  const bool is_cpu = backend.platform() == "cpu";
  return backend.compile(
      {.name = program.name,
       .text = stablehlo::emit(program.partitioned,
                               {.donated = program.is_donated, .widens_products = is_cpu}),
       .num_devices = program.partitioned.mesh.num_devices(),
       .inputs = ports_of(program.inputs),
       .outputs = ports_of(program.outputs),
       .is_donated = program.is_donated});
}

}  // namespace tessera::detail
