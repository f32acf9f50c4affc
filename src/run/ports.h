// The buffers of an execution: its inputs, its outputs and the arena.
#pragma once

#include <vector>

#include "run/executable.h"

namespace tessera::run {

/// Throws InternalError unless the inputs have the tiles that the executable wants.
void check_inputs(const Executable& executable, const std::vector<Tiles>& inputs);
/// Allocates the outputs. Those that reuse the buffers of a donated input take them, or copies of
/// them if someone else holds them.
std::vector<Tiles> make_outputs(const Executable& executable, std::vector<Tiles>& inputs);

/// The buffers of the outermost frame: the arena, the tiles of the inputs, those of the outputs.
struct RootBuffers {
  std::vector<std::byte*> buffers;
  Binding binding;

  RootBuffers(std::byte* arena, const std::vector<Tiles>& inputs,
              const std::vector<Tiles>& outputs);

 private:
  std::vector<TileBinding> add(const Tiles& tiles);
};

/// The buffers of the tiles of all inputs and outputs.
class PortBuffers {
 public:
  PortBuffers(const std::vector<Tiles>& inputs, const std::vector<Tiles>& outputs);
  /// Where the tile of a place outside the arena begins.
  std::byte* find(const Place& place) const {
    const bool is_input = place.space == Place::Space::input;
    return buffers_[first_[(is_input ? 0 : num_inputs_) + place.port] + place.tile];
  }

 private:
  std::size_t num_inputs_;
  std::vector<std::size_t> first_;  // per port
  std::vector<std::byte*> buffers_;
};

/// The most scratch bytes that any kernel needs per thread, including kernels of nested
/// executables.
std::int64_t thread_scratch(const Executable& executable);

}  // namespace tessera::run
