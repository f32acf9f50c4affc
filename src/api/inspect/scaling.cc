// The public interface of the simulation of steps.
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/profile.h>

#include "api/program.h"
#include "forecast/forecast.h"
#include "trace/trace.h"

namespace tessera {

namespace {

/// The number of groups of a pipeline; 1 for other programs.
std::int64_t num_groups(const detail::Program& program) {
  return program.pipeline ? static_cast<std::int64_t>(program.pipeline->tasks.size()) : 1;
}

void check_devices(const detail::Program& program, const Cluster& cluster, const Span& where) {
  const std::int64_t devices =
      std::max<std::int64_t>(1, program.traced.mesh.num_devices()) * num_groups(program);
  const std::int64_t wanted = cluster.nodes * cluster.devices_per_node;
  if (devices == wanted) return;
  throw UserError(
      {.what = "plan_step: the mesh and the cluster have different numbers of devices",
       .where = where,
       .found = fmt::format("{} devices in the mesh {}", devices, to_string(program.traced.mesh)),
       .wanted = fmt::format("{} devices: {} nodes with {} each", wanted, cluster.nodes,
                             cluster.devices_per_node),
       .cure = "change the mesh, or nodes and devices_per_node of the cluster"});
}

}  // namespace

StepPlan plan_step(const LoweredProgram& step, const Cluster& cluster, std::source_location where) {
  const Span span = trace::call_span(where);
  forecast::check_cluster(cluster, span);
  detail::Program& program = *step.program_;
  check_devices(program, cluster, span);
  return forecast::plan_of(detail::compile_for_devices(program), cluster);
}

}  // namespace tessera
