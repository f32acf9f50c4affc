#include "compile/host/control/kernel_call.h"

#include <algorithm>
#include <array>

#include "compile/body_pool.h"
#include "run/ports.h"

namespace tessera::compile::host {

namespace {

/// A function that has only the equation.
Function function_of(const Function& function, const Equation& equation) {
  Function made = ir::empty_like(function);
  made.name.clear();
  std::vector<ValueId> renamed(function.values.size(), ir::kNoValue);
  for (const ValueId id : distinct_operands(equation)) {
    made.inputs.push_back(renamed[id] = made.add_value(function.values[id]));
  }
  Equation copy = equation;
  for (ValueId& id : copy.operands) id = renamed[id];
  for (ValueId& id : copy.results) id = made.add_value(function.values[id]);
  made.outputs = copy.results;
  made.equations.push_back(std::move(copy));
  return made;
}

}  // namespace

std::vector<ValueId> distinct_operands(const Equation& equation) {
  std::vector<ValueId> distinct;
  for (const ValueId id : equation.operands) {
    if (std::find(distinct.begin(), distinct.end(), id) == distinct.end()) distinct.push_back(id);
  }
  return distinct;
}

std::shared_ptr<const KernelCall> KernelCall::make(const LowerContext& context,
                                                   const Function& function,
                                                   const Equation& equation,
                                                   const std::vector<int>& alias) {
  const Function made = function_of(function, equation);
  std::vector<bool> is_donated(made.inputs.size(), false);
  for (const int input : alias) {
    if (input >= 0) is_donated[static_cast<std::size_t>(input)] = true;
  }
  const CompileOptions options{.is_donated = std::move(is_donated),
                               .output_alias = alias,
                               .target = context.target(),
                               .dot_unit = context.dot_unit(),
                               .bodies = &context.bodies()};
  auto executable = context.bodies().get(made, options);
  const auto is_simple = [](const run::Task& task) {
    return task.kernel != nullptr && !task.communicates && task.kernel->num_parts() == 1 &&
           task.places.size() <= kMostBuffers;
  };
  if (!std::all_of(executable->tasks.begin(), executable->tasks.end(), is_simple)) return nullptr;
  for (std::size_t i = 0; i < alias.size(); ++i) {
    if (executable->outputs[i].alias != alias[i]) return nullptr;
  }
  return std::shared_ptr<const KernelCall>(new KernelCall(std::move(executable)));
}

void KernelCall::run(std::span<std::byte* const> registers, std::byte* scratch) const {
  const std::span inputs = registers.first(executable_->inputs.size());
  const std::span outputs = registers.subspan(inputs.size());
  for (const run::Task& task : executable_->tasks) {
    std::array<std::byte*, kMostBuffers> buffers;
    for (std::size_t i = 0; i < task.places.size(); ++i) {
      const run::Place& place = executable_->places[task.places[i]];
      std::byte* const base = place.space == run::Place::Space::arena   ? scratch
                              : place.space == run::Place::Space::input ? inputs[place.port]
                                                                        : outputs[place.port];
      buffers[i] = base + place.offset;
    }
    task.kernel->run_all(std::span(buffers).first(task.places.size()));
  }
}

std::int64_t KernelCall::thread_scratch_bytes() const { return run::thread_scratch(*executable_); }

}  // namespace tessera::compile::host
