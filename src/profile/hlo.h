// A program as the message HloProto, which TensorBoard's graph and memory viewers read.
#pragma once

#include <string>

#include "profile/program.h"

namespace tessera::profile {

/// Shapes are those of one device. Regions are fusions, loops and branches custom calls. Buffers
/// are those that a device would hold; of a pipeline, a device of the group that holds most.
std::string to_hlo(const Program& program);

}  // namespace tessera::profile
