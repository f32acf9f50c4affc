// Equations that act on the world outside of the program. They are neither removed nor merged nor
// repeated, and stay in their order: that in which they were traced.
//
// Each effect takes a token as its first operand and gives it back as its first result; its other
// results are what the world outside gave back, so an effect that has some stays where others are
// left out. Tokens are all
// alike until ops::with_ordered_effects connects them, before the program is partitioned. Then the
// order is a matter of operands, which every later pass and every engine respects.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/ir.h"

namespace tessera::ir {

/// Whether the op is an effect. src/ops defines it.
bool is_effect(const ops::OpRecord& op);
/// Whether other values have the sharding of the result, so that the equation stays until they have
/// it. src/ops defines it.
bool is_in_group(const Equation& equation);

/// Finds effects, and looks at each nested function once.
class Effects {
 public:
  /// Whether the equation is an effect or has one in its functions.
  bool has(const Equation& equation);
  bool has(const Function& function);

 private:
  bool has(const std::shared_ptr<const Function>& body);

  struct Known {
    std::shared_ptr<const Function> body;
    bool has_effects;
  };
  std::unordered_map<const Function*, Known> known_;
};

/// Whether the equation, or one in its functions, has results that only an effect knows.
bool gives_back(const Equation& equation);

/// The function without its effects that give nothing back, in nested functions too.
Function without_effects(Function function);
/// The equation without those effects in its functions. It must not be one itself.
Equation without_effects(Equation equation);

}  // namespace tessera::ir
