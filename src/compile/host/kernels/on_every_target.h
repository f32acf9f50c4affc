// For tests: runs code once per instruction set of this machine.
#pragma once

#include <gtest/gtest.h>

#include "compile/host/kernels/targets.h"
// targets.h must come before any Highway header.
#include <hwy/highway.h>

namespace tessera::kernels::testing {

/// Calls body(name of the instruction set) once per instruction set.
template <class Body>
void on_every_target(const Body& body) {
  for (std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace tessera::kernels::testing
