#include "api/trace_record.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>

#include <tessera/engine.h>
#include <tessera/shardings.h>

#include "api/array_node.h"

namespace tessera::detail {

namespace {

using Named = std::vector<std::pair<std::string, std::string>>;

std::string describe_leaf(const ArrayNode& node) {
  if (!node.is_concrete()) return to_string(node.type) + ", abstract";
  std::string text = to_string(node.type);
  if (!node.placement->mesh.axes().empty()) {
    text += fmt::format(" split as {} on {}",
                        to_string(to_spec(node.placement->mesh, node.placement->sharding)),
                        to_string(node.placement->mesh));
  }
  return text;
}

/// One line for each difference between `before` and `after`. The names in each are unique.
std::vector<std::string> changes(const char* subject, const Named& before, const Named& after) {
  const std::map<std::string, std::string> old(before.begin(), before.end());
  const std::map<std::string, std::string> now(after.begin(), after.end());
  std::vector<std::string> lines;
  for (const auto& [name, value] : after) {
    const auto place = old.find(name);
    if (place == old.end()) {
      lines.push_back(fmt::format("{} {} is new: {}", subject, name, value));
    } else if (place->second != value) {
      lines.push_back(fmt::format("{} {}: {} before, {} now", subject, name, place->second, value));
    }
  }
  for (const auto& [name, value] : before) {
    if (now.count(name) == 0)
      lines.push_back(fmt::format("{} {} is gone: {}", subject, name, value));
  }
  return lines;
}

std::vector<std::string> differences(const TraceRecord& before, const TraceRecord& after) {
  std::vector<std::string> lines = changes("argument", before.leaves, after.leaves);
  const std::size_t num_arguments = std::min(before.types.size(), after.types.size());
  for (std::size_t i = 0; i < num_arguments; ++i) {
    if (before.types[i] == after.types[i]) continue;
    lines.push_back(fmt::format("argument {} has another C++ type", i));
  }
  const std::vector<std::string> statics = changes("static value", before.statics, after.statics);
  for (const std::string& line : statics) {
    lines.push_back(line +
                    "; each value has a program: make it a Scalar or an Array if it changes "
                    "from call to call");
  }
  const bool has_same_paths = std::equal(
      before.leaves.begin(), before.leaves.end(), after.leaves.begin(), after.leaves.end(),
      [](const auto& a, const auto& b) { return a.first == b.first; });
  const bool has_same_types = before.types == after.types;
  if (has_same_paths && has_same_types && statics.empty() && before.structure != after.structure) {
    lines.emplace_back("the annotation or the path of a parameter changed");
  }
  for (std::string& line : changes("setting", before.settings, after.settings)) {
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

TraceRecord record_of(Walk& walk, std::string structure,
                      std::span<const std::type_info* const> types, const Settings& settings) {
  TraceRecord record{.structure = std::move(structure),
                     .types = {},
                     .leaves = {},
                     .statics = walk.statics(),
                     .settings = {}};
  for (const std::type_info* type : types) record.types.emplace_back(*type);
  const std::vector<std::string>& paths = walk.paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    record.leaves.emplace_back(paths[i], describe_leaf(*walk.leaves()[i].array->node()));
  }
  record.settings = {{"mesh", to_string(current_mesh())},
                     {"logical axis rules", to_string(get_logical_axis_rules())},
                     {"grains", std::to_string(settings.grains)},
                     {"numerics", std::string(name(settings.numerics))},
                     {"engine", std::string(name(settings.engine.kind))},
                     {"dot unit", std::string(name(settings.dot_unit))}};
  return record;
}

std::string why_last(const std::deque<TraceRecord>& records) {
  std::optional<std::vector<std::string>> best;
  for (std::size_t i = records.size(); i-- > 1;) {
    std::vector<std::string> lines = differences(records[i - 1], records.back());
    if (!best || lines.size() < best->size()) best = std::move(lines);
  }
  std::string text;
  for (const std::string& line : best.value_or(std::vector<std::string>())) text += line + "\n";
  return text;
}

}  // namespace tessera::detail
