// What a trace was made for, to tell why another one was needed.
#pragma once

#include <span>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include <tessera/tree.h>

namespace tessera::detail {

struct TraceRecord {
  std::string structure;
  std::vector<std::type_index> types;                         // of the arguments
  std::vector<std::pair<std::string, std::string>> leaves;    // path, type and sharding
  std::vector<std::pair<std::string, std::string>> settings;  // name, value
};
/// Of the arguments in `walk`, which has paths, and the settings of this thread.
TraceRecord record_of(Walk& walk, std::string structure,
                      std::span<const std::type_info* const> types);

/// The differences between the last record and the earlier one that is most like it, one a line.
std::string why_last(const std::vector<TraceRecord>& records);

}  // namespace tessera::detail
