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

/// A call that gave arrays away.
struct DonatingCall {
  std::shared_ptr<const std::vector<std::string>> paths;  // of all arguments' leaves
  Span where;
};

struct ArrayNode {
  Type type;
  const ParamInfo* info = nullptr;  // of the parameter that it is, for messages
  // concrete
  const Placement* placement = nullptr;
  run::Tiles tiles;  // that this process holds; empty after a donation; guarded by donation_mutex()
  std::shared_ptr<const std::vector<std::int64_t>> groups;  // of what a pipeline returned
  std::shared_ptr<const DonatingCall> donation;
  std::size_t donated_leaf = 0;  // index into donation->paths
  // traced
  std::shared_ptr<trace::Trace> trace;
  ir::ValueId value = ir::kNoValue;

  bool is_concrete() const { return placement != nullptr; }
  bool is_traced() const { return trace != nullptr; }
};
using NodePtr = std::shared_ptr<ArrayNode>;

/// Guards tiles and donation of every node.
std::mutex& donation_mutex();

Array make_concrete(const Placement* placement, run::Tiles tiles);
Array make_traced(std::shared_ptr<trace::Trace> trace, ir::ValueId value);
Array make_abstract(Type type);

/// The node of a handle; throws UserError for an empty one.
const NodePtr& node_of(const Array& array, const Span& where);
/// Throws the UserError for an empty handle, which is `subject` of a call; none for "".
[[noreturn]] void fail_empty(const std::string& subject, const Span& where);
/// The tiles of a concrete array; throws UserError for any other and for one that was given away.
run::Tiles tiles_of(const Array& array, const Span& where);
/// `f32[8,16]`, with the path of a parameter: `f32[8,16] (parameter blocks_0/Dense_0/kernel)`.
std::string describe(const Array& array);

// Where each device has a process these are collectives: all processes make the same calls. `op` at
// `where` is what needs them, for messages.
/// Copies between layouts of one type; shares tiles where both have the same ones.
run::Tiles move_tiles(const Placement& from, const run::Tiles& tiles, const Placement& to,
                      const char* op, const Span& where);
ops::HostArray gather(const Placement& from, const run::Tiles& tiles, const char* op,
                      const Span& where);
/// One tile, whoever holds it.
run::BufferPtr gather_tile(const Placement& from, const run::Tiles& tiles, std::int64_t tile,
                           const char* op, const Span& where);
/// The tiles that this process holds.
run::Tiles scatter(const ops::HostArray& array, const Placement& to);

}  // namespace tessera::detail
