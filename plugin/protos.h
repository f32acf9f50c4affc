// Protocol buffer messages that JAX and the plugin exchange.
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
/// Parses a CompileOptionsProto. Throws UserError for bytes that are not such a message.
CompileOptions read_compile_options(std::string_view bytes);

/// DeviceAssignmentProto of one replica.
std::string device_assignment(const std::vector<int>& devices);
/// Dimensions that JAX does not see: leading ones that hold the terms of a reduction, and a last
/// one that holds the parts of complex numbers.
struct HiddenDims {
  std::size_t terms = 0;
  std::string_view reduction = "reduce_sum";
  std::size_t parts = 0;
};
/// xla.OpSharding.
std::string op_sharding(const run::Placement& placement, HiddenDims hidden);

}  // namespace tessera::plugin
