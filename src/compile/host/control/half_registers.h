// f16 and bf16 in loop programs: registers hold them as f32, and memory as they are.
#pragma once

#include <map>
#include <string_view>
#include <utility>

#include "compile/host/kernels/loop/loop_program.h"

namespace tessera::compile::host {

/// Adds the steps that convert halves. Each register is converted once; where `dtype` is no half,
/// elements stay as they are.
class HalfRegisters {
 public:
  using Elements = kernels::LoopProgram::Elements;
  using Steps = std::vector<kernels::LoopProgram::Step>;

  explicit HalfRegisters(kernels::LoopProgram& program) : program_(program) {}

  /// As f32, from memory.
  Elements widened(const Elements& stored, DType dtype, Steps& steps);
  /// Any f32, rounded to numbers of `dtype`.
  Elements rounded(const Elements& numbers, DType dtype, Steps& steps);
  /// For memory, from f32 that are numbers of `dtype`.
  Elements narrowed(const Elements& numbers, DType dtype, Steps& steps);

 private:
  using Known = std::map<std::pair<int, DType>, int>;

  /// A register of the same size that the kernel makes from this one.
  int converted(int reg, std::string_view kernel, DType from, DType to, Steps& steps);
  template <typename Convert>
  static Elements in_each(const Elements& elements, DType dtype, Known& known,
                          const Convert& convert);

  kernels::LoopProgram& program_;
  Known widened_, rounded_, narrowed_;  // by the register that they are made from
  Known unrounded_;                     // of rounded registers, which memory may round as well
};

}  // namespace tessera::compile::host
