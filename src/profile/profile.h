// Writes a trace as files that TensorBoard's profile plugin and chrome://tracing read.
#pragma once

#include <filesystem>
#include <string>

#include "profile/kernels.h"
#include "profile/rows.h"

namespace tessera::profile {

/// The rows of a trace that was recorded on the machine `host`. `start_ns`: when the trace began,
/// in nanoseconds since 1970.
Space space_of(const Trace& trace, const std::string& host, std::int64_t start_ns);
/// The message XSpace for the profiler of JAX, which adds rows of its own for the host, and steps.
std::string space_for_jax(Space space);
/// Creates `folder` if it does not exist. Throws RuntimeFault if files cannot be written there.
void check_folder(const std::filesystem::path& folder);
/// Writes HOST.xplane.pb and HOST.trace.json.gz, and returns the path of the first. If a file
/// cannot be written, throws RuntimeFault and leaves no incomplete file.
std::filesystem::path write(const Space& space, const std::filesystem::path& folder);

}  // namespace tessera::profile
