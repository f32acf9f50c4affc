// What equations are estimated to take.
#pragma once

#include <vector>

#include "ir/ir.h"

namespace tessera::pipeline {

/// Bytes that a group sends to another one, or writes again, in a second.
constexpr double kBytesPerSecond = 2e10;

/// Seconds of one core: the time of its arithmetic, or of its bytes where that is longer. Nested
/// functions count as often as they run, a while_loop once.
double seconds_of(const ir::Function& function, const ir::Equation& equation);

/// What an equation of a forward pass brings with it.
struct Passes {
  double forward = 0;   // seconds
  double backward = 0;  // seconds
  double held = 0;      // bytes of values inside of it that the backward pass needs
};
/// `is_active`: per operand, whether its gradient is wanted.
Passes passes_of(const ir::Function& function, const ir::Equation& equation,
                 const std::vector<bool>& is_active);
/// Whether the derivative reads the operands of the equation.
bool holds_operands(const ir::Equation& equation);

/// Whether the op reads its operand at other strides: its readers compute it, and it is not sent.
bool is_view(const ir::Equation& equation);
/// A part of an array, which is not left to its readers: they should not hold all of the array.
bool shrinks(const ir::Function& function, const ir::Equation& equation);

}  // namespace tessera::pipeline
