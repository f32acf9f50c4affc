// Programs for loops over few values, made from equations.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compile/host/control/half_registers.h"
#include "compile/host/kernels/loop/loop_program.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

/// Whether registers of a loop program can hold the value.
bool is_small(const Function& function, ValueId id);

/// A value of a body: elements, or an array that is read and written in place.
struct LoopValue {
  kernels::LoopProgram::Elements elements = {};
  int array = -1;   // its register
  int version = 0;  // how many times it had been written
};

/// Whether a carry is best held in place: it is large, or equations only read and write parts of
/// it.
bool is_held_in_place(const Function& body, ValueId carry);

/// Adds the equations of bodies to a program. Moves of elements only rename them.
class LoopBuilder {
 public:
  using Elements = kernels::LoopProgram::Elements;
  using Steps = std::vector<kernels::LoopProgram::Step>;

  LoopBuilder(const LowerContext& context, kernels::LoopProgram& program)
      : context_(context), program_(program), halves_(program) {}

  /// A separate register for a value that a load or a carry fills.
  LoopValue add_register(const Type& type, bool is_in_place, bool is_carry);
  /// Returns the values of the outputs; nullopt if a loop program cannot compute an equation or
  /// hold a value.
  std::optional<std::vector<LoopValue>> add(const Function& function,
                                            const std::vector<LoopValue>& inputs, Steps& steps);
  /// Whether the value is the last version of this array.
  bool is_last(const LoopValue& value, int array) const {
    return value.array == array && value.version == arrays_.at(array).version;
  }
  /// A register with these elements; a register with one element if they are all the same.
  int as_register(const Elements& elements);
  /// As for Kernel::scratch_bytes(): what the kernels of calls need.
  std::int64_t thread_scratch_bytes() const { return thread_scratch_bytes_; }

 private:
  using Element = kernels::LoopProgram::Element;
  using Step = kernels::LoopProgram::Step;

  /// The steps that have read and written an array in place.
  struct Array {
    bool is_carry = false;  // arrays that are not carries are never written
    int version = 0;
    std::vector<std::size_t> writers = {};  // of versions 1, 2, ...
    std::vector<std::size_t> readers = {};  // of the last version
  };

  int new_register(const Type& type);
  Elements elements_of(int reg) const;
  bool add(const Function& function, const Equation& equation);
  Elements compute(const Function& function, const Equation& equation);
  Elements constant(const Equation& equation, const Type& type);
  Elements concatenate(const Function& function, const Equation& equation) const;
  Elements view(const Function& function, const Equation& equation) const;
  Elements map(const kernels::TileKernel* kernel, const std::vector<Elements>& operands,
               const Type& type);
  Element map_element(const kernels::TileKernel* kernel, const std::vector<Elements>& operands,
                      std::size_t i, DType dtype);
  std::optional<Elements> reduce_rows(const Function& function, const Equation& equation);
  Elements sum_of(std::vector<Elements> terms, const std::vector<std::int64_t>& cuts,
                  const Type& type);
  bool read_part(const Function& function, const Equation& equation);
  bool write_part(const Function& function, const Equation& equation);
  bool call(const Function& function, const Equation& equation);
  std::optional<std::vector<int>> aliases_of(const Function& function,
                                             const Equation& equation) const;
  bool may_overwrite(const LoopValue& value) const {
    return value.array >= 0 && arrays_.at(value.array).is_carry && is_last(value, value.array);
  }
  bool read_array(const LoopValue& value, Step& step);
  bool depends_on(const Step& step, std::size_t earlier) const;
  LoopValue write_array(int array, Step& step);
  int dense_register(const Elements& elements);
  Elements from_memory(int reg, DType dtype);
  Elements for_memory(const Function& function, ValueId id);
  void add_starts(const std::vector<ValueId>& starts, kernels::LoopProgram::Part& part, Step& step);
  int register_of(const Elements& elements) const;
  int gather(Elements elements);

  const LowerContext& context_;
  kernels::LoopProgram& program_;
  HalfRegisters halves_;
  std::vector<LoopValue> values_;  // of the function being added; f16 and bf16 are f32 elements
  Steps* steps_ = nullptr;
  std::map<std::vector<std::pair<int, std::int64_t>>, int> gathered_;
  std::map<int, Array> arrays_;
  std::int64_t thread_scratch_bytes_ = 0;
};

}  // namespace tessera::compile::host
