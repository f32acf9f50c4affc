#include "show.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include <tessera/engine.h>
#include <tessera/error.h>

#include "flags.h"
#include "report.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

/// The same in both forms.
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

/// As text the arguments only: a step of training returns its state as it got it.
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
    }
  };
  add("arguments", step.arguments());
  shown.text = sharding_table(step.arguments());
  add("results", step.results());
  return shown;
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

Shown memory_of(const MemoryPlan& plan) {
  Shown shown{.text = "bytes of one device\n"};
  auto add = [&](const char* key, std::int64_t bytes) {
    shown.text += cell(key, 12) + right_cell(std::to_string(bytes), 16) + "\n";
    shown.object[key] = bytes;
  };
  add("arguments", plan.arguments);
  add("results", plan.results);
  add("temporaries", plan.temporaries);
  add("peak", plan.peak);
  return shown;
}

}  // namespace

void add_show_flags(CLI::App& command, ShowFlags& flags) {
  add_choice(command, flags.what, "--what", {"sharding", "ir", "collectives", "memory"},
             "where leaves live, the program, what moves, or the bytes of a device");
  add_choice(command, flags.stage, "--stage", {"traced", "partitioned"},
             "the program of --what ir: as traced, or split over the mesh");
}

void show(const ShowFlags& flags, const std::string& json_path, const LoweredProgram& step,
          const std::function<MemoryPlan()>& memory) {
  if (flags.what == "memory" && engine() != "host") {
    throw UserError({.what = "--what memory: this engine plans no memory",
                     .found = "--engine " + std::string(engine()),
                     .wanted = "--engine host",
                     .cure = "leave out --engine"});
  }
  Shown shown;
  if (flags.what == "ir") shown = ir_of(flags, step);
  if (flags.what == "sharding") shown = sharding_of(step);
  if (flags.what == "collectives") shown = collectives_of(step);
  if (flags.what == "memory") shown = memory_of(memory());
  if (json_path != "-") std::fputs(shown.text.c_str(), stdout);
  if (!json_path.empty()) write_json(json_path, {{flags.what, shown.object}});
}

}  // namespace tessera::cli
