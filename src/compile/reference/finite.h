// Finds where values that are not finite come from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dot_unit.h"
#include "ir/ir.h"
#include "ops/host_array.h"
#include "run/devices/backend.h"
#include "run/tiles/tiled.h"

namespace tessera::compile {

/// The application of an op that made NaNs, or infinities if no result has NaNs.
struct NotFinite {
  std::string op;  // empty: the values came from input number `input`
  std::size_t input = 0;
  Type type;  // of the result
  Span span;
  std::int64_t num_nan = 0;
  std::int64_t num_infinite = 0;
  bool has_finite_operands = true;
};

/// Interprets the function on its inputs and traces non-finite elements of an output back to the
/// equation that made them, in nested functions too. nullopt if all outputs are finite.
std::optional<NotFinite> find_not_finite(const ir::Function& function,
                                         std::vector<ops::HostArray> inputs, DotUnit dot_unit);

/// Runs a program and checks its outputs. If one is not finite, the call throws UserError, which
/// names the op and the line where the value arose, and the inputs keep their values. Needs the
/// memory of both inputs and outputs, and all tiles in this process.
class FiniteRunnable final : public run::Runnable {
 public:
  struct Names {
    std::string program;
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
  };
  FiniteRunnable(std::shared_ptr<const run::Runnable> program, ir::Function traced,
                 std::vector<run::PlacementPtr> inputs, std::vector<run::PlacementPtr> outputs,
                 DotUnit dot_unit, Names names);

  std::vector<run::Tiles> execute(std::vector<run::Tiles>& inputs,
                                  const std::function<void()>& on_begin) const override;
  std::optional<run::DeviceMemory> memory() const override { return program_->memory(); }

 private:
  [[noreturn]] void report(const std::vector<run::Tiles>& inputs, std::size_t output) const;

  std::shared_ptr<const run::Runnable> program_;
  ir::Function traced_;
  std::vector<run::PlacementPtr> inputs_;
  std::vector<run::PlacementPtr> outputs_;
  DotUnit dot_unit_;
  Names names_;
};

}  // namespace tessera::compile
