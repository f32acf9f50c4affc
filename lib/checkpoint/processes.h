// How the processes of a run with one process per device agree on success, failure and steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tessera::checkpoint {

/// Runs `body`, which every process calls to read or write its part of a checkpoint. If it throws
/// in one process, all processes throw: those that succeeded throw RuntimeFault with the error of
/// the first that failed. A UserError that the first process does not find, such as damage in a
/// part that only others read, becomes a RuntimeFault.
void all_or_none(const std::function<void()>& body);
/// Throws RuntimeFault in all processes unless all of them found the same step in the folder, or
/// all found none.
void agree_on(const std::optional<std::int64_t>& step, const std::string& folder);

}  // namespace tessera::checkpoint
