// Tiles on devices.
#pragma once

#include <mutex>
#include <vector>

#include "plugin/client.h"
#include "run/executable.h"

namespace tessera::plugin {

/// The elements of a tile, which several devices may hold. They are available once `ready` has
/// ended without a failure.
struct Tile {
  CompletionPtr ready;
  run::BufferPtr data;  // set by the program that computes it, before `ready` ends
};
using TilePtr = std::shared_ptr<Tile>;

void fill_buffer_functions(abi::PluginApi& api);

}  // namespace tessera::plugin

namespace tessera::run::pjrt::abi {

struct Buffer {
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> minor_to_major;
  Memory* memory = nullptr;

  Buffer(ElementType type, std::vector<std::int64_t> dims, Memory* memory,
         tessera::plugin::TilePtr tile);

  std::size_t num_bytes() const;
  /// Throws UserError if the buffer was deleted or donated.
  tessera::plugin::TilePtr tile() const;
  bool is_deleted() const;
  /// Gives up the tile and returns it; nullptr if it was already given up.
  tessera::plugin::TilePtr release();

 private:
  mutable std::mutex mutex_;
  tessera::plugin::TilePtr tile_;
};

}  // namespace tessera::run::pjrt::abi
