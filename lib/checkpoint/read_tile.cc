#include "checkpoint/read_tile.h"

#include <algorithm>
#include <cstring>

#include <tessera/error.h>

namespace tessera::checkpoint {

namespace {

[[noreturn]] void fail_damaged(const std::string& found) {
  throw UserError({.what = "checkpoint: a file is damaged",
                   .found = found,
                   .wanted = "the bytes that were saved",
                   .cure = "remove this step, so that the step before it becomes the last one; "
                           "`tessera checkpoint verify` shows which files are intact"});
}

/// Copies bytes of a saved tile. Reads whole blocks, since only these have checksums to check.
class TileBytes {
 public:
  TileBytes(const InputFile& file, const IndexedArray& array, const SavedTile& tile)
      : file_(file), array_(array), tile_(tile), size_(bytes_of(tile, array.type.dtype)) {}

  void copy(std::int64_t from, std::span<std::byte> to) {
    while (!to.empty()) {
      const std::int64_t block = from / kBlockBytes;
      const std::int64_t begin = block * kBlockBytes;
      const auto size = static_cast<std::size_t>(std::min(kBlockBytes, size_ - begin));
      std::size_t taken = size;
      if (from == begin && to.size() >= size) {
        load(block, to.first(size));
      } else {
        if (loaded_ != block) {
          scratch_.resize(size);
          loaded_ = -1;
          load(block, scratch_);
          loaded_ = block;
        }
        const auto skipped = static_cast<std::size_t>(from - begin);
        taken = std::min(to.size(), size - skipped);
        std::memcpy(to.data(), scratch_.data() + skipped, taken);
      }
      from += static_cast<std::int64_t>(taken);
      to = to.subspan(taken);
    }
  }

 private:
  void load(std::int64_t block, std::span<std::byte> to) const {
    const std::int64_t begin = tile_.offset + block * kBlockBytes;
    const bool is_whole = file_.read(to, begin);
    if (is_whole && checksum(to) == tile_.checksums[static_cast<std::size_t>(block)]) return;
    fail_damaged(file_.path() + ": bytes " + std::to_string(begin) + " to " +
                 std::to_string(begin + static_cast<std::int64_t>(to.size())) + ", of the array " +
                 array_.name + (is_whole ? ", have a wrong checksum" : ", are cut off"));
  }

  const InputFile& file_;
  const IndexedArray& array_;
  const SavedTile& tile_;
  std::int64_t size_;
  std::vector<std::byte> scratch_;
  std::int64_t loaded_ = -1;
};

/// The intersection of two boxes of an array, as runs of bytes that are contiguous in both. It must
/// not be empty.
class Runs {
 public:
  Runs(const std::vector<IndexRange>& from, const std::vector<IndexRange>& to, std::int64_t element)
      : from_(from), to_(to), run_(element) {
    for (std::size_t dim = 0; dim < from.size(); ++dim) {
      both_.push_back(
          {std::max(from[dim].start, to[dim].start), std::min(from[dim].limit, to[dim].limit)});
    }
    from_strides_ = strides(sizes_of(from), element);
    to_strides_ = strides(sizes_of(to), element);
    // Trailing dimensions that are whole in both boxes form one run with the dimension before them.
    outer_ = both_.size();
    bool is_whole = true;
    while (outer_ > 0 && is_whole) {
      --outer_;
      run_ *= both_[outer_].limit - both_[outer_].start;
      is_whole = both_[outer_] == from[outer_] && both_[outer_] == to[outer_];
    }
  }

  std::int64_t run_bytes() const { return run_; }

  /// Calls visit(offset in `from`, offset in `to`, size) for each run, all in bytes, with rising
  /// offsets.
  template <typename Visit>
  void each(Visit visit) const {
    Shape at;
    for (const IndexRange& range : both_) at.push_back(range.start);
    while (true) {
      visit(offset(at, from_, from_strides_), offset(at, to_, to_strides_), run_);
      std::size_t dim = outer_;
      while (dim > 0 && ++at[dim - 1] == both_[dim - 1].limit) {
        --dim;
        at[dim] = both_[dim].start;
      }
      if (dim == 0) return;
    }
  }

 private:
  static Shape strides(const Shape& sizes, std::int64_t element) {
    Shape result = row_major_strides(sizes);
    for (std::int64_t& stride : result) stride *= element;
    return result;
  }
  static std::int64_t offset(const Shape& at, const std::vector<IndexRange>& box,
                             const Shape& strides) {
    std::int64_t bytes = 0;
    for (std::size_t dim = 0; dim < at.size(); ++dim)
      bytes += (at[dim] - box[dim].start) * strides[dim];
    return bytes;
  }

  const std::vector<IndexRange>& from_;
  const std::vector<IndexRange>& to_;
  std::vector<IndexRange> both_;
  Shape from_strides_, to_strides_;
  std::size_t outer_;  // the number of leading dimensions that each() loops over
  std::int64_t run_;   // bytes of one run
};

/// Calls visit(tile) for the saved tiles that overlap the part `wanted`. They are a box in the grid
/// of tiles.
template <typename Visit>
void each_tile(const IndexedArray& array, const std::vector<IndexRange>& wanted, Visit visit) {
  // An array without elements has no grid, whichever of its dimensions is 0.
  const auto is_empty = [](const IndexRange& range) { return range.start >= range.limit; };
  if (std::any_of(wanted.begin(), wanted.end(), is_empty)) return;
  std::vector<std::size_t> begin, end, at;
  for (std::size_t dim = 0; dim < wanted.size(); ++dim) {
    const Shape& starts = array.starts[dim];
    const auto last = std::lower_bound(starts.begin(), starts.end(), wanted[dim].limit);
    const auto first = std::upper_bound(starts.begin(), last, wanted[dim].start) - 1;
    begin.push_back(static_cast<std::size_t>(first - starts.begin()));
    end.push_back(static_cast<std::size_t>(last - starts.begin()));
  }
  at = begin;
  while (true) {
    std::size_t cell = 0;
    for (std::size_t dim = 0; dim < at.size(); ++dim)
      cell = cell * array.starts[dim].size() + at[dim];
    visit(array.tiles[cell]);
    std::size_t dim = at.size();
    while (dim > 0 && ++at[dim - 1] == end[dim - 1]) {
      --dim;
      at[dim] = begin[dim];
    }
    if (dim == 0) return;
  }
}

}  // namespace

const InputFile& SavedFiles::open(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<InputFile>& file = open_[name];
  if (file != nullptr) return *file;
  auto opened = std::make_unique<InputFile>("checkpoint", folder_ + "/" + name);
  const SavedFile& saved = index_.files.at(name);
  if (opened->size() != saved.size) {
    fail_damaged(opened->path() + " has " + std::to_string(opened->size()) + " bytes, not " +
                 std::to_string(saved.size));
  }
  std::vector<std::byte> header(static_cast<std::size_t>(saved.header_size));
  if (!opened->read(header, 0) || checksum(header) != saved.header_checksum)
    fail_damaged(opened->path() + ": the header has a wrong checksum");
  file = std::move(opened);
  return *file;
}

void read_part(SavedFiles& files, const IndexedArray& array, const std::vector<IndexRange>& wanted,
               std::span<std::byte> elements, HeldTiles* held) {
  each_tile(array, wanted, [&](const SavedTile& tile) {
    const Runs runs(tile.index, wanted, static_cast<std::int64_t>(size_bytes(array.type.dtype)));
    TileBytes bytes(files.open(tile.file), array, tile);
    const auto part = [&](std::int64_t to, std::int64_t size) {
      return elements.subspan(static_cast<std::size_t>(to), static_cast<std::size_t>(size));
    };
    if (held == nullptr || runs.run_bytes() >= kBlockBytes) {
      runs.each([&](std::int64_t from, std::int64_t to, std::int64_t size) {
        bytes.copy(from, part(to, size));
      });
      return;
    }
    const auto [place, is_new] = held->try_emplace(&tile);
    if (is_new) {
      place->second.resize(static_cast<std::size_t>(bytes_of(tile, array.type.dtype)));
      bytes.copy(0, place->second);
    }
    runs.each([&](std::int64_t from, std::int64_t to, std::int64_t size) {
      std::memcpy(part(to, size).data(), place->second.data() + from,
                  static_cast<std::size_t>(size));
    });
  });
}

}  // namespace tessera::checkpoint
