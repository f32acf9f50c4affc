// `tessera reshard`: shows the collectives that change the sharding of an array.

#include <cstdio>
#include <memory>

#include <tessera/engine.h>

#include "commands.h"
#include "flags.h"
#include "report.h"
#include "tools/cli/streams.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

struct ReshardFlags {
  std::string mesh = "data=8";
  std::string shape;
  std::string dtype = "f32";
  std::string from, to;
  std::string json;
};

/// Splits a text at the separators; an empty text has one empty part.
std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Shape shape_of(const std::string& text) {
  Shape shape;
  std::int64_t most = std::int64_t{1} << 40;
  for (const std::string& part : parts_of(text, ',')) {
    std::int64_t size = 0;
    if (!read_number(part, size) || size < 1 || size > most) {
      throw UserError({.what = "--shape: the value is not valid",
                       .found = text.empty() ? "an empty string" : text,
                       .wanted =
                           "sizes of at least 1, separated by commas, and at most 2^40 elements "
                           "in all",
                       .cure = "write for example --shape 8,16"});
    }
    shape.push_back(size);
    most /= size;
  }
  return shape;
}

/// Parses a spec: the entries of the dimensions are separated by commas, the axes of an entry by
/// spaces.
PartitionSpec spec_of(const std::string& text) {
  std::vector<SpecEntry> entries;
  for (const std::string& part : parts_of(text, ',')) {
    SpecEntry entry(none);
    for (const std::string& axis : parts_of(part, ' ')) {
      if (!axis.empty()) entry.axes.push_back(axis);
    }
    entries.push_back(std::move(entry));
  }
  while (!entries.empty() && entries.back().axes.empty()) entries.pop_back();
  return PartitionSpec(std::move(entries));
}

/// The sharding that `text`, the value of the flag `name`, describes; throws UserError.
NamedSharding sharding_of(const std::string& name, const std::string& text, const Mesh& mesh,
                          const Shape& shape) {
  const PartitionSpec spec = spec_of(text);
  if (spec.entries().size() > shape.size()) {
    throw UserError({.what = name + ": the spec has more entries than the array has dimensions",
                     .found = to_string(spec) + " for the shape " + to_string(shape),
                     .wanted = "at most " + std::to_string(shape.size()) + " entries",
                     .cure = "drop the extra entries, or write for example --shape 8,16"});
  }
  try {
    return NamedSharding(mesh, spec);
  } catch (const UserError& error) {
    throw told_of(name, error);
  }
}

DType dtype_of(const std::string& name) {
  DType dtype = DType::f32;
  for (DType other : kAllDTypes) {
    if (tessera::name(other) == name) dtype = other;
  }
  return dtype;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

std::string text_of(const ReshardPlan& plan, const Type& type, const NamedSharding& from) {
  std::string text =
      to_string(type) + " on " + to_string(from.mesh) + ", from " + to_string(from.spec) + "\n";
  std::vector<Row> rows = {{"collective", "axes", "group", "wire bytes", "leads to"}};
  for (const ReshardStep& step : plan.steps) {
    rows.push_back({step.kind, list_of(step.axes), std::to_string(step.group_size),
                    std::to_string(step.wire_bytes), to_string(step.spec)});
  }
  if (!plan.steps.empty()) text += table(rows);
  char text_of_bound[64] = "the cheapest plan";
  if (plan.bound > 1) {
    std::snprintf(text_of_bound, sizeof(text_of_bound), "at most %.2f times the cheapest plan",
                  plan.bound);
  }
  return text + "total " + std::to_string(plan.wire_bytes) + " bytes received per device, " +
         text_of_bound + " if starting a collective counts as " + std::to_string(plan.start_cost) +
         " bytes\n";
}

json json_of(const ReshardPlan& plan, const ReshardFlags& flags, const Shape& shape,
             const NamedSharding& from, const NamedSharding& to) {
  json steps = json::array();
  for (const ReshardStep& step : plan.steps) {
    steps.push_back({{"kind", step.kind},
                     {"axes", step.axes},
                     {"group_size", step.group_size},
                     {"wire_bytes", step.wire_bytes},
                     {"spec", to_string(step.spec)}});
  }
  return {{"mesh", flags.mesh},
          {"shape", shape},
          {"dtype", flags.dtype},
          {"from", to_string(from.spec)},
          {"to", to_string(to.spec)},
          {"steps", steps},
          {"wire_bytes", plan.wire_bytes},
          {"is_cheapest", plan.bound <= 1},
          {"bound", plan.bound}};
}

void reshard(const ReshardFlags& flags) {
  const Mesh mesh = mesh_of(flags.mesh);
  const Shape shape = shape_of(flags.shape);
  const NamedSharding from = sharding_of("--from", flags.from, mesh, shape);
  const NamedSharding to = sharding_of("--to", flags.to, mesh, shape);
  const Type type{dtype_of(flags.dtype), shape};
  const ReshardPlan plan = plan_reshard(type, from, to.spec);
  if (flags.json != "-") print(text_of(plan, type, from));
  if (!flags.json.empty()) write_json(flags.json, json_of(plan, flags, shape, from, to));
}

}  // namespace

void add_reshard(Command& app) {
  Command* command =
      app.add_subcommand("reshard", "plan the collectives that change the sharding of an array");
  auto flags = std::make_shared<ReshardFlags>();
  command
      ->add_option("--mesh", flags->mesh, "mesh axes in order, for example data=4,model=2, or none")
      ->capture_default_str();
  command->add_option("--shape", flags->shape, "sizes of the dimensions, for example 8,16");
  add_choice(*command, flags->dtype, "--dtype", {"f32", "f64", "bf16", "i32", "u32", "bool"},
             "type of the elements");
  const std::string spec =
      "one entry per dimension, separated by commas: empty, an axis, or axes separated by spaces";
  command->add_option("--from", flags->from, "the present sharding of the array: " + spec);
  command->add_option("--to", flags->to,
                      "the sharding that the array should get, in the same form");
  add_path(*command, flags->json, "--json", "write the plan as JSON; - is standard output",
           "plan.json");
  command->callback([flags] { reshard(*flags); });
}

}  // namespace tessera::cli
