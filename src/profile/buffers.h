// The planned memory of one device, as messages for TensorBoard's memory viewer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profile/program.h"

namespace tessera::profile {

/// The instruction that computes a value and, if its result is a tuple, the index of the element.
struct BufferPlace {
  std::int64_t instruction = 0;
  std::vector<std::int64_t> element = {};
};

/// The serialized message BufferAssignmentProto. It lists the arguments and results, and an arena
/// with all other buffers and their live ranges. For a pipeline it describes the group with the
/// largest peak. `computation`: the name of the entry computation; `names`: of instructions, by id.
std::string buffer_assignment(const Computation& entry,
                              const std::map<ir::ValueId, BufferPlace>& places,
                              const std::string& computation,
                              const std::map<std::int64_t, std::string>& names);

}  // namespace tessera::profile
