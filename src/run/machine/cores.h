// The cores that this process may use.
#pragma once

#include <string>
#include <vector>

namespace tessera::run {

/// The logical CPUs that the calling thread may use, ascending; none if the kernel does not say.
std::vector<int> allowed_cpus();
/// The CPU on which the calling thread runs now; -1 if the kernel does not say.
int current_cpu();
/// Lets the calling thread run on these CPUs only. Does nothing if the kernel refuses.
void run_on(const std::vector<int>& cpus);

/// The cores in the affinity mask of the calling thread, but not more than the CPU time that the
/// control groups allow; at least 1. `root` is prepended to the kernel's paths, for tests.
int usable_cores(const std::string& root = "");

}  // namespace tessera::run
