#include "api/transform/nested.h"

#include <algorithm>

#include <tessera/error.h>

#include "api/program.h"

namespace tessera::detail {

Nested trace_nested(Body& body, const std::vector<Type>& types, const Span& where, Sights sights) {
  const std::shared_ptr<trace::Trace> parent = trace::innermost();
  require(parent != nullptr, "nested functions are traced within a trace");
  auto trace = std::make_shared<trace::Trace>(parent->function());
  const Walk arguments = body.walk_arguments(Walk::Want::leaves);
  std::vector<Array> tracers;
  for (std::size_t i = 0; i < types.size(); ++i) {
    tracers.push_back(make_traced(trace, trace->add_input(types[i])));
    tracers.back().node()->info = arguments.leaves()[i].info();
  }
  Nested nested;
  std::vector<ir::ValueId> outputs;
  {
    const trace::Tracing tracing(trace, where);
    const Watching watching(*trace, std::move(sights.inputs), std::move(sights.level));
    nested.result = body.call(tracers);
    Walk result = body.walk_result(nested.result.get(), Walk::Want::paths);
    nested.result_paths = result.paths();
    for (const Walk::Leaf& leaf : result.leaves()) {
      outputs.push_back(lift(*trace, *leaf.array, where));
      nested.results.push_back(leaf.array->type());
      if (sights.results != nullptr) sights.results->push_back(seen(*leaf.array));
    }
  }
  for (const std::shared_ptr<const void>& outer : trace->captured()) {
    nested.captured.emplace_back(
        std::const_pointer_cast<ArrayNode>(std::static_pointer_cast<const ArrayNode>(outer)));
  }
  nested.function = trace->finish(std::move(outputs));
  nested.function.name = "body";
  return nested;
}

namespace {

auto find(const std::vector<Array>& arrays, const Array& wanted) {
  return std::find_if(arrays.begin(), arrays.end(),
                      [&](const Array& array) { return array.node() == wanted.node(); });
}

}  // namespace

std::vector<Array> all_captured(const std::vector<const Nested*>& functions) {
  std::vector<Array> all;
  for (const Nested* nested : functions) {
    for (const Array& array : nested->captured) {
      if (find(all, array) == all.end()) all.push_back(array);
    }
  }
  return all;
}

void take_captured(Nested& nested, const std::vector<Array>& captured, std::size_t num_leaves,
                   std::size_t place) {
  std::vector<ir::ValueId>& inputs = nested.function.inputs;
  const auto own = inputs.begin() + static_cast<std::ptrdiff_t>(num_leaves);
  std::vector<ir::ValueId> taken;
  for (const Array& array : captured) {
    const auto number = find(nested.captured, array) - nested.captured.begin();
    const bool is_own = number < static_cast<std::ptrdiff_t>(nested.captured.size());
    taken.push_back(is_own ? own[number]
                           : nested.function.add_value({.type = array.type(), .sharding = {}}));
  }
  inputs.resize(num_leaves);
  inputs.insert(inputs.begin() + static_cast<std::ptrdiff_t>(place), taken.begin(), taken.end());
  nested.captured = captured;
}

Mesh mesh_of(const std::vector<Array>& arrays, const Span& where) {
  MeshChoice choice(where);
  for (const Array& array : arrays) {
    const NodePtr& node = node_of(array, where);
    if (node->is_concrete()) choice.add(node->placement->mesh, describe(array));
  }
  return choice.mesh();
}

std::vector<Array> recorded(const std::vector<Array>& arrays, const Span& where,
                            const std::function<std::vector<Array>()>& emit) {
  if (trace::innermost() != nullptr) return emit();
  const Mesh mesh = mesh_of(arrays, where);
  const use_mesh scope(mesh);
  return run_traced(mesh, emit);
}

std::vector<Array> as_arrays(const std::vector<ir::ValueId>& values) {
  const std::shared_ptr<trace::Trace> trace = trace::innermost();
  std::vector<Array> arrays;
  for (ir::ValueId id : values) arrays.push_back(make_traced(trace, id));
  return arrays;
}

std::vector<ir::ValueId> lift_all(const std::vector<Array>& arrays, const Span& where) {
  const std::shared_ptr<trace::Trace> trace = trace::innermost();
  std::vector<ir::ValueId> ids;
  for (const Array& array : arrays) ids.push_back(lift(*trace, array, where));
  return ids;
}

ir::Builder& builder_at(const Span& where) {
  ir::Builder& builder = trace::innermost()->builder();
  builder.set_span(where);
  return builder;
}

std::vector<Type> types_of(const std::vector<Array>& arrays) {
  std::vector<Type> types;
  for (const Array& array : arrays) types.push_back(array.type());
  return types;
}

std::vector<Array> leaves_of(const Walk& walk, const Span& where) {
  std::vector<Array> leaves;
  for (const Walk::Leaf& leaf : walk.leaves()) {
    node_of(*leaf.array, where);
    leaves.push_back(*leaf.array);
  }
  return leaves;
}

}  // namespace tessera::detail
