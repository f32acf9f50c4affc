// Programs of several groups of devices. Each group has devices like those of the function's mesh,
// and all shardings are over that mesh. A task runs on one group; transfers take values from group
// to group. A group runs its tasks in the order of the program.
#pragma once

#include "ops/control/control.h"

namespace tessera::ops {

/// What is known of a task besides its body.
struct TaskParts {
  std::string name;  // of this task: fwd_2
  std::int64_t group = 0;
  std::int64_t stage = -1;       // -1: of no stage
  std::int64_t microbatch = -1;  // -1: of no microbatch
  /// Per result: the operand whose memory it takes over where nobody reads that operand afterwards,
  /// or -1. Both have one type and one sharding; no operand is named twice.
  ir::Ints shares = {};
};
TaskParts task_parts(const Equation& equation);

/// The body applied to the operands by one group of devices. Results are laid out as the body
/// leaves them.
std::vector<ValueId> task(Builder& b, const TaskParts& parts, FunctionPtr body,
                          std::vector<ValueId> operands);
/// A value of group `from` as a value of group `to`, laid out alike.
ValueId transfer(Builder& b, ValueId x, std::int64_t from, std::int64_t to);

bool is_task(const Equation& equation);
bool is_transfer(const Equation& equation);

/// Which group computes what.
struct Groups {
  static constexpr int kNone = -1;
  int count = 0;                 // 0: the function has neither tasks nor transfers
  std::vector<int> of_equation;  // of a transfer: the group that receives
  /// kNone for inputs, and for constants and views of inputs that several groups read.
  std::vector<int> of_value;
};
/// The groups of a function; throws InternalError where an equation reads a value of another
/// group, or where tasks stand among equations that are neither transfers, views nor constants.
Groups groups_of(const Function& function);

}  // namespace tessera::ops
