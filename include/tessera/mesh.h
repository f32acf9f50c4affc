// Meshes of devices, and how arrays are laid out over them.
//
//   Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
//   NamedSharding by_rows(mesh, P{"data", none});        // dimension 0 is split over "data"
//   use_mesh scope(mesh);                                 // P alone is enough inside the scope
//   Mesh ring = make_mesh({{"data", 4}}, {0, 2, 3, 1});   // which device is where
#pragma once

#include <initializer_list>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace TESSERA_EXPORT tessera {

/// A named dimension of a mesh.
struct MeshAxis {
  std::string name;
  std::int64_t size;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

/// Device ids in the shape of a mesh, row-major.
struct DeviceMesh {
  Shape shape;
  std::vector<std::int64_t> ids;
};
/// Devices 0, 1, ... in this shape. Throws UserError for sizes below 1.
DeviceMesh create_device_mesh(Shape shape,
                              std::source_location where = std::source_location::current());

/// Named axes over virtual devices; the last axis varies fastest. A default Mesh is one device.
///
/// Device ids say which device holds a tile. They appear in shards, pictures and the ranks of
/// isolated runs, and never affect values. A mesh of n devices has the ids 0 to n-1, in any order.
class Mesh {
 public:
  Mesh();
  TESSERA_COPYABLE(Mesh);
  /// `devices`: the ids, row-major; empty means 0, 1, ... Throws UserError for an empty or repeated
  /// axis name, sizes below 1, more than 16384 devices, and ids that are not 0 to n-1.
  explicit Mesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> devices = {},
                std::source_location where = std::source_location::current());
  /// `axis_names` has one name per dimension of `devices`.
  Mesh(const DeviceMesh& devices, const std::vector<std::string>& axis_names,
       std::source_location where = std::source_location::current());

  const std::vector<MeshAxis>& axes() const { return axes_; }
  std::int64_t num_devices() const;
  /// The ids, row-major over the mesh.
  std::vector<std::int64_t> device_ids() const;
  /// Whether the ids are 0, 1, ... in order.
  bool is_in_order() const { return ids_.empty(); }
  /// The row-major position of a device. Throws UserError for an id that the mesh does not have.
  std::int64_t position_of(std::int64_t device,
                           std::source_location where = std::source_location::current()) const;
  /// The size of an axis. Throws UserError if the mesh has no axis of that name.
  std::int64_t axis_size(const std::string& name,
                         std::source_location where = std::source_location::current()) const;
  bool has_axis(const std::string& name) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::vector<MeshAxis> axes_;
  std::vector<std::int64_t> ids_;  // empty when in order
};

/// The mesh with these axes; see the constructor of Mesh.
Mesh make_mesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> devices = {},
               std::source_location where = std::source_location::current());
/// `data=4,model=2`; with ids that are not in order, `data=4@0,2,3,1`; `none` for a mesh without
/// axes.
std::string to_string(const Mesh& mesh);
/// Reads the text form of a mesh. Throws UserError for any other text.
Mesh parse_mesh(const std::string& text,
                std::source_location where = std::source_location::current());

/// A mesh whose devices form groups along one axis. Each group runs its own programs: the stages of
/// a pipeline.
class MpmdMesh {
 public:
  /// Throws UserError if the mesh has no such axis.
  MpmdMesh(Mesh mesh, std::string axis,
           std::source_location where = std::source_location::current());

  const Mesh& mesh() const { return mesh_; }
  const std::string& mpmd_axis_name() const { return axis_; }
  /// The number of groups.
  std::int64_t mpmd_dim() const { return mesh_.axis_size(axis_); }
  /// The mesh of each group: the same axes, but that axis has size 1. The arguments and results of
  /// a pipeline have shardings over this mesh.
  const Mesh& group_mesh() const { return group_mesh_; }
  /// One mesh per group.
  std::vector<Mesh> unstack() const;
  friend bool operator==(const MpmdMesh&, const MpmdMesh&) = default;

 private:
  Mesh mesh_;
  std::string axis_;
  Mesh group_mesh_;
};
/// `MpmdMesh(stage=4,fsdp=2, groups along 'stage')`.
std::string to_string(const MpmdMesh& mesh);

struct None {};
inline constexpr None none{};

struct Unconstrained {};
/// A dimension that with_sharding_constraint leaves to the compiler. It is an error anywhere else.
inline constexpr Unconstrained unconstrained{};

/// One dimension of a PartitionSpec: `none`, an axis, several axes (the major one first), or
/// `unconstrained`.
struct SpecEntry {
  std::vector<std::string> axes;
  bool is_unconstrained = false;

  TESSERA_COPYABLE(SpecEntry);
  SpecEntry(Unconstrained);                                  // NOLINT(google-explicit-constructor)
  SpecEntry(None);                                           // NOLINT(google-explicit-constructor)
  SpecEntry(const char* axis);                               // NOLINT(google-explicit-constructor)
  SpecEntry(std::string axis);                               // NOLINT(google-explicit-constructor)
  SpecEntry(std::initializer_list<const char*> axis_names);  // NOLINT(google-explicit-constructor)
  friend bool operator==(const SpecEntry&, const SpecEntry&) = default;
};

/// The mesh axes that split each dimension. Dimensions without an entry are not split.
class PartitionSpec {
 public:
  PartitionSpec();
  TESSERA_COPYABLE(PartitionSpec);
  PartitionSpec(std::initializer_list<SpecEntry> entries);
  explicit PartitionSpec(std::vector<SpecEntry> entries);

  const std::vector<SpecEntry>& entries() const { return entries_; }
  friend bool operator==(const PartitionSpec&, const PartitionSpec&) = default;

 private:
  std::vector<SpecEntry> entries_;
};
using P = PartitionSpec;

/// Whether the names in a PartitionSpec are mesh axes, or logical names that rules translate.
enum class AxisNames : std::uint8_t { mesh, logical };

/// `'data'`, `('data', 'model')`, `None`, `UNCONSTRAINED`.
std::string to_string(const SpecEntry& entry);
/// `P('data', None, ('a', 'b'))`, `P('data',)`, `P(UNCONSTRAINED,)`: as JAX prints a spec.
std::string to_string(const PartitionSpec& spec);

/// Indices [start, limit) of one dimension.
struct IndexRange {
  std::int64_t start;
  std::int64_t limit;
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};
/// `[0:4, 8:16]`.
std::string to_string(const std::vector<IndexRange>& index);

/// The part of an array that a device holds.
struct DeviceIndices {
  std::int64_t device;            // its id
  std::vector<IndexRange> index;  // one range per dimension
  friend bool operator==(const DeviceIndices&, const DeviceIndices&) = default;
};

/// A mesh and a spec: which device holds which tile of an array.
///
/// If a dimension of size n is split into s shards, shard j holds [floor(j*n/s), floor((j+1)*n/s)).
/// If s does not divide n, shards differ in size by one. Functions that take a shape throw
/// UserError if the spec has more entries than the shape has dimensions, or an unconstrained entry.
struct NamedSharding {
  Mesh mesh;
  PartitionSpec spec;
  /// If not empty, `mesh` is the mesh of a group of an MpmdMesh, and these groups, ascending, hold
  /// the array. They have no effect within a traced function, where the stages decide.
  std::vector<std::int64_t> mpmd_idxs = {};

  NamedSharding() = default;
  /// Throws UserError for an unknown axis and for an axis that is used twice.
  NamedSharding(Mesh on, PartitionSpec entries,
                std::source_location where = std::source_location::current());
  friend bool operator==(const NamedSharding&, const NamedSharding&) = default;

  std::int64_t num_devices() const { return mesh.num_devices(); }
  /// Whether every device holds the whole array.
  bool is_fully_replicated() const;
  /// The shape of the largest tile of an array of this shape.
  Shape shard_shape(const Shape& shape,
                    std::source_location where = std::source_location::current()) const;
  /// The shape of the tile that this device holds.
  Shape shard_shape(const Shape& shape, std::int64_t device,
                    std::source_location where = std::source_location::current()) const;
  /// The part of the array that each device holds, row-major over the mesh.
  std::vector<DeviceIndices> devices_indices_map(
      const Shape& shape, std::source_location where = std::source_location::current()) const;
  /// Whether both put the same tiles of an array of this rank on the same devices, whatever the
  /// axes are called.
  bool is_equivalent_to(const NamedSharding& other, std::int64_t rank,
                        std::source_location where = std::source_location::current()) const;
};
/// `NamedSharding(mesh=Mesh('data': 2, 'model': 4), spec=P('data',))`, with ids if not in order.
std::string to_string(const NamedSharding& sharding);

/// Options of visualize_sharding.
struct VisualizeOptions {
  bool use_color = false;           // terminal escape sequences: a background for each tile
  double scale = 1.0;               // of the picture; its height is 10 lines at 1
  std::int64_t min_width = 9;       // of a tile, in characters, including its borders
  std::int64_t max_width = 80;      // of the picture
  std::string device_kind = "CPU";  // written before the ids of the devices of a tile
};

/// Makes `mesh` the current mesh of this thread until the end of the scope.
class [[nodiscard]] use_mesh {
 public:
  [[nodiscard]] explicit use_mesh(Mesh mesh);
  ~use_mesh();
  use_mesh(const use_mesh&) = delete;
  use_mesh& operator=(const use_mesh&) = delete;

 private:
  Mesh previous_;
};

/// The mesh of the innermost use_mesh scope; one device when there is none.
const Mesh& current_mesh();

// --- changes of sharding

/// One step of a plan: a collective, or a slice, which moves no data.
struct ReshardStep {
  std::string kind;
  std::vector<std::string> axes;  // along which data moves; `data#1` is a part of an axis
  PartitionSpec spec;             // after this step
  std::int64_t wire_bytes = 0;    // received per device, ring model
  std::int64_t group_size = 1;    // devices that exchange data with each other
};

/// The collectives for a change of sharding, in order.
struct ReshardPlan {
  std::vector<ReshardStep> steps;
  std::int64_t wire_bytes = 0;
  /// No plan is cheaper by more than this factor. On all meshes whose sizes have at most six prime
  /// factors it is 1: this plan is then the cheapest.
  double bound = 1;
  std::int64_t start_cost = 0;  // the price of starting a collective, in bytes
};

/// The cheapest collectives that change the sharding of an array on the same mesh. The price is the
/// number of bytes that a device receives, plus `start_cost` per collective. Throws UserError for
/// specs that do not fit the type.
ReshardPlan plan_reshard(const Type& type, const NamedSharding& from, const PartitionSpec& to,
                         std::source_location where = std::source_location::current());

}  // namespace tessera
