// What a device would hold, as the messages of TensorBoard's memory viewer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profile/program.h"

namespace tessera::profile {

/// The instruction that makes a value, and which element of its result that is.
struct BufferPlace {
  std::int64_t instruction = 0;
  std::vector<std::int64_t> element = {};
};

/// The message BufferAssignmentProto: arguments and results, and an arena with all that is held
/// besides and when. Of a pipeline, of the group that holds most.
std::string buffer_assignment(const Computation& entry,
                              const std::map<ir::ValueId, BufferPlace>& places,
                              const std::string& computation,
                              const std::map<std::int64_t, std::string>& names);

}  // namespace tessera::profile
