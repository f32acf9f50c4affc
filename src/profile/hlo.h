// Writes a program as the message HloProto, which TensorBoard's graph and memory viewers read.
#pragma once

#include <string>

#include "profile/program.h"

namespace tessera::profile {

/// Shapes are those of one device. Regions become fusions; loops and branches become custom calls.
/// Buffers are those that one device would hold. For a pipeline, this is a device of the group with
/// the largest peak.
std::string to_hlo(const Program& program);

}  // namespace tessera::profile
