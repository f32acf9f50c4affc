// The rules that every case must keep.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tests/fuzz/case.h"

namespace tessera::fuzz {

/// Counts of what the cases have covered.
struct Coverage {
  std::map<std::string, int> ops;          // equations of the partitioned programs
  std::map<std::string, int> collectives;  // the same, by kind
  std::map<std::string, int> constructs;   // nested functions, their derivatives and batches
  std::map<std::string, int> inside;       // collectives in nested functions, by the op around them
  int cases = 0;
  int batched = 0;
  int communicating = 0;  // cases in which data moved between devices
  int uneven = 0;         // cases with shards of different sizes
  int empty = 0;          // cases with a shard without elements
  int donating = 0;       // cases in which an output takes over the buffers of an input
  int against_reference = 0;
  int sharing = 0;     // results of tasks that may take over an operand's memory
  int recomputed = 0;  // cases in which something was recomputed
  int sunk = 0;        // cases in which work moved into a loop
  int whole_sums = 0;  // outputs on which fast and exact numerics must agree
};

struct Failure {
  std::string rule;
  std::string detail;
};

/// The first rule that the case breaks, or nullopt. Adds to `coverage` if given. `fault` breaks the
/// inputs or the program of the run on the mesh, to show that the check would find a broken engine.
std::optional<Failure> check(const Case& c, Coverage* coverage = nullptr,
                             const testing::Fault& fault = {});

using Check = std::function<std::optional<Failure>(const Case&)>;
/// Makes the case as small as possible by dropping outputs, equations (of nested functions too),
/// calls and shardings. The result is one for which `recheck` still reports `rule`.
Case minimised(Case failing, const std::string& rule, const Check& recheck, double seconds);

}  // namespace tessera::fuzz
