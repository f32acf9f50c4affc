#include "api/apply.h"

#include <algorithm>
#include <fmt/format.h>
#include <thread>

#include <tessera/error.h>

#include "ir/builder.h"
#include "ops/emit.h"

namespace tessera::detail {

namespace {

/// For a traced array that no trace of this thread may use.
[[noreturn]] void fail_foreign(const Array& array, const Span& where) {
  const std::thread::id thread = array.node()->trace->thread();
  const std::string found = "a traced " + describe(array) + " of a function that ";
  if (thread == std::thread::id()) {
    throw UserError({.what = "a traced array was used after its function had been traced",
                     .where = where,
                     .found = found + "has returned",
                     .wanted = "an array of the function that is being traced, or a concrete array",
                     .cure = "return the array from the traced function; do not store it in a "
                             "variable declared outside"});
  }
  if (thread != std::this_thread::get_id()) {
    throw UserError({.what = "a traced array was used on another thread",
                     .where = where,
                     .found = found + "another thread is tracing",
                     .wanted = "ops on the thread that began the trace",
                     .cure = "call all ops of a traced function on the thread that called it; to "
                             "use several threads, call jitted functions from each of them"});
  }
  throw UserError({.what = "a traced array was used by a function that is lowered on its own",
                   .where = where,
                   .found = found + "is still being traced",
                   .wanted = "a concrete or abstract array",
                   .cure = "call the jitted function instead of lower() or compile(), or lower it "
                           "outside of the traced function"});
}

}  // namespace

ir::ValueId lift(trace::Trace& trace, const Array& array, const Span& where) {
  const NodePtr& node = node_of(array, where);
  if (node->is_traced()) {
    if (node->trace.get() == &trace) return node->value;
    if (trace::is_active(*node->trace)) return trace.capture(node, node->type);
    fail_foreign(array, where);
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
    const ParamInfo* info = operand.is_empty() ? nullptr : operand.node()->info.get();
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

}  // namespace tessera::detail
