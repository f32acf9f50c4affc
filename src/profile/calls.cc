// The rows of an accelerator whose plugin has no profiler, and the rows of the calls of any plugin.
#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "profile/rows.h"

namespace tessera::profile {

namespace {

using run::DeviceCall;

std::string name_of_call(const DeviceCall& call) {
  switch (call.kind) {
    case DeviceCall::Kind::execute:
      return "start " + call.program;
    case DeviceCall::Kind::upload:
      return "upload";
    case DeviceCall::Kind::copy:
      return "copy to another device";
    case DeviceCall::Kind::wait:
      return "wait for devices";
    case DeviceCall::Kind::download:
      return "download";
  }
  return "call";
}

/// Events whose kinds are distinguished by name.
class CallRow {
 public:
  CallRow(const Traced& traced, Plane& plane) : traced_(traced), plane_(plane) {}

  Event event(const std::string& name, std::int64_t start_ns, std::int64_t end_ns) {
    const auto [place, is_new] = kinds_.try_emplace(name, 0);
    if (is_new) place->second = plane_.add_kind({.name = name});
    return {.kind = place->second,
            .start_ns = traced_.since_start(start_ns),
            .end_ns = traced_.since_start(end_ns),
            .step = traced_.step_at(start_ns)};
  }

 private:
  const Traced& traced_;
  Plane& plane_;
  std::map<std::string, std::size_t> kinds_;
};

void sort_by_start(std::vector<Event>& events) {
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::pair(a.start_ns, b.end_ns) < std::pair(b.start_ns, a.end_ns);
  });
}

Plane device_plane(const Traced& traced, std::int64_t device, const std::string& kind) {
  Plane plane{.name = fmt::format("/device:TPU:{}", device),
              .stats = {{"device_type_string", kind}}};
  CallRow row(traced, plane);
  Line steps{"Steps", 1, {}};
  for (const StepTime& step : traced.steps()) {
    steps.events.push_back(row.event(std::to_string(step.number), step.start_ns, step.end_ns));
  }
  Line programs{"XLA Modules", 2, {}};
  for (const DeviceCall& call : traced.trace().accelerator->calls) {
    const bool is_here = call.kind == DeviceCall::Kind::execute && device >= call.first_device &&
                         device < call.first_device + call.num_devices;
    if (!is_here) continue;
    programs.events.push_back(row.event(call.program, call.busy_from_ns, call.busy_until_ns));
  }
  sort_by_start(programs.events);
  plane.lines = {std::move(steps), std::move(programs)};
  return plane;
}

}  // namespace

std::vector<Plane> accelerator_planes(const Traced& traced) {
  const std::vector<std::string>& kinds = traced.trace().accelerator->device_kinds;
  std::vector<Plane> planes;
  for (std::size_t device = 0; device < kinds.size(); ++device) {
    planes.push_back(device_plane(traced, static_cast<std::int64_t>(device), kinds[device]));
  }
  return planes;
}

void add_calls(const Traced& traced, Plane& host) {
  constexpr std::int64_t kFirstLine = 20000;
  CallRow row(traced, host);
  std::map<int, std::vector<Event>> lines;  // per thread
  for (const DeviceCall& call : traced.trace().accelerator->calls) {
    Event made = row.event(name_of_call(call), call.start_ns, call.end_ns);
    if (call.bytes > 0) made.stats.push_back({"bytes", call.bytes});
    lines[call.thread].push_back(std::move(made));
  }
  for (auto& [thread, events] : lines) {
    sort_by_start(events);
    host.lines.push_back({fmt::format("calls of the plugin, thread {}", thread + 1),
                          kFirstLine + thread, std::move(events)});
  }
}

}  // namespace tessera::profile
