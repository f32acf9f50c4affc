// How long an all_reduce takes between processes of this machine: collective_bench PROCESSES.
//
// Prints the latency and the bandwidth of a link for which the model of `tessera plan` gives the
// measured times of a small and of a large array, as JSON: one line in wall-clock time, and one in
// CPU time, which is valid even if other programs use the machine.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <tessera/tessera.h>

namespace {

using namespace tessera;

constexpr std::int64_t kSmall = 1;
constexpr std::int64_t kLarge = std::int64_t{1} << 21;
constexpr int kRuns = 15;

double cpu_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The CPU time of all processes, divided by the cores that they can use at the same time.
double shared_cpu_seconds(double own_seconds) {
  double sum = 0;
  for (const std::int64_t ns : process_allgather(std::llround(own_seconds * 1e9)))
    sum += 1e-9 * static_cast<double>(ns);
  return sum / std::min(process_count(), usable_cores());
}

struct Times {
  double wall = 1e300;  // of the fastest run
  double cpu = 0;       // mean over the runs
};

/// The times of an all_reduce of an f32 array over all processes.
Times times_of_all_reduce(std::int64_t size) {
  const std::int64_t count = process_count();
  const Mesh mesh = make_mesh({{"data", count}});
  const use_mesh scope(mesh);
  const auto add =
      jit([](Array x) { return sum(x, {0}); }, {.out_shardings = NamedSharding(mesh, P{})});
  const Array x = device_put(ones({count, size}), NamedSharding(mesh, P{"data"}));
  add(x);
  Times times;
  double cpu = 0;
  for (int run = 0; run < kRuns; ++run) {
    process_allgather(run);  // all processes begin at the same time
    const double cpu_start = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    add(x);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    times.wall = std::min(times.wall, passed.count());
    cpu += cpu_seconds() - cpu_start;
  }
  times.cpu = shared_cpu_seconds(cpu / kRuns);
  return times;
}

/// Solves the model of src/forecast/cost.cc, for a number of processes that is a power of two.
void print_link(const char* clock, double small, double large) {
  const auto n = static_cast<double>(process_count());
  const double wire_bytes = 2 * (n - 1) / n * 4 * static_cast<double>(kLarge);
  std::printf("{\"processes\": %d, \"clock\": \"%s\", \"latency_s\": %.9f, \"bandwidth\": %.0f}\n",
              process_count(), clock, small / (2 * std::log2(n)),
              wire_bytes / std::max(1e-9, large - small));
}

class Measurement final : public IsolatedProgram {
 public:
  void run() override {
    set_num_threads(1);
    const Times small = times_of_all_reduce(kSmall);
    const Times large = times_of_all_reduce(kLarge);
    if (process_index() != 0) return;
    print_link("wall", small.wall, large.wall);
    print_link("cpu", small.cpu, large.cpu);
  }
  int report(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& what) {
      std::fprintf(stderr, "collective_bench: %s\n", what.what());
    }
    return 1;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 2 ? std::atoi(argv[1]) : 0;
  if (count < 2 || count > 64 || (count & (count - 1)) != 0) {
    std::fputs("usage: collective_bench PROCESSES, a power of two from 2 to 64\n", stderr);
    return 1;
  }
  Measurement measurement;
  return run_isolated(measurement, {.num_processes = count});
}
