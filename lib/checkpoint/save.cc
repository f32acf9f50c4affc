#include "checkpoint/save.h"

#include <algorithm>

#include <tessera/engine.h>
#include <tessera/error.h>

#include "checkpoint/elements.h"
#include "checkpoint/index.h"
#include "checkpoint/json.h"
#include "checkpoint/parallel.h"
#include "checkpoint/processes.h"
#include "checkpoint/safetensors.h"

namespace tessera::checkpoint {

namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;  // what a thread takes at a time
constexpr std::int64_t kWriteBytes = std::int64_t{1} << 20;   // in cache from checksum to write

/// A tile to be written, and its entry in the index.
struct PlannedTile {
  const Snapshot::Item* array;
  const Shard* shard;
  SavedTile saved;
};

/// The file of one device.
struct PlannedFile {
  std::string name;
  std::string header;
  std::vector<PlannedTile> tiles;
};

/// PyTorch's reader of distributed checkpoints joins the tiles of files that have this name and the
/// metadata of header_metadata().
std::string file_name(std::int64_t device) {
  const std::string number = std::to_string(device + 1);
  return "shard-" + std::string(5 - std::min<std::size_t>(5, number.size()), '0') + number +
         "-model-00001-of-00001.safetensors";
}

Metadata header_metadata(const std::vector<PlannedTile>& tiles) {
  Json offsets = Json::object();
  for (const PlannedTile& tile : tiles) {
    Shape starts;
    for (const IndexRange& range : tile.shard->index) starts.push_back(range.start);
    offsets[tile.array->name] = {{"saved_offsets", starts}};
  }
  return {{"DCP_SHARDING_INFO", dump_json(offsets)}, {"format", "pt"}};
}

void lay_out(PlannedFile& file) {
  std::vector<HeaderEntry> entries;
  std::map<std::string, PlannedTile*> by_name;
  for (PlannedTile& tile : file.tiles) {
    by_name[tile.array->name] = &tile;
    entries.push_back(
        {.name = tile.array->name, .type = {tile.array->type.dtype, sizes_of(tile.shard->index)}});
  }
  lay_out(entries);
  file.header = header_text(entries, header_metadata(file.tiles));
  for (const HeaderEntry& entry : entries) {
    SavedTile& saved = by_name.at(entry.name)->saved;
    saved.offset = static_cast<std::int64_t>(file.header.size()) + entry.begin;
    saved.checksums.resize(
        static_cast<std::size_t>((entry.end - entry.begin + kBlockBytes - 1) / kBlockBytes));
  }
}

std::vector<PlannedFile> plan_files(const Snapshot& state) {
  std::map<std::int64_t, PlannedFile> by_device;
  for (const Snapshot::Item& array : state.arrays) {
    for (const Shard& shard : array.tiles) {
      PlannedFile& file = by_device[shard.device];
      file.name = file_name(shard.device);
      file.tiles.push_back({.array = &array,
                            .shard = &shard,
                            .saved = {.file = file.name, .index = shard.index, .checksums = {}}});
    }
  }
  std::vector<PlannedFile> files;
  for (auto& [device, file] : by_device) {
    lay_out(file);
    files.push_back(std::move(file));
  }
  return files;
}

/// A part of a tile, in bytes; `begin` is a multiple of kBlockBytes, and so is `end` unless it is
/// the end of the tile.
struct Piece {
  OutputFile* file;
  PlannedTile* tile;
  std::int64_t begin, end;
};

void write_piece(const Piece& piece) {
  const std::span<const std::byte> bytes = piece.tile->shard->bytes();
  SavedTile& saved = piece.tile->saved;
  for (std::int64_t at = piece.begin; at < piece.end; at += kWriteBytes) {
    const auto part =
        bytes.subspan(static_cast<std::size_t>(at),
                      static_cast<std::size_t>(std::min(kWriteBytes, piece.end - at)));
    const std::vector<std::uint64_t> checksums = block_checksums(part);
    std::copy(checksums.begin(), checksums.end(), saved.checksums.begin() + at / kBlockBytes);
    piece.file->write(part, saved.offset + at);
  }
}

void write_files(Disk& disk, std::vector<PlannedFile>& files, const std::string& place,
                 const std::string& path, int threads) {
  std::vector<std::unique_ptr<OutputFile>> open;
  std::vector<Piece> pieces;
  for (PlannedFile& file : files) {
    open.push_back(
        std::make_unique<OutputFile>(disk, place + "/" + file.name, path + "/" + file.name));
    open.back()->write(std::as_bytes(std::span(file.header)), 0);
    for (PlannedTile& tile : file.tiles) {
      const auto size = static_cast<std::int64_t>(tile.shard->bytes().size());
      for (std::int64_t at = 0; at < size; at += kPieceBytes)
        pieces.push_back({open.back().get(), &tile, at, std::min(size, at + kPieceBytes)});
    }
  }
  parallel_for(pieces.size(), threads, [&](std::size_t i) { write_piece(pieces[i]); });
  parallel_for(open.size(), threads, [&](std::size_t i) { open[i]->sync(); });
}

/// The index of these files, which may be a part of the checkpoint.
Index index_of(const Snapshot& state, const std::vector<PlannedFile>& files) {
  Index index{.step = state.options.step,
              .metric = state.options.metric,
              .metadata = state.options.metadata,
              .arrays = {},
              .files = {}};
  std::map<std::string, IndexedArray> arrays;
  for (const Snapshot::Item& array : state.arrays) {
    if (array.tiles.empty()) continue;
    arrays[array.name] = {.name = array.name, .type = array.type, .tiles = {}};
  }
  for (const PlannedFile& file : files) {
    const auto header_size = static_cast<std::int64_t>(file.header.size());
    SavedFile& saved = index.files[file.name];
    saved = {.size = header_size,
             .header_size = header_size,
             .header_checksum = checksum(std::as_bytes(std::span(file.header)))};
    for (const PlannedTile& tile : file.tiles) {
      saved.size += static_cast<std::int64_t>(tile.shard->bytes().size());
      arrays[tile.array->name].tiles.push_back(tile.saved);
    }
  }
  for (auto& [name, array] : arrays) index.arrays.push_back(std::move(array));
  return index;
}

std::string part_name(int rank) { return "part-" + std::to_string(rank) + ".json"; }

/// The index of the whole checkpoint, joined from the parts that all processes have written.
/// Removes the parts.
Index joined_index(const Snapshot& state, const std::string& place) {
  Index index = index_of(state, {});
  for (int rank = 0; rank < process_count(); ++rank) {
    const std::string part = place + "/" + part_name(rank);
    add_part(index, InputFile("checkpoint", part).text());
    remove_file(part);
  }
  return index;
}

void check_place(const std::string& path) {
  const PathKind kind = kind_of(path);
  if (kind == PathKind::none || kind_of(path + "/" + kIndexName) != PathKind::none) return;
  if (kind == PathKind::folder && names_in(path).empty()) return;
  throw UserError({.what = "checkpoint: something else exists at this path",
                   .found = path + ", which is not a checkpoint",
                   .wanted = "a new path, or the path of a checkpoint to replace",
                   .cure = "choose another path"});
}

}  // namespace

std::string plain_path(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Snapshot snapshot(const std::vector<NamedArray>& arrays, SaveOptions options,
                  const std::source_location& where) {
  check_names(arrays, "checkpoint", where);
  Snapshot state{.arrays = {}, .options = std::move(options)};
  for (const NamedArray& item : arrays) {
    std::vector<Shard> tiles = item.array.addressable_shards(where);
    const Mesh mesh = item.array.sharding(where).mesh;
    const std::int64_t devices = mesh.num_devices();
    const std::int64_t first = mesh.device_ids()[0];
    const bool has_elements = item.array.size(where) > 0;
    // Write each tile once, from the first device that holds it. Of an array without elements,
    // write one empty tile, from the first device of the mesh.
    std::erase_if(tiles, [&](const Shard& shard) {
      if (shard.replica_id != 0) return true;
      return has_elements ? shard.bytes().empty() : shard.device % devices != first;
    });
    state.arrays.push_back({item.name, item.array.type(where), std::move(tiles)});
  }
  return state;
}

CheckpointWriter::CheckpointWriter(Disk& disk, Snapshot state, std::string path)
    : disk_(disk),
      state_(std::move(state)),
      path_(std::move(path)),
      place_(hidden_name(path_, "unfinished")) {
  all_or_none([&] {
    if (process_index() != 0) return;
    check_place(path_);
    unfinished_.emplace(disk_, path_);
    disk_.make_folder(place_, path_);
  });
}

void CheckpointWriter::write_files(int threads) noexcept {
  try {
    std::vector<PlannedFile> files = plan_files(state_);
    tessera::checkpoint::write_files(disk_, files, place_, path_, threads);
    index_ = index_of(state_, files);
    if (process_count() > 1) {
      write_text(disk_, place_ + "/" + part_name(process_index()), path_, part_to_text(index_));
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  for (Snapshot::Item& item : state_.arrays) item.tiles.clear();
}

void CheckpointWriter::finish() {
  all_or_none([&] {
    if (failure_) std::rethrow_exception(failure_);
  });
  all_or_none([&] {
    if (process_index() != 0) return;
    if (process_count() > 1) index_ = joined_index(state_, place_);
    write_text(disk_, place_ + "/" + kIndexName, path_ + "/" + kIndexName, to_text(index_));
    disk_.sync_folder(place_, path_);
    unfinished_->commit();
    unfinished_.reset();
  });
}

void write_checkpoint(Disk& disk, const Snapshot& state, const std::string& path, int threads) {
  CheckpointWriter writer(disk, state, path);
  writer.write_files(threads);
  writer.finish();
}

void save_arrays(const std::string& path, const std::vector<NamedArray>& arrays,
                 const SaveOptions& options, std::source_location where) {
  const std::string to = plain_path(path);
  check_step_name(to, options.step, where);
  write_checkpoint(local_disk(), snapshot(arrays, options, where), to, num_threads());
}

}  // namespace tessera::checkpoint
