#include "trace/trace.h"

#include <algorithm>
#include <optional>

#include <tessera/error.h>

namespace tessera::trace {

namespace {

using Stack = std::vector<std::shared_ptr<Trace>>;

Stack& stack() {
  static thread_local Stack traces;
  return traces;
}

std::optional<std::source_location>& open_location() {
  static thread_local std::optional<std::source_location> location;
  return location;
}

}  // namespace

Trace::Trace(Mesh mesh, std::int64_t grains, Numerics numerics) : builder_(function_) {
  function_.mesh = std::move(mesh);
  function_.grains = grains;
  function_.numerics = numerics;
}

ir::ValueId Trace::add_input(Type type) {
  require(captured_.empty(), "inputs of a trace come before its captures");
  return builder_.add_input(std::move(type));
}

ir::ValueId Trace::capture(const std::shared_ptr<const void>& outer, const Type& type) {
  const auto [place, is_new] = capture_ids_.try_emplace(outer.get(), ir::kNoValue);
  if (is_new) {
    place->second = builder_.add_input(type);
    captured_.push_back(outer);
  }
  return place->second;
}

ir::Function Trace::finish(std::vector<ir::ValueId> outputs) {
  builder_.set_outputs(std::move(outputs));
  return std::move(function_);
}

Tracing::Tracing(std::shared_ptr<Trace> trace, const Span& where) : depth_(where), trace_(*trace) {
  trace_.thread_ = std::this_thread::get_id();
  stack().push_back(std::move(trace));
}
Tracing::~Tracing() {
  trace_.thread_ = std::thread::id();
  stack().pop_back();
}

std::shared_ptr<Trace> innermost() { return stack().empty() ? nullptr : stack().back(); }

std::size_t depth() { return stack().size(); }

bool is_active(const Trace& trace) {
  return std::any_of(stack().begin(), stack().end(),
                     [&](const auto& active) { return active.get() == &trace; });
}

Outside::Outside() : saved_(std::move(stack())) { stack().clear(); }
Outside::~Outside() { stack() = std::move(saved_); }

namespace {

struct MappedAxis {
  MeshAxis axis;
  MappedAxes::Kind kind;
};

std::vector<MappedAxis>& mapped_axes() {
  static thread_local std::vector<MappedAxis> axes;
  return axes;
}

}  // namespace

MappedAxes::MappedAxes(std::vector<MeshAxis> axes, Kind kind) : num_outer_(mapped_axes().size()) {
  for (MeshAxis& axis : axes) mapped_axes().push_back({std::move(axis), kind});
}
MappedAxes::~MappedAxes() {
  mapped_axes().erase(mapped_axes().begin() + static_cast<std::ptrdiff_t>(num_outer_),
                      mapped_axes().end());
}

std::int64_t mapped_axis_size(std::string_view name) {
  for (auto axis = mapped_axes().rbegin(); axis != mapped_axes().rend(); ++axis) {
    if (axis->axis.name == name) return axis->axis.size;
  }
  return 0;
}

std::string mapped_axis_names() {
  std::string text;
  for (const auto& [axis, kind] : mapped_axes()) text += (text.empty() ? "" : ", ") + axis.name;
  return text;
}

bool is_mapped_mesh_axis(std::string_view name) {
  return std::any_of(mapped_axes().begin(), mapped_axes().end(), [&](const MappedAxis& mapped) {
    return mapped.kind == MappedAxes::Kind::mesh && mapped.axis.name == name;
  });
}

bool open_call(const std::source_location& where) {
  if (open_location()) return false;
  open_location() = where;
  return true;
}

void close_call() { open_location().reset(); }

Span call_span(const std::source_location& where) { return Span(open_location().value_or(where)); }

}  // namespace tessera::trace
