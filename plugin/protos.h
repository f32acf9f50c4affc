// Messages of protocol buffers that JAX and the plugin exchange.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "run/tiles/tiled.h"

namespace tessera::plugin {

struct CompileOptions {
  int num_replicas = 1;
  int num_partitions = 1;
  std::vector<int> devices;  // per partition; empty: 0, 1, ...
};
/// Throws UserError for bytes that are no such message.
CompileOptions read_compile_options(std::string_view bytes);

/// DeviceAssignmentProto of one replica.
std::string device_assignment(const std::vector<int>& devices);
/// Dimensions that JAX does not see: in front those that hold terms of a reduction, behind the one
/// that holds the parts of complex numbers.
struct HiddenDims {
  std::size_t terms = 0;
  std::string_view reduction = "reduce_sum";
  std::size_t parts = 0;
};
/// xla.OpSharding.
std::string op_sharding(const run::Placement& placement, HiddenDims hidden);

}  // namespace tessera::plugin
