// A state as it is at one moment, and writing it.
#pragma once

#include <string>
#include <vector>

#include <tessera/checkpoint.h>

#include "checkpoint/disk.h"

namespace tessera::checkpoint {

/// The tiles that this process writes. They are held, not copied: a step that gives the arrays away
/// finds that its tiles are in use and works on copies.
struct Snapshot {
  struct Item {
    std::string name;
    Type type;
    std::vector<Shard> tiles;
  };
  std::vector<Item> arrays;
  SaveOptions options;
};
/// Throws UserError for arrays that have no values and for names that files do not take.
Snapshot snapshot(const std::vector<NamedArray>& arrays, SaveOptions options,
                  const std::source_location& where);

/// Writes the checkpoint as one folder, whole or not at all, on up to `threads` threads.
void write_checkpoint(Disk& disk, const Snapshot& state, const std::string& path, int threads);

/// Without the slashes at its end.
std::string plain_path(std::string path);

}  // namespace tessera::checkpoint
