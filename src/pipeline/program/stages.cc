// Cuts the body of a loop over microbatches at its marks. Clusters are numbered in the order in
// which they run: the forward passes of stages 0, 1, ..., then the backward passes from the last
// stage to the first.
#include "pipeline/program/stages.h"

#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

#include "ir/builder.h"
#include "ops/ops.h"
#include "pipeline/cut/costs.h"

namespace tessera::pipeline {

namespace {

constexpr int kNoCluster = -1;

bool is_backward(const Equation& mark) { return mark.attributes.get<bool>("backward"); }

/// Changes the body so that all outputs are different values, and none is an input or the result of
/// a mark.
Function with_own_outputs(Function body) {
  ir::Builder b(body);
  std::vector<bool> is_taken(body.values.size(), false);
  for (ValueId id : body.inputs) is_taken[id] = true;
  for (const Equation& equation : body.equations) {
    if (equation.op == &ops::stage_end_op) is_taken[equation.results[0]] = true;
  }
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    const ValueId id = body.outputs[i];
    if (!is_taken[id]) {
      is_taken[id] = true;
      continue;
    }
    const ValueId copy = b.emit(ops::reshape_op, {{"shape", body.type(id).shape}}, {id});
    body.values[copy].sharding = body.values[id].sharding;
    body.outputs[i] = copy;
  }
  return body;
}

class Cutter {
 public:
  Cutter(const Equation& scan, const StagesOptions& options) : options_(options) {
    stages_.body = with_own_outputs(scan.attributes.body("body"));
    stages_.parts = ops::scan_parts(scan);
    stages_.num_stages = options.num_stages;
    const Function& body = stages_.body;
    stages_.homes.resize(body.equations.size());
    stages_.definition.assign(body.values.size(), Stages::kNone);
    stages_.input = numbers(body.inputs);
    stages_.output = numbers(body.outputs);
    cluster_.assign(body.equations.size(), kNoCluster);
    for (std::size_t i = 0; i < body.equations.size(); ++i) {
      for (ValueId id : body.equations[i].results) stages_.definition[id] = i;
    }
  }

  Stages cut() {
    find_shared();
    check_marks();
    const int last = static_cast<int>(stages_.num_stages) - 1;
    for (int stage = 0; stage <= last; ++stage) take_up_to_mark(stage, false, stage);
    // Everything that the last stage computes up to its backward mark, such as the loss, belongs to
    // its forward pass.
    for (int stage = last; stage >= 0; --stage) {
      take_up_to_mark(stage, true, stage == last ? last : backward_cluster(stage + 1));
    }
    take_rest();
    for (std::size_t i = 0; i < cluster_.size(); ++i) {
      if (stages_.homes[i].kind == Home::Kind::item) stages_.homes[i].item = item_of(cluster_[i]);
    }
    return std::move(stages_);
  }

 private:
  std::vector<std::size_t> numbers(const std::vector<ValueId>& ids) const {
    std::vector<std::size_t> result(stages_.body.values.size(), Stages::kNone);
    for (std::size_t i = 0; i < ids.size(); ++i) result[ids[i]] = i;
    return result;
  }

  int num_clusters() const { return 2 * static_cast<int>(stages_.num_stages); }
  int backward_cluster(int stage) const { return num_clusters() - 1 - stage; }
  Item item_of(int cluster) const {
    const bool is_forward = cluster < stages_.num_stages;
    return {.work = is_forward ? Work::fwd : Work::input,
            .stage = is_forward ? cluster : num_clusters() - 1 - cluster};
  }
  const Equation& equation(std::size_t i) const { return stages_.body.equations[i]; }

  /// Finds marks, constants and views, and values that are equal for all microbatches.
  void find_shared() {
    const Function& body = stages_.body;
    std::vector<bool> varies(body.values.size(), false);
    for (std::size_t i = stages_.parts.num_consts; i < body.inputs.size(); ++i) {
      varies[body.inputs[i]] = true;
    }
    for (std::size_t i = 0; i < body.equations.size(); ++i) {
      const Equation& e = equation(i);
      const bool depends =
          std::any_of(e.operands.begin(), e.operands.end(), [&](ValueId id) { return varies[id]; });
      const bool is_needed_outside =
          std::any_of(e.results.begin(), e.results.end(),
                      [&](ValueId id) { return stages_.output[id] != Stages::kNone; });
      for (ValueId id : e.results) varies[id] = depends;
      Home& home = stages_.homes[i];
      if (e.op == &ops::stage_end_op) {
        home.kind = Home::Kind::boundary;
      } else if (is_needed_outside) {
        home.kind = Home::Kind::item;
      } else if (!e.operands.empty() && (!is_view(e) || shrinks(body, e))) {
        home.kind = depends ? Home::Kind::item : Home::Kind::hoisted;
      }
    }
  }

  /// A step has one forward pass through all stages, and then one backward pass.
  void check_order() const {
    const Function& body = stages_.body;
    std::vector<bool> is_after_backward(body.values.size(), false);
    for (const Equation& e : body.equations) {
      bool is_after = std::any_of(e.operands.begin(), e.operands.end(),
                                  [&](ValueId id) { return is_after_backward[id]; });
      if (e.op == &ops::stage_end_op && !is_backward(e) && is_after) {
        throw UserError({.what = "mark_stage_end: a forward pass depends on a backward pass",
                         .where = e.span,
                         .found = "a stage whose result is computed from a gradient, as in the "
                                  "derivative of a derivative",
                         .wanted = "stages that are differentiated once in the function given to "
                                   "treduce",
                         .cure = "compile the function with jit instead of mpmd_jit_with_loop, or "
                                 "differentiate only once"});
      }
      is_after = is_after || (e.op == &ops::stage_end_op && is_backward(e));
      for (ValueId id : e.results) is_after_backward[id] = is_after;
    }
  }

  void check_marks() {
    if (options_.is_differentiated) {
      throw UserError(
          {.what = "treduce: the derivative is taken outside of the loop over microbatches",
           .where = options_.where,
           .found = "grad or value_and_grad of a function that calls treduce",
           .wanted = "the derivative of one microbatch, so that the pipeline has its backward pass",
           .cure = "call value_and_grad inside the function given to treduce, and return its "
                   "results"});
    }
    check_order();
    std::vector<bool> is_there(static_cast<std::size_t>(stages_.num_stages), false);
    for (std::size_t i = 0; i < stages_.homes.size(); ++i) {
      if (stages_.homes[i].kind != Home::Kind::boundary) continue;
      const std::int64_t stage = equation(i).attributes.integer("stage");
      require(stage < stages_.num_stages, "marks are those of the schedule's stages");
      if (!is_backward(equation(i))) is_there[static_cast<std::size_t>(stage)] = true;
    }
    const auto missing = std::find(is_there.begin(), is_there.end(), false);
    if (missing == is_there.end()) return;
    throw UserError({.what = "treduce: the results do not depend on every stage",
                     .where = options_.where,
                     .found = fmt::format("the result of mark_stage_end for stage {} is not used",
                                          missing - is_there.begin()),
                     .wanted = "results that are computed through all stages",
                     .cure = "use what mark_stage_end returns, and return a loss that depends "
                             "on it"});
  }

  /// Puts into `cluster` everything that the marks at the end of a stage need and that is in no
  /// cluster yet.
  void take_up_to_mark(int stage, bool backward, int cluster) {
    for (std::size_t i = 0; i < stages_.homes.size(); ++i) {
      if (stages_.homes[i].kind != Home::Kind::boundary) continue;
      const Equation& mark = equation(i);
      if (is_backward(mark) != backward || mark.attributes.integer("stage") != stage) continue;
      take(mark.operands[0], cluster);
    }
  }

  void take(ValueId first, int cluster) {
    std::vector<ValueId> open = {first};
    while (!open.empty()) {
      const std::size_t i = stages_.definition[open.back()];
      open.pop_back();
      if (i == Stages::kNone) continue;
      const Home::Kind kind = stages_.homes[i].kind;
      if (kind == Home::Kind::hoisted || kind == Home::Kind::boundary) continue;
      if (kind == Home::Kind::item) {
        if (cluster_[i] != kNoCluster) continue;
        cluster_[i] = cluster;
      }
      const Equation& e = equation(i);
      open.insert(open.end(), e.operands.begin(), e.operands.end());
    }
  }

  /// The first cluster that may read the value.
  int cluster_of(ValueId id) const {
    const std::size_t i = stages_.definition[id];
    if (i == Stages::kNone) return kNoCluster;
    const Equation& e = equation(i);
    switch (stages_.homes[i].kind) {
      case Home::Kind::item:
        return cluster_[i];
      case Home::Kind::hoisted:
        return kNoCluster;
      case Home::Kind::users:
        return latest(e.operands);
      case Home::Kind::boundary:
        break;
    }
    const int stage = static_cast<int>(e.attributes.integer("stage"));
    if (is_backward(e)) return backward_cluster(stage);
    return std::min(stage + 1, static_cast<int>(stages_.num_stages) - 1);
  }

  int latest(const std::vector<ValueId>& ids) const {
    int result = kNoCluster;
    for (ValueId id : ids) result = std::max(result, cluster_of(id));
    return result;
  }

  /// Equations that no mark needs run in the last cluster that they read. If they read nothing of
  /// the microbatch, they run where their results are first read.
  void take_rest() {
    for (std::size_t i = 0; i < cluster_.size(); ++i) {
      if (!is_open(i)) continue;
      cluster_[i] = latest(equation(i).operands);
    }
    move_to_sums();
    std::vector<int> earliest(stages_.body.values.size(), num_clusters() - 1);
    for (std::size_t i = cluster_.size(); i-- > 0;) {
      int first = num_clusters() - 1;
      for (ValueId id : equation(i).results) first = std::min(first, earliest[id]);
      if (is_open(i)) cluster_[i] = first;
      const int reader = stages_.homes[i].kind == Home::Kind::item ? cluster_[i] : first;
      for (ValueId id : equation(i).operands) earliest[id] = std::min(earliest[id], reader);
    }
  }

  /// Equations that depend on the old value of a sum run in the cluster that computes the new one.
  /// In an earlier cluster, they might read the sum before the previous microbatch has been added.
  void move_to_sums() {
    const Function& body = stages_.body;
    std::vector<std::size_t> sum(body.values.size(), Stages::kNone);  // that a value depends on
    for (std::size_t k = 0; k < stages_.parts.num_carry; ++k) {
      sum[body.inputs[stages_.parts.num_consts + k]] = k;
    }
    for (std::size_t i = 0; i < cluster_.size(); ++i) {
      for (ValueId id : equation(i).operands) {
        if (sum[id] == Stages::kNone) continue;
        for (ValueId result : equation(i).results) sum[result] = sum[id];
        if (stages_.homes[i].kind != Home::Kind::item) continue;
        cluster_[i] = cluster_[stages_.definition[body.outputs[sum[id]]]];
      }
    }
  }

  bool is_open(std::size_t i) const {
    return stages_.homes[i].kind == Home::Kind::item && cluster_[i] == kNoCluster;
  }

  StagesOptions options_;
  Stages stages_;
  std::vector<int> cluster_;  // per equation
};

}  // namespace

std::vector<Item> items_of(const Task& task) {
  std::vector<Item> items = {{work_of(task.kind), task.stage}};
  if (task.kind == TaskKind::bwd) items.push_back({Work::weight, task.stage});
  return items;
}

ValueId Stages::behind_marks(ValueId id) const {
  while (const Home* home = home_of(id)) {
    if (home->kind != Home::Kind::boundary) break;
    id = body.equations[definition[id]].operands[0];
  }
  return id;
}

const Home* Stages::home_of(ValueId id) const {
  return definition[id] == kNone ? nullptr : &homes[definition[id]];
}

Stages cut_stages(const Equation& scan, const StagesOptions& options) {
  return Cutter(scan, options).cut();
}

}  // namespace tessera::pipeline
