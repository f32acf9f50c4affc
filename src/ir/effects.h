// Equations that act on the world outside the program. They are not removed, merged or repeated,
// and they stay in the order in which they were traced.
//
// Each effect takes a token as its first operand and returns it as its first result. Its other
// results are what the outside world gave back, so an effect that has such results stays even where
// other effects are dropped. Tokens are all alike until ops::with_ordered_effects connects them,
// before the program is partitioned. From then on operands define the order, which every later pass
// and every engine respects.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/ir.h"

namespace tessera::ir {

/// Whether the op is an effect. src/ops defines it.
bool is_effect(const ops::OpRecord& op);
/// Whether the equation belongs to a group of values that get the same sharding. It stays until the
/// others have the sharding. src/ops defines it.
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

/// Whether the equation, or one in its functions, has results that come from the outside world.
bool gives_back(const Equation& equation);

/// The function, including nested functions, without the effects that give nothing back.
Function without_effects(Function function);
/// The equation without such effects in its functions. It must not be one itself.
Equation without_effects(Equation equation);

}  // namespace tessera::ir
