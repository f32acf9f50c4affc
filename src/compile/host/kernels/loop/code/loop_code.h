// Machine code for loops over single numbers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "compile/host/kernels/loop/loop_order.h"

namespace tessera::kernels::loops {

/// All rounds of a loop. Several threads may run it at the same time.
class LoopCode {
 public:
  virtual ~LoopCode() = default;
  /// See LoopPlan::run(). Registers that are in place have been copied to where they belong.
  virtual void run(std::span<std::byte* const> buffers) const = 0;
};

/// Whether loops can become machine code on this machine.
bool has_loop_code();

/// nullptr if the loop computes with values of many numbers, calls kernels often, or has steps that
/// are neither moves, parts nor elementwise kernels; also if has_loop_code() is false or the system
/// refuses memory for code. Refers to constants of `program`, which must outlive the result.
std::unique_ptr<const LoopCode> make_loop_code(const LoopProgram& program, const Order& order);

}  // namespace tessera::kernels::loops
