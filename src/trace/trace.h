// Tracing: records what a C++ function does to its arguments as an ir::Function.
//
// Each thread has a stack of traces; ops are recorded into the innermost one. A value from outside
// (an array, or a value of an outer trace) that a traced function uses becomes a hidden input.
#pragma once

#include <atomic>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ir/builder.h"
#include "ir/ir.h"
#include "trace/depth.h"

namespace tessera::trace {

class Trace {
 public:
  /// In exact numerics, a reduced dimension has `grains` grains.
  Trace(Mesh mesh, std::int64_t grains, Numerics numerics);
  /// For a function nested in `outer`.
  explicit Trace(const ir::Function& outer) : Trace(outer.mesh, outer.grains, outer.numerics) {}

  const ir::Function& function() const { return function_; }
  const Mesh& mesh() const { return function_.mesh; }
  /// Inputs must come before the first capture.
  ir::ValueId add_input(Type type);
  /// The hidden input for `outer`, which is kept alive.
  ir::ValueId capture(const std::shared_ptr<const void>& outer, const Type& type);
  /// The captured values, in the order of the hidden inputs.
  const std::vector<std::shared_ptr<const void>>& captured() const { return captured_; }

  /// Appends equations.
  ir::Builder& builder() { return builder_; }
  /// Ends the trace. Its values must not be used any more.
  ir::Function finish(std::vector<ir::ValueId> outputs);
  /// The thread that is tracing; none if the trace has ended.
  std::thread::id thread() const { return thread_; }

 private:
  friend class Tracing;
  ir::Function function_;
  ir::Builder builder_;
  std::vector<std::shared_ptr<const void>> captured_;
  std::unordered_map<const void*, ir::ValueId> capture_ids_;
  std::atomic<std::thread::id> thread_;
};

/// Makes a trace the innermost one of this thread as long as this object exists.
class Tracing {
 public:
  /// Throws UserError if this thread is tracing too many functions inside each other.
  Tracing(std::shared_ptr<Trace> trace, const Span& where);
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

 private:
  Depth depth_;
  Trace& trace_;
};

/// nullptr if this thread is not tracing.
std::shared_ptr<Trace> innermost();
/// The number of traces on the stack of this thread.
std::size_t depth();
/// Whether the trace is on the stack of this thread.
bool is_active(const Trace& trace);

/// Hides the stack of this thread: ops run immediately instead of being recorded.
class Outside {
 public:
  Outside();
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  std::vector<std::shared_ptr<Trace>> saved_;
};

/// Declares axes over which the functions traced by this thread are mapped, as long as this object
/// exists.
class MappedAxes {
 public:
  enum class Kind : std::uint8_t { batch, mesh };  // of vmap, of shard_map
  MappedAxes(std::vector<MeshAxis> axes, Kind kind);
  ~MappedAxes();
  MappedAxes(const MappedAxes&) = delete;
  MappedAxes& operator=(const MappedAxes&) = delete;

 private:
  std::size_t num_outer_;
};
/// The number of elements along a mapped axis; 0 if there is none of that name.
std::int64_t mapped_axis_size(std::string_view name);
/// `data, model`
std::string mapped_axis_names();
/// Whether shard_map maps the axis of the mesh: each device sees its own part of it only.
bool is_mapped_mesh_axis(std::string_view name);

/// Opens a call at `where` unless one is open on this thread; returns whether it did.
bool open_call(const std::source_location& where);
void close_call();
/// The line of the outermost open call, or `where`.
Span call_span(const std::source_location& where);

}  // namespace tessera::trace
