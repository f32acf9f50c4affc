// What processes do together in a run with one process per device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tessera::checkpoint {

/// Runs `body`, a part of the work that every process does to `verb` ("read" or "write") what is at
/// `path`. If it throws in one process, all processes throw. A UserError that the first process
/// does not find, such as damage in a part that only others read, becomes a RuntimeFault.
void all_or_none(const std::string& verb, const std::string& path,
                 const std::function<void()>& body);
/// Throws RuntimeFault in all processes unless all have found the same step in the folder, or all
/// none.
void agree_on(const std::optional<std::int64_t>& step, const std::string& folder);

}  // namespace tessera::checkpoint
