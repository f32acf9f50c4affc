#include "pipeline/pipeline.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <set>

#include <tessera/error.h>

#include "ops/ops.h"
#include "pipeline/program/after_loop.h"
#include "pipeline/program/opened.h"
#include "pipeline/program/outer.h"
#include "pipeline/program/stages.h"
#include "pipeline/program/task_body.h"

namespace tessera::pipeline {

namespace {

/// A task of the schedule with its function.
struct Instance {
  FusedTask task;
  std::int64_t group;
  double start;
  double end;
  TaskBody body;
};

std::size_t find_loop(const Function& step, const PipelineOptions& options) {
  const auto is_loop = [](const Equation& equation) {
    return equation.op == &ops::scan_op && ops::scan_parts(equation).are_microbatches;
  };
  const auto found = std::find_if(step.equations.begin(), step.equations.end(), is_loop);
  if (found != step.equations.end()) {
    return static_cast<std::size_t>(found - step.equations.begin());
  }
  throw UserError(
      {.what = "mpmd_jit_with_loop: there is no loop to run as a pipeline",
       .where = options.where,
       .found = options.num_microbatches == 0
                    ? "no treduce"
                    : "a treduce inside another loop, or one whose results are not used",
       .wanted = "one treduce directly in the function",
       .cure = "put the work of a microbatch into treduce, and return its result"});
}

/// Whether the equation, or a function that is nested in it, is the mark of a backward pass.
bool has_backward_mark(const Equation& equation) {
  if (equation.op == &ops::stage_end_op) return equation.attributes.get<bool>("backward");
  const std::vector<const Function*> bodies = ir::bodies_of(equation);
  return std::any_of(bodies.begin(), bodies.end(), [](const Function* body) {
    return std::any_of(body->equations.begin(), body->equations.end(), has_backward_mark);
  });
}

/// Whether the step has the derivative of its loop: another loop, through the marks backwards.
bool differentiates(const Function& step, std::size_t loop) {
  for (std::size_t i = 0; i < step.equations.size(); ++i) {
    if (i != loop && has_backward_mark(step.equations[i])) return true;
  }
  return false;
}

std::vector<bool> split_stages(const PipelineOptions& options) {
  std::vector<bool> is_split(static_cast<std::size_t>(options.num_stages), false);
  for (const RankTasks& rank : options.tasks) {
    for (const FusedTask& fused : rank) {
      for (const Task& task : fused.parts) {
        if (task.kind == TaskKind::bwd_weight)
          is_split[static_cast<std::size_t>(task.stage)] = true;
      }
    }
  }
  return is_split;
}

class Pipeliner {
 public:
  Pipeliner(const Function& step, const PipelineOptions& options)
      : options_(options),
        loop_(find_loop(step, options)),
        stages_(cut(step)),
        opened_(open_loop(step, loop_, stages_)),
        outer_(opened_.whole) {
    outer_.set_span(options.where);
  }

  Pipeline run() {
    make_instances();
    check_order();
    find_readers();
    find_results();
    const std::int64_t groups = std::ssize(options_.tasks);
    const AfterLoop after(opened_, left_in_, options_.has_copies ? groups : 1);
    emit_before(after);
    for (const Instance& instance : instances_) emit(instance);
    leave_results();
    after.emit(outer_, options_.output_alias);
    return finish(after);
  }

 private:
  Stages cut(const Function& step) {
    Stages stages =
        cut_stages(step.equations[loop_], {.num_stages = options_.num_stages,
                                           .is_differentiated = differentiates(step, loop_),
                                           .where = options_.where});
    costs_ = estimated_costs(stages);
    split_backward(stages, split_stages(options_));
    find_users(stages);
    return stages;
  }

  /// Sorts the tasks by their start times in a simulation with default costs, an order that the
  /// schedule allows.
  void make_instances() {
    const PlacedTasks placed =
        place(options_.tasks, options_.num_stages, options_.num_microbatches, options_.where);
    const std::vector<std::vector<double>> starts = walk(placed, {}, options_.where);
    TaskBodies bodies(stages_);
    for (std::size_t rank = 0; rank < options_.tasks.size(); ++rank) {
      for (std::size_t i = 0; i < options_.tasks[rank].size(); ++i) {
        const FusedTask& task = options_.tasks[rank][i];
        TaskBody body = bodies.body_of(task);
        if (body.is_empty()) continue;
        double end = starts[rank][i];
        for (const Task& part : task.parts) end += time_of(part.kind, StageCosts{});
        instances_.push_back({.task = task,
                              .group = static_cast<std::int64_t>(rank),
                              .start = starts[rank][i],
                              .end = end,
                              .body = std::move(body)});
      }
    }
    std::stable_sort(instances_.begin(), instances_.end(),
                     [](const Instance& a, const Instance& b) { return a.start < b.start; });
  }

  ValueId whole_value(const Key& key) const {
    if (key.kind == Key::Kind::sum) return opened_.operands[stages_.parts.num_consts + key.value];
    const std::size_t input = stages_.input[key.value];
    return input == Stages::kNone ? opened_.hoisted.at(key.value) : opened_.operands[input];
  }

  bool is_slice(const Key& key) const {
    return key.kind == Key::Kind::microbatch && stages_.input[key.value] != Stages::kNone;
  }

  /// The value outside of the loop that the key is a result for; kNoValue if there is none.
  ValueId result_of(const Key& key) const {
    if (key.kind == Key::Kind::sum) return opened_.sums[key.value];
    if (!stages_.is_row(key.value)) return kNoValue;
    const std::size_t stack = stages_.output[key.value] - stages_.parts.num_carry;
    return opened_.rows[stack][static_cast<std::size_t>(key.microbatch)];
  }

  void find_results() {
    for (const Instance& instance : instances_) {
      for (const Key& key : instance.body.outputs) {
        const ValueId value = result_of(key);
        if (value == kNoValue) continue;
        const auto [place, is_new] = left_in_.emplace(value, instance.group);
        require(place->second == instance.group, "a sum is kept by one group");
      }
    }
  }

  void find_readers() {
    for (const Instance& instance : instances_) {
      for (const Key& key : instance.body.inputs) readers_[key].insert(instance.group);
    }
  }

  /// Sums must be added in the order of the microbatches, whatever the schedule.
  void check_order() const {
    std::set<Item> with_sums;
    for (ValueId id : stages_.body.outputs) {
      if (stages_.is_sum(id)) with_sums.insert(stages_.home_of(id)->item);
    }
    std::map<Item, Task> latest;
    for (const Instance& instance : instances_) {
      for (const Task& task : instance.task.parts) {
        for (const Item& item : items_of(task)) {
          if (with_sums.count(item) == 0) continue;
          const auto [place, is_new] = latest.emplace(item, task);
          if (task.microbatch < place->second.microbatch) {
            fail_order(task, place->second, instance);
          }
          place->second = task;
        }
      }
    }
  }

  [[noreturn]] void fail_order(const Task& task, const Task& before,
                               const Instance& instance) const {
    throw UserError({.what = "schedule: " + to_string(task) + " comes too late",
                     .where = options_.where,
                     .found = fmt::format("{} before {} on rank {}", to_string(before),
                                          to_string(task), instance.group),
                     .wanted = "the microbatches of a stage in increasing order, because sums are "
                               "added in that order",
                     .cure = fmt::format("swap the two on rank {}", instance.group)});
  }

  // --- before the loop

  void emit_before(const AfterLoop& after) {
    std::map<std::int64_t, std::set<ValueId>> needs;
    const auto need = [&](ValueId value, std::int64_t group) {
      if (!outer_.is_view_of_input(value)) needs[group].insert(value);
    };
    for (const Instance& instance : instances_) {
      for (const Key& key : instance.body.inputs) {
        const bool is_whole = key.kind != Key::Kind::microbatch || is_slice(key);
        if (is_whole) need(whole_value(key), instance.group);
      }
    }
    for (const auto& [value, group] : after.needs()) need(value, group);
    for (const auto& [group, values] : needs) emit_before(group, {values.begin(), values.end()});
  }

  void emit_before(std::int64_t group, const std::vector<ValueId>& values) {
    const Function& whole = opened_.whole;
    std::set<ValueId> wanted(values.begin(), values.end());
    std::vector<std::size_t> equations;
    for (std::size_t i = whole.equations.size(); i-- > 0;) {
      const Equation& equation = whole.equations[i];
      const bool is_wanted = std::any_of(equation.results.begin(), equation.results.end(),
                                         [&](ValueId id) { return wanted.count(id) != 0; });
      if (!is_wanted) continue;
      equations.push_back(i);
      wanted.insert(equation.operands.begin(), equation.operands.end());
    }
    std::reverse(equations.begin(), equations.end());
    std::vector<ValueId> inputs;
    Function body = function_of(whole, equations, inputs, values);
    std::vector<ValueId> operands;
    for (ValueId id : inputs) operands.push_back(outer_.get(id, group));
    const std::vector<ValueId> made =
        outer_.task({.name = fmt::format("before_loop_{}", group),
                     .group = group,
                     .shares = ir::Ints(values.size(), -1)},
                    std::make_shared<const Function>(std::move(body)), operands);
    for (std::size_t i = 0; i < values.size(); ++i) outer_.set(values[i], group, made[i]);
  }

  // --- the loop

  void emit(const Instance& instance) {
    send_until(instance.start);
    std::vector<ValueId> operands;
    std::map<Key, std::int64_t> sum_places;
    for (const Key& key : instance.body.inputs) {
      if (key.kind == Key::Kind::sum) {
        sum_places[key] = static_cast<std::int64_t>(operands.size());
      }
      operands.push_back(operand(key, instance.group));
    }
    ir::Ints shares;
    for (const Key& key : instance.body.outputs) {
      const auto place = sum_places.find(key);
      shares.push_back(place == sum_places.end() ? -1 : place->second);
    }
    const Task& first = instance.task.parts[0];
    const auto& parts = instance.task.parts;
    const auto all = [&](auto member) {
      return std::all_of(parts.begin(), parts.end(),
                         [&](const Task& task) { return task.*member == first.*member; });
    };
    const std::vector<ValueId> results =
        outer_.task({.name = program_name(instance.task),
                     .group = instance.group,
                     .stage = all(&Task::stage) ? first.stage : -1,
                     .microbatch = all(&Task::microbatch) ? first.microbatch : -1,
                     .shares = std::move(shares)},
                    instance.body.function, std::move(operands));
    for (std::size_t i = 0; i < results.size(); ++i) {
      made_[instance.body.outputs[i]][instance.group] = results[i];
      makers_[instance.body.outputs[i]] = instance.group;
    }
    plan_sends(instance);
  }

  ValueId operand(const Key& key, std::int64_t group) {
    if (is_slice(key)) return outer_.slice(whole_value(key), key.microbatch, group);
    const auto made = made_.find(key);
    if (made != made_.end()) {
      const auto here = made->second.find(group);
      return here != made->second.end() ? here->second : bring(key, group);
    }
    require(key.kind != Key::Kind::microbatch, "a task runs after those that it waits for");
    return outer_.get(whole_value(key), group);
  }

  /// A transfer to another group, which can start when the task of the value has ended.
  struct Send {
    Key key;
    std::int64_t to;
  };

  void plan_sends(const Instance& instance) {
    for (const Key& key : instance.body.outputs) {
      const auto readers = readers_.find(key);
      if (key.kind != Key::Kind::microbatch || readers == readers_.end()) continue;
      for (std::int64_t to : readers->second) {
        if (to != instance.group) sends_.emplace(instance.end, Send{key, to});
      }
    }
  }

  void send_until(double time) {
    while (!sends_.empty() && sends_.begin()->first <= time) {
      const auto [key, to] = sends_.begin()->second;
      if (made_.at(key).count(to) == 0) bring(key, to);
      sends_.erase(sends_.begin());
    }
  }

  ValueId bring(const Key& key, std::int64_t to) {
    const std::int64_t from = makers_.at(key);
    auto& places = made_.at(key);
    return places[to] = outer_.transfer(places.at(from), from, to);
  }

  // --- after the loop

  void leave_results() {
    for (const auto& [key, places] : made_) {
      const ValueId value = result_of(key);
      if (value == kNoValue) continue;
      const std::int64_t group = left_in_.at(value);
      outer_.set(value, group, places.at(group));
    }
  }

  /// The groups that hold an output: the one that computes it, and those that read the input that
  /// it replaces.
  std::vector<std::int64_t> holders_of(std::size_t output, std::int64_t group) const {
    std::vector<std::int64_t> holders(options_.tasks.size());
    std::iota(holders.begin(), holders.end(), std::int64_t{0});
    if (group < 0) return holders;
    holders = {group};
    const int replaced = options_.output_replaces[output];
    if (replaced < 0) return holders;
    const auto& readers = outer_.input_groups()[static_cast<std::size_t>(replaced)];
    holders.insert(holders.end(), readers.begin(), readers.end());
    std::sort(holders.begin(), holders.end());
    holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
    return holders;
  }

  Pipeline finish(const AfterLoop& after) {
    const Function& whole = opened_.whole;
    std::vector<std::vector<std::int64_t>> holders;
    for (std::size_t i = 0; i < whole.outputs.size(); ++i) {
      holders.push_back(holders_of(i, after.group_of(whole.outputs[i])));
    }
    std::vector<ValueId> outputs;
    std::vector<OutputCopy> copies;
    for (std::size_t i = 0; i < whole.outputs.size(); ++i) {
      const ValueId value = whole.outputs[i];
      const bool is_view = outer_.is_view_of_input(value);
      if (is_view) {
        for (std::int64_t holder : holders[i]) outer_.get(value, holder);
      }
      if (is_view || !options_.has_copies) {
        const std::int64_t group = after.group_of(value);
        outputs.push_back(outer_.get(value, std::max<std::int64_t>(group, 0)));
        copies.push_back({i, OutputCopy::kShared});
        continue;
      }
      for (std::int64_t holder : holders[i]) {
        outputs.push_back(outer_.get(value, holder));
        copies.push_back({i, holder});
      }
    }
    return {.function = outer_.finish(std::move(outputs)),
            .groups = {.inputs = outer_.input_groups(), .outputs = std::move(holders)},
            .copies = std::move(copies),
            .costs = std::move(costs_)};
  }

  const PipelineOptions& options_;
  std::size_t loop_;
  ScheduleCosts costs_;
  Stages stages_;
  Opened opened_;
  Outer outer_;
  std::vector<Instance> instances_;
  std::map<Key, std::map<std::int64_t, ValueId>> made_;  // values computed in the loop, by group
  std::map<Key, std::int64_t> makers_;                   // the group that computes each
  std::map<Key, std::set<std::int64_t>> readers_;        // the groups that read each
  std::map<ValueId, std::int64_t> left_in_;              // results of the loop: their group
  std::multimap<double, Send> sends_;                    // by the time at which they can be made
};

}  // namespace

Pipeline pipeline(const Function& step, const PipelineOptions& options) {
  return Pipeliner(step, options).run();
}

}  // namespace tessera::pipeline
