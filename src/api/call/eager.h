// Ops outside of any trace, which run at once.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <tessera/ops.h>

#include "api/array_node.h"
#include "trace/trace.h"

namespace tessera::detail {

/// Whether ops that this thread calls run at once.
inline bool runs_at_once() { return trace::depth() == 0; }

/// Describes what a public op computes, apart from its operands.
struct EagerCall {
  const char* name;               // of the function that the user called, for errors
  std::string_view op;            // of the IR, or any other name that no other op has
  std::string_view variant = {};  // whatever else `body` depends on
};

/// Computes `body(operands)`. The program is kept for calls of the same op with arrays of the same
/// placements. Numbers are inputs of the program, scalars of the dtype in `dtypes`, so one program
/// serves all numbers; `body` sees only arrays. Throws UserError for numbers that do not fit the
/// dtype.
Array run_op(const EagerCall& call, std::span<const Operand> operands,
             std::span<const DType> dtypes,
             const std::function<Array(const std::vector<Operand>&)>& body);

/// Runs a recorded function on concrete arrays.
std::vector<Array> run_function(ir::Function function, const std::vector<Array>& arrays,
                                const Span& where);

}  // namespace tessera::detail
