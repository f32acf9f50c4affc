// Programs for loops over few values, made from equations.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compile/host/kernels/loop/loop_program.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

/// Whether registers of a loop program can hold the value.
bool is_small(const Function& function, ValueId id);

/// A value of a body.
struct LoopValue {
  kernels::LoopProgram::Elements elements;
  int in_place = -1;  // instead of elements: the register of a larger value
};

/// Adds the equations of bodies to a program. Moves of elements only rename them.
class LoopBuilder {
 public:
  using Elements = kernels::LoopProgram::Elements;
  using Steps = std::vector<kernels::LoopProgram::Step>;

  LoopBuilder(const LowerContext& context, kernels::LoopProgram& program)
      : context_(context), program_(program) {}

  /// A register of its own for a value that a load or a carry fills.
  LoopValue add_register(const Function& function, ValueId id);
  /// Returns the elements of the outputs; nullopt if a loop program cannot compute an equation or
  /// hold a value.
  std::optional<std::vector<Elements>> add(const Function& function,
                                           const std::vector<LoopValue>& inputs, Steps& steps);
  /// A register with these elements; one that stands for all if they are alike.
  int as_register(const Elements& elements);
  /// As for Kernel::scratch_bytes(): what the kernels of calls need.
  std::int64_t thread_scratch_bytes() const { return thread_scratch_bytes_; }

 private:
  using Element = kernels::LoopProgram::Element;

  int new_register(const Type& type);
  Elements elements_of(int reg) const;
  bool add(const Function& function, const Equation& equation);
  Elements constant(const Equation& equation, const Type& type);
  Elements concatenate(const Function& function, const Equation& equation) const;
  Elements view(const Function& function, const Equation& equation) const;
  Elements map(const Function& function, const Equation& equation);
  Element map_element(const kernels::TileKernel* kernel, const std::vector<ValueId>& operands,
                      std::size_t i, DType dtype);
  bool call(const Function& function, const Equation& equation);
  int register_of(const Elements& elements) const;
  int gather(Elements elements);

  const LowerContext& context_;
  kernels::LoopProgram& program_;
  std::vector<LoopValue> values_;  // of the function that is added
  Steps* steps_ = nullptr;
  std::map<std::vector<std::pair<int, std::int64_t>>, int> gathered_;
  std::int64_t thread_scratch_bytes_ = 0;
};

}  // namespace tessera::compile::host
