// The memory of one device of each group.
#pragma once

#include <vector>

#include "compile/host/program.h"

namespace tessera::compile::host {

struct GroupBytes {
  std::int64_t ports = 0;  // arguments that the group reads, and results of its own
  std::int64_t arena = 0;  // the most that it holds besides these at any time
};

/// Per group. A received value is held from its transfer to its last use, a sent value until the
/// last use by the sender. `outputs` are the ports of the planned executable. `held` also gets what
/// is held, with times counted in equations.
std::vector<GroupBytes> group_bytes(const HostProgram& program,
                                    const std::vector<run::Port>& outputs,
                                    std::vector<run::HeldBytes>& held);

}  // namespace tessera::compile::host
