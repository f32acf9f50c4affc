// The node that an Array handle points to, and the placement and tiles of concrete arrays.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include <tessera/array.h>

#include "mesh/sharding.h"
#include "ops/host_array.h"
#include "run/executable.h"
#include "run/tiles/tiled.h"
#include "trace/trace.h"

namespace tessera::detail {

/// Path and annotation of a parameter. Interned: equal infos have the same address while any of
/// them lives. A cache entry whose key contains the address must hold the object.
struct ParamInfo {
  std::string path;
  PartitionSpec spec;
  bool is_annotated = false;
  AxisNames names = AxisNames::mesh;  // the kind of the names in `spec`
  bool is_trained = true;             // false: state that grad and optimisers leave alone
};
using ParamInfoPtr = std::shared_ptr<const ParamInfo>;
ParamInfoPtr intern(ParamInfo info);

/// Placements are interned: equal ones have the same address while any of them lives, so that
/// comparing and hashing are cheap.
using run::held_tiles;
using run::HolderGroups;
using run::is_held_by;
using run::is_held_here;
using run::Placement;
using run::PlacementPtr;
using run::Tiled;
PlacementPtr placement_of(const Type& type, const Mesh& mesh, const Sharding& sharding);
PlacementPtr replicated_placement(const Type& type, const Mesh& mesh);
/// How many placements and infos of parameters are alive.
std::size_t num_interned();
/// Appends the address of the placement to the key of a cache. The cache entry must hold the
/// placement, because another placement may get the address of one that is no longer used.
void append_address(std::string& key, const PlacementPtr& placement);
/// The groups that a NamedSharding over `mesh` names; nullptr if it names none. Throws UserError if
/// they are not ascending numbers of groups of this run.
HolderGroups asked_groups(const std::vector<std::int64_t>& mpmd_idxs, const Mesh& mesh,
                          const std::string& subject, const Span& where);

struct DonatingCall;  // api/call/donation.h

struct ArrayNode {
  Type type;
  /// nullptr unless the array is a parameter. Set when the node is made and never changed, because
  /// several threads may read it.
  ParamInfoPtr info;
  // concrete
  PlacementPtr placement;
  run::Tiles tiles;  // of this process; guarded by donation_mutex(), like the donation
  std::shared_ptr<const DonatingCall> donation;
  std::size_t donated_leaf = 0;               // index into donation->paths
  HolderGroups groups;                        // of a pipeline's mesh
  const run::Transport* transport = nullptr;  // of the processes among which tiles are divided
  // traced
  std::shared_ptr<trace::Trace> trace;
  ir::ValueId value = ir::kNoValue;

  bool is_concrete() const { return placement != nullptr; }
  bool is_traced() const { return trace != nullptr; }
};
using NodePtr = std::shared_ptr<ArrayNode>;

/// Guards tiles and donation of every node.
std::mutex& donation_mutex();

Array make_concrete(PlacementPtr placement, run::Tiles tiles, HolderGroups groups = nullptr);
/// A new handle that makes the array a parameter. Handles of `array` itself are not changed.
Array with_info(Array array, const ParamInfoPtr& info);
Array make_traced(std::shared_ptr<trace::Trace> trace, ir::ValueId value);
Array make_abstract(Type type);

/// The node of a handle; throws UserError for an empty one.
const NodePtr& node_of(const Array& array, const Span& where);
/// Throws the UserError for an empty handle. `subject` says which argument of the call it is; "" if
/// unknown.
[[noreturn]] void fail_empty(const std::string& subject, const Span& where);
/// Throws UserError for a donated array. The caller must hold donation_mutex().
void fail_if_donated(const ArrayNode& node, const Span& where);
/// Throws UserError for an array of the processes of another context, unless this process holds the
/// tiles that it would hold in the current context.
void fail_if_elsewhere(const ArrayNode& node, const Span& where);
/// The tiles of a concrete array. Throws UserError for any other array and for a donated one.
Tiled tiles_of(const Array& array, const Span& where);
/// `f32[8,16]`, with the path of a parameter: `f32[8,16] (parameter blocks_0/Dense_0/kernel)`.
std::string describe(const Array& array);

// With several processes, functions with the parameters `op` and `where` are collectives: all
// processes must make the same calls. `op` at `where` is the operation that error messages name.
/// As in run/tiles/tiled.h.
Tiled move_tiles(const Tiled& from, const PlacementPtr& to, const char* op, const Span& where);
run::BufferPtr gather_tile(const Tiled& from, std::int64_t tile, const char* op, const Span& where);
Tiled bring(Tiled x, const HolderGroups& groups, const char* op, const Span& where);
/// The whole array, in every process.
ops::HostArray gather(const Tiled& from, const char* op, const Span& where);
void gather(const Tiled& from, std::span<std::byte> to, const char* op, const Span& where);
/// The tiles that this process holds.
run::Tiles scatter(const ops::HostArray& array, const Placement& to);
/// The groups that hold all of these arrays. If there are none, the groups that hold the largest.
HolderGroups common_groups(const std::vector<Tiled>& arrays);

}  // namespace tessera::detail
