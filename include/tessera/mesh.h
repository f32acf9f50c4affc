// Meshes of devices and how arrays are laid out over them.
//
//   Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
//   NamedSharding by_rows(mesh, P{"data", none});        // dimension 0 is split over "data"
//   use_mesh scope(mesh);                                 // P alone is enough inside the scope
#pragma once

#include <initializer_list>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera {

struct MeshAxis {
  std::string name;
  std::int64_t size;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

/// Named axes over virtual devices; the last axis varies fastest. A default Mesh is one device.
class Mesh {
 public:
  Mesh();
  TESSERA_COPYABLE(Mesh);
  /// Throws UserError for an empty or repeated name, for sizes below 1 and for more than 16384
  /// devices.
  explicit Mesh(std::vector<MeshAxis> axes,
                std::source_location where = std::source_location::current());

  const std::vector<MeshAxis>& axes() const { return axes_; }
  std::int64_t num_devices() const;
  /// The size of an axis; throws UserError when there is none of that name.
  std::int64_t axis_size(const std::string& name,
                         std::source_location where = std::source_location::current()) const;
  bool has_axis(const std::string& name) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::vector<MeshAxis> axes_;
};

Mesh make_mesh(std::vector<MeshAxis> axes,
               std::source_location where = std::source_location::current());
/// `data=4,model=2`; `none` for a mesh without axes.
std::string to_string(const Mesh& mesh);
/// Reads the text form of a mesh; throws UserError.
Mesh parse_mesh(const std::string& text);

struct None {};
inline constexpr None none{};

/// One dimension of a PartitionSpec: `none`, an axis, or several axes, major first.
struct SpecEntry {
  std::vector<std::string> axes;

  TESSERA_COPYABLE(SpecEntry);
  SpecEntry(None);                                           // NOLINT(google-explicit-constructor)
  SpecEntry(const char* axis);                               // NOLINT(google-explicit-constructor)
  SpecEntry(std::string axis);                               // NOLINT(google-explicit-constructor)
  SpecEntry(std::initializer_list<const char*> axis_names);  // NOLINT(google-explicit-constructor)
  friend bool operator==(const SpecEntry&, const SpecEntry&) = default;
};

/// For each dimension the mesh axes that split it; missing entries mean unsharded.
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

/// What the names in a PartitionSpec are: mesh axes, or logical names that rules translate.
enum class AxisNames : std::uint8_t { mesh, logical };

/// `P('data', None, ('a', 'b'))`, as JAX prints it.
std::string to_string(const PartitionSpec& spec);

/// A mesh and a spec: where each tile of an array lives.
struct NamedSharding {
  Mesh mesh;
  PartitionSpec spec;

  NamedSharding() = default;
  /// Throws UserError for an unknown axis and for an axis used twice.
  NamedSharding(Mesh on, PartitionSpec entries,
                std::source_location where = std::source_location::current());
  friend bool operator==(const NamedSharding&, const NamedSharding&) = default;
};

/// Makes `mesh` the current mesh of this thread until the end of the scope.
class use_mesh {
 public:
  explicit use_mesh(Mesh mesh);
  ~use_mesh();
  use_mesh(const use_mesh&) = delete;
  use_mesh& operator=(const use_mesh&) = delete;

 private:
  Mesh previous_;
};

/// The mesh of the innermost use_mesh scope; one device when there is none.
const Mesh& current_mesh();

}  // namespace tessera
