// Records ops on arrays into a trace. Ops outside of any trace run at once.
#pragma once

#include <functional>
#include <source_location>
#include <string_view>
#include <vector>

#include <tessera/array.h>

#include "api/array_node.h"
#include "ir/ir.h"

namespace tessera::detail {

/// The value of `array` in `trace`. Captures an array from outside of the trace. Throws UserError
/// for empty, abstract and donated arrays, and for values of traces that have ended.
ir::ValueId lift(trace::Trace& trace, const Array& array, const Span& where);

using Ids = std::vector<ir::ValueId>;
/// Calls `append` with the values of `operands`; it appends equations to the innermost trace of
/// this thread, which must exist. Errors name the operands that are parameters.
std::vector<Array> emit_all(const std::vector<Array>& operands,
                            const std::function<Ids(ir::Builder&, const Ids&)>& append);
/// For one result.
Array emit(const std::vector<Array>& operands,
           const std::function<ir::ValueId(ir::Builder&, const Ids&)>& append);

/// Appends one equation with the op of that name.
std::vector<Array> emit_all(std::string_view op, const std::vector<Array>& operands,
                            const ir::Attributes& attributes = {});
/// For one result.
Array emit(std::string_view op, const std::vector<Array>& operands,
           const ir::Attributes& attributes = {});

/// Records `body` into a trace of its own, compiles the program unless it is cached, and runs it.
/// Concrete arrays without a mesh are placed on `mesh`.
std::vector<Array> run_traced(const Mesh& mesh, const std::function<std::vector<Array>()>& body);

/// Implements a public op that is called at `where`: calls `body`, which records equations. Outside
/// of any trace, the recorded program runs at once.
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

/// The source line of the public call that this thread is executing.
Span call_span();

}  // namespace tessera::detail
