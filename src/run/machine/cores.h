// The cores that this process may use.
#pragma once

#include <string>

namespace tessera::run {

/// The cores in the affinity mask of the calling thread, but not more than the CPU time that the
/// control groups allow; at least 1. `root` is prepended to the kernel's paths, for tests.
int usable_cores(const std::string& root = "");

}  // namespace tessera::run
