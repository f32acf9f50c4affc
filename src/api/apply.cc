#include "api/apply.h"

#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

#include "api/call/donation.h"
#include "api/context/context.h"
#include "api/program.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "ops/emit.h"
#include "run/transport/processes.h"

namespace tessera::detail {

ir::ValueId lift(trace::Trace& trace, const Array& array, const Span& where) {
  const NodePtr& node = node_of(array, where);
  if (node->is_traced()) {
    if (node->trace.get() == &trace) return node->value;
    if (trace::is_active(*node->trace)) return trace.capture(node, node->type);
    throw UserError({.what = "a traced array was used after its function had been traced",
                     .where = where,
                     .found = "a traced " + describe(array) + " of a function that has returned",
                     .wanted = "an array of the function that is being traced, or a concrete array",
                     .cure = "return the array from the traced function; do not keep it in a "
                             "variable from outside"});
  }
  tiles_of(array, where);  // throws unless concrete and not donated
  return trace.capture(node, node->type);
}

Span call_span() { return trace::call_span(std::source_location()); }

namespace {

/// Adds the paths of the operands that are parameters to the error.
UserError with_parameters(const UserError& error, const std::vector<Array>& operands) {
  Mistake mistake = error.mistake();
  for (const Array& operand : operands) {
    const ParamInfo* info = operand.is_empty() ? nullptr : operand.node()->info;
    if (info == nullptr || info->path.empty()) continue;
    mistake.found += fmt::format("{}{} is parameter {}", mistake.found.empty() ? "" : "; ",
                                 to_string(operand.type()), info->path);
  }
  return UserError(std::move(mistake));
}

}  // namespace

std::vector<Array> emit_all(const std::vector<Array>& operands,
                            const std::function<Ids(ir::Builder&, const Ids&)>& append) {
  const std::shared_ptr<trace::Trace> trace = trace::innermost();
  require(trace != nullptr, "ops are recorded into a trace");
  const Span span = call_span();
  Ids ids;
  for (const Array& operand : operands) ids.push_back(lift(*trace, operand, span));
  trace->builder().set_span(span);
  try {
    std::vector<Array> results;
    for (ir::ValueId id : append(trace->builder(), ids)) {
      results.push_back(make_traced(trace, id));
    }
    return results;
  } catch (const UserError& error) {
    throw with_parameters(error, operands);
  }
}

Array emit(const std::vector<Array>& operands,
           const std::function<ir::ValueId(ir::Builder&, const Ids&)>& append) {
  return emit_all(operands, [&](ir::Builder& b, const Ids& ids) { return Ids{append(b, ids)}; })[0];
}

std::vector<Array> emit_all(std::string_view op, const std::vector<Array>& operands,
                            const ir::Attributes& attributes) {
  return emit_all(operands,
                  [&](ir::Builder& b, const Ids& ids) { return b.emit_all(op, attributes, ids); });
}

Array emit(std::string_view op, const std::vector<Array>& operands,
           const ir::Attributes& attributes) {
  return emit_all(op, operands, attributes)[0];
}

namespace {

Array as_array(const std::shared_ptr<const void>& captured) {
  return Array(
      std::const_pointer_cast<ArrayNode>(std::static_pointer_cast<const ArrayNode>(captured)));
}

std::shared_ptr<Program> eager_program(ir::Function function,
                                       const std::vector<PlacementPtr>& inputs,
                                       const Settings& settings) {
  // An accelerator would compile every op for a tenth of a second: the host runs single ops.
  const EngineKind engine =
      settings.engine.kind == EngineKind::pjrt ? EngineKind::host : settings.engine.kind;
  std::string key = ir::print(function, {.spans = false});
  key += static_cast<char>(engine);
  key += static_cast<char>(settings.dot_unit);
  for (const PlacementPtr& input : inputs) append_address(key, input);
  EagerPrograms& programs = current_context().eager_programs;
  if (auto program = programs.find(key)) return program;
  auto program = std::make_shared<Program>();
  program->traced = std::move(function);
  program->inputs = inputs;
  program->input_infos.assign(inputs.size(), nullptr);
  program->output_infos.assign(program->traced.outputs.size(), nullptr);
  program->is_storage.assign(inputs.size(), false);
  program->is_donated.assign(inputs.size(), false);
  program->asked_outputs.resize(program->traced.outputs.size());
  program->asked_groups.resize(program->traced.outputs.size());
  program->output_replaces.assign(program->traced.outputs.size(), -1);
  program->engine = {.kind = engine};
  program->dot_unit = settings.dot_unit;
  simplify(*program);
  programs.insert(key, program);
  return program;
}

}  // namespace

std::vector<Array> run_traced(const Mesh& mesh, const std::function<std::vector<Array>()>& body) {
  const Span where = call_span();
  const Settings settings = current_settings();
  auto trace = std::make_shared<trace::Trace>(mesh, settings.grains, settings.numerics);
  std::vector<ir::ValueId> outputs;
  {
    const trace::Tracing tracing(trace);
    for (const Array& output : body()) outputs.push_back(lift(*trace, output, where));
  }
  const std::vector<std::shared_ptr<const void>> captured = trace->captured();
  ir::Function function = trace->finish(std::move(outputs));
  MeshChoice choice(mesh, where);
  std::vector<Array> arrays;
  for (const auto& outer : captured) {
    arrays.push_back(as_array(outer));
    choice.add(arrays.back().node()->placement->mesh, "operand " + describe(arrays.back()));
  }
  function = ir::with_mesh(std::move(function), choice.mesh());
  std::vector<PlacementPtr> inputs;
  std::vector<Tiled> tiled;
  for (const Array& array : arrays) {
    const PlacementPtr& placement = array.node()->placement;
    const bool is_placed = !placement->mesh.axes().empty();
    inputs.push_back(is_placed ? placement : replicated_placement(array.type(), function.mesh));
    tiled.push_back(tiles_of(array, where));
    tiled.back().placement = inputs.back();
  }
  Donation nothing;
  const std::shared_ptr<Program> program = eager_program(std::move(function), inputs, settings);
  compile(*program);
  // With one process per device the check is a collective, which is too slow for every op.
  std::unique_lock<std::mutex> memory;
  if (run::transport() == nullptr) memory = check_memory(*program, where);
  return execute(*program, std::move(tiled), nothing);
}

}  // namespace tessera::detail
