#include "compile/sink.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ops/control/control.h"
#include "ops/ops.h"
#include "ops/record.h"

namespace tessera::compile {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using ops::Pattern;

constexpr std::size_t kNone = ~std::size_t{0};
/// The most elements of a value that may be computed before a loop instead of after it.
constexpr std::int64_t kMostElements = 4096;

bool is_tile(const Equation& equation) {
  return *equation.op->pattern == Pattern::elementwise && equation.results.size() == 1;
}
bool is_constant(const Equation& equation) { return equation.op == &ops::constant_op; }
/// Whether all slices along dimension 0 are equal.
bool repeats_slices(const Equation& equation) {
  if (equation.op != &ops::broadcast_in_dim_op) return false;
  const ir::Ints& dims = equation.attributes.ints("dims");
  return std::count(dims.begin(), dims.end(), 0) == 0;
}

ir::Value slice_of(const ir::Value& stack) {
  ir::Value slice = stack;
  slice.type.shape.erase(slice.type.shape.begin());
  slice.sharding->dims.erase(slice.sharding->dims.begin());
  return slice;
}

/// What can be moved into one loop.
class Sinking {
 public:
  Sinking(const Function& function, std::size_t loop)
      : f_(function),
        loop_(loop),
        scan_(function.equations[loop]),
        parts_(ops::scan_parts(scan_)),
        definition_(f_.values.size(), kNone),
        readers_(f_.values.size()),
        is_output_(f_.values.size(), false),
        is_late_(f_.values.size(), false),
        is_moved_(f_.equations.size(), false),
        is_early_(f_.equations.size(), false) {
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      for (const ValueId id : f_.equations[i].operands) readers_[id].push_back(i);
      for (const ValueId id : f_.equations[i].results) definition_[id] = i;
    }
    for (const ValueId id : f_.outputs) is_output_[id] = true;
  }

  /// Whether there is something to move.
  bool find();
  Function rewritten();

 private:
  bool is_stack(ValueId id) const {
    const Shape& shape = f_.type(id).shape;
    const Sharding& sharding = f_.sharding(id);
    return !shape.empty() && shape[0] == parts_.length && sharding.dims[0].empty() &&
           sharding.partial.empty() && sharding.windows.empty();
  }
  bool is_stacked_result(ValueId id) const {
    const auto first = scan_.results.begin() + static_cast<std::ptrdiff_t>(parts_.num_carry);
    return std::find(first, scan_.results.end(), id) != scan_.results.end();
  }
  bool is_before(ValueId id) const { return definition_[id] == kNone || definition_[id] < loop_; }
  bool is_read_by_moved(ValueId id) const {
    return std::any_of(readers_[id].begin(), readers_[id].end(),
                       [&](std::size_t reader) { return is_moved_[reader]; });
  }
  bool is_read_by_moved_only(ValueId id) const {
    return std::all_of(readers_[id].begin(), readers_[id].end(),
                       [&](std::size_t reader) { return is_moved_[reader]; });
  }
  const Equation* definition(ValueId id) const {
    return definition_[id] == kNone ? nullptr : &f_.equations[definition_[id]];
  }

  void mark_late();
  void choose_candidates();
  bool can_read(ValueId id) const;
  bool reads_what_it_can(std::size_t index) const;
  bool can_be_early(ValueId id) const;
  bool stays_needed(std::size_t index) const;
  bool spares_a_result() const;
  bool keeps_inputs_free() const;
  void make_early(ValueId id);

  ValueId inside(ValueId id);
  ValueId add_clone(const Equation& equation, std::vector<ValueId> operands);
  ValueId add_constant(ValueId id);
  ValueId add_slice(ValueId id);
  Equation new_scan();

  const Function& f_;
  std::size_t loop_;
  const Equation& scan_;
  ops::ScanParts parts_;
  std::vector<std::size_t> definition_;            // per value: its equation
  std::vector<std::vector<std::size_t>> readers_;  // per value: equations
  std::vector<bool> is_output_;                    // per value
  std::vector<bool> is_late_;                      // per value: depends on the loop
  std::vector<bool> is_moved_;                     // per equation: into the body
  std::vector<bool> is_early_;                     // per equation: to before the loop

  Function body_;
  std::map<ValueId, ValueId> inside_;  // what replaces a value in the body
  std::vector<ValueId> new_consts_;    // operands of the loop, and inputs of the body
  std::vector<ValueId> new_const_inputs_;
  std::vector<ValueId> new_slices_;
};

void Sinking::mark_late() {
  for (const ValueId id : scan_.results) is_late_[id] = true;
  for (std::size_t i = loop_ + 1; i < f_.equations.size(); ++i) {
    const Equation& equation = f_.equations[i];
    // Equations after a barrier are not moved before the loop.
    const bool is_late = equation.op == &ops::optimization_barrier_op ||
                         std::any_of(equation.operands.begin(), equation.operands.end(),
                                     [&](ValueId id) { return is_late_[id]; });
    if (!is_late) continue;
    for (const ValueId id : equation.results) is_late_[id] = true;
  }
}

/// Whether the value, and everything that it is computed from, may be computed before the loop.
bool Sinking::can_be_early(ValueId id) const {
  std::vector<ValueId> waiting = {id};
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (is_before(waiting[i])) continue;
    const Equation& equation = *definition(waiting[i]);
    const Pattern pattern = *equation.op->pattern;
    const bool is_cheap =
        pattern == Pattern::elementwise || pattern == Pattern::view || is_constant(equation);
    if (is_late_[waiting[i]] || !is_cheap || waiting.size() > 32 ||
        num_elements(f_.type(waiting[i]).shape) > kMostElements)
      return false;
    for (const ValueId operand : equation.operands) {
      if (std::find(waiting.begin(), waiting.end(), operand) == waiting.end())
        waiting.push_back(operand);
    }
  }
  return true;
}

/// Whether an equation in the body can read slices of the value.
bool Sinking::can_read(ValueId id) const {
  if (!is_stack(id)) return false;
  if (is_stacked_result(id)) return true;
  const Equation* equation = definition(id);
  if (equation != nullptr && is_constant(*equation)) return true;
  if (equation != nullptr && repeats_slices(*equation)) return can_be_early(equation->operands[0]);
  return is_before(id) || is_moved_[definition_[id]];
}

bool Sinking::reads_what_it_can(std::size_t index) const {
  const auto& operands = f_.equations[index].operands;
  return std::all_of(operands.begin(), operands.end(), [&](ValueId id) { return can_read(id); });
}

/// Whether an equation that is not moved reads the result, which is not an output.
bool Sinking::stays_needed(std::size_t index) const {
  const ValueId result = f_.equations[index].results[0];
  if (!is_late_[result] && !is_read_by_moved(result)) return true;
  return !is_read_by_moved_only(result) && !is_output_[result];
}

/// Finds the largest set of equations that only read values known in the body, and that are only
/// read there.
void Sinking::choose_candidates() {
  for (std::size_t i = loop_ + 1; i < f_.equations.size(); ++i) {
    const Equation& equation = f_.equations[i];
    is_moved_[i] = is_tile(equation) && is_stack(equation.results[0]) && reads_what_it_can(i);
  }
  for (bool is_stable = false; !is_stable;) {
    is_stable = true;
    for (std::size_t i = f_.equations.size(); i-- > loop_ + 1;) {
      if (is_moved_[i] && stays_needed(i)) is_moved_[i] = is_stable = false;
    }
    for (std::size_t i = loop_ + 1; i < f_.equations.size(); ++i) {
      if (is_moved_[i] && !reads_what_it_can(i)) is_moved_[i] = is_stable = false;
    }
  }
}

bool Sinking::spares_a_result() const {
  return std::any_of(scan_.results.begin(), scan_.results.end(), [&](ValueId id) {
    return is_stacked_result(id) && !is_output_[id] && !readers_[id].empty() &&
           is_read_by_moved_only(id);
  });
}

/// Whether every input that moved equations read can still give its memory to a result: nothing
/// else reads it after the loop.
bool Sinking::keeps_inputs_free() const {
  for (const ValueId input : f_.inputs) {
    if (!is_read_by_moved(input)) continue;
    const auto& readers = readers_[input];
    const bool is_read_later = std::any_of(readers.begin(), readers.end(), [&](std::size_t reader) {
      return reader > loop_ && !is_moved_[reader];
    });
    if (is_read_later) return false;
  }
  return true;
}

bool Sinking::find() {
  mark_late();
  choose_candidates();
  return spares_a_result() && keeps_inputs_free();
}

void Sinking::make_early(ValueId id) {
  if (is_before(id) || is_early_[definition_[id]]) return;
  is_early_[definition_[id]] = true;
  for (const ValueId operand : definition(id)->operands) make_early(operand);
}

ValueId Sinking::add_clone(const Equation& equation, std::vector<ValueId> operands) {
  Equation clone = equation;
  clone.operands = std::move(operands);
  clone.results = {body_.add_value(slice_of(f_.values[equation.results[0]]))};
  const Shape& shape = body_.type(clone.results[0]).shape;
  if (clone.attributes.has("shape")) clone.attributes.set("shape", shape);
  if (repeats_slices(equation)) {
    ir::Ints dims = equation.attributes.ints("dims");
    for (std::int64_t& dim : dims) --dim;
    clone.attributes.set("dims", std::move(dims));
  }
  body_.equations.push_back(std::move(clone));
  return body_.equations.back().results[0];
}

/// An input of the body for a value that all iterations read.
ValueId Sinking::add_constant(ValueId id) {
  make_early(id);
  const auto known = std::find(new_consts_.begin(), new_consts_.end(), id);
  if (known != new_consts_.end())
    return new_const_inputs_[static_cast<std::size_t>(known - new_consts_.begin())];
  ir::Value value = f_.values[id];
  new_consts_.push_back(id);
  new_const_inputs_.push_back(body_.add_value(std::move(value)));
  return new_const_inputs_.back();
}

/// An input of the body for slices of an array.
ValueId Sinking::add_slice(ValueId id) {
  const auto first = scan_.operands.begin() + static_cast<std::ptrdiff_t>(parts_.first_scanned());
  const auto known = std::find(first, scan_.operands.end(), id);
  if (known != scan_.operands.end())
    return scan_.attributes.body("body")
        .inputs[static_cast<std::size_t>(known - scan_.operands.begin())];
  new_slices_.push_back(id);
  body_.inputs.push_back(body_.add_value(slice_of(f_.values[id])));
  return body_.inputs.back();
}

/// What replaces a value in the body, where each iteration sees a slice.
ValueId Sinking::inside(ValueId id) {
  if (const auto known = inside_.find(id); known != inside_.end()) return known->second;
  const Equation* equation = definition(id);
  ValueId result = ir::kNoValue;
  if (equation != nullptr && is_constant(*equation))
    result = add_clone(*equation, {});
  else if (equation != nullptr && repeats_slices(*equation))
    result = add_clone(*equation, {add_constant(equation->operands[0])});
  else
    result = add_slice(id);
  inside_.emplace(id, result);
  return result;
}

/// The loop with the moved equations. Its own results come first.
Equation Sinking::new_scan() {
  Equation scan = scan_;
  body_ = scan_.attributes.body("body");
  for (std::size_t i = parts_.num_carry; i < scan_.results.size(); ++i) {
    inside_.emplace(scan_.results[i], body_.outputs[i]);
  }
  for (std::size_t i = loop_ + 1; i < f_.equations.size(); ++i) {
    if (!is_moved_[i]) continue;
    const Equation& equation = f_.equations[i];
    std::vector<ValueId> operands;
    for (const ValueId id : equation.operands) operands.push_back(inside(id));
    const ValueId result = equation.results[0];
    inside_.emplace(result, add_clone(equation, std::move(operands)));
    if (!is_output_[result]) continue;
    scan.results.push_back(result);
    body_.outputs.push_back(inside_.at(result));
  }
  const auto behind_consts = static_cast<std::ptrdiff_t>(parts_.num_consts);
  scan.operands.insert(scan.operands.begin() + behind_consts, new_consts_.begin(),
                       new_consts_.end());
  body_.inputs.insert(body_.inputs.begin() + behind_consts, new_const_inputs_.begin(),
                      new_const_inputs_.end());
  scan.operands.insert(scan.operands.end(), new_slices_.begin(), new_slices_.end());
  scan.attributes.set("num_consts",
                      static_cast<std::int64_t>(parts_.num_consts + new_consts_.size()));
  scan.attributes.set(
      "body", ir::Bodies{.functions = {std::make_shared<const Function>(std::move(body_))}});
  return scan;
}

Function Sinking::rewritten() {
  Equation scan = new_scan();
  Function result = f_;
  result.equations.assign(f_.equations.begin(),
                          f_.equations.begin() + static_cast<std::ptrdiff_t>(loop_));
  for (std::size_t i = loop_ + 1; i < f_.equations.size(); ++i) {
    if (is_early_[i]) result.equations.push_back(f_.equations[i]);
  }
  result.equations.push_back(std::move(scan));
  for (std::size_t i = loop_ + 1; i < f_.equations.size(); ++i) {
    if (!is_early_[i] && !is_moved_[i]) result.equations.push_back(f_.equations[i]);
  }
  return result;
}

}  // namespace

Function sink_into_loops(Function function) {
  bool is_changed = false;
  for (std::size_t i = function.equations.size(); i-- > 0;) {
    if (function.equations[i].op != &ops::scan_op) continue;
    Sinking sinking(function, i);
    if (!sinking.find()) continue;
    function = sinking.rewritten();
    is_changed = true;
  }
  return is_changed ? ir::without_dead_code(std::move(function)) : std::move(function);
}

}  // namespace tessera::compile
