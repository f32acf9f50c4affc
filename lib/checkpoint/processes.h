// What the processes of a run with one process per device do together.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tessera::checkpoint {

/// Runs a part of the work that all processes do: to "read" or to "write" what is at `path`. Where
/// it fails in one of them, all throw. A mistake of the user that the first process does not find,
/// such as damage of a part that it does not read, is thrown as RuntimeFault.
void all_or_none(const std::string& verb, const std::string& path,
                 const std::function<void()>& body);
/// Returns when all processes have found this step in the folder, or all none; otherwise all throw
/// RuntimeFault.
void agree_on(const std::optional<std::int64_t>& step, const std::string& folder);

}  // namespace tessera::checkpoint
