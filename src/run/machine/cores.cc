#include "run/machine/cores.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <sched.h>
#include <thread>

#include "run/machine/control_groups.h"

namespace tessera::run {

namespace {

/// The kernel's mask may be larger than cpu_set_t. It is asked for again until it fits.
int cores_in_affinity_mask() {
  constexpr int kMostCores = 1 << 20;
  const auto free_mask = [](cpu_set_t* mask) { CPU_FREE(mask); };
  for (int cores = CPU_SETSIZE; cores <= kMostCores; cores *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cores));
    const std::unique_ptr<cpu_set_t, decltype(free_mask)> mask(
        CPU_ALLOC(static_cast<std::size_t>(cores)), free_mask);
    if (mask == nullptr) break;
    if (sched_getaffinity(0, bytes, mask.get()) == 0) return CPU_COUNT_S(bytes, mask.get());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

/// The CPU time that a group allows per unit of time, in whole cores. It is rounded down: a thread
/// too many uses up the time of the others, and then all of them wait.
std::optional<std::int64_t> cores_of(const ControlGroup& group) {
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (group.version == 1) {
    quota = number_in_file(group.folder + "/cpu.cfs_quota_us").value_or(-1);
    period = number_in_file(group.folder + "/cpu.cfs_period_us").value_or(0);
  } else if (std::ifstream file(group.folder + "/cpu.max"); !(file >> quota >> period)) {
    return std::nullopt;  // no file, or `max`: no limit
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

int usable_cores(const std::string& root) {
  std::int64_t cores = cores_in_affinity_mask();
  for (const ControlGroup& group : control_groups("cpu", root)) {
    if (const auto limit = cores_of(group)) cores = std::min(cores, *limit);
  }
  return static_cast<int>(std::max<std::int64_t>(cores, 1));
}

}  // namespace tessera::run
