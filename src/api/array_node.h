// What an Array handle points to, and where concrete arrays live.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <tessera/array.h>

#include "mesh/sharding.h"
#include "ops/host_array.h"
#include "run/executable.h"
#include "trace/trace.h"

namespace tessera::detail {

/// Path and annotation of a parameter. Interned: equal ones have one address, for ever.
struct ParamInfo {
  std::string path;
  PartitionSpec spec;
  bool is_annotated = false;
  AxisNames names = AxisNames::mesh;  // in `spec`
};
const ParamInfo* intern(ParamInfo info);

/// A type and its layout over a mesh. Interned, so that comparing and hashing is cheap.
struct Placement {
  Type type;
  Mesh mesh;
  Sharding sharding;
  Layout layout;
};
const Placement* placement_of(const Type& type, const Mesh& mesh, const Sharding& sharding);
const Placement* replicated_placement(const Type& type, const Mesh& mesh);
/// The tiles that this process holds: all, or that of its device where each has a process.
std::vector<std::int64_t> held_tiles(const Placement& placement);

/// The groups of devices that hold an array, ascending; nullptr: all of them.
using HolderGroups = std::shared_ptr<const std::vector<std::int64_t>>;
bool is_held_by(const HolderGroups& groups, std::int64_t group);
/// Whether this process has tiles of such an array: always, where it computes for all devices.
bool is_held_here(const HolderGroups& groups);

/// A concrete array apart from its handle.
struct Tiled {
  const Placement* placement;
  run::Tiles tiles;  // that this process holds
  HolderGroups groups;
};

struct DonatingCall;  // api/call/donation.h

struct ArrayNode {
  Type type;
  /// Of the parameter that it is. Set where the node is made: several threads may read it.
  const ParamInfo* info = nullptr;
  // concrete
  const Placement* placement = nullptr;
  run::Tiles tiles;  // that this process holds; guarded by donation_mutex(), as is what follows
  std::shared_ptr<const DonatingCall> donation;
  std::size_t donated_leaf = 0;  // index into donation->paths
  HolderGroups groups;           // of a pipeline's mesh
  // traced
  std::shared_ptr<trace::Trace> trace;
  ir::ValueId value = ir::kNoValue;

  bool is_concrete() const { return placement != nullptr; }
  bool is_traced() const { return trace != nullptr; }
};
using NodePtr = std::shared_ptr<ArrayNode>;

/// Guards tiles and donation of every node.
std::mutex& donation_mutex();

Array make_concrete(const Placement* placement, run::Tiles tiles, HolderGroups groups = nullptr);
/// The array under the name of a parameter; handles of `array` itself do not become parameters.
Array with_info(Array array, const ParamInfo* info);
Array make_traced(std::shared_ptr<trace::Trace> trace, ir::ValueId value);
Array make_abstract(Type type);

/// The node of a handle; throws UserError for an empty one.
const NodePtr& node_of(const Array& array, const Span& where);
/// Throws the UserError for an empty handle, which is `subject` of a call; none for "".
[[noreturn]] void fail_empty(const std::string& subject, const Span& where);
/// Throws UserError for an array that was given away; under donation_mutex().
void fail_if_donated(const ArrayNode& node, const Span& where);
/// The tiles of a concrete array; throws UserError for any other and for one that was given away.
Tiled tiles_of(const Array& array, const Span& where);
/// `f32[8,16]`, with the path of a parameter: `f32[8,16] (parameter blocks_0/Dense_0/kernel)`.
std::string describe(const Array& array);

// Where each device has a process these are collectives: all processes make the same calls. `op` at
// `where` is what needs them, for messages.
/// Copies between layouts of one type, within the groups that hold the array; shares tiles where
/// both have the same ones.
Tiled move_tiles(const Tiled& from, const Placement* to, const char* op, const Span& where);
/// In every process.
ops::HostArray gather(const Tiled& from, const char* op, const Span& where);
/// One tile, whoever holds it.
run::BufferPtr gather_tile(const Tiled& from, std::int64_t tile, const char* op, const Span& where);
/// The tiles that this process holds.
run::Tiles scatter(const ops::HostArray& array, const Placement& to);
/// Sends an array to those of the groups that do not hold it, and lets go of it in all others.
Tiled bring(Tiled x, const HolderGroups& groups, const char* op, const Span& where);
/// The groups that hold all of these; where there are none, those that hold the largest.
HolderGroups common_groups(const std::vector<Tiled>& arrays);

}  // namespace tessera::detail
