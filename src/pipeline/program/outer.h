// Builds the program of a pipeline: tasks, transfers and views over the mesh of one group of
// devices.
#pragma once

#include <map>
#include <string>

#include "ops/control/mpmd.h"
#include "pipeline/program/stages.h"

namespace tessera::pipeline {

class Outer {
 public:
  /// `whole` is the program that is cut into tasks; all values are named by their ids in it. It
  /// must outlive this object.
  explicit Outer(const Function& whole);

  /// The value in this group: an input or a view of one, computed there, or transferred there.
  ValueId get(ValueId value, std::int64_t group);
  void set(ValueId value, std::int64_t group, ValueId made) { made_[value][group] = made; }
  /// Whether the value is an input or a view of one, and needs no task.
  bool is_view_of_input(ValueId value) const;
  /// Element `index` along dimension 0 of `stack`, an array of `whole`.
  ValueId slice(ValueId stack, std::int64_t index, std::int64_t group);

  std::vector<ValueId> task(const ops::TaskParts& parts, ops::FunctionPtr body,
                            std::vector<ValueId> operands);
  ValueId transfer(ValueId id, std::int64_t from, std::int64_t to);

  /// Per input: the groups that read it, sorted.
  const std::vector<std::vector<std::int64_t>>& input_groups() const { return input_groups_; }
  void set_span(const Span& span) { builder_.set_span(span); }
  Function finish(std::vector<ValueId> outputs);

 private:
  void use_input(std::size_t input, std::int64_t group);
  ValueId copy_view(ValueId value, std::int64_t group);
  ValueId with_sharding(ValueId id, Sharding sharding);

  const Function& whole_;
  std::vector<std::size_t> definition_;  // per value of whole_
  Function function_;
  ir::Builder builder_;
  std::vector<std::vector<std::int64_t>> input_groups_;
  std::map<ValueId, std::map<std::int64_t, ValueId>> made_;  // by value and group
  std::map<ValueId, ValueId> views_;                         // of inputs
  std::map<std::pair<ValueId, std::int64_t>, ValueId> slices_;
};

/// A function of some equations of `whole`; the values of `whole` that are its inputs are appended
/// to `inputs`.
Function function_of(const Function& whole, const std::vector<std::size_t>& equations,
                     std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs);

}  // namespace tessera::pipeline
