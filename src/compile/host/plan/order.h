// Chooses the order of work: what frees memory runs as soon as it can, while what it reads is still
// in the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::compile::host {

/// Steps in an order that is allowed, and what they read and write.
struct OrderProblem {
  struct Step {
    std::vector<std::size_t> reads = {};   // values
    std::vector<std::size_t> writes = {};  // values
    std::vector<std::size_t> after = {};   // earlier steps that it has to follow besides
    std::int64_t scratch = 0;              // bytes, while it runs
  };
  std::vector<Step> steps;
  std::vector<std::int64_t> bytes;  // per value; 0 where the caller holds the memory
};

/// All steps, each behind the steps before it that write what it reads or writes, or read what it
/// writes. A step moves up, with the few that it waits for, to where that leaves less memory in use
/// than before. At no place is more in use than in the order given, nor is the peak higher.
std::vector<std::size_t> order_of(const OrderProblem& problem);

}  // namespace tessera::compile::host
