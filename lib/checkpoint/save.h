// Takes a snapshot of arrays and writes it as a checkpoint.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"

namespace tessera::checkpoint {

/// The tiles that this process writes. They are shared, not copied. If a step donates the arrays
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

/// A checkpoint that is being written to the folder `path`. It appears there either whole or not at
/// all; an unfinished checkpoint is removed. The constructor and finish() are collectives: if one
/// process fails, all processes throw.
class CheckpointWriter {
 public:
  CheckpointWriter(Disk& disk, Snapshot state, std::string path);
  /// Writes the files of this process, on up to `threads` threads, and releases the arrays. Another
  /// thread may call it. If it fails, finish() throws.
  void write_files(int threads) noexcept;
  void finish();

 private:
  Disk& disk_;
  Snapshot state_;
  std::string path_, place_;
  std::optional<Unfinished> unfinished_;  // in the first process
  Index index_;                           // of the files of this process
  std::exception_ptr failure_;
};

/// Writes a checkpoint. A collective.
void write_checkpoint(Disk& disk, const Snapshot& state, const std::string& path, int threads);

/// The path without slashes at its end.
std::string plain_path(std::string path);

}  // namespace tessera::checkpoint
