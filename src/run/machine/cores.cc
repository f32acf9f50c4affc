#include "run/machine/cores.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <new>
#ifdef __linux__
#include <sched.h>
#endif
#include <thread>

#include "run/machine/control_groups.h"

namespace tessera::run {

namespace {

/// The CPU time that a group allows per unit of time, in whole cores. It is rounded down: one
/// thread too many uses up the time of the others, and then all of them wait.
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

#ifdef __linux__
struct FreeCpuMask {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
/// An empty set of at least `cpus` CPUs.
struct CpuMask {
  explicit CpuMask(int cpus)
      : bytes(CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus))),
        set(CPU_ALLOC(static_cast<std::size_t>(cpus))) {
    if (set == nullptr) throw std::bad_alloc();
    CPU_ZERO_S(bytes, set.get());
  }
  std::size_t bytes;
  std::unique_ptr<cpu_set_t, FreeCpuMask> set;
};
#endif

}  // namespace

#ifdef __linux__
/// The kernel's mask may be larger than cpu_set_t, so larger and larger masks are tried until it
/// fits.
std::vector<int> allowed_cpus() {
  constexpr int kMostCpus = 1 << 20;
  std::vector<int> cpus;
  for (int most = CPU_SETSIZE; most <= kMostCpus; most *= 2) {
    const CpuMask mask(most);
    if (sched_getaffinity(0, mask.bytes, mask.set.get()) == 0) {
      for (int cpu = 0; cpu < most; ++cpu) {
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), mask.bytes, mask.set.get()) != 0)
          cpus.push_back(cpu);
      }
      break;
    }
    if (errno != EINVAL) break;
  }
  return cpus;
}

int current_cpu() { return sched_getcpu(); }

void run_on(const std::vector<int>& cpus) {
  const int last = cpus.empty() ? 0 : *std::max_element(cpus.begin(), cpus.end());
  const CpuMask mask(std::max(last + 1, CPU_SETSIZE));
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), mask.bytes, mask.set.get());
  sched_setaffinity(0, mask.bytes, mask.set.get());
}
#else
std::vector<int> allowed_cpus() { return {}; }
int current_cpu() { return -1; }
void run_on(const std::vector<int>& /*cpus*/) {}
#endif

int usable_cores(const std::string& root) {
  std::int64_t cores = std::ssize(allowed_cpus());
  if (cores == 0) cores = std::thread::hardware_concurrency();
  for (const ControlGroup& group : control_groups("cpu", root)) {
    if (const auto limit = cores_of(group)) cores = std::min(cores, *limit);
  }
  return static_cast<int>(std::max<std::int64_t>(cores, 1));
}

}  // namespace tessera::run
