#include "run/machine/cores.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <new>
#include <thread>

#include "run/machine/control_groups.h"

namespace tessera::run {

namespace {

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

AffinityMask::AffinityMask(int cpus) : bytes_(CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus))) {
  cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(cpus));
  if (set == nullptr) throw std::bad_alloc();
  set_.reset(set, [](cpu_set_t* mask) { CPU_FREE(mask); });
  CPU_ZERO_S(bytes_, set);
}

/// The kernel's mask may be larger than cpu_set_t. It is asked for again until it fits.
AffinityMask AffinityMask::of_this_thread() {
  constexpr int kMostCores = 1 << 20;
  for (int cores = CPU_SETSIZE; cores <= kMostCores; cores *= 2) {
    AffinityMask mask(cores);
    if (sched_getaffinity(0, mask.bytes_, mask.set_.get()) == 0) return mask;
    if (errno != EINVAL) break;
  }
  return AffinityMask(CPU_SETSIZE);
}

AffinityMask AffinityMask::of(const std::vector<int>& cpus) {
  const int most = cpus.empty() ? 0 : *std::max_element(cpus.begin(), cpus.end());
  AffinityMask mask(std::max(most + 1, CPU_SETSIZE));
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), mask.bytes_, mask.set_.get());
  return mask;
}

bool AffinityMask::has(int cpu) const {
  return CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes_, set_.get()) != 0;
}
int AffinityMask::count() const { return CPU_COUNT_S(bytes_, set_.get()); }
void AffinityMask::apply() const { sched_setaffinity(0, bytes_, set_.get()); }

int usable_cores(const std::string& root) {
  std::int64_t cores = AffinityMask::of_this_thread().count();
  if (cores == 0) cores = std::thread::hardware_concurrency();
  for (const ControlGroup& group : control_groups("cpu", root)) {
    if (const auto limit = cores_of(group)) cores = std::min(cores, *limit);
  }
  return static_cast<int>(std::max<std::int64_t>(cores, 1));
}

}  // namespace tessera::run
