// Measures the bubble of pipelines whose devices are threads. Prints the bubble of a recorded step
// beside the one that the simulator computes from the task times of that step.
//
//   bubble_bench [SCHEDULE...]
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "pipeline/schedules.h"

namespace {

using namespace tessera;

constexpr std::int64_t kGroups = 2;
constexpr std::int64_t kMicrobatches = 8;
constexpr std::int64_t kLayers = 8;
constexpr std::int64_t kWidth = 768;
constexpr std::int64_t kRows = 256;
constexpr int kRuns = 5;

using Layers = std::vector<Array>;

Array loss_of(const Layers& layers, Array x, std::int64_t stages) {
  for (std::int64_t i = 0; i < kLayers; ++i) {
    x = tanh(dot(x, layers[static_cast<std::size_t>(i)]));
    if ((i + 1) % (kLayers / stages) == 0) x = mark_stage_end(x);
  }
  return mean(square(x));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const pipeline::ScheduleRecord& record) {
  const std::string name(record.name);
  const bool is_one = record.stages == pipeline::StagesPerRank::one;
  const std::int64_t stages = is_one ? kGroups : 2 * kGroups;
  const ScheduleTasks tasks =
      schedule_tasks(name, {.num_stages = stages, .mpmd_dim = kGroups}, kMicrobatches);
  const FixedSchedule schedule{
      .num_stages = stages, .mpmd_dim = kGroups, .num_microbatches = kMicrobatches, .list = tasks};
  const auto gradients = [&](Layers layers, Array xs) {
    return treduce(
        [&](Array x) {
          return value_and_grad([&](const Layers& l) { return loss_of(l, x, stages); })(layers);
        },
        xs, schedule);
  };
  const MpmdMesh mesh(make_mesh({{"stage", kGroups}}), "stage");
  Layers layers;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    layers.push_back(random::normal(Key(i), {kWidth, kWidth}) * 0.03F);
  }
  const Array xs = random::normal(Key(9), {kMicrobatches, kRows, kWidth});
  const auto step = mpmd_jit_with_loop(gradients, mesh).compile(layers, xs);
  step(layers, xs);
  std::vector<double> planned, found, differences, spans;
  for (int run = 0; run < kRuns; ++run) {
    start_timeline();
    step(layers, xs);
    const std::vector<TaskTime> times = stop_timeline();
    const Simulation recorded = measured(tasks, times);
    planned.push_back(simulate(tasks, measured_costs(times, stages)).bubble);
    found.push_back(recorded.bubble);
    differences.push_back(found.back() - planned.back());
    spans.push_back(recorded.makespan);
  }
  std::printf("| %-16s | %6ld | %7.1f %% | %8.1f %% | %+6.1f | %6.1f |\n", name.c_str(),
              static_cast<long>(stages), 100 * median(planned), 100 * median(found),
              100 * median(differences), 1e3 * median(spans));
}

const pipeline::ScheduleRecord* record_named(const std::string& name) {
  const auto records = pipeline::schedule_records();
  const auto found =
      std::find_if(records.begin(), records.end(),
                   [&](const pipeline::ScheduleRecord& record) { return record.name == name; });
  return found == records.end() ? nullptr : &*found;
}

}  // namespace

int main(int argc, char** argv) {
  set_num_threads(kGroups);
  set_threads_per_group(1);
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) names = schedule_names();
  std::puts("| schedule         | stages | simulated | measured | points | step ms |");
  std::puts("| ---------------- | -----: | --------: | -------: | -----: | ------: |");
  for (const std::string& name : names) {
    const pipeline::ScheduleRecord* record = record_named(name);
    if (record == nullptr) {
      std::fprintf(stderr, "there is no schedule named %s\n", name.c_str());
      return 1;
    }
    if (name != "Sequential") measure(*record);
  }
  return 0;
}
