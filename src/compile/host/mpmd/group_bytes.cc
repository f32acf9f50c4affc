#include "compile/host/mpmd/group_bytes.h"

#include <algorithm>

#include "ops/control/mpmd.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Accounts {
 public:
  Accounts(const HostProgram& program, const std::vector<run::Port>& outputs,
           std::vector<run::HeldBytes>& held)
      : program_(program),
        f_(*program.function),
        outputs_(outputs),
        held_(held),
        groups_(at(program.groups.count)),
        instruction_of_(f_.values.size(), nullptr),
        base_(f_.values.size()),
        last_(groups_, std::vector<std::size_t>(f_.values.size(), kNever)),
        change_(groups_, std::vector<std::int64_t>(f_.equations.size() + 2, 0)),
        bytes_(groups_) {
    for (const HostInstruction& instruction : program.instructions) {
      for (const TileTask& task : instruction.tasks) {
        for (const TileRef& write : task.writes) instruction_of_[write.value] = &instruction;
      }
    }
  }

  std::vector<GroupBytes> find() {
    find_uses();
    count_ports();
    for (std::size_t i = 0; i < f_.equations.size(); ++i) count_equation(i);
    for (std::size_t group = 0; group < groups_; ++group) {
      if (program_.own_group && at(*program_.own_group) != group) {
        bytes_[group] = {};
        continue;
      }
      std::int64_t held = 0;
      for (const std::int64_t change : change_[group]) {
        held += change;
        bytes_[group].arena = std::max(bytes_[group].arena, held);
      }
    }
    return std::move(bytes_);
  }

 private:
  static constexpr std::size_t kNever = ~std::size_t{0};

  /// The value that owns the bytes of the result in its group. Transfers make new bytes.
  ValueId base_of(const Equation& equation) const {
    const ValueId result = equation.results[0];
    const bool is_view = ops::is_view(equation) || ops::is(equation, ops::pad_op);
    const bool is_new =
        !is_view || ops::is_transfer(equation) || instruction_of_[result] != nullptr;
    return is_new ? result : base_[equation.operands[0]];
  }

  void find_uses() {
    for (ValueId id : f_.inputs) base_[id] = id;
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      const Equation& equation = f_.equations[i];
      for (ValueId id : equation.results) base_[id] = id;
      base_[equation.results[0]] = base_of(equation);
      const int group = ops::is_transfer(equation)
                            ? static_cast<int>(equation.attributes.integer("from"))
                            : program_.groups.of_equation[i];
      if (group == ops::Groups::kNone) continue;
      for (ValueId id : equation.operands) last_[at(group)][base_[id]] = i;
    }
  }

  /// The bytes of one device.
  std::int64_t bytes_of(ValueId id) const {
    std::int64_t most = 0;
    for (const std::int64_t tile : program_.tiles(id)) {
      most = std::max(most, tile_bytes(f_, program_.layouts[id], id, tile));
    }
    return most;
  }

  void count_ports() {
    is_output_.assign(f_.values.size(), false);
    for (ValueId id : f_.inputs) {
      for (std::size_t group = 0; group < groups_; ++group) {
        if (last_[group][id] != kNever) hold_port(group, id);
      }
    }
    for (std::size_t i = 0; i < f_.outputs.size(); ++i) {
      const ValueId id = f_.outputs[i];
      is_output_[id] = true;
      const int group = program_.groups.of_value[id];
      if (outputs_[i].alias >= 0 || group == ops::Groups::kNone) continue;
      hold_port(at(group), id);
    }
  }

  void count_equation(std::size_t index) {
    const Equation& equation = f_.equations[index];
    const HostInstruction* instruction = instruction_of_[equation.results[0]];
    const int home = program_.groups.of_equation[index];
    if (instruction != nullptr && home != ops::Groups::kNone) {
      for (const TileTask& task : instruction->tasks) {
        hold(at(home), index, index, task.device_scratch_bytes, run::HeldBytes::kScratch);
      }
    }
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      const ValueId id = equation.results[i];
      if (base_[id] != id || is_output_[id]) continue;
      for (std::size_t group = 0; group < groups_; ++group) {
        if (home != ops::Groups::kNone && at(home) != group) continue;
        const std::size_t last = last_[group][id];
        // A task writes even results that are not read.
        if (last == kNever && home == ops::Groups::kNone) continue;
        const std::size_t end = last == kNever ? index : last;
        const bool takes_over = ops::is_task(equation) && takes_over_memory(index, i);
        if (!takes_over || end > index)
          hold(group, index + (takes_over ? 1 : 0), end, bytes_of(id), id);
      }
    }
  }

  /// Whether the result uses the memory of an operand whose last use this is.
  bool takes_over_memory(std::size_t index, std::size_t result) const {
    const Equation& equation = f_.equations[index];
    const HostInstruction* instruction = instruction_of_[equation.results[0]];
    const std::int64_t operand = equation.attributes.ints("shares")[result];
    if (operand < 0 || instruction == nullptr) return false;
    const run::Control& control = *instruction->tasks.at(0).control;
    if (control.bodies[0].executable->outputs[result].alias < 0) return false;
    const ValueId from = base_[equation.operands[at(operand)]];
    const bool is_input = std::count(f_.inputs.begin(), f_.inputs.end(), from) != 0;
    const auto group = at(program_.groups.of_equation[index]);
    return !is_input && !is_output_[from] && last_[group][from] == index;
  }

  void hold_port(std::size_t group, ValueId id) {
    const std::int64_t bytes = bytes_of(id);
    bytes_[group].ports += bytes;
    held_.push_back(
        {.value = id, .bytes = bytes, .group = static_cast<int>(group), .is_port = true});
  }

  void hold(std::size_t group, std::size_t first, std::size_t last, std::int64_t bytes,
            std::uint32_t value) {
    if (bytes == 0) return;
    held_.push_back({.value = value,
                     .bytes = bytes,
                     .first = first,
                     .last = last,
                     .group = static_cast<int>(group)});
    change_[group][first] += bytes;
    change_[group][last + 1] -= bytes;
  }

  const HostProgram& program_;
  const Function& f_;
  const std::vector<run::Port>& outputs_;
  std::vector<run::HeldBytes>& held_;
  std::size_t groups_;
  std::vector<const HostInstruction*> instruction_of_;  // per value: the one that writes it
  std::vector<ValueId> base_;                           // per value
  std::vector<std::vector<std::size_t>> last_;     // per group and base: the last equation to read
  std::vector<std::vector<std::int64_t>> change_;  // per group and equation
  std::vector<bool> is_output_;                    // per value
  std::vector<GroupBytes> bytes_;
};

}  // namespace

std::vector<GroupBytes> group_bytes(const HostProgram& program,
                                    const std::vector<run::Port>& outputs,
                                    std::vector<run::HeldBytes>& held) {
  return Accounts(program, outputs, held).find();
}

}  // namespace tessera::compile::host
