// Compares two ways to cut a model with unequal layers into stages: equally many layers per stage,
// or by estimated costs. Devices are threads. Prints the time of the slowest stage relative to the
// mean, and the time of a step: estimated, simulated with the measured task times, and measured.
//
//   stages_bench [STAGES [SCHEDULE]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <tessera/tessera.h>

namespace {

using namespace tessera;

constexpr std::int64_t kGroups = 2;
constexpr std::int64_t kMicrobatches = 8;
constexpr std::int64_t kRows = 64;
constexpr std::int64_t kWidth = 128;
constexpr std::int64_t kClasses = 256;
constexpr int kRuns = 60;
/// The hidden widths of the blocks. They shrink, as feature maps do in convolutional networks.
constexpr std::int64_t kHidden[] = {2048, 1024, 256, 256, 128, 128, 128, 128};

struct Block {
  Array up, down;
  TESSERA_TREE(up, down)
};

struct Net {
  std::vector<Block> blocks;
  Array head;
  TESSERA_TREE(blocks, head)
};

Net make_net() {
  Net net;
  std::uint32_t key = 0;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return random::normal(Key(++key), {rows, columns}) * 0.03F;
  };
  for (const std::int64_t hidden : kHidden) {
    net.blocks.push_back({matrix(kWidth, hidden), matrix(hidden, kWidth)});
  }
  net.head = matrix(kWidth, kClasses);
  return net;
}

/// The loss of the model with marks for this number of stages; 0: without marks.
Array loss_of(const Net& net, Array x, const Array& y, std::int64_t stages) {
  const auto layers = static_cast<std::int64_t>(net.blocks.size()) + 1;  // the head is the last
  const auto end_layer = [&](std::int64_t i, Array h) {
    return (i + 1) * stages / layers != i * stages / layers ? mark_stage_end(h) : h;
  };
  for (std::int64_t i = 0; i + 1 < layers; ++i) {
    const Block& block = net.blocks[static_cast<std::size_t>(i)];
    x = end_layer(i, x + dot(tanh(dot(x, block.up)), block.down));
  }
  x = end_layer(layers - 1, dot(x, net.head));
  return mean(square(x - y));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Compiled<std::tuple<Array, Net>, Net, Array, Array> compile(const Schedule& schedule, bool is_cut,
                                                            const Net& net, const Array& xs,
                                                            const Array& ys) {
  const std::int64_t marks = is_cut ? 0 : schedule.num_stages();
  const auto gradients = [schedule, marks](Net params, Array x, Array y) {
    return treduce(
        [&](const Array& one, const Array& target) {
          return value_and_grad([&](const Net& p) { return loss_of(p, one, target, marks); })(
              params);
        },
        std::tuple(x, y), schedule);
  };
  JitOptions options;
  if (is_cut) options.auto_stages = AutoStages{};
  const MpmdMesh mesh(make_mesh({{"stage", kGroups}}), "stage");
  return mpmd_jit_with_loop(gradients, mesh, options).lower(net, xs, ys).compile();
}

double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

/// The measurements of all runs with one cut.
struct Figures {
  std::vector<double> spans, simulated, imbalances;

  void add(const ScheduleTasks& tasks, std::int64_t stages, const std::vector<TaskTime>& times) {
    const ScheduleCosts costs = measured_costs(times, stages);
    simulated.push_back(simulate(tasks, costs).makespan);
    imbalances.push_back(imbalance(costs));
    spans.push_back(measured(tasks, times).makespan);
  }
};

/// Measures both cuts in alternating runs, so that other load on the machine affects both alike.
void measure(const Schedule& schedule) {
  const Net net = make_net();
  const Array xs = random::normal(Key(100), {kMicrobatches, kRows, kWidth});
  const Array ys = random::normal(Key(101), {kMicrobatches, kRows, kClasses});
  const auto equal = compile(schedule, false, net, xs, ys);
  const auto cut = compile(schedule, true, net, xs, ys);
  const ScheduleTasks tasks = schedule.tasks(kMicrobatches);
  Figures figures[2];
  for (int run = 0; run < kRuns; ++run) {
    for (int i = 0; i < 2; ++i) {
      start_timeline();
      (i == 0 ? equal : cut)(net, xs, ys);
      const std::vector<TaskTime> times = stop_timeline();
      if (run > 0) figures[i].add(tasks, schedule.num_stages(), times);
    }
  }
  for (int i = 0; i < 2; ++i) {
    const auto& program = i == 0 ? equal : cut;
    const ScheduleCosts estimated = program.stage_costs();
    std::printf("| %-12s | %9.2f | %8.2f | %9.2f | %9.1f | %8.1f |\n",
                i == 0 ? "equal layers" : "cut by costs", imbalance(estimated),
                median(figures[i].imbalances), 1e3 * simulate(tasks, estimated).makespan,
                1e3 * least(figures[i].simulated), 1e3 * least(figures[i].spans));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t stages = argc > 1 ? std::atoll(argv[1]) : kGroups;
  const std::string name = argc > 2 ? argv[2] : "Std1F1B";
  set_num_threads(kGroups);
  set_threads_per_group(1);
  const FixedSchedule schedule{
      .num_stages = stages,
      .mpmd_dim = kGroups,
      .num_microbatches = kMicrobatches,
      .list = schedule_tasks(name, {.num_stages = stages, .mpmd_dim = kGroups}, kMicrobatches)};
  std::puts("|              | slowest / mean       | step, ms                         |");
  std::puts("| stages       | estimated | measured | estimated | simulated | measured |");
  std::puts("| ------------ | --------: | -------: | --------: | --------: | -------: |");
  measure(schedule);
  return 0;
}
