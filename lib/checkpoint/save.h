// Takes a snapshot of arrays and writes it as a checkpoint.
#pragma once

#include <string>
#include <vector>

#include <tessera/checkpoint.h>

#include "checkpoint/disk.h"

namespace tessera::checkpoint {

/// The tiles that this process writes. They are shared, not copied: if a step donates the arrays
/// meanwhile, the engine finds their tiles in use and works on copies.
struct Snapshot {
  struct Item {
    std::string name;
    Type type;
    std::vector<Shard> tiles;
  };
  std::vector<Item> arrays;
  SaveOptions options;
};
/// Throws UserError for arrays that have no values and for names that check_names() refuses.
Snapshot snapshot(const std::vector<NamedArray>& arrays, SaveOptions options,
                  const std::source_location& where);

/// Writes the checkpoint to the folder `path`, whole or not at all, on up to `threads` threads.
/// With one process per device all processes must call it.
void write_checkpoint(Disk& disk, const Snapshot& state, const std::string& path, int threads);

/// The path without slashes at its end.
std::string plain_path(std::string path);

}  // namespace tessera::checkpoint
