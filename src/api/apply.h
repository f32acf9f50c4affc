// Recording ops on arrays, and running at once what is not traced.
#pragma once

#include <functional>
#include <source_location>
#include <string_view>
#include <vector>

#include <tessera/array.h>

#include "api/array_node.h"
#include "ir/ir.h"

namespace tessera::detail {

/// The value of `array` in `trace`, captured from outside if need be. Throws UserError for empty,
/// abstract and donated arrays and for values of traces that have ended.
ir::ValueId lift(trace::Trace& trace, const Array& array, const Span& where);

using Ids = std::vector<ir::ValueId>;
/// Appends equations by `append`, which is given the values of `operands`, to the innermost trace
/// of this thread, which must exist. Errors name those operands that are parameters.
std::vector<Array> emit_all(const std::vector<Array>& operands,
                            const std::function<Ids(ir::Builder&, const Ids&)>& append);
/// For one result.
Array emit(const std::vector<Array>& operands,
           const std::function<ir::ValueId(ir::Builder&, const Ids&)>& append);

/// The op of that name applied to `operands`.
std::vector<Array> emit_all(std::string_view op, const std::vector<Array>& operands,
                            const ir::Attributes& attributes = {});
/// For one result.
Array emit(std::string_view op, const std::vector<Array>& operands,
           const ir::Attributes& attributes = {});

/// Runs `body` while it records into a trace of its own; compiles that (or finds it compiled) and
/// runs it. `mesh` is where concrete arrays without a mesh go.
std::vector<Array> run_traced(const Mesh& mesh, const std::function<std::vector<Array>()>& body);

/// The body of a public op: calls `body`, which records, within a call at `where`. Outside of any
/// trace the recorded program is run at once.
template <typename Body>
std::vector<Array> public_ops(const std::source_location& where, const Body& body) {
  const CallScope scope(where);
  if (trace::innermost() != nullptr) return body();
  return run_traced(current_mesh(), body);
}
template <typename Body>
Array public_op(const std::source_location& where, const Body& body) {
  const CallScope scope(where);
  if (trace::innermost() != nullptr) return body();
  return run_traced(current_mesh(), [&] { return std::vector<Array>{body()}; })[0];
}

/// The line of the call that is open on this thread.
Span call_span();

}  // namespace tessera::detail
