// A step without its loop over microbatches.
#pragma once

#include <map>

#include "pipeline/program/stages.h"

namespace tessera::pipeline {

/// The program around the loop. Results of the loop are values that no equation defines.
struct Opened {
  Function whole;
  std::vector<bool> is_before;             // per equation: the loop needs it
  std::vector<ValueId> operands;           // of the loop
  std::vector<ValueId> sums;               // per carry: its last value
  std::vector<std::vector<ValueId>> rows;  // per stacked result and microbatch
  std::map<ValueId, ValueId> hoisted;      // values of the body that are computed before the loop
};

Opened open_loop(const Function& step, std::size_t loop, const Stages& stages);

}  // namespace tessera::pipeline
