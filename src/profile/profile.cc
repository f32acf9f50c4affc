#include "profile/profile.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>
#include <zlib.h>

#include <tessera/error.h>

namespace tessera::profile {

namespace fs = std::filesystem;

Space space_of(const Trace& trace, const std::string& host, std::int64_t start_ns) {
  const Traced traced(trace);
  Space space{.host = host, .start_ns = start_ns};
  const bool is_accelerated = trace.accelerator.has_value();
  if (is_accelerated) space.more = trace.accelerator->space;
  // The profiler of an accelerator has rows of its own for devices.
  if (space.more.empty()) {
    space.planes = is_accelerated ? accelerator_planes(traced) : device_planes(traced);
  }
  for (const StepTime& step : traced.steps()) space.steps.push_back(step.number);
  space.planes.push_back(host_plane(traced));
  if (!is_accelerated) space.planes.push_back(metadata_plane(traced));
  if (is_accelerated && trace.accelerator->num_lost > 0) {
    space.warnings.push_back(fmt::format(
        "{} accelerator calls at the end of the trace were not recorded; record fewer steps",
        trace.accelerator->num_lost));
  }
  if (trace.engine.num_lost > 0) {
    space.warnings.push_back(
        fmt::format("{} parts of ops at the end of the trace were not recorded; record fewer steps",
                    trace.engine.num_lost));
  }
  if (trace.engine.num_lost_buffers > 0) {
    space.warnings.push_back(
        fmt::format("{} allocations or releases of buffers were not recorded, because there was no "
                    "memory for the records",
                    trace.engine.num_lost_buffers));
  }
  return space;
}

std::string space_for_jax(Space space) {
  for (Plane& plane : space.planes) {
    if (plane.name != kHostPlane) continue;
    plane.name = "/host:TPU-runtime";  // JAX joins this plane with its own one
    for (Line& line : plane.lines) {
      if (line.name == kCallerLine) line.name = "tessera";
      std::erase_if(line.events,
                    [&](const Event& event) { return plane.kinds[event.kind].name == kStepKind; });
    }
  }
  return to_xspace(space);
}

namespace {

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw RuntimeFault("profile: " + path.string() + " cannot be written: " + why);
}

/// Writes under a temporary name and renames, so that an incomplete file never has the final name.
void write_file(const fs::path& path, const std::string& data) {
  const fs::path part = path.string() + ".part";
  std::ofstream file(part, std::ios::binary);
  file.write(data.data(), static_cast<std::streamsize>(data.size()));
  file.close();
  std::error_code error;
  if (file) fs::rename(part, path, error);
  if (file && !error) return;
  const std::string why = error ? error.message() : std::strerror(errno);
  fs::remove(part, error);
  fail(path, why);
}

std::string compressed(const std::string& data) {
  constexpr int kGzip = 15 + 16;  // the largest window, and gzip's header
  constexpr int kMemory = 8;
  z_stream stream{};
  require(
      deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) == Z_OK,
      "zlib takes these settings");
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  require(result == Z_STREAM_END, "the bound of zlib holds");
  return out;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, error.message());
}

}  // namespace

void check_folder(const fs::path& folder) {
  make_folder(folder);
  // Another process may check the folder at the same time.
  const fs::path probe = folder / fmt::format(".writable.{}", getpid());
  write_file(probe, "");
  std::error_code ignored;
  fs::remove(probe, ignored);
}

fs::path write(const Space& space, const fs::path& folder) {
  make_folder(folder);
  const fs::path path = folder / (space.host + ".xplane.pb");
  write_file(folder / (space.host + ".trace.json.gz"), compressed(to_chrome_trace(space)));
  write_file(path, to_xspace(space));
  return path;
}

}  // namespace tessera::profile
