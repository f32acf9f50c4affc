// Writes arrays to files that other programs read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera::foreign {

/// An array to write. Its elements, row-major, are read when it is the array's turn.
struct Source {
  std::string name;  // a path with slashes
  Type type;
  std::function<std::vector<std::byte>()> elements;
};
using Sources = std::vector<Source>;

/// Appends bytes to the file.
using Append = std::function<void(std::span<const std::byte>)>;

/// Writes the format of np.savez, for np.load. bf16, which NumPy does not have, is written as
/// elements of two bytes (`|V2`).
void write_npz(const Sources& sources, const Append& append);
/// Writes a dict of tensors, for torch.load. Dots replace the slashes in names; throws UserError if
/// two names then are equal.
void write_torch(const Sources& sources, const Append& append);
/// Writes nested maps, for flax.serialization.msgpack_restore. Throws UserError for an array of
/// 4 GiB or more, and if the path of one array is a parent of the path of another.
void write_msgpack(const Sources& sources, const Append& append);

/// Writes a zip archive of uncompressed files.
class ZipWriter {
 public:
  /// Sizes and positions of at least `wide` are written in the form for more than 4 GiB.
  explicit ZipWriter(Append append, std::uint64_t wide = 0xFFFFFFFF)
      : append_(std::move(append)), wide_(wide) {}
  void add(const std::string& name, std::span<const std::byte> bytes);
  /// Writes the list of files, which ends the archive.
  void finish();

 private:
  struct Entry {
    std::string name;
    std::uint32_t checksum;
    std::uint64_t size;
    std::uint64_t begin;
  };
  bool is_wide(std::uint64_t number) const { return number >= wide_; }
  void write(const std::string& bytes);

  Append append_;
  std::uint64_t wide_;
  std::uint64_t written_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace tessera::foreign
