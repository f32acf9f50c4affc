#include "compile/host/kernels/loop/loop_order.h"

#include <algorithm>
#include <utility>

#include <tessera/error.h>

#include "compile/host/kernels/tile/tile_program_chain.h"

namespace tessera::kernels::loops {

namespace {

using Step = LoopProgram::Step;

class Grouper {
 public:
  Grouper(const LoopProgram& program, const std::vector<Step>& steps)
      : program_(program),
        steps_(steps),
        state_(program.registers.size(), State::never),
        is_placed_(steps.size(), false) {}

  /// Moves the steps whose inputs are the same in all rounds from `open` to the result.
  std::vector<std::size_t> take_invariant(std::vector<std::size_t>& open) {
    for (const auto& constant : program_.constants) state_[at(constant.reg)] = State::known;
    for (const auto& load : program_.loads) {
      if (load.stride == 0) state_[at(load.reg)] = State::known;
    }
    std::vector<std::size_t> taken;
    const auto is_known = [&](int reg) { return state_[at(reg)] == State::known; };
    const auto take = [&](std::size_t s) {
      if (!all_inputs(s, is_known)) return false;
      set_outputs(s, State::known);
      taken.push_back(s);
      return true;
    };
    std::erase_if(open, take);
    for (const std::size_t s : taken) set_outputs(s, State::never);
    return taken;
  }

  void set_known(int reg) { state_[at(reg)] = State::known; }

  /// All steps of `open`, each after those whose results it reads.
  std::vector<Group> group(std::vector<std::size_t> open) {
    std::vector<Group> groups;
    while (!open.empty()) {
      groups.push_back({.blocks = next_blocks(open), .steps = {}});
      Group& group = groups.back();
      std::erase_if(open, [&](std::size_t s) { return joins(group, s); });
      for (const std::size_t s : group.steps) set_outputs(s, State::known);
    }
    return groups;
  }

 private:
  enum class State : std::uint8_t { never, in_group, known };

  void set_outputs(std::size_t s, State state) {
    for (const int reg : steps_[s].outputs) state_[at(reg)] = state;
  }

  template <typename Condition>
  bool all_inputs(std::size_t s, const Condition& condition) const {
    const Step& step = steps_[s];
    const auto is_placed = [&](std::size_t earlier) { return is_placed_[earlier]; };
    if (!std::all_of(step.after.begin(), step.after.end(), is_placed)) return false;
    const auto has = [&](const LoopProgram::Element& element) { return condition(element.reg); };
    return std::all_of(step.inputs.begin(), step.inputs.end(), condition) &&
           std::all_of(step.elements.begin(), step.elements.end(), has);
  }

  bool is_stage(std::size_t s, bool is_wide) const {
    return steps_[s].kernel != nullptr && steps_[s].kernel->is_stage(is_wide);
  }

  // The blocks of the first step that is ready. If that step may be in chains of either width, the
  // next step that may be in only one of them decides.
  Blocks next_blocks(const std::vector<std::size_t>& open) const {
    const auto is_known = [&](int reg) { return state_[at(reg)] == State::known; };
    const auto is_ready = [&](std::size_t s) { return all_inputs(s, is_known); };
    const auto first = std::find_if(open.begin(), open.end(), is_ready);
    require(first != open.end(), "no two steps wait for each other");
    if (!is_stage(*first, true)) return blocks_of_step(*first, false);
    if (!is_stage(*first, false)) return blocks_of_step(*first, true);
    const auto next = std::find_if(first, open.end(), [&](std::size_t s) {
      return is_ready(s) && is_stage(s, true) != is_stage(s, false);
    });
    return blocks_of_step(*first, next != open.end() && is_stage(*next, true));
  }

  Blocks blocks_of_step(std::size_t s, bool is_wide) const {
    if (!is_stage(s, is_wide)) return {};
    const auto& output = program_.registers[at(steps_[s].output())];
    return blocks_of(static_cast<std::size_t>(output.size), is_wide);
  }

  bool fits(const Blocks& blocks, std::size_t s) const {
    if (blocks.kernels != nullptr) return blocks_of_step(s, blocks.kernels->form.is_wide) == blocks;
    return !is_stage(s, false) && !is_stage(s, true);
  }

  bool joins(Group& group, std::size_t s) {
    // If the compiler does not turn tail calls into jumps, the calls of stages are nested.
    constexpr std::size_t kMostSteps = 256;
    if (group.steps.size() == kMostSteps || !fits(group.blocks, s)) return false;
    const auto is_ready = [&](int reg) { return state_[at(reg)] != State::never; };
    if (!all_inputs(s, is_ready)) return false;
    set_outputs(s, State::in_group);
    is_placed_[s] = true;
    group.steps.push_back(s);
    return true;
  }

  const LoopProgram& program_;
  const std::vector<Step>& steps_;
  std::vector<State> state_;     // per register
  std::vector<bool> is_placed_;  // per step: whether it is in a group
};

}  // namespace

bool is_chained(DType dtype) {
  const ChainKernels& kernels = chain_kernels({.is_wide = is_wide(dtype)});
  return kernels.copies[static_cast<std::size_t>(dtype)] != nullptr;
}

Blocks blocks_of(std::size_t size, bool is_wide) {
  const ChainKernels& kernels = tiles::chain_kernels_for(size, is_wide);
  return {.kernels = &kernels, .count = tiles::num_blocks(size, kernels)};
}

Order order_of(const LoopProgram& program) {
  Order order;
  order.steps = program.condition;
  for (Step step : program.body) {
    for (std::size_t& earlier : step.after) earlier += program.condition.size();
    order.steps.push_back(std::move(step));
  }
  std::vector<std::size_t> condition;
  std::vector<std::size_t> body;
  for (std::size_t s = 0; s < order.steps.size(); ++s) {
    (s < program.condition.size() ? condition : body).push_back(s);
  }
  Grouper grouper(program, order.steps);
  std::vector<std::size_t> before = grouper.take_invariant(condition);
  const std::vector<std::size_t> more = grouper.take_invariant(body);
  before.insert(before.end(), more.begin(), more.end());
  order.before = grouper.group(before);
  for (const auto& carry : program.carries) grouper.set_known(carry.reg);
  order.condition = grouper.group(condition);
  for (const auto& load : program.loads) grouper.set_known(load.reg);
  order.body = grouper.group(body);
  return order;
}

}  // namespace tessera::kernels::loops
