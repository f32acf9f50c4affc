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

/// The files of a checkpoint. Each is opened, and its header checked, when it is first needed.
/// Thread-safe.
class SavedFiles {
 public:
  SavedFiles(const std::string& folder, const Index& index) : folder_(folder), index_(index) {}
  /// Throws UserError if the file is missing, or if its size or header differs from the index.
  const InputFile& open(const std::string& name);

 private:
  std::string folder_;
  const Index& index_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<InputFile>> open_;
};

/// Saved tiles that are kept whole in memory, because several parts each need a little of every
/// block.
using HeldTiles = std::map<const SavedTile*, std::vector<std::byte>>;

/// Reads the part `wanted` of the array from the saved tiles into `elements`, row-major. Reads only
/// the blocks that hold bytes of the part. With `held`, a saved tile from which the part needs only
/// short runs is read whole and kept there, for other parts that need the same blocks. Throws
/// UserError if a file is missing or a block is damaged.
void read_part(SavedFiles& files, const IndexedArray& array, const std::vector<IndexRange>& wanted,
               std::span<std::byte> elements, HeldTiles* held = nullptr);

}  // namespace tessera::checkpoint
