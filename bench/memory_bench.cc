// Measures the memory of a pipeline with each schedule: the planned peak of each group, beside the
// peak of all buffers while one process with all groups runs a step.
//
//   memory_bench [SCHEDULE...]
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <tessera/optim.h>

#include "pipeline/model.h"

namespace {

using namespace tessera;
using State = TrainState<pipeline::Transformer>;

constexpr std::int64_t kGroups = 4;
constexpr std::int64_t kMicrobatches = 8;
constexpr std::int64_t kBatch = 16;
constexpr double kMebibyte = 1024.0 * 1024.0;

/// The tasks for one stage per group. If the schedule does not support that, doubles `stages` and
/// returns the tasks for two stages per group.
ScheduleTasks tasks_of(const std::string& name, std::int64_t& stages) {
  try {
    return schedule_tasks(name, {.num_stages = stages, .mpmd_dim = kGroups}, kMicrobatches);
  } catch (const UserError&) {
    stages *= 2;
    return schedule_tasks(name, {.num_stages = stages, .mpmd_dim = kGroups}, kMicrobatches);
  }
}

void measure(const std::string& name) {
  std::int64_t stages = kGroups;
  const ScheduleTasks tasks = tasks_of(name, stages);
  const FixedSchedule schedule{
      .num_stages = stages, .mpmd_dim = kGroups, .num_microbatches = kMicrobatches, .list = tasks};
  const pipeline::Config config{
      .seq = 128, .d_model = 256, .microbatches = kMicrobatches, .stages = stages};
  const MpmdMesh mesh(make_mesh({{"stage", kGroups}, {"fsdp", 1}}), "stage");
  const use_mesh scope(mesh.group_mesh());
  const auto step = mpmd_jit_with_loop(
      [&](State old, const Array& xs, const Array& ys) {
        auto [loss, grads] =
            pipeline::accumulate(old.params, xs, ys, config.microbatches, schedule);
        return std::tuple(old.apply_gradients(grads), loss);
      },
      mesh, {.donate_argnums = {0}});
  const auto xs = random::normal(Key(1), {kBatch, config.seq, config.d_model});
  const auto ys = random::normal(Key(2), {kBatch, config.seq, config.d_model});
  State state(pipeline::Transformer(nn::Scope(Key(0)), config), optim::adamw());
  const auto compiled = step.lower(state, xs, ys).compile();
  const MemoryPlan plan = compiled.memory();
  const std::vector<std::int64_t>& peaks = plan.group_peaks;
  Array loss;
  std::tie(state, loss) = compiled(std::move(state), xs, ys);
  reset_peak_buffer_bytes();
  std::tie(state, loss) = compiled(std::move(state), xs, ys);
  const auto held = static_cast<double>(peak_buffer_bytes());
  std::printf("| %-16s | %6ld |", name.c_str(), static_cast<long>(stages));
  for (const std::int64_t peak : peaks)
    std::printf(" %6.1f |", static_cast<double>(peak) / kMebibyte);
  const auto sum =
      static_cast<double>(std::accumulate(peaks.begin(), peaks.end(), std::int64_t{0}));
  std::printf(" %6.1f | %7.1f |\n", sum / kMebibyte, held / kMebibyte);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) {
    names = {"GPipe",           "Std1F1B", "ZeroBubble", "ZBH2",
             "Interleaved1F1B", "ZBV",     "VHalf",      "DualPipeV"};
  }
  std::puts(
      "|                  |        | planned peak of a group, MiB                | measured |");
  std::puts("| schedule         | stages |      0 |      1 |      2 |      3 |    sum | process |");
  std::puts("| ---------------- | -----: | -----: | -----: | -----: | -----: | -----: | ------: |");
  std::fflush(stdout);
  for (const std::string& name : names) {
    // Measure in a child process: a process keeps its largest arena.
    const pid_t child = fork();
    if (child == 0) {
      set_num_threads(2);
      measure(name);
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  return 0;
}
