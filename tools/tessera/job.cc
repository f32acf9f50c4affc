#include "job.h"

#include <algorithm>
#include <cstring>

#include <tessera/engine.h>

namespace tessera::cli {

namespace {

/// Adds axes of size 1, so that each group has one device.
Mesh with_axes(const Mesh& groups, const std::vector<std::string>& names) {
  std::vector<MeshAxis> axes = groups.axes();
  for (const std::string& name : names) axes.push_back({name, 1});
  return Mesh(axes);
}

}  // namespace

Mesh mesh_of(const TrainFlags& flags, const JobInfo& info) {
  Mesh mesh = mesh_of(flags.mesh);
  if (mesh.axes().empty()) return mesh;
  const bool has_groups_alone = mesh.axes().size() == 1 && mesh.has_axis(info.group_axis);
  if (has_groups_alone) return with_axes(mesh, info.axes);
  std::string example;
  for (const std::string& axis : info.axes) example += (example.empty() ? "" : ",") + axis + "=2";
  for (const std::string& axis : info.axes) {
    if (mesh.has_axis(axis)) continue;
    throw UserError({.what = "--mesh: the model " + info.name + " needs an axis named " + axis,
                     .found = to_string(mesh),
                     .wanted = "a mesh with an axis named " + axis + ", or none",
                     .cure = "write for example --mesh " + example});
  }
  return mesh;
}

std::int64_t num_groups(const Mesh& mesh, const JobInfo& info) {
  return mesh.has_axis(info.group_axis) ? mesh.axis_size(info.group_axis) : 1;
}

Array ones_of(const Shape& shape, const NamedSharding& sharding) {
  return make_array_from_callback(
      {DType::f32, shape}, sharding, [](const auto& /*index*/, std::span<std::byte> elements) {
        const float one = 1;
        for (std::size_t at = 0; at < elements.size(); at += sizeof(one)) {
          std::memcpy(elements.data() + at, &one, sizeof(one));
        }
      });
}

void check_same_data(std::uint64_t data_hash) {
  const std::vector<std::int64_t> all = process_allgather(static_cast<std::int64_t>(data_hash));
  const auto frequency = [&](std::int64_t hash) {
    return std::count(all.begin(), all.end(), hash);
  };
  const auto usual = std::max_element(all.begin(), all.end(), [&](auto one, auto other) {
    return frequency(one) < frequency(other);
  });
  const auto odd = std::find_if(all.begin(), all.end(), [&](auto hash) { return hash != *usual; });
  if (odd == all.end()) return;
  throw UserError({.what = "the processes do not have the same data",
                   .found = "the data of rank " + std::to_string(odd - all.begin()) +
                            " differ from those of rank " + std::to_string(usual - all.begin()),
                   .wanted = "files with the same contents on all machines",
                   .cure = "put the files into a folder that all machines share, or copy them "
                           "again"});
}

std::uint64_t hash_with(std::uint64_t hash, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

void check_heads(std::int64_t heads, const std::string& width_name, std::int64_t width) {
  if (width % heads == 0) return;
  throw UserError({.what = "--heads: the number of heads does not divide the width of the model",
                   .found = "--heads " + std::to_string(heads) + " and " + width_name + " " +
                            std::to_string(width),
                   .wanted = "a " + width_name + " that is a multiple of --heads",
                   .cure = "write for example --heads 8 " + width_name + " 256"});
}

nlohmann::json extra_of(const nlohmann::json& config,
                        const std::vector<checkpoint::NamedArray>& params) {
  nlohmann::json extra = {{"config", config}};
  std::int64_t count = 0;
  for (const checkpoint::NamedArray& item : params) count += item.array.size();
  extra["params"] = count;
  extra["params_hash"] = checkpoint::fingerprint(params);
  extra["collectives"] = nlohmann::json::object();
  for (const CollectiveUse& use : collective_counts()) {
    extra["collectives"][use.kind] = {
        {"count", use.count}, {"bytes", use.bytes}, {"wire_bytes", use.wire_bytes}};
  }
  return extra;
}

}  // namespace tessera::cli
