// Chooses the order of instructions: those that free memory run as early as possible, while their
// operands are still in the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::compile::host {

/// Steps in a valid order, and what they read and write.
struct OrderProblem {
  struct Step {
    std::vector<std::size_t> reads = {};   // values
    std::vector<std::size_t> writes = {};  // values
    // Those of `reads` that the step partly changes in place, if nothing reads them later.
    std::vector<std::size_t> updates = {};
    std::vector<std::size_t> after = {};  // other earlier steps that this step must follow
    std::int64_t scratch = 0;             // bytes, while it runs
  };
  std::vector<Step> steps;
  std::vector<std::int64_t> bytes;  // per value; 0 if the caller holds the memory
};

/// All steps, in an order that keeps each step after the earlier ones that write what it reads or
/// writes, or read what it writes. A step moves up, with the few steps that it waits for, to a
/// place where this leaves less memory in use. At no place is more memory in use than in the given
/// order, so the peak is not higher.
std::vector<std::size_t> order_of(const OrderProblem& problem);

/// All steps, in the given order with one exception: steps that read a value after a step that
/// updates it, and do not need the result of the update, move before the update, with the few steps
/// that they wait for.
std::vector<std::size_t> reads_before_updates(const OrderProblem& problem);

}  // namespace tessera::compile::host
