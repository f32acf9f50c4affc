// Programs for several groups of devices. Every group has a mesh like the function's, and all
// shardings refer to that mesh. A task runs on one group; a transfer takes a value from one group
// to another. A group runs its tasks in program order.
#pragma once

#include "ops/control/control.h"

namespace tessera::ops {

/// The attributes of a task besides its body.
struct TaskParts {
  std::string name;  // names this task, e.g. fwd_2
  std::int64_t group = 0;
  std::int64_t stage = -1;       // -1: belongs to no stage
  std::int64_t microbatch = -1;  // -1: belongs to no microbatch
  /// Per result: the operand whose memory the result takes over if nothing reads that operand
  /// afterwards, or -1. Both have the same type and sharding; no operand is listed twice.
  ir::Ints shares = {};
};
TaskParts task_parts(const Equation& equation);

/// Applies the body to the operands on one group of devices. Results have the shardings that the
/// body gives them.
std::vector<ValueId> task(Builder& b, const TaskParts& parts, FunctionPtr body,
                          std::vector<ValueId> operands);
/// Takes a value of group `from` to group `to`; the sharding stays the same.
ValueId transfer(Builder& b, ValueId x, std::int64_t from, std::int64_t to);

bool is_task(const Equation& equation);
bool is_transfer(const Equation& equation);

/// The group that computes each equation and value.
struct Groups {
  static constexpr int kNone = -1;
  int count = 0;                 // 0: the function has neither tasks nor transfers
  std::vector<int> of_equation;  // for a transfer: the receiving group
  /// kNone for inputs, and for constants and views of inputs that several groups read.
  std::vector<int> of_value;
};
/// Finds the groups of a function. Throws InternalError if an equation reads a value of another
/// group, or if a function with tasks has equations that are not tasks, transfers, views or
/// constants.
Groups groups_of(const Function& function);

}  // namespace tessera::ops
