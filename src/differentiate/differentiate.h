// IR -> IR: derivatives in reverse and in forward mode.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/pass.h"

namespace tessera::differentiate {

/// A function with the inputs of `function` and the outputs (all outputs of `function`, then the
/// gradient of output 0, a float scalar, with respect to each input listed in `wrt`). Nothing is
/// computed for paths that do not lead from `wrt` to output 0. Cotangents of a value are added in
/// reverse program order of its uses. Throws UserError when a path has no derivative.
ir::Function value_and_grad(const ir::Function& function, const std::vector<std::size_t>& wrt);

/// A function with the inputs of `function`, then a tangent for each input listed in `wrt`, which
/// ascends, and the outputs of `function`, then the tangent of each output. Tangents of outputs
/// that do not depend on `wrt`, or that are not floats, are zeros. Throws UserError when a path
/// from `wrt` to an output has no derivative.
ir::Function jvp(const ir::Function& function, const std::vector<std::size_t>& wrt);

/// jvp in two functions, of which the first does all work that does not depend on tangents.
struct Linearized {
  ir::Function forward;   // the inputs of the function -> its outputs, then residuals
  ir::Function tangents;  // residuals, then the tangents of the inputs in `wrt` -> those of outputs
};
Linearized linearize(const ir::Function& function, const std::vector<std::size_t>& wrt);

/// value_and_grad as a pass.
std::vector<ir::Pass> passes(const std::vector<std::size_t>& wrt);

}  // namespace tessera::differentiate
