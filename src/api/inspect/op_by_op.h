// Calls functions of the user as they are, instead of tracing them, while jit is disabled.
#pragma once

#include <string>
#include <vector>

#include <tessera/jit.h>

#include "api/array_node.h"

namespace tessera::detail {

/// Whether this thread is within the scope of a disable_jit.
bool is_jit_disabled();
/// Whether control flow that this thread calls runs op by op. It does not inside functions that are
/// traced for another reason, such as their derivatives.
bool runs_op_by_op();

/// What a function has returned.
struct Called {
  std::shared_ptr<void> result;
  std::vector<Array> leaves;
  std::vector<ParamInfoPtr> infos;  // of the leaves; nullptr unless a parameter
  std::vector<std::string> paths;
};
/// Calls `body` on arguments with these leaves.
Called call_as_it_is(Body& body, const std::vector<Array>& leaves, const Span& where);

}  // namespace tessera::detail
