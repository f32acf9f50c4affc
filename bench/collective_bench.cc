// How long an all_reduce takes between processes of this machine: collective_bench PROCESSES.
//
// Prints the latency and the bandwidth of a link for which the model of `tessera plan` gives the
// measured times of a small and of a large array, as one JSON object.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <tessera/tessera.h>

namespace {

using namespace tessera;

constexpr std::int64_t kSmall = 1;
constexpr std::int64_t kLarge = std::int64_t{1} << 21;
constexpr int kRuns = 15;

/// The seconds of the fastest all_reduce of an f32 array over all processes.
double seconds_of_all_reduce(std::int64_t size) {
  const std::int64_t count = process_count();
  const Mesh mesh = make_mesh({{"data", count}});
  const use_mesh scope(mesh);
  const auto add =
      jit([](Array x) { return sum(x, {0}); }, {.out_shardings = NamedSharding(mesh, P{})});
  const Array x = device_put(ones({count, size}), NamedSharding(mesh, P{"data"}));
  double best = 1e300;
  for (int run = 0; run < kRuns; ++run) {
    process_allgather(run);  // all processes begin at the same time
    const auto start = std::chrono::steady_clock::now();
    add(x);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    best = std::min(best, passed.count());
  }
  return best;
}

class Measurement final : public IsolatedProgram {
 public:
  void run() override {
    set_num_threads(1);
    const double small = seconds_of_all_reduce(kSmall);
    const double large = seconds_of_all_reduce(kLarge);
    if (process_index() != 0) return;
    const auto n = static_cast<double>(process_count());
    // As in src/forecast/cost.cc, for a power of two of processes.
    const double latency = small / (2 * std::log2(n));
    const double wire_bytes = 2 * (n - 1) / n * 4 * static_cast<double>(kLarge);
    std::printf("{\"processes\": %d, \"latency_s\": %.9f, \"bandwidth\": %.0f}\n", process_count(),
                latency, wire_bytes / std::max(1e-9, large - small));
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
