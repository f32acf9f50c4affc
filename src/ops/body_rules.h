// What ops with nested functions state besides the rules that every op has.
#pragma once

#include "ir/bodies.h"
#include "ops/record.h"

namespace tessera::ops {

/// src/differentiate, src/batch and src/compile rewrite each of these ops in a way of its own. What
/// depends on what, how often bodies run and what may be dropped is asked here.
struct BodyRules {
  /// How arrays pass through the bodies; nullptr where a result may depend on every operand, and
  /// nothing may be dropped.
  ir::BodyFlow (*flow)(const Attributes& attributes, std::size_t num_operands) = nullptr;
  /// The attributes, but for the bodies, of an equation of which only that is left.
  Attributes (*kept)(const Attributes& attributes, const ir::Kept& kept) = nullptr;
  /// The attribute with the function that takes the place of an equation that is a call; nullptr
  /// for control flow.
  const char* callee = nullptr;
};

}  // namespace tessera::ops
