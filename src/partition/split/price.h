// The price of a whole partitioned program, used to compare plans for it.
#pragma once

#include "ir/ir.h"

namespace tessera::partition {

/// Operations that a device of a CPU cluster does in the time that it takes to receive a byte.
inline constexpr double kFlopsPerByte = 16;

/// What a device receives (with latencies) and what it computes, both expressed in bytes received.
struct ProgramPrice {
  double moved = 0;
  double work = 0;
};

/// Bodies count as often as they run, and every branch counts.
ProgramPrice price_of_program(const ir::Function& partitioned);

/// Whether `a` is clearly cheaper, or about as cheap and moves less.
bool is_better(const ProgramPrice& a, const ProgramPrice& b);

}  // namespace tessera::partition
