// The index of a checkpoint: its tiles, their offsets in the files, and the checksums of all bytes.
//
// A checkpoint is a folder with the index, checkpoint.json, and one safetensors file for each
// device that holds tiles. The index ends with the checksum of the text before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>
#include <tessera/mesh.h>

namespace tessera::checkpoint {

inline constexpr const char* kIndexName = "checkpoint.json";
/// Each block of a tile has its own checksum, so that a part of a tile can be read and checked
/// alone.
inline constexpr std::int64_t kBlockBytes = std::int64_t{64} << 10;

struct SavedTile {
  std::string file;
  std::vector<IndexRange> index;         // the part of the array that the tile holds
  std::int64_t offset = 0;               // of its first byte, from the beginning of the file
  std::vector<std::uint64_t> checksums;  // one for each block
};

struct IndexedArray {
  std::string name;
  Type type;
  std::vector<SavedTile> tiles;  // cover each element of the array once
  /// For each dimension, the indices where tiles begin. The tiles are the cells of this grid, in
  /// row-major order. Set by parse_index() for arrays with elements only.
  std::vector<Shape> starts = {};
};

struct SavedFile {
  std::int64_t size = 0;
  std::int64_t header_size = 0;  // the bytes before the elements
  std::uint64_t header_checksum = 0;
};

struct Index {
  std::int64_t step = 0;
  std::optional<double> metric;
  Metadata metadata;
  std::vector<IndexedArray> arrays;  // sorted by name
  std::map<std::string, SavedFile> files;

  const IndexedArray* find(const std::string& name) const;
};

std::uint64_t checksum(std::span<const std::byte> bytes);
/// The checksums of the blocks of kBlockBytes; the last block may be shorter.
std::vector<std::uint64_t> block_checksums(std::span<const std::byte> bytes);

Shape sizes_of(const std::vector<IndexRange>& index);
std::int64_t bytes_of(const SavedTile& tile, DType dtype);

std::string to_text(const Index& index);
/// The inverse of to_text(). Throws BadText if the text is damaged or not an index.
Index parse_index(std::string_view text);
/// Reads the index of the checkpoint in this folder. Throws UserError if there is none, if it is
/// damaged, or if the folder has the name of another step, and RuntimeFault if it cannot be read.
Index read_index(const std::string& folder);

/// The folder name of a step ("step_00000012"), and the step of a folder name, if it has one.
std::string step_name(std::int64_t step);
std::optional<std::int64_t> step_of(const std::string& name);
/// Throws UserError if the folder has the name of a step other than `step`.
void check_step_name(const std::string& folder, std::int64_t step,
                     const std::source_location& where = {});

/// With several processes, each writes an index of its own arrays and files as a text. The first
/// process adds all these texts to its index.
std::string part_to_text(const Index& part);
void add_part(Index& index, std::string_view text);

}  // namespace tessera::checkpoint
