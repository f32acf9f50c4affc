// The cores that this process may use.
#pragma once

#include <memory>
#include <sched.h>
#include <string>
#include <vector>

namespace tessera::run {

/// A set of logical CPUs, as large as the kernel's.
class AffinityMask {
 public:
  /// The CPUs that the calling thread may use; none if the kernel does not say.
  static AffinityMask of_this_thread();
  static AffinityMask of(const std::vector<int>& cpus);

  bool has(int cpu) const;
  int count() const;
  /// Lets the calling thread run on these CPUs only. Does nothing if the kernel refuses.
  void apply() const;

 private:
  explicit AffinityMask(int cpus);

  std::size_t bytes_;
  std::shared_ptr<cpu_set_t> set_;
};

/// The cores in the affinity mask of the calling thread, but not more than the CPU time that the
/// control groups allow; at least 1. `root` is prepended to the kernel's paths, for tests.
int usable_cores(const std::string& root = "");

}  // namespace tessera::run
