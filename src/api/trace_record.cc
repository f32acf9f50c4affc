#include "api/trace_record.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <set>
#include <typeindex>
#include <unordered_map>

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
    lines.push_back(fmt::format("argument {} has a different C++ type", i));
  }
  const std::vector<std::string> statics = changes("static value", before.statics, after.statics);
  for (const std::string& line : statics) {
    // Only numbers can be arrays instead.
    const bool is_optional = line.ends_with("'none' now") || line.ends_with("'some' now");
    lines.push_back(
        line + "; each value has its own program" +
        (is_optional ? "" : ": make it a Scalar or an Array if it changes from call to call"));
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

/// Strings are quoted, and bools have few values.
bool is_number(const std::string& value) {
  return !value.empty() && value[0] != '\'' && value != "true" && value != "false";
}

bool is_integer(const std::string& value) {
  return value.find_first_not_of("-0123456789") == std::string::npos;
}

/// The only static value in which the records differ, as they do in nothing else.
std::optional<ChangedNumber> only_change(const TraceRecord& before, const TraceRecord& now) {
  if (before.types != now.types || before.leaves != now.leaves || before.settings != now.settings ||
      before.statics.size() != now.statics.size()) {
    return std::nullopt;
  }
  std::optional<ChangedNumber> changed;
  for (std::size_t i = 0; i < now.statics.size(); ++i) {
    const auto& [path, value] = now.statics[i];
    const auto& [old_path, old_value] = before.statics[i];
    if (path != old_path) return std::nullopt;
    if (value == old_value) continue;
    if (changed || !is_number(value) || !is_number(old_value)) return std::nullopt;
    changed = ChangedNumber{.path = path, .before = old_value, .now = value};
  }
  return changed;
}

}  // namespace

std::optional<ChangedNumber> changed_number(const std::deque<TraceRecord>& records) {
  std::map<std::string, std::set<std::string>> values;  // by path
  for (std::size_t i = records.size() - 1; i-- > 0;) {
    std::optional<ChangedNumber> changed = only_change(records[i], records.back());
    if (!changed) continue;
    std::set<std::string>& others = values[changed->path];
    others.insert(changed->before);
    const bool has_fractions = !is_integer(changed->before) || !is_integer(changed->now);
    if (has_fractions || others.size() > 1) return changed;
  }
  return std::nullopt;
}

std::uint32_t number_of(const std::type_info& type) {
  static std::mutex mutex;
  static auto* const numbers = new std::unordered_map<std::type_index, std::uint32_t>;
  static auto* const of_files = new std::unordered_map<const std::type_info*, std::uint32_t>;
  // With some compilers, types of one name in anonymous namespaces of several files compare equal.
  const bool is_of_file = std::strstr(type.name(), "_GLOBAL__N_") != nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto next = static_cast<std::uint32_t>(numbers->size() + of_files->size());
  return is_of_file ? of_files->try_emplace(&type, next).first->second
                    : numbers->try_emplace(type, next).first->second;
}

TraceRecord record_of(Walk& walk, std::string structure,
                      std::span<const std::type_info* const> types, const Settings& settings) {
  TraceRecord record{.structure = std::move(structure),
                     .types = {},
                     .leaves = {},
                     .statics = walk.statics(),
                     .settings = {}};
  for (const std::type_info* type : types) record.types.push_back(number_of(*type));
  const std::vector<std::string>& paths = walk.paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    record.leaves.emplace_back(paths[i], describe_leaf(*walk.leaves()[i].array->node()));
  }
  record.settings = {{"mesh", to_string(current_mesh())},
                     {"logical axis rules", to_string(get_logical_axis_rules())},
                     {"grains", std::to_string(settings.grains)},
                     {"numerics", std::string(name(settings.numerics))},
                     {"engine", std::string(name(settings.engine.kind))},
                     {"dot unit", std::string(name(settings.dot_unit))},
                     {"index checks", settings.checks_indices ? "on" : "off"}};
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
