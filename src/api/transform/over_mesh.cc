#include "api/transform/over_mesh.h"

#include "batch/batch.h"

namespace tessera::detail {

std::vector<ir::ValueId> map_tiles(ir::Builder& b, const Mesh& mesh, stablehlo::ManualBody body,
                                   const std::vector<ir::ValueId>& operands) {
  const batch::TileMap map(mesh, body.axes, body.where);
  std::vector<ir::ValueId> values = operands;
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    values[i] = map.stack(b, values[i], body.inputs[i]);
  }
  const batch::OverDevices all = map.over_devices(std::move(body.function), body.inputs);
  std::vector<ir::ValueId> results = b.inline_function(all.function, values);
  b.set_span(body.where);
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i] = map.unstack(b, results[i], all.varies[i], body.outputs[i]);
  }
  return results;
}

}  // namespace tessera::detail
