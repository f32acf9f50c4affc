#include "run/ports.h"

#include <algorithm>
#include <cstring>

#include <tessera/error.h>

namespace tessera::run {

namespace {

/// Makes donated buffers ready to be overwritten. Copies those that another array still holds.
/// Taking an extra reference before reading the count orders the reads of threads that have
/// released the buffer before our writes.
void make_private(Tiles& tiles) {
  for (BufferPtr& tile : tiles) {
    if (const BufferPtr counted = tile; counted.use_count() == 2) {
      tile->data();  // copy to host memory before the device copies go
      tile->set_copies(nullptr);
      continue;
    }
    auto copy = std::make_shared<Buffer>(tile->size());
    std::memcpy(copy->data(), tile->data(), static_cast<std::size_t>(tile->size()));
    tile = std::move(copy);
  }
}

}  // namespace

void check_inputs(const Executable& executable, const std::vector<Tiles>& inputs) {
  require(inputs.size() == executable.inputs.size(), "an executable gets all its inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<std::int64_t>& wanted = executable.inputs[i].tile_bytes;
    require(inputs[i].size() == wanted.size(), "an input has the tiles of its layout");
    for (std::size_t tile = 0; tile < wanted.size(); ++tile) {
      require(inputs[i][tile]->size() == wanted[tile], "a tile has the bytes of its box");
    }
  }
}

std::vector<Tiles> make_outputs(const Executable& executable, std::vector<Tiles>& inputs) {
  std::vector<Tiles> outputs;
  for (const Port& port : executable.outputs) {
    if (port.alias >= 0) {
      Tiles& donated = inputs[static_cast<std::size_t>(port.alias)];
      make_private(donated);
      outputs.push_back(donated);
      continue;
    }
    Tiles tiles;
    for (std::int64_t bytes : port.tile_bytes) tiles.push_back(std::make_shared<Buffer>(bytes));
    outputs.push_back(std::move(tiles));
  }
  return outputs;
}

RootBuffers::RootBuffers(std::byte* arena, const std::vector<Tiles>& inputs,
                         const std::vector<Tiles>& outputs)
    : buffers{arena} {
  for (const Tiles& tiles : inputs) binding.inputs.push_back(add(tiles));
  for (const Tiles& tiles : outputs) binding.outputs.push_back(add(tiles));
}

std::vector<TileBinding> RootBuffers::add(const Tiles& tiles) {
  std::vector<TileBinding> bindings;
  for (const BufferPtr& tile : tiles) {
    const auto number = static_cast<std::uint32_t>(buffers.size());
    bindings.push_back({.even = number, .odd = number});
    buffers.push_back(tile->data());
  }
  return bindings;
}

PortBuffers::PortBuffers(const std::vector<Tiles>& inputs, const std::vector<Tiles>& outputs)
    : num_inputs_(inputs.size()) {
  first_.reserve(inputs.size() + outputs.size());
  buffers_.reserve(inputs.size() + outputs.size());
  for (const std::vector<Tiles>* ports : {&inputs, &outputs}) {
    for (const Tiles& tiles : *ports) {
      first_.push_back(buffers_.size());
      for (const BufferPtr& tile : tiles) buffers_.push_back(tile->data());
    }
  }
}

std::int64_t thread_scratch(const Executable& executable) {
  std::int64_t most = 0;
  const auto add = [&](const Nested& nested) {
    if (nested.executable != nullptr) most = std::max(most, thread_scratch(*nested.executable));
  };
  for (const Task& task : executable.tasks) {
    if (task.kernel != nullptr) most = std::max(most, task.kernel->scratch_bytes());
    if (task.control == nullptr) continue;
    for (const Nested& body : task.control->bodies) add(body);
    for (const Nested* nested :
         {&task.control->begin, &task.control->condition, &task.control->end}) {
      add(*nested);
    }
  }
  return most;
}

}  // namespace tessera::run
