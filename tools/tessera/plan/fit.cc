// The mesh and the batch of a plan.
#include <algorithm>

#include <tessera/error.h>

#include "tools/tessera/job.h"
#include "tools/tessera/plan/plan.h"

namespace tessera::cli {

namespace {

constexpr std::int64_t kMostDevices = 16384;  // of a mesh

/// `mesh` scaled to `devices` devices: the axis `name` gets the devices that the other axes leave.
/// If these do not divide `devices`, they get size 1.
Mesh scaled(const Mesh& mesh, const std::string& name, std::int64_t devices) {
  std::vector<MeshAxis> axes = mesh.axes();
  if (axes.empty()) axes = {{name, 1}};
  std::int64_t others = 1;
  for (const MeshAxis& axis : axes) others *= axis.name == name ? 1 : axis.size;
  const bool fits = devices % others == 0;
  for (MeshAxis& axis : axes) {
    if (axis.name == name) {
      axis.size = fits ? devices / others : devices;
    } else if (!fits) {
      axis.size = 1;
    }
  }
  return Mesh(axes);
}

std::string cluster_text(const PlanFlags& plan) {
  return "--nodes " + std::to_string(plan.nodes) + " --devices-per-node " +
         std::to_string(plan.devices_per_node);
}

/// Sets the number of nodes, and of devices per node, that was not given.
void complete(PlanFlags& plan, std::int64_t devices) {
  if (plan.nodes == 0 && plan.devices_per_node == 0) plan.nodes = 1;
  const auto rest = [&](std::int64_t given) {
    return std::max<std::int64_t>(1, devices / std::max<std::int64_t>(1, given));
  };
  if (plan.nodes == 0) plan.nodes = rest(plan.devices_per_node);
  if (plan.devices_per_node == 0) plan.devices_per_node = rest(plan.nodes);
}

void check_mesh(const Mesh& mesh, const std::string& axis, const PlanFlags& plan) {
  const std::int64_t wanted = plan.nodes * plan.devices_per_node;
  if (mesh.num_devices() == wanted) return;
  const auto count = [](std::int64_t devices) {
    return std::to_string(devices) + (devices == 1 ? " device" : " devices");
  };
  throw UserError(
      {.what = "--mesh: the mesh and the cluster have different numbers of devices",
       .found = to_string(mesh) + ": " + count(mesh.num_devices()),
       .wanted = count(wanted) + ": " + cluster_text(plan),
       .cure = "write --mesh " + to_string(scaled(mesh, axis, wanted)) + ", or leave out --mesh"});
}

void check_cluster_size(const PlanFlags& plan) {
  const std::int64_t devices = plan.nodes * plan.devices_per_node;
  if (devices <= kMostDevices) return;
  throw UserError({.what = "--nodes: the cluster has more devices than a mesh may have",
                   .found = cluster_text(plan) + ", which makes " + std::to_string(devices),
                   .wanted = "at most " + std::to_string(kMostDevices) + " devices",
                   .cure = "plan for fewer nodes"});
}

void fit_batch(bool is_given, std::int64_t shards, std::int64_t default_shards, TrainFlags& flags) {
  if (!is_given) {
    const std::int64_t scaled_batch = flags.batch * shards / default_shards;
    flags.batch = std::max(flags.batch, scaled_batch);
    flags.batch = (flags.batch + shards - 1) / shards * shards;
    return;
  }
  if (flags.batch % shards == 0) return;
  const std::int64_t next = (flags.batch / shards + 1) * shards;
  throw UserError({.what = "--batch: the devices would get different numbers of examples",
                   .found = "--batch " + std::to_string(flags.batch) + " and --mesh " + flags.mesh,
                   .wanted = "a multiple of " + std::to_string(shards) +
                             ", the size of the axis that splits the batch",
                   .cure = "write --batch " + std::to_string(next) + ", or leave out --batch"});
}

}  // namespace

void fit_to_cluster(const Command& command, const JobInfo& info, const std::string& default_mesh,
                    PlanFlags& plan, TrainFlags& flags) {
  const std::string& axis = info.axes[0];
  const Mesh usual = mesh_of(default_mesh);
  const bool has_cluster = plan.nodes > 0 || plan.devices_per_node > 0;
  const bool has_mesh = command.count("--mesh") > 0;
  if (has_mesh || !has_cluster) {
    if (!has_mesh) flags.mesh = default_mesh;
    const Mesh mesh = mesh_of(flags, info);
    complete(plan, mesh.num_devices());
    check_cluster_size(plan);
    check_mesh(mesh, axis, plan);
    flags.mesh = to_string(mesh);
  } else {
    plan.nodes = std::max<std::int64_t>(1, plan.nodes);
    plan.devices_per_node = std::max<std::int64_t>(1, plan.devices_per_node);
    check_cluster_size(plan);
    flags.mesh = to_string(scaled(usual, axis, plan.nodes * plan.devices_per_node));
  }
  const Mesh mesh = mesh_of(flags, info);
  const auto shards_of = [&](const Mesh& any) {
    return any.has_axis(axis) ? any.axis_size(axis) : 1;
  };
  fit_batch(command.count("--batch") > 0, shards_of(mesh), shards_of(usual), flags);
}

}  // namespace tessera::cli
