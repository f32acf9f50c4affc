// Equations that a small loop computes with the kernels of their op.
#pragma once

#include <memory>

#include "compile/host/kernels/loop/loop_program.h"
#include "compile/host/lower.h"

namespace tessera::compile::host {

/// The operands of an equation, each once.
std::vector<ValueId> distinct_operands(const Equation& equation);

/// Runs the tasks of an equation one after the other.
class KernelCall final : public kernels::LoopCall {
 public:
  /// The inputs are the distinct operands of the equation. All its values must be whole, and it
  /// must have no effects. `alias`: per result, the input whose memory it takes, or -1. nullptr if
  /// the equation needs anything but kernels of one part, or cannot use the memory as `alias` says.
  static std::shared_ptr<const KernelCall> make(const LowerContext& context,
                                                const Function& function, const Equation& equation,
                                                const std::vector<int>& alias);

  std::int64_t scratch_bytes() const override { return executable_->arena_bytes; }
  void run(std::span<std::byte* const> registers, std::byte* scratch) const override;
  /// As Kernel::scratch_bytes() of its kernels.
  std::int64_t thread_scratch_bytes() const;

 private:
  static constexpr std::size_t kMostBuffers = 16;

  explicit KernelCall(std::shared_ptr<const run::Executable> executable)
      : executable_(std::move(executable)) {}

  std::shared_ptr<const run::Executable> executable_;
};

}  // namespace tessera::compile::host
