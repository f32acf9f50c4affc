// Records what each trace of a function depended on, to explain why the function was traced again.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tessera/tree.h>

#include "api/context/settings.h"

namespace tessera::detail {

/// A number for each type, the same in all shared libraries of the process.
std::uint32_t number_of(const std::type_info& type);

struct TraceRecord {
  std::string structure;
  std::vector<std::uint32_t> types;                           // of the arguments: their numbers
  std::vector<std::pair<std::string, std::string>> leaves;    // path, type and sharding
  std::vector<std::pair<std::string, std::string>> statics;   // path, value
  std::vector<std::pair<std::string, std::string>> settings;  // name, value
};
/// The record for the arguments in `walk`, which must have paths, the settings, and the mesh and
/// the logical rules of this thread.
TraceRecord record_of(Walk& walk, std::string structure,
                      std::span<const std::type_info* const> types, const Settings& settings);

/// A number that is static and has changed.
struct ChangedNumber {
  std::string path;
  std::string before, now;
};
/// The number that is the only difference between the last record and an earlier one, if a trace
/// for each of its values is probably not intended: from the second value of a fraction, and the
/// third of an integer, since two integers may stand for the modes of a function.
std::optional<ChangedNumber> changed_number(const std::deque<TraceRecord>& records);

/// The differences between the last record and the earlier one that is most similar to it, one per
/// line.
std::string why_last(const std::deque<TraceRecord>& records);

}  // namespace tessera::detail
