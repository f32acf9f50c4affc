#include "show.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include <tessera/engine.h>
#include <tessera/error.h>

#include "flags.h"
#include "pictures/modules.h"
#include "pictures/tiles.h"
#include "report.h"
#include "tools/cli/streams.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

/// The same contents as text and as JSON.
struct Shown {
  std::string text;
  json object = {};
};

std::string right_cell(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

Shown ir_of(const ShowFlags& flags, const LoweredProgram& step) {
  std::string text = flags.stage == "traced" ? step.ir() : step.partitioned_ir();
  json object = {{"stage", flags.stage}, {"ir", text}};
  return {std::move(text), std::move(object)};
}

Shown stablehlo_of(const LoweredProgram& step) {
  std::string text = step.stablehlo();
  json object = text;
  return {std::move(text), std::move(object)};
}

/// The text lists only the arguments, since the step returns its state with the same shardings.
Shown sharding_of(const LoweredProgram& step) {
  Shown shown;
  auto add = [&](const char* side, const std::vector<LeafPlacement>& leaves) {
    shown.object[side] = json::array();
    for (const LeafPlacement& leaf : leaves) {
      shown.object[side].push_back({{"path", leaf.path},
                                    {"dtype", name(leaf.type.dtype)},
                                    {"shape", leaf.type.shape},
                                    {"spec", to_string(leaf.sharding.spec)},
                                    {"local_shape", leaf.local_shape}});
      const std::vector<std::int64_t>& groups = leaf.sharding.mpmd_idxs;
      if (!groups.empty()) shown.object[side].back()["mpmd_idxs"] = groups;
    }
  };
  add("arguments", step.arguments());
  shown.text = sharding_table(step.arguments());
  add("results", step.results());
  return shown;
}

Shown tiles_of(const ShowFlags& flags, const LoweredProgram& step) {
  const std::vector<TiledLeaf> leaves = tiled_leaves(step.arguments(), flags.leaves);
  if (!flags.picture.empty()) draw_tiles(leaves, "--picture", flags.picture);
  return {.text = tiles_text(leaves), .object = tiles_json(leaves)};
}

Shown graph_of(const ShowFlags& flags, const LoweredProgram& step) {
  const ModuleTree tree = module_tree(step.arguments());
  if (!flags.picture.empty()) draw_modules(tree, "--picture", flags.picture);
  return {.text = modules_text(tree), .object = modules_json(tree)};
}

Shown collectives_of(const LoweredProgram& step) {
  Shown shown{.text = step.explain()};
  shown.object = json::object();
  for (const CollectiveUse& use : step.collectives()) {
    shown.object[use.kind] = {
        {"count", use.count}, {"bytes", use.bytes}, {"wire_bytes", use.wire_bytes}};
  }
  return shown;
}

/// The names and bytes of a plan, in the order in which they are printed.
std::vector<std::pair<std::string, std::int64_t>> parts_of(const MemoryPlan& plan) {
  std::vector<std::pair<std::string, std::int64_t>> parts = {{"arguments", plan.arguments},
                                                             {"results", plan.results},
                                                             {"temporaries", plan.temporaries},
                                                             {"peak", plan.peak}};
  for (std::size_t group = 0; group < plan.group_peaks.size(); ++group) {
    parts.emplace_back("group " + std::to_string(group), plan.group_peaks[group]);
  }
  return parts;
}

Shown memory_of(const MemoryPlan& plan) {
  Shown shown{.text = "bytes per device\n"};
  for (const auto& [name, bytes] : parts_of(plan)) {
    shown.text += cell(name, 12) + right_cell(std::to_string(bytes), 16) + "\n";
    shown.object[name] = bytes;
  }
  return shown;
}

/// The plan of a plugin's compiler, beside that of the host engine.
Shown memory_beside(const MemoryPlan& plan, const MemoryPlan& host) {
  Shown shown{.text = "bytes per device\n" + cell("", 12) + right_cell("plugin", 16) +
                      right_cell("host engine", 16) + "\n"};
  const auto wanted = parts_of(host);
  const auto found = parts_of(plan);
  for (std::size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    const auto& [name, bytes] = found[i];
    shown.text += cell(name, 12) + right_cell(std::to_string(bytes), 16) +
                  right_cell(std::to_string(wanted[i].second), 16) + "\n";
    shown.object[name] = bytes;
    shown.object["host"][name] = wanted[i].second;
  }
  return shown;
}

/// Adds the estimated time of each stage for a microbatch, in ms, and the bytes that it holds.
void add_stages(const ScheduleCosts& costs, Shown& shown) {
  std::vector<Row> rows = {{"stage", "forward", "input gradient", "weight gradient", "bytes held"}};
  const auto ms = [](double seconds) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.3f", seconds * 1e3);
    return std::string(text);
  };
  for (const StageCosts& stage : costs.stages) {
    rows.push_back({std::to_string(rows.size() - 1), ms(stage.fwd), ms(stage.bwd_input),
                    ms(stage.bwd_weight), std::to_string(static_cast<std::int64_t>(stage.memory))});
  }
  char last[80];
  std::snprintf(last, sizeof(last), "the slowest stage takes %.2f times the mean\n",
                imbalance(costs));
  shown.text += "\nestimates per microbatch, times in ms\n" + table(rows) + last;
  shown.object["imbalance"] = imbalance(costs);
}

/// The task IR and the numbers of its tasks, transfers and deletes, counted by words in the text.
Shown tasks_of(const LoweredProgram& step) {
  Shown shown{.text = step.task_ir()};
  if (shown.text.empty()) {
    throw UserError({.what = "--what tasks: the step does not run on groups of devices",
                     .found = "a step of one program",
                     .wanted = "a pipeline",
                     .cure = "write tessera show pipeline --mesh stage=4 --what tasks"});
  }
  shown.object = json::object();
  for (const char* kind : {"task[", "transfer[", "delete["}) {
    std::int64_t count = 0;
    for (std::size_t at = shown.text.find(kind); at != std::string::npos;
         at = shown.text.find(kind, at + 1)) {
      ++count;
    }
    shown.object[std::string(kind, std::strlen(kind) - 1)] = count;
  }
  add_stages(step.stage_costs(), shown);
  return shown;
}

}  // namespace

void add_show_flags(Command& command, ShowFlags& flags) {
  add_choice(
      command, flags.what, "--what",
      {"sharding", "tiles", "graph", "ir", "stablehlo", "collectives", "memory", "tasks"},
      "the shardings of the arguments as a table (sharding) or as pictures (tiles), the tree of "
      "modules with their bytes (graph), the program "
      "(ir, or stablehlo for other compilers), the collectives, the memory of a device, or the "
      "tasks of the groups of a pipeline");
  command
      .add_option("--leaf", flags.leaves,
                  "for --what tiles: the path of a leaf, or the end of a path; may be repeated; "
                  "default: all leaves")
      ->allow_extra_args(false);
  command.add_option("--picture", flags.picture,
                     "draw --what tiles or graph into this file, .png or .svg");
  add_choice(command, flags.stage, "--stage", {"traced", "partitioned"},
             "for --what ir: the program as traced, or as partitioned over the mesh");
}

void show(const ShowFlags& flags, const JsonFile& file, const LoweredProgram& step,
          const MemoryPlans& memory) {
  if (flags.what == "memory" && engine() == "reference") {
    throw UserError({.what = "--what memory: this engine does not plan memory",
                     .found = "--engine " + std::string(engine()),
                     .wanted = "--engine host",
                     .cure = "leave out --engine"});
  }
  const bool has_pictures = flags.what == "tiles" || flags.what == "graph";
  if ((flags.what != "tiles" && !flags.leaves.empty()) ||
      (!has_pictures && !flags.picture.empty())) {
    throw UserError(
        {.what = "--leaf and --picture: these flags are for --what tiles, --picture also for graph",
         .found = std::string(flags.leaves.empty() ? "--picture" : "--leaf") + " with --what " +
                  flags.what,
         .wanted = "--what tiles, or --what graph",
         .cure = "add --what tiles"});
  }
  Shown shown;
  if (flags.what == "tiles") shown = tiles_of(flags, step);
  if (flags.what == "graph") shown = graph_of(flags, step);
  if (flags.what == "ir") shown = ir_of(flags, step);
  if (flags.what == "stablehlo") shown = stablehlo_of(step);
  if (flags.what == "sharding") shown = sharding_of(step);
  if (flags.what == "collectives") shown = collectives_of(step);
  if (flags.what == "memory") {
    const MemoryPlan own = memory.own();
    shown = engine() == "pjrt" ? memory_beside(own, memory.of_host()) : memory_of(own);
  }
  if (flags.what == "tasks") shown = tasks_of(step);
  if (file.path != "-") print(shown.text);
  if (file.path.empty()) return;
  write_json(file.path, {{flags.what, shown.object}, {"config", file.config}});
}

}  // namespace tessera::cli
