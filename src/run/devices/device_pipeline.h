// A program that several groups of devices run together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "run/devices/backend.h"

namespace tessera::run {

/// Programs of single groups, in an order in which each finds its operands. Starting a program does
/// not wait for its end, so the groups compute side by side.
class DevicePipeline final : public Runnable {
 public:
  struct Step {
    std::shared_ptr<const Runnable> program;
    std::size_t group = 0;
    std::vector<std::size_t> operands;  // numbers of values
    std::vector<std::size_t> results;
  };
  /// Values are numbered, the inputs first.
  struct Plan {
    std::vector<std::int64_t> bytes;  // of one device, per value
    std::vector<bool> is_donated;     // per input
    std::vector<Step> steps;
    std::vector<std::size_t> outputs;
    std::size_t num_groups = 1;
  };

  explicit DevicePipeline(Plan plan);

  std::vector<Tiles> execute(std::vector<Tiles>& inputs,
                             const std::function<void()>& on_begin) const override;
  std::optional<DeviceMemory> memory() const override { return memory_; }

 private:
  bool is_last_use(std::size_t value, std::size_t step) const { return last_use_[value] == step; }
  void plan_memory();

  Plan plan_;
  std::vector<std::size_t> last_use_;  // per value: the last step that reads it
  DeviceMemory memory_;
};

}  // namespace tessera::run
