// The forward pass over the equations of a function.
#pragma once

#include <vector>

#include "differentiate/activity.h"
#include "ir/ir.h"

namespace tessera::differentiate {

/// `function` together with the derivative in the direction of some tangents. Its inputs are those
/// of `function`, then the tangents of the active inputs. Its outputs are those of `function`, then
/// the tangents of the outputs that are wanted.
ir::Function push_forward(const ir::Function& function, const std::vector<bool>& is_active,
                          const std::vector<bool>& is_wanted, Activity& activity);

}  // namespace tessera::differentiate
