// The extra rules of ops with nested functions.
#pragma once

#include "ir/bodies.h"
#include "ops/record.h"

namespace tessera::ops {

/// src/differentiate, src/batch and src/compile each rewrite these ops in their own way. The rules
/// here say how results depend on operands, how often bodies run and what may be removed.
struct BodyRules {
  /// How arrays pass through the bodies. nullptr: any result may depend on every operand, and
  /// nothing may be removed.
  ir::BodyFlow (*flow)(const Attributes& attributes, std::size_t num_operands) = nullptr;
  /// The attributes, without the bodies, of the equation after all operands and results that are
  /// not in `kept` have been removed.
  Attributes (*kept)(const Attributes& attributes, const ir::Kept& kept) = nullptr;
  /// The attribute that holds the function which inlining puts in place of a call; nullptr for
  /// control flow.
  const char* callee = nullptr;
};

}  // namespace tessera::ops
