#include "tests/fuzz/pipeline/staged_case.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tessera/error.h>

#include "tests/fuzz/pipeline/random_tasks.h"
#include "tests/fuzz/random.h"

namespace tessera::fuzz {

namespace {

using Kind = Layer::Kind;

constexpr std::int64_t kMostProcesses = 6;

struct Model {
  std::string name;
  std::vector<Kind> kinds;  // repeated kinds are drawn more often
};

std::vector<Model> models() {
  std::vector<Kind> all;
  for (const auto& [kind, name] : layer_kinds()) all.push_back(kind);
  return {{"transformer", {Kind::block}},
          {"tied", {Kind::dense, Kind::dense, Kind::tied, Kind::twice}},
          {"skips", {Kind::dense, Kind::norm, Kind::skip, Kind::mix}},
          {"random", all}};
}

std::vector<std::string> schedules() {
  std::vector<std::string> names = schedule_names();
  names.insert(names.end(), {"auto", "random", "random", "random", "random"});
  return names;
}

/// Ends of stages such that each stage has at least one layer.
std::vector<std::size_t> random_ends(std::size_t layers, std::size_t stages, Random& random) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i < layers; ++i) ends.push_back(i);
  random.shuffle(ends);
  ends.resize(stages - 1);
  ends.push_back(layers);
  std::sort(ends.begin(), ends.end());
  return ends;
}

Net random_net(const Model& model, std::size_t stages, Random& random) {
  Net net;
  const bool is_transformer = model.name == "transformer";
  const auto layers = stages + random.pick(is_transformer ? 2 : 4);
  bool has_block = false;
  bool has_loop = false;
  for (std::size_t i = 0; i < layers; ++i) {
    const Kind kind = i == 0 && !is_transformer ? Kind::dense : random.choose(model.kinds);
    has_block = has_block || kind == Kind::block;
    has_loop = has_loop || kind == Kind::loop;
    net.layers.push_back({.kind = kind, .from = i == 0 ? 0 : random.pick(i)});
  }
  net.ends = random_ends(layers, stages, random);
  // Automatic cuts do not split loops, so a loop must not be most of the work.
  net.has_marks = has_loop || !random.chance(10);
  net.dtype = random.chance(15) ? DType::bf16 : DType::f32;
  net.rows = random.between(1, 6);
  net.seq =
      has_block || random.chance(60) ? random.choose(std::vector<std::int64_t>{1, 2, 3, 5, 8}) : 0;
  net.width = has_block ? random.choose(std::vector<std::int64_t>{8, 16})
                        : random.choose(std::vector<std::int64_t>{3, 4, 6, 7, 8, 12, 16});
  return net;
}

StagedCase random_sizes(std::uint64_t seed, const Model& model, Random& random) {
  StagedCase c;
  c.seed = seed;
  c.model = model.name;
  c.schedule = random.choose(schedules());
  c.groups = c.schedule == "Sequential" ? 1 : random.between(1, 4);
  const std::int64_t per_group = random.between(1, c.groups > 2 ? 2 : 3);
  const std::int64_t stages = random.chance(30) ? c.groups : c.groups * per_group;
  c.net = random_net(model, static_cast<std::size_t>(stages), random);
  c.microbatches = random.chance(50) ? random.between(1, 5) : c.groups * random.between(1, 2);
  return c;
}

template <typename T>
void add_changed(std::vector<StagedCase>& cases, const StagedCase& c, T StagedCase::*member,
                 const T& value) {
  if (c.*member == value) return;
  cases.push_back(c);
  cases.back().*member = value;
}

void add_smaller_nets(std::vector<StagedCase>& cases, const StagedCase& c) {
  for (std::size_t i = 0; i < c.net.layers.size(); ++i) {
    Net net = c.net;
    net.layers.erase(net.layers.begin() + static_cast<std::ptrdiff_t>(i));
    for (Layer& layer : net.layers) layer.from -= layer.from > i ? 1 : 0;
    for (std::size_t& end : net.ends) end -= end > i ? 1 : 0;
    std::size_t before = 0;
    const bool has_empty_stage =
        std::any_of(net.ends.begin(), net.ends.end(),
                    [&](std::size_t end) { return std::exchange(before, end) == end; });
    if (has_empty_stage) continue;
    cases.push_back(c);
    cases.back().net = std::move(net);
  }
  for (std::size_t i = 0; i + 1 < c.net.ends.size(); ++i) {
    cases.push_back(c);
    auto& ends = cases.back().net.ends;
    ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (std::int64_t Net::*size : {&Net::rows, &Net::width, &Net::seq}) {
    for (const std::int64_t less : {c.net.*size / 2, c.net.*size - 1}) {
      if (less < 1) continue;
      cases.push_back(c);
      cases.back().net.*size = less;
    }
  }
  for (std::size_t i = 0; i < c.net.layers.size(); ++i) {
    if (c.net.layers[i].kind == Kind::dense) continue;
    cases.push_back(c);
    cases.back().net.layers[i].kind = Kind::dense;
  }
  cases.push_back(c);
  cases.back().net.has_marks = true;
  cases.back().net.dtype = DType::f32;
}

}  // namespace

std::int64_t StagedCase::num_devices() const {
  std::int64_t count = groups;
  for (const MeshAxis& axis : axes) count *= axis.size;
  return count;
}

StagedCase make_staged_case(std::uint64_t seed) {
  Random random(seed);
  const Model model = random.choose(models());
  StagedCase c = random_sizes(seed, model, random);
  while (!tasks_of(c)) c = random_sizes(seed, model, random);
  c.axes = {{"data", random.between(1, 6)}};
  if (random.chance(30)) {
    c.axes = {{"data", random.between(1, 3)}, {"model", random.between(2, 3)}};
  }
  c.grains = random.choose(std::vector<std::int64_t>{8, 8, 1, 2, 3, 4, 6, 16});
  c.layout = random.choose(
      std::vector<ParamLayout>{ParamLayout::replicated, ParamLayout::fsdp, ParamLayout::random});
  c.splits_rows = !random.chance(15);
  c.asks_for_layout = random.chance(40);
  c.stacks_gradient = random.chance(15);
  c.donates = random.chance(50);
  c.steps = random.chance(70) ? 1 : 2;
  c.threads = static_cast<int>(random.between(1, 3));
  c.threads_per_group = random.chance(20) ? 1 : 0;
  c.is_isolated = random.chance(25) && c.num_devices() > 1 && c.num_devices() <= kMostProcesses;
  const auto per_group = static_cast<int>(c.num_devices() / c.groups);
  c.devices_per_process = static_cast<int>(random.between(1, per_group));
  while (per_group % c.devices_per_process != 0) --c.devices_per_process;
  return c;
}

std::optional<ScheduleTasks> tasks_of(const StagedCase& c) {
  const std::int64_t stages = c.num_stages();
  Random random(c.seed * 7919 + 17);
  if (c.groups > stages) return std::nullopt;
  try {
    if (c.schedule == "random") return random_tasks(stages, c.groups, c.microbatches, random);
    if (c.schedule != "auto") {
      return schedule_tasks(
          c.schedule,
          {.num_stages = stages, .mpmd_dim = c.groups, .fuse_steady_state = random.chance(30)},
          c.microbatches);
    }
    AutoSchedule searched{.num_stages = stages, .mpmd_dim = c.groups};
    searched.costs.stages.clear();
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      const auto cost = [&] { return static_cast<double>(random.between(1, 5)); };
      searched.costs.stages.push_back(
          {.fwd = cost(), .bwd_input = cost(), .bwd_weight = cost(), .memory = cost()});
    }
    return searched.tasks(c.microbatches);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

MpmdMesh mesh_of(const StagedCase& c) {
  std::vector<MeshAxis> axes = {{"stage", c.groups}};
  axes.insert(axes.end(), c.axes.begin(), c.axes.end());
  return {Mesh(axes), "stage"};
}

std::vector<PartitionSpec> param_specs(const StagedCase& c) {
  Random random(c.seed * 104729 + 5);
  std::vector<PartitionSpec> specs;
  for (const Parameter& parameter : parameters_of(c.net)) {
    std::vector<SpecEntry> entries(parameter.shape.size(), none);
    if (c.layout == ParamLayout::fsdp) {
      const auto largest = std::max_element(parameter.shape.begin(), parameter.shape.end());
      entries[static_cast<std::size_t>(largest - parameter.shape.begin())] = c.axes[0].name;
    }
    if (c.layout == ParamLayout::random) {
      for (const MeshAxis& axis : c.axes) {
        SpecEntry& entry = entries[random.pick(entries.size())];
        if (random.chance(75)) entry.axes.push_back(axis.name);
      }
    }
    specs.emplace_back(std::move(entries));
  }
  return specs;
}

PartitionSpec row_spec(const StagedCase& c) {
  Random random(c.seed * 31 + 3);
  SpecEntry rows(c.axes[0].name);
  if (c.axes.size() > 1 && random.chance(20)) rows.axes.push_back(c.axes[1].name);
  const bool splits_positions = c.net.seq > 1 && rows.axes.size() == 1 && random.chance(15);
  if (splits_positions) return P{none, rows};
  return P{rows};
}

std::string to_string(const StagedCase& c) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : c.axes) axes.push_back(fmt::format("{}={}", axis.name, axis.size));
  std::string text = fmt::format(
      "seed {}: {}\n  layers: {}\n  rows {}, positions {}, width {}; microbatches {}, grains {}\n"
      "  {} groups of {}, schedule {}{}\n",
      c.seed, c.model, to_string(c.net), c.net.rows, c.net.seq, c.net.width, c.microbatches,
      c.grains, c.groups, fmt::join(axes, ","), c.schedule,
      c.is_isolated ? fmt::format(", {} devices per process", c.devices_per_process) : "");
  text += fmt::format(
      "  activations {} {}{}, {} steps{}{}{}, {} threads, {} per group\n", name(c.net.dtype),
      tessera::to_string(row_spec(c)), c.splits_rows ? "" : ", given whole", c.steps,
      c.donates ? ", parameters donated" : "", c.asks_for_layout ? ", in the layout given" : "",
      c.stacks_gradient ? ", a gradient stacked" : "", c.threads, c.threads_per_group);
  const std::vector<Parameter> parameters = parameters_of(c.net);
  const std::vector<PartitionSpec> specs = param_specs(c);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    text += fmt::format("  {} [{}] {}\n", parameters[i].name, fmt::join(parameters[i].shape, ","),
                        tessera::to_string(specs[i]));
  }
  if (const auto tasks = tasks_of(c)) {
    for (const RankTasks& rank : *tasks) text += "  " + to_string(rank) + "\n";
  }
  return text;
}

std::vector<StagedCase> smaller_cases(const StagedCase& c) {
  std::vector<StagedCase> cases;
  add_changed(cases, c, &StagedCase::is_isolated, false);
  add_changed(cases, c, &StagedCase::devices_per_process, 1);
  add_changed(cases, c, &StagedCase::steps, 1);
  for (const char* schedule : {"GPipe", "Std1F1B", "ZeroBubble"}) {
    if (c.schedule == "GPipe" || (c.schedule == "Std1F1B" && schedule != std::string("GPipe")))
      break;
    add_changed(cases, c, &StagedCase::schedule, std::string(schedule));
  }
  for (const std::int64_t groups : {std::int64_t{1}, c.groups - 1}) {
    if (groups >= 1) add_changed(cases, c, &StagedCase::groups, groups);
  }
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, c.microbatches - 1}) {
    if (count >= 1 && count < c.microbatches) {
      add_changed(cases, c, &StagedCase::microbatches, count);
    }
  }
  add_smaller_nets(cases, c);
  if (c.axes.size() > 1) add_changed(cases, c, &StagedCase::axes, {c.axes[0]});
  for (std::size_t i = 0; i < c.axes.size(); ++i) {
    std::vector<MeshAxis> axes = c.axes;
    if (--axes[i].size >= 1) add_changed(cases, c, &StagedCase::axes, axes);
  }
  add_changed(cases, c, &StagedCase::grains, std::int64_t{8});
  add_changed(cases, c, &StagedCase::layout, ParamLayout::replicated);
  add_changed(cases, c, &StagedCase::stacks_gradient, false);
  add_changed(cases, c, &StagedCase::donates, false);
  add_changed(cases, c, &StagedCase::asks_for_layout, false);
  add_changed(cases, c, &StagedCase::splits_rows, true);
  add_changed(cases, c, &StagedCase::threads, 1);
  add_changed(cases, c, &StagedCase::threads_per_group, 0);
  return cases;
}

}  // namespace tessera::fuzz
