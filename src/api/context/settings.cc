// The settings and counters of the engine, through the current context.
#include "api/context/settings.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <sstream>

#include <tessera/debug.h>
#include <tessera/engine.h>
#include <tessera/error.h>

#include "api/context/context.h"
#include "compile/compile.h"
#include "run/engine.h"
#include "run/machine/cores.h"
#include "run/machine/memory.h"
#include "run/pjrt/client.h"
#include "run/pjrt/find.h"
#include "run/transport/processes.h"
#include "trace/trace.h"

namespace tessera {

namespace detail {

std::string_view name(EngineKind engine) {
  switch (engine) {
    case EngineKind::host:
      return "host";
    case EngineKind::reference:
      return "reference";
    case EngineKind::pjrt:
      return "pjrt";
  }
  throw InternalError("an engine has a name");
}

DotUnit dot_unit_named(std::string_view name, const std::string& subject, const Span& where) {
  const std::vector<DotUnit> here = compile::dot_units();
  if (name == "auto") return here.back();
  std::string list = "auto";
  for (const DotUnit unit : here) {
    if (tessera::name(unit) == name) return unit;
    list += fmt::format("{}{}", unit == here.back() ? " or " : ", ", tessera::name(unit));
  }
  const bool is_known = std::any_of(std::begin(kDotUnits), std::end(kDotUnits),
                                    [&](DotUnit unit) { return tessera::name(unit) == name; });
  throw UserError(
      {.what = subject + (is_known ? ": this machine does not have this unit" : ": unknown unit"),
       .where = where,
       .found = std::string(name),
       .wanted = list,
       .cure = "use auto, the best unit of this machine"});
}

run::Target target_of(const Settings& settings) {
  run::Target target = run::Engine::instance().target();
  if (settings.num_threads != 0) target.num_workers = settings.num_threads;
  target.world = settings.world;
  return target;
}

void check_num_threads(int count, const std::string& subject, const Span& where) {
  constexpr int kMost = 1024;
  if (count >= 1 && count <= kMost) return;
  throw UserError({.what = subject + ": the number of threads is out of range",
                   .where = where,
                   .found = std::to_string(count),
                   .wanted = "from 1 to " + std::to_string(kMost),
                   .cure = "pass the number of cores to use"});
}

}  // namespace detail

using detail::current_context;
using detail::EngineKind;
using detail::Settings;

void set_num_threads(int count, std::source_location where) {
  detail::check_num_threads(count, "set_num_threads", trace::call_span(where));
  run::Engine::instance().set_num_threads(count);
}

int usable_cores() { return run::usable_cores(); }

void set_thread_binding(bool is_on) { run::Engine::instance().set_binding(is_on); }

int num_threads() {
  const int own = detail::current_settings().num_threads;
  return own != 0 ? own : run::Engine::instance().num_threads();
}

std::string_view instruction_set() { return compile::instruction_set(); }

namespace {

std::string gpu_plugin(const Span& where) {
  if (std::optional<std::string> path = run::pjrt::find_gpu_plugin()) return *path;
  throw UserError(
      {.what = "set_engine: there is no PJRT plugin for GPUs",
       .where = where,
       .found = "no file in the folders of Python packages",
       .wanted = fmt::format("one of {}", fmt::join(run::pjrt::gpu_plugin_patterns(), ", ")),
       .cure = "pip install jax-cuda13-plugin[with-cuda] into the active environment, "
               "or write pjrt:PATH"});
}

/// The devices of `pjrt:PATH[,OPTION=VALUE]...`. `pjrt` alone means $TESSERA_PJRT_PLUGIN, and `gpu`
/// the plugin that pip installs.
run::Backend& plugin_named(std::string_view name, const Span& where) {
  if (name == "gpu") return run::pjrt::client_of({gpu_plugin(where), {}}, where);
  constexpr std::string_view kPrefix = "pjrt:";
  std::string spec(name.substr(std::min(kPrefix.size(), name.size())));
  const char* variable = std::getenv("TESSERA_PJRT_PLUGIN");
  if (!name.starts_with(kPrefix) && variable != nullptr) spec = variable;
  return run::pjrt::client_of(run::pjrt::parse_spec(spec, where), where);
}

}  // namespace

void set_engine(std::string_view name, std::source_location where) {
  for (const EngineKind kind : {EngineKind::host, EngineKind::reference}) {
    if (name == detail::name(kind)) {
      return current_context().set(&Settings::engine, detail::EngineChoice{.kind = kind});
    }
  }
  if (name == "gpu" || name == "pjrt" || name.starts_with("pjrt:")) {
    run::Backend& backend = plugin_named(name, trace::call_span(where));
    return current_context().set(&Settings::engine,
                                 detail::EngineChoice{EngineKind::pjrt, &backend});
  }
  throw UserError({.what = "set_engine: unknown engine",
                   .where = trace::call_span(where),
                   .found = std::string(name),
                   .wanted = "host, reference, gpu or pjrt:PATH",
                   .cure = "use host, which is fast; the reference engine is simple and slow"});
}

std::string_view engine() { return detail::name(detail::current_settings().engine.kind); }

void set_dot_unit(std::string_view name, std::source_location where) {
  const DotUnit unit = detail::dot_unit_named(name, "set_dot_unit", trace::call_span(where));
  current_context().set_dot_unit(name == "auto" ? std::nullopt : std::optional(unit));
}

std::string_view dot_unit() { return name(detail::current_settings().dot_unit); }

void set_grains(std::int64_t grains, std::source_location where) {
  constexpr std::int64_t kMost = 4096;
  if (grains < 1 || grains > kMost) {
    throw UserError({.what = "set_grains: the number of grains is out of range",
                     .where = trace::call_span(where),
                     .found = std::to_string(grains),
                     .wanted = "from 1 to " + std::to_string(kMost) + ", usually 8",
                     .cure = "pass a multiple of the number of devices that share a sum"});
  }
  current_context().set(&Settings::grains, grains);
}

std::int64_t grains() { return detail::current_settings().grains; }

void set_index_checks(bool is_on) { current_context().set(&Settings::checks_indices, is_on); }

bool index_checks() { return detail::current_settings().checks_indices; }

void set_numerics(Numerics numerics) { current_context().set(&Settings::numerics, numerics); }

Numerics numerics() {
  const detail::Settings settings = detail::current_settings();
  return settings.engine.kind == EngineKind::pjrt ? Numerics::device : settings.numerics;
}

namespace {

/// With several groups, the sum of the counts of their first devices; otherwise the counts of this
/// process.
run::CollectiveCounts counts_of_groups() {
  run::CollectiveCounts own = run::Engine::instance().collective_counts();
  const run::World& world = run::world();
  if (world.num_groups == 1) return own;
  const auto per_group = static_cast<std::size_t>(world.processes_per_group());
  std::string text;
  for (const auto& [kind, count] : own) {
    text += fmt::format("{} {} {} {}\n", kind, count.count, count.bytes, count.wire_bytes);
  }
  const std::vector<std::string> texts =
      run::all_texts(text, {.kind = "gather", .op = "collective_counts", .span = {}});
  run::CollectiveCounts all;
  for (std::size_t rank = 0; rank < texts.size(); rank += per_group) {
    std::istringstream lines(texts[rank]);
    std::string kind;
    run::CollectiveCount count;
    while (lines >> kind >> count.count >> count.bytes >> count.wire_bytes) {
      run::CollectiveCount& sum = all[kind];
      sum.count += count.count;
      sum.bytes += count.bytes;
      sum.wire_bytes += count.wire_bytes;
    }
  }
  return all;
}

}  // namespace

std::vector<CollectiveUse> collective_counts() {
  std::vector<CollectiveUse> list;
  for (const auto& [kind, count] : counts_of_groups()) {
    list.push_back(
        {.kind = kind, .count = count.count, .bytes = count.bytes, .wire_bytes = count.wire_bytes});
  }
  return list;
}

void reset_collective_counts() { run::Engine::instance().reset_collective_counts(); }

std::int64_t peak_buffer_bytes() { return run::Buffer::peak_bytes(); }

void reset_peak_buffer_bytes() { run::Buffer::reset_peak_bytes(); }

MachineMemory machine_memory() {
  const run::MachineMemory memory = run::machine_memory();
  return {.total = memory.total, .free = memory.free};
}

Accelerator accelerator() {
  const detail::EngineChoice engine = detail::current_settings().engine;
  if (engine.backend == nullptr) return {};
  const run::BackendInfo info = engine.backend->info();
  Accelerator found{.platform = engine.backend->platform(),
                    .platform_version = info.platform_version,
                    .interface_version = info.interface_version,
                    .devices = {}};
  for (const run::DeviceInfo& device : info.devices) {
    found.devices.push_back({.id = device.id,
                             .kind = device.kind,
                             .bytes_in_use = device.bytes_in_use,
                             .bytes_limit = device.bytes_limit});
  }
  return found;
}

void set_overcommit(bool is_allowed) { run::set_overcommit(is_allowed); }

bool overcommit() { return run::overcommit(); }

}  // namespace tessera
