// Which values of a function depend on active inputs through floats.
#pragma once

#include <vector>

#include "ir/reach.h"

namespace tessera::differentiate {

/// Caches its results for nested functions.
class Activity {
 public:
  Activity();
  /// Per value of `function`: whether it is active. `inputs` tells it for each input.
  std::vector<bool> values(const ir::Function& function, const std::vector<bool>& inputs);
  /// Per input of the body of a loop: active if its operand is, or, for a carry, if some iteration
  /// makes it so.
  std::vector<bool> loop_inputs(const ir::Equation& equation, const std::vector<bool>& operands);

 private:
  ir::Reach reach_;
};

}  // namespace tessera::differentiate
