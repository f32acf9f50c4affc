// Measures the overhead of the engine: the time of programs whose kernels do nothing, by the number
// of threads. `each` is the wall time per task, or per part where tasks have parts.
#include <benchmark/benchmark.h>

#include "run/engine.h"

namespace tessera::run {
namespace {

class Nothing final : public Kernel {
 public:
  explicit Nothing(int num_parts) : num_parts_(num_parts) {}
  int num_parts() const override { return num_parts_; }
  void run(std::span<std::byte* const> /*buffers*/, int /*part*/) const override {}

 private:
  int num_parts_;
};

/// Tasks with three buffers each; every task depends on the one before it, or all are independent.
Executable tasks(std::int64_t count, bool is_chain, int num_parts = 1) {
  Executable executable;
  executable.instructions.resize(static_cast<std::size_t>(count));
  executable.places = {{}, {}, {}};
  executable.arena_bytes = 64;
  const auto kernel = std::make_shared<Nothing>(num_parts);
  for (std::uint32_t i = 0; i < count; ++i) {
    executable.tasks.push_back({.kernel = kernel,
                                .instruction = i,
                                .places = {0, 1, 2},
                                .successors = {},
                                .num_predecessors = is_chain && i > 0 ? 1U : 0U});
    if (is_chain && i > 0) executable.tasks[i - 1].successors = {i};
  }
  return executable;
}

Executable loop(const Executable& body, std::int64_t length) {
  Control control{
      .kind = Control::Kind::scan,
      .length = length,
      .begin = {},
      .condition = {},
      .bodies = {{.executable = std::make_shared<const Executable>(body), .binding = {}}},
      .end = {}};
  Executable executable = tasks(1, false);
  executable.tasks[0].kernel = nullptr;
  executable.tasks[0].control = std::make_shared<const Control>(std::move(control));
  return executable;
}

void measure(benchmark::State& state, const Executable& executable, std::int64_t num_items) {
  Engine& engine = Engine::instance();
  engine.set_num_threads(static_cast<int>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(engine.execute(executable, {}));
  const double items = static_cast<double>(state.iterations()) * static_cast<double>(num_items);
  state.counters["each"] =
      benchmark::Counter(items, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void empty_program(benchmark::State& state) { measure(state, tasks(0, false), 1); }
void chain_of_1000(benchmark::State& state) { measure(state, tasks(1000, true), 1000); }
void side_by_side_1000(benchmark::State& state) { measure(state, tasks(1000, false), 1000); }
/// The calling thread runs it alone.
void short_chain_of_1000(benchmark::State& state) {
  Executable executable = tasks(1000, true);
  executable.is_short = true;
  measure(state, executable, 1000);
}
void chain_of_100_with_64_parts(benchmark::State& state) {
  measure(state, tasks(100, true, 64), 6400);
}
void scan_of_1000_steps(benchmark::State& state) {
  measure(state, loop(tasks(4, true), 1000), 4000);
}

void by_threads(benchmark::internal::Benchmark* bench) {
  bench->RangeMultiplier(2)->Range(1, 64)->UseRealTime();
}

BENCHMARK(empty_program)->Apply(by_threads);
BENCHMARK(chain_of_1000)->Apply(by_threads);
BENCHMARK(short_chain_of_1000)->Apply(by_threads);
BENCHMARK(side_by_side_1000)->Apply(by_threads);
BENCHMARK(chain_of_100_with_64_parts)->Apply(by_threads);
BENCHMARK(scan_of_1000_steps)->Apply(by_threads);

}  // namespace
}  // namespace tessera::run

BENCHMARK_MAIN();
