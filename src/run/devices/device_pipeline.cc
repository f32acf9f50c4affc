#include "run/devices/device_pipeline.h"

#include <algorithm>

namespace tessera::run {

DevicePipeline::DevicePipeline(Plan plan) : plan_(std::move(plan)) {
  last_use_.assign(plan_.bytes.size(), 0);
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    for (const std::size_t value : plan_.steps[i].results) last_use_[value] = i;
    for (const std::size_t value : plan_.steps[i].operands) last_use_[value] = i;
  }
  for (const std::size_t value : plan_.outputs) last_use_[value] = plan_.steps.size();
  plan_memory();
}

/// Walks through the steps with the bytes that a device of each group holds.
void DevicePipeline::plan_memory() {
  std::vector<std::int64_t> held(plan_.num_groups, 0);
  // A value may be held by several groups: an input by all that read it.
  std::vector<std::vector<bool>> is_held(plan_.num_groups,
                                         std::vector<bool>(plan_.bytes.size(), false));
  const auto hold = [&](std::size_t group, std::size_t value) {
    if (is_held[group][value]) return;
    is_held[group][value] = true;
    held[group] += plan_.bytes[value];
  };
  const std::size_t num_inputs = plan_.is_donated.size();
  for (const Step& step : plan_.steps) {
    for (const std::size_t value : step.operands) {
      if (value < num_inputs) hold(step.group, value);
    }
  }
  const std::vector<std::int64_t> arguments = held;
  std::vector<std::int64_t> peaks = held;
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    std::int64_t added = 0;
    if (const std::optional<DeviceMemory> memory = step.program->memory()) {
      added = memory->outputs + memory->temporaries;
    }
    peaks[step.group] = std::max(peaks[step.group], held[step.group] + added);
    for (const std::size_t value : step.results) hold(step.group, value);
    for (const std::size_t value : step.operands) {
      if (!is_last_use(value, i) || (value < num_inputs && !plan_.is_donated[value])) continue;
      for (std::size_t group = 0; group < plan_.num_groups; ++group) {
        if (is_held[group][value]) held[group] -= plan_.bytes[value];
        is_held[group][value] = false;
      }
    }
    peaks[step.group] = std::max(peaks[step.group], held[step.group]);
  }
  const auto largest = std::max_element(peaks.begin(), peaks.end());
  memory_.arguments = arguments[static_cast<std::size_t>(largest - peaks.begin())];
  memory_.temporaries = *largest - memory_.arguments;
  memory_.group_peaks = std::move(peaks);
}

std::vector<Tiles> DevicePipeline::execute(std::vector<Tiles>& inputs,
                                           const std::function<void()>& on_begin) const {
  on_begin();
  std::vector<Tiles> values = std::move(inputs);
  values.resize(plan_.bytes.size());
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    std::vector<Tiles> operands;
    for (const std::size_t value : step.operands) operands.push_back(values[value]);
    // A program may overwrite tiles that nothing else holds.
    for (const std::size_t value : step.operands) {
      if (is_last_use(value, i)) values[value].clear();
    }
    std::vector<Tiles> results = step.program->execute(operands, [] {});
    for (std::size_t k = 0; k < results.size(); ++k) {
      if (!is_last_use(step.results[k], i)) values[step.results[k]] = std::move(results[k]);
    }
  }
  std::vector<Tiles> outputs;
  for (const std::size_t value : plan_.outputs) outputs.push_back(values[value]);
  return outputs;
}

}  // namespace tessera::run
