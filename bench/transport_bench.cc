// Measures exchanges between processes: each rank sends to the next one and receives from the one
// before it. Prints microseconds per exchange, the least of several runs of many exchanges.
//
//   transport_bench [RANKS]             forks the ranks, which are connected by sockets
//   mpirun -n RANKS transport_bench     uses MPI
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "run/transport/launched.h"

namespace tessera::run {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_of(std::int64_t bytes, int count) {
  static const CollectiveLabel label{.kind = "ring", .op = "bench", .span = {}};
  Transport& all = *transport();
  const int next = (all.rank() + 1) % all.size();
  const int previous = (all.rank() + all.size() - 1) % all.size();
  const std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  std::vector<std::byte> in(out.size());
  const std::vector<Transport::Send> sends = {{next, out}};
  const std::vector<Transport::Receive> receives = {{previous, in}};
  double best = 1e30;
  for (int run = 0; run < 7; ++run) {
    all_values(0, label);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < count; ++i) {
      all.begin(label);
      all.exchange(sends, receives);
    }
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    best = std::min(best, time.count() / count);
  }
  return best;
}

void measure() {
  const double small = microseconds_of(8, 2000);
  const double large = microseconds_of(2 << 20, 40);
  if (transport()->rank() != 0) return;
  std::printf("%d ranks: 8 B %8.1f us, 2 MiB %8.1f us\n", transport()->size(), small, large);
}

}  // namespace
}  // namespace tessera::run

int main(int argc, char** argv) {
  const auto on_error = [](const std::exception_ptr&, bool) { return 2; };
  if (tessera::run::is_launched()) {
    return tessera::run::run_launched({.facts = {}, .on_error = on_error}, tessera::run::measure);
  }
  const int count = argc > 1 ? std::atoi(argv[1]) : 2;
  return tessera::run::run_processes({.count = count, .on_error = on_error}, tessera::run::measure);
}
