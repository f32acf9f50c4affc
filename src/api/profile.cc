// The public interface of profiles.
#include "profile/profile.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <mutex>
#include <utility>

#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/profile.h>

#include "api/context/settings.h"
#include "api/inspect/recording.h"
#include "run/devices/backend.h"
#include "run/engine.h"
#include "run/transport/processes.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

/// What has been started.
struct Started {
  std::mutex mutex;
  fs::path run;                              // where the trace will be written
  run::Backend* profiled_backend = nullptr;  // whose calls are timed
  std::vector<RegionTime> kernels;           // of the trace that was written last
};

Started& started() {
  static auto* const one = new Started;
  return *one;
}

/// A new folder if there is one process. Several processes must get the same folder, so its name is
/// the time alone.
fs::path folder_of_run(const fs::path& runs, std::time_t seconds) {
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y_%m_%d_%H_%M_%S", &local);
  fs::path folder = runs / text;
  for (int number = 2; process_count() == 1 && fs::exists(folder); ++number) {
    folder = runs / fmt::format("{}_{}", text, number);
  }
  return folder;
}

run::Backend* current_backend() { return detail::current_settings().engine.backend; }

RegionTime region_of(const run::RegionTime& time) {
  return {.name = time.name,
          .where = time.span,
          .count = time.count,
          .seconds = static_cast<double>(time.ns) * 1e-9,
          .communication_seconds = static_cast<double>(time.communication_ns) * 1e-9,
          .flops = time.flops,
          .bytes = time.bytes};
}

std::string name_of_calls(const run::DeviceCallTotal& total) {
  switch (total.kind) {
    case run::DeviceCall::Kind::execute:
      return total.program + " on the devices";
    case run::DeviceCall::Kind::upload:
      return "starting uploads";
    case run::DeviceCall::Kind::copy:
      return "starting copies between devices";
    case run::DeviceCall::Kind::wait:
      return "waiting for devices";
    case run::DeviceCall::Kind::download:
      return "downloads";
  }
  throw InternalError("a call has a kind");
}

RegionTime region_of(const run::DeviceCallTotal& total) {
  return {.name = name_of_calls(total),
          .where = {},
          .count = total.count,
          .seconds = static_cast<double>(total.ns) * 1e-9,
          .bytes = total.bytes};
}

RegionTime region_of(const profile::KernelTime& time) {
  return {.name = time.name,
          .where = time.where,
          .count = time.count,
          .seconds = static_cast<double>(time.ps) * 1e-12};
}

}  // namespace

void start_profile() {
  run::Engine::instance().start_profile();
  Started& all = started();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.profiled_backend = current_backend();
  if (all.profiled_backend != nullptr) all.profiled_backend->start_profile();
}

std::vector<RegionTime> stop_profile() {
  std::vector<RegionTime> regions;
  for (const run::RegionTime& time : run::Engine::instance().stop_profile()) {
    regions.push_back(region_of(time));
  }
  Started& all = started();
  const std::lock_guard<std::mutex> lock(all.mutex);
  run::Backend* const backend = std::exchange(all.profiled_backend, nullptr);
  if (backend == nullptr) return regions;
  for (const run::DeviceCallTotal& total : backend->stop_profile()) {
    regions.push_back(region_of(total));
  }
  std::stable_sort(regions.begin(), regions.end(),
                   [](const RegionTime& a, const RegionTime& b) { return a.seconds > b.seconds; });
  return regions;
}

namespace profile {

void start_trace(const std::string& folder, std::source_location where) {
  const std::int64_t seconds = process_allgather(std::time(nullptr), where).at(0);
  Started& all = started();
  const std::lock_guard<std::mutex> lock(all.mutex);
  detail::check_not_recording(where);
  const fs::path runs = fs::path(folder) / "plugins" / "profile";
  check_folder(runs);
  const fs::path run = folder_of_run(runs, seconds);
  detail::start_recording(where);
  all.run = run;
}

std::string stop_trace(std::source_location where) {
  Started& all = started();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const Space space = detail::stop_recording(where);
  all.kernels.clear();
  for (const KernelTime& time : kernels_of(space.more)) all.kernels.push_back(region_of(time));
  return write(space, all.run).string();
}

std::vector<RegionTime> kernel_times() {
  Started& all = started();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.kernels;
}

}  // namespace profile
}  // namespace tessera
