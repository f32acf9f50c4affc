#include "plugin/protos.h"

#include <numeric>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include <tessera/error.h>

namespace tessera::plugin {

namespace {

// Names and numbers of the fields: openxla/xla, xla/pjrt/proto/compile_options.proto,
// xla/xla_data.proto.
constexpr protozero::pbf_tag_type kBuildOptions = 3;
constexpr protozero::pbf_tag_type kOverrides = 7;  // a map from names to values
constexpr protozero::pbf_tag_type kOverrideName = 1;
namespace build {
constexpr protozero::pbf_tag_type kNumReplicas = 4;
constexpr protozero::pbf_tag_type kNumPartitions = 5;
constexpr protozero::pbf_tag_type kDeviceAssignment = 9;
}  // namespace build
namespace assignment {
constexpr protozero::pbf_tag_type kReplicaCount = 1;
constexpr protozero::pbf_tag_type kComputationCount = 2;
constexpr protozero::pbf_tag_type kComputationDevices = 3;
constexpr protozero::pbf_tag_type kReplicaIds = 1;
}  // namespace assignment
namespace sharding {
constexpr protozero::pbf_tag_type kType = 1;
constexpr int kReplicated = 0;
constexpr int kOther = 3;
constexpr int kUnreduced = 6;
constexpr protozero::pbf_tag_type kTileDims = 3;
constexpr protozero::pbf_tag_type kTileDevices = 4;
constexpr protozero::pbf_tag_type kReplicatesLastDim = 6;
constexpr protozero::pbf_tag_type kLastDims = 8;
constexpr protozero::pbf_tag_type kNotes = 7;
constexpr protozero::pbf_tag_type kNoteName = 1;
constexpr protozero::pbf_tag_type kNoteValue = 2;
}  // namespace sharding

void read_devices(protozero::pbf_reader message, std::vector<int>& devices) {
  while (message.next(assignment::kComputationDevices)) {
    protozero::pbf_reader partition = message.get_message();
    while (partition.next(assignment::kReplicaIds)) {
      if (partition.wire_type() == protozero::pbf_wire_type::varint) {
        devices.push_back(static_cast<int>(partition.get_int64()));
        continue;
      }
      for (const std::int64_t id : partition.get_packed_int64()) {
        devices.push_back(static_cast<int>(id));
      }
    }
  }
}

void read_build_options(protozero::pbf_reader message, CompileOptions& options) {
  while (message.next()) {
    switch (message.tag()) {
      case build::kNumReplicas:
        options.num_replicas = static_cast<int>(message.get_int64());
        break;
      case build::kNumPartitions:
        options.num_partitions = static_cast<int>(message.get_int64());
        break;
      case build::kDeviceAssignment:
        read_devices(message.get_message(), options.devices);
        break;
      default:
        message.skip();
    }
  }
}

/// XLA's options have no effect here. Which options exist depends on version and platform, so only
/// their common prefix is checked.
void check_override(protozero::pbf_reader message) {
  std::string name;
  while (message.next(kOverrideName)) name = message.get_string();
  if (name.starts_with("xla_")) return;
  throw UserError({.what = "tessera: No such compile option: '" + name + "'",
                   .found = name,
                   .wanted = "an option of XLA, whose name starts with xla_",
                   .cure = "correct or remove it in compiler_options"});
}

/// Adds a note with the reduction that joins the terms of a value. Without a note, they are summed.
void add_reduction(protozero::pbf_writer& message, std::string_view reduction) {
  if (reduction == "reduce_sum") return;
  protozero::pbf_writer note(message, sharding::kNotes);
  note.add_string(sharding::kNoteName, "sdy::reduction_op");
  note.add_string(sharding::kNoteValue, reduction == "reduce_max" ? "MAX" : "MIN");
}

}  // namespace

CompileOptions read_compile_options(std::string_view bytes) {
  CompileOptions options;
  try {
    protozero::pbf_reader message(bytes.data(), bytes.size());
    while (message.next()) {
      switch (message.tag()) {
        case kBuildOptions:
          read_build_options(message.get_message(), options);
          break;
        case kOverrides:
          check_override(message.get_message());
          break;
        default:
          message.skip();
      }
    }
  } catch (const protozero::exception& error) {
    throw UserError({.what = "tessera: the compile options cannot be read",
                     .found = error.what(),
                     .wanted = "a CompileOptionsProto message",
                     .cure = "use one of the versions of JAX that docs/jax.md lists"});
  }
  return options;
}

std::string device_assignment(const std::vector<int>& devices) {
  std::string bytes;
  protozero::pbf_writer message(bytes);
  message.add_int32(assignment::kReplicaCount, 1);
  message.add_int32(assignment::kComputationCount, static_cast<int>(devices.size()));
  for (const int device : devices) {
    protozero::pbf_writer computation(message, assignment::kComputationDevices);
    const std::int64_t ids[] = {device};
    computation.add_packed_int64(assignment::kReplicaIds, std::begin(ids), std::end(ids));
  }
  return bytes;
}

std::string op_sharding(const run::Placement& placement, HiddenDims hidden) {
  std::string bytes;
  protozero::pbf_writer message(bytes);
  const Layout& layout = placement.layout;
  const std::int64_t num_devices = placement.mesh.num_devices();
  std::vector<std::int64_t> counts;  // of shards per dimension, those of the terms first
  std::int64_t num_tiles = 1;
  std::int64_t num_terms = 1;
  for (std::size_t dim = 0; dim + hidden.parts < placement.type.shape.size(); ++dim) {
    counts.push_back(layout.num_shards_of(dim));
    (dim < hidden.terms ? num_terms : num_tiles) *= counts.back();
  }
  const std::int64_t replicas = num_devices / (num_tiles * num_terms);
  if (num_tiles == 1 && (num_terms == 1 || replicas == 1)) {
    message.add_enum(sharding::kType,
                     num_terms == 1 ? sharding::kReplicated : sharding::kUnreduced);
    if (num_terms > 1) add_reduction(message, hidden.reduction);
    return bytes;
  }
  // The devices of the first tile, then those of the second, ...; tiles are numbered row-major.
  // Within a tile, the devices of the first term come first.
  std::vector<std::vector<std::int64_t>> devices(static_cast<std::size_t>(num_tiles * num_terms));
  for (std::int64_t device = 0; device < num_devices; ++device) {
    const AtomDigits digits = device_digits(placement.mesh, device);
    std::int64_t tile = 0;
    std::int64_t term = 0;
    for (std::size_t dim = 0; dim < counts.size(); ++dim) {
      std::int64_t& number = dim < hidden.terms ? term : tile;
      number = number * counts[dim] + layout.shard(dim, digits);
    }
    devices[static_cast<std::size_t>(tile * num_terms + term)].push_back(device);
  }
  std::vector<std::int64_t> all;
  for (const std::vector<std::int64_t>& each : devices) {
    all.insert(all.end(), each.begin(), each.end());
  }
  std::vector<std::int64_t> dims(counts.begin() + static_cast<std::ptrdiff_t>(hidden.terms),
                                 counts.end());
  std::vector<std::int32_t> last;  // what the last dimensions mean
  if (num_terms > 1) {
    dims.push_back(num_terms);
    last.push_back(sharding::kUnreduced);
  }
  if (replicas > 1) {
    dims.push_back(replicas);
    last.push_back(sharding::kReplicated);
  }
  message.add_enum(sharding::kType, sharding::kOther);
  message.add_packed_int64(sharding::kTileDims, dims.begin(), dims.end());
  message.add_packed_int64(sharding::kTileDevices, all.begin(), all.end());
  if (num_terms > 1) {
    add_reduction(message, hidden.reduction);
    message.add_packed_enum(sharding::kLastDims, last.begin(), last.end());
  } else if (replicas > 1) {
    message.add_bool(sharding::kReplicatesLastDim, true);
  }
  return bytes;
}

}  // namespace tessera::plugin
