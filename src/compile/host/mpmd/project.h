// The part of a program of several groups that one group runs.
#pragma once

#include <vector>

#include "ir/ir.h"
#include "ops/control/mpmd.h"

namespace tessera::compile::host {

struct Projection {
  ir::Function function;    // the group's equations; inputs, outputs and values of all groups
  std::vector<int> phases;  // of its equations
  ops::Groups groups;
  std::vector<bool> is_here;  // per value: the group holds it
};

/// All transfers to or from the group stay; their other end is in another process. `phases`: per
/// equation of `function`.
Projection project(const ir::Function& function, const std::vector<int>& phases,
                   const ops::Groups& groups, int group);

}  // namespace tessera::compile::host
