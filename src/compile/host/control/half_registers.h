// f16 and bf16 in loop programs: registers hold them as f32, memory in their own format.
#pragma once

#include <map>
#include <string_view>
#include <utility>

#include "compile/host/kernels/loop/loop_program.h"

namespace tessera::compile::host {

/// Adds the steps that convert halves. Each register is converted once. If `dtype` is not f16 or
/// bf16, elements stay as they are.
class HalfRegisters {
 public:
  using Elements = kernels::LoopProgram::Elements;
  using Steps = std::vector<kernels::LoopProgram::Step>;

  explicit HalfRegisters(kernels::LoopProgram& program) : program_(program) {}

  /// Elements read from memory, as f32.
  Elements widened(const Elements& stored, DType dtype, Steps& steps);
  /// Any f32 elements, rounded to numbers of `dtype`.
  Elements rounded(const Elements& numbers, DType dtype, Steps& steps);
  /// Elements to be stored, from f32 that are already numbers of `dtype`.
  Elements narrowed(const Elements& numbers, DType dtype, Steps& steps);

 private:
  using Known = std::map<std::pair<int, DType>, int>;

  /// A register of the same size that the kernel makes from this one.
  int converted(int reg, std::string_view kernel, DType from, DType to, Steps& steps);
  template <typename Convert>
  static Elements in_each(const Elements& elements, DType dtype, Known& known,
                          const Convert& convert);

  kernels::LoopProgram& program_;
  Known widened_, rounded_, narrowed_;  // by the register from which they are made
  Known unrounded_;                     // sources of rounded registers, to narrow directly
};

}  // namespace tessera::compile::host
