// Trains a case as a pipeline and as one program on one device, and compares all outputs.
#pragma once

#include <optional>
#include <string>

#include "tests/fuzz/pipeline/staged_case.h"

namespace tessera::fuzz {

struct Failure {
  std::string rule;    // the broken rule; equal for failures of one kind
  std::string detail;  // which tensors have other bits, or the text of the exception
};

/// nullopt if all is well. Both runs use child processes. So the calling process must not have
/// computed anything before: it could not fork while the engine's threads exist.
std::optional<Failure> check(const StagedCase& c);

/// The tasks and transfers that the step is compiled to, as IR. Computes something, so check() must
/// not be called afterwards in this process.
std::string task_program(const StagedCase& c);

/// The smallest case, found within `seconds`, that breaks the same rule.
StagedCase minimised(StagedCase failing, const std::string& rule, double seconds);

}  // namespace tessera::fuzz
