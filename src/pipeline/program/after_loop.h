// The equations after the loop, each in a group that has what it needs.
#pragma once

#include <map>
#include <set>

#include "pipeline/program/opened.h"
#include "pipeline/program/outer.h"

namespace tessera::pipeline {

/// An equation runs in the group of its largest operand that depends on the loop; its other
/// operands are transferred there. Values that do not depend on the loop are computed by each task
/// that reads them.
class AfterLoop {
 public:
  /// `groups`: per result of the loop, the group that has it.
  /// Outputs that do not depend on the loop are computed in each of the first `num_copies` groups.
  AfterLoop(const Opened& opened, const std::map<ValueId, std::int64_t>& groups,
            std::int64_t num_copies);

  /// Values computed before the loop that a group reads after it.
  const std::set<std::pair<ValueId, std::int64_t>>& needs() const { return needs_; }
  /// Emits the tasks. `output_alias` as in PipelineOptions.
  void emit(Outer& outer, const std::vector<int>& output_alias) const;
  /// -1 for a value that every group can compute by itself.
  std::int64_t group_of(ValueId value) const { return group_[value]; }

 private:
  static constexpr std::int64_t kEveryGroup = -1;
  /// Identifies a task: its depth and its group. The depth is the length of the longest sequence of
  /// transfers between groups that leads to it.
  using Place = std::pair<std::int64_t, std::int64_t>;

  void place(std::size_t equation);
  void find_needed();
  void collect();
  void add_with_operands(ValueId id, std::int64_t group, std::set<std::size_t>& equations);
  bool is_repeated(std::size_t equation) const;
  std::vector<ValueId> results_of(const Place& place, const std::set<std::size_t>& equations) const;
  void emit_task(Outer& outer, const Place& place, const std::set<std::size_t>& equations,
                 const std::vector<int>& output_alias) const;

  const Opened& opened_;
  std::int64_t num_copies_;
  std::vector<std::size_t> definition_;  // per value
  std::vector<std::int64_t> group_;      // per value
  std::vector<std::int64_t> depth_;      // per value
  std::vector<bool> is_needed_;          // per equation
  std::map<Place, std::set<std::size_t>> tasks_;
  std::set<std::pair<ValueId, std::int64_t>> needs_;
};

}  // namespace tessera::pipeline
