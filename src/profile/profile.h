// A trace as files: what TensorBoard's profile plugin and chrome://tracing read.
#pragma once

#include <filesystem>
#include <string>

#include "profile/rows.h"

namespace tessera::profile {

/// `start_ns`: when the trace began, since 1970.
Space space_of(const Trace& trace, const std::string& host, std::int64_t start_ns);
/// Throws RuntimeFault unless files can be made in `folder`, which is made if need be.
void check_folder(const std::filesystem::path& folder);
/// Writes HOST.xplane.pb, whose path it returns, and HOST.trace.json.gz. Throws RuntimeFault, and
/// leaves no part of a file then.
std::filesystem::path write(const Space& space, const std::filesystem::path& folder);

}  // namespace tessera::profile
