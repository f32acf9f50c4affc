// Estimated costs of equations.
#pragma once

#include <vector>

#include "ir/ir.h"

namespace tessera::pipeline {

/// Bytes per second that a group sends to another one, or that a core reads and writes.
constexpr double kBytesPerSecond = 2e10;

/// Seconds on one core: the time of its arithmetic, or of its memory traffic if that is longer.
/// Nested functions count as often as they run, a while_loop once.
double seconds_of(const ir::Function& function, const ir::Equation& equation);

/// What an equation of a forward pass costs, including its backward pass.
struct Passes {
  double forward = 0;   // seconds
  double backward = 0;  // seconds
  double held = 0;      // bytes of values inside it that the backward pass needs
};
/// `is_active`: per operand, whether its gradient is wanted.
Passes passes_of(const ir::Function& function, const ir::Equation& equation,
                 const std::vector<bool>& is_active);
/// Whether the derivative reads the operands of the equation.
bool holds_operands(const ir::Equation& equation);

/// Whether the op only reads its operand with other strides. Each reader of a view computes it, and
/// it is not sent.
bool is_view(const ir::Equation& equation);
/// Whether the result is smaller than the operand, like a slice. Such a view is not left to its
/// readers, because they would have to hold the whole operand.
bool shrinks(const ir::Function& function, const ir::Equation& equation);

}  // namespace tessera::pipeline
