// Trains a case as a pipeline and as one program on one device, and compares all that comes out.
#pragma once

#include <optional>
#include <string>

#include "tests/fuzz/pipeline/staged_case.h"

namespace tessera::fuzz {

struct Failure {
  std::string rule;    // what is not so: equal for failures of one kind
  std::string detail;  // which tensors have other bits, or what was thrown
};

/// Nothing where all is well. Both runs have processes of their own: the calling one must not have
/// computed anything.
std::optional<Failure> check(const StagedCase& c);

/// The tasks and transfers that a step is made into, as IR. Computes something.
std::string task_program(const StagedCase& c);

/// The smallest case that is found within this time and breaks the same rule.
StagedCase minimised(StagedCase failing, const std::string& rule, double seconds);

}  // namespace tessera::fuzz
