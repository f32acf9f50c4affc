#include "compile/host/kernels/tile/tile_program_chain.h"

#include <algorithm>
#include <utility>

namespace tessera::kernels::tiles {

namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::span<const int> inputs_of(const TileStep& step) { return {step.inputs, at(step.num_inputs)}; }

}  // namespace

ChainOrder::ChainOrder(const TileProgram& program, std::span<const std::size_t> steps,
                       std::vector<int> outputs)
    : program_(&program), outputs_(std::move(outputs)) {
  maker_.assign(at(program.num_registers), kNone);
  position_ = maker_;
  for (const std::size_t s : steps) maker_[at(program.steps[s].output)] = s;
  for (const int output : outputs_) visit(output);
  last_read_.assign(maker_.size(), 0);
  for (std::size_t i = 0; i < size(); ++i) {
    for (const int reg : inputs_of(step(i))) {
      last_read_[at(reg)] = i;
      const bool is_known = std::find(inputs_.begin(), inputs_.end(), reg) != inputs_.end();
      if (!makes(reg) && !is_known) inputs_.push_back(reg);
    }
  }
}

// Emits the step that writes `reg` right after the steps that write its inputs, so that the last of
// these inputs is still in vector registers.
void ChainOrder::visit(int reg) {
  const std::size_t made_by = std::exchange(maker_[at(reg)], kNone);
  if (made_by == kNone) return;
  for (const int input : inputs_of(program_->steps[made_by])) visit(input);
  position_[at(reg)] = order_.size();
  order_.push_back(made_by);
}

bool ChainOrder::is_output(int reg) const {
  return std::find(outputs_.begin(), outputs_.end(), reg) != outputs_.end();
}

bool ChainOrder::makes(int reg) const { return position_[at(reg)] != kNone; }

bool ChainOrder::reads_after(int output, int input) const {
  return last_read_[at(input)] > position_[at(output)];
}

namespace {

class ChainMaker {
 public:
  ChainMaker(const ChainOrder& order, std::span<const DType> dtypes, const std::vector<bool>& late,
             const ChainKernels& kernels)
      : order_(order), dtypes_(dtypes), late_(late), kernels_(kernels) {}

  Chain make() {
    reads_.assign(dtypes_.size(), 0);
    temporary_.assign(dtypes_.size(), -1);
    find_handed_on();
    for (std::size_t i = 0; i < order_.size(); ++i) add_step(i);
    for (const int output : order_.outputs()) {
      if (!late_[at(output)]) continue;
      add_stage(kernels_.copies[static_cast<std::size_t>(dtype(output))]);
      read(output, kFrom);
      store(output);
    }
    add_stage(kernels_.end);
    chain_.kernels = &kernels_;
    return std::move(chain_);
  }

 private:
  // Finds which input each step gets from the previous step; the other inputs are read from memory.
  void find_handed_on() {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const auto inputs = inputs_of(order_.step(i));
      const auto found = i == 0
                             ? inputs.end()
                             : std::find(inputs.begin(), inputs.end(), order_.step(i - 1).output);
      const auto place = static_cast<std::size_t>(found - inputs.begin());
      handed_on_.push_back(found == inputs.end() ? kNone : place);
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        if (k != handed_on_.back()) reads_[at(inputs[k])] += 1;
      }
    }
  }

  void add_step(std::size_t position) {
    const TileStep& step = order_.step(position);
    const std::size_t given = handed_on_[position] == kNone ? 0 : handed_on_[position];
    add_stage(step.kernel->stages[kernels_.form.index()][given]);
    if (handed_on_[position] == kNone) read(step.inputs[0], kFrom);
    std::size_t other = kOthers;
    for (std::size_t k = 0; k < at(step.num_inputs); ++k) {
      if (k != given) read(step.inputs[k], other++);
    }
    const bool is_output = order_.is_output(step.output);
    const bool is_late = is_output && late_[at(step.output)];
    if (is_late || (!is_output && reads_[at(step.output)] > 0)) store_temporarily(step.output);
    if (is_output && !is_late) store(step.output);
  }

  void add_stage(void (*function)()) { chain_.stages.emplace_back().function = function; }

  void store(int reg) { chain_register(reg).places.push_back(place(kTo)); }
  void store_temporarily(int reg) {
    if (free_.empty()) {
      free_.push_back(chain_.temporaries.size());
      chain_.temporaries.emplace_back();
    }
    temporary_[at(reg)] = static_cast<int>(free_.back());
    free_.pop_back();
    chain_.temporaries[at(temporary_[at(reg)])].push_back(place(kTo));
  }

  // Records that operand `operand` of the last stage reads this register from memory.
  void read(int reg, std::size_t operand) {
    const int temporary = temporary_[at(reg)];
    reads_[at(reg)] -= 1;
    if (temporary < 0) {
      chain_register(reg).places.push_back(place(operand));
      return;
    }
    chain_.temporaries[at(temporary)].push_back(place(operand));
    // A late output is read once more at the end, to be copied.
    if (reads_[at(reg)] == 0 && !order_.is_output(reg)) free_.push_back(at(temporary));
  }

  StagePlace place(std::size_t operand) const { return {chain_.stages.size() - 1, operand}; }

  ChainRegister& chain_register(int reg) {
    for (ChainRegister& known : chain_.registers) {
      if (known.reg == reg) return known;
    }
    chain_.registers.push_back(
        {.reg = reg, .dtype = dtype(reg), .places = {}, .is_output = order_.makes(reg)});
    return chain_.registers.back();
  }

  DType dtype(int reg) const { return dtypes_[at(reg)]; }

  static constexpr std::size_t kFrom = 0;
  static constexpr std::size_t kOthers = 1;
  static constexpr std::size_t kTo = 3;

  const ChainOrder& order_;
  std::span<const DType> dtypes_;
  const std::vector<bool>& late_;
  const ChainKernels& kernels_;
  std::vector<std::size_t> handed_on_;
  std::vector<int> reads_;      // per register: the number of stages that still read it from memory
  std::vector<int> temporary_;  // per register: the temporary that holds it, or -1
  std::vector<std::size_t> free_;
  Chain chain_;
};

}  // namespace

Chain make_chain(const ChainOrder& order, std::span<const DType> dtypes,
                 const std::vector<bool>& late, const ChainKernels& kernels) {
  return ChainMaker(order, dtypes, late, kernels).make();
}

}  // namespace tessera::kernels::tiles
