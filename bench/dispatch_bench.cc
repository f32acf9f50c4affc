// Measures the overhead of the engine: the time of programs whose kernels do nothing, by the number
// of threads. items_per_second counts tasks.
#include <benchmark/benchmark.h>

#include "run/engine.h"

namespace tessera::run {
namespace {

class Nothing final : public Kernel {
 public:
  void run(std::span<std::byte* const> /*buffers*/, int /*part*/) const override {}
};

/// Tasks with three buffers each; every task depends on the one before it, or all are independent.
Executable tasks(std::int64_t count, bool is_chain) {
  Executable executable;
  executable.instructions.resize(static_cast<std::size_t>(count));
  executable.places = {{}, {}, {}};
  executable.arena_bytes = 64;
  const auto kernel = std::make_shared<Nothing>();
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

void measure(benchmark::State& state, const Executable& executable, std::int64_t num_tasks) {
  Engine& engine = Engine::instance();
  engine.set_num_threads(static_cast<int>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(engine.execute(executable, {}));
  state.SetItemsProcessed(state.iterations() * num_tasks);
}

void empty_program(benchmark::State& state) { measure(state, tasks(0, false), 0); }
void chain_of_1000(benchmark::State& state) { measure(state, tasks(1000, true), 1000); }
void side_by_side_1000(benchmark::State& state) { measure(state, tasks(1000, false), 1000); }
void scan_of_1000_steps(benchmark::State& state) {
  measure(state, loop(tasks(4, true), 1000), 4000);
}

BENCHMARK(empty_program)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(chain_of_1000)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(side_by_side_1000)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(scan_of_1000_steps)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace tessera::run

BENCHMARK_MAIN();
