// Reads parts of saved tiles.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"

namespace tessera::checkpoint {

/// The files of a checkpoint, each opened and its header checked when it is needed first. Threads
/// may share it.
class SavedFiles {
 public:
  SavedFiles(const std::string& folder, const Index& index) : folder_(folder), index_(index) {}
  /// Throws UserError when the file is missing, has another size or another header.
  const InputFile& open(const std::string& name);

 private:
  std::string folder_;
  const Index& index_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<InputFile>> open_;
};

/// Saved tiles that are held whole in memory because several parts take a little of each block.
using HeldTiles = std::map<const SavedTile*, std::vector<std::byte>>;

/// Fills `elements`, which are the part `wanted` of the array, row-major, from the tiles that have
/// it. Reads the blocks with bytes of it only; with `held`, where other parts will need the same
/// blocks, the whole tile. Throws UserError where a block is damaged.
void read_part(SavedFiles& files, const IndexedArray& array, const std::vector<IndexRange>& wanted,
               std::span<std::byte> elements, HeldTiles* held = nullptr);

}  // namespace tessera::checkpoint
