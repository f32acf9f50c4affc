#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <tessera/checkpoint.h>
#include <tessera/engine.h>
#include <tessera/error.h>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "checkpoint/json.h"
#include "checkpoint/parallel.h"
#include "checkpoint/processes.h"
#include "checkpoint/read_tile.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save.h"

namespace tessera::checkpoint {

namespace {

/// Collects differences of one kind; shows the first few and the number of the others.
class Differences {
 public:
  explicit Differences(const char* kind) : kind_(kind) {}
  void add(const std::string& text) {
    if (count_++ < kShown) text_ += (text_.empty() ? "" : ", ") + text;
  }
  std::string text() const {
    if (count_ == 0) return {};
    const std::size_t left = count_ - std::min(count_, kShown);
    return std::string(kind_) + text_ +
           (left > 0 ? " and " + std::to_string(left) + " more" : std::string());
  }

 private:
  static constexpr std::size_t kShown = 4;
  const char* kind_;
  std::size_t count_ = 0;
  std::string text_;
};

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  }
  return text;
}

/// The name in the checkpoint of an array of the target.
std::string saved_name(const std::string& name, const RestoreOptions& options) {
  return options.subtree.empty() ? name : options.subtree + "/" + name;
}

/// The path below which the checkpoint has all arrays of the target; empty if there is none. Slots
/// of an optimiser have the names of parameters too, but their paths are longer.
std::string subtree_with(const Index& index, const std::vector<RestoreTarget>& targets) {
  std::string found;
  for (const IndexedArray& array : index.arrays) {
    const std::string end = "/" + targets.front().name;
    if (!array.name.ends_with(end)) continue;
    const std::string path = array.name.substr(0, array.name.size() - end.size());
    const bool has_all = std::all_of(targets.begin(), targets.end(), [&](const auto& target) {
      return index.find(path + "/" + target.name) != nullptr;
    });
    if (has_all && (found.empty() || path.size() < found.size())) found = path;
  }
  return found;
}

/// What to do about arrays that differ.
std::string cure_of(const Index& index, const std::string& path,
                    const std::vector<RestoreTarget>& targets, bool has_missing, bool has_others) {
  const std::string subtree = has_missing ? subtree_with(index, targets) : "";
  if (!subtree.empty()) return "restore a part of the checkpoint: {.subtree = \"" + subtree + "\"}";
  std::string cure = "restore with the sizes and dtypes that were saved; `tessera checkpoint ls " +
                     path + "` lists them";
  if (has_missing)
    cure += "; {.ignore_missing = true} keeps the values of the target for what was not saved";
  if (has_others) cure += "; {.ignore_others = true} leaves out what the target does not have";
  return cure;
}

void check_model(const Index& index, const std::string& path,
                 const std::vector<RestoreTarget>& targets, const RestoreOptions& options,
                 const std::source_location& where) {
  Differences missing("it does not have ");
  Differences other("it has ");
  Differences besides("it also has ");
  std::vector<std::string> names;
  for (const RestoreTarget& target : targets) {
    const std::string name = saved_name(target.name, options);
    names.push_back(name);
    const IndexedArray* saved = index.find(name);
    if (saved == nullptr && !options.ignore_missing) {
      missing.add(name + " " + to_string(target.type));
    } else if (saved != nullptr && saved->type != target.type) {
      other.add(name + " " + to_string(saved->type) + " instead of " + to_string(target.type));
    }
  }
  std::sort(names.begin(), names.end());
  const std::string below = saved_name("", options);
  for (const IndexedArray& array : index.arrays) {
    if (options.ignore_others || !array.name.starts_with(below) ||
        std::binary_search(names.begin(), names.end(), array.name))
      continue;
    besides.add(array.name + " " + to_string(array.type));
  }
  const std::string found = joined({missing.text(), other.text(), besides.text()});
  if (found.empty()) return;
  throw UserError(
      {.what = "restore: the checkpoint is of another model",
       .where = where,
       .found = path + ": " + found,
       .wanted = "the " + std::to_string(targets.size()) + " arrays of the target",
       .cure = cure_of(index, path, targets, !missing.text().empty(), !besides.text().empty())});
}

/// Throws UserError if the options name a subtree that the checkpoint does not have.
void check_subtree(const Index& index, const std::string& path, const RestoreOptions& options,
                   const std::source_location& where) {
  const std::string below = saved_name("", options);
  for (const IndexedArray& array : index.arrays) {
    if (array.name.starts_with(below)) return;
  }
  if (options.subtree.empty()) return;
  throw UserError({.what = "restore: the checkpoint has no arrays at this path",
                   .where = where,
                   .found = path + ": none below " + options.subtree,
                   .wanted = "the path of a subtree, such as params",
                   .cure = "`tessera checkpoint ls " + path + "` lists the arrays"});
}

/// The value that a leaf of the target keeps because it was not saved.
Array kept_value(const NamedArray& leaf, const NamedSharding& sharding, const std::string& path,
                 const std::source_location& where) {
  if (leaf.array.is_concrete()) return device_put(leaf.array, sharding, {}, where);
  throw UserError({.what = "restore: an array that was not saved has no value in the target",
                   .where = where,
                   .found = path + ": it does not have " + leaf.name + " " +
                            to_string(leaf.array.type()) + ", and the target has only its type",
                   .wanted = "a target whose arrays have values, for {.ignore_missing = true}",
                   .cure = "make the target by the constructor of the model, not by eval_shape"});
}

}  // namespace

std::vector<Array> restore_arrays(const std::string& folder,
                                  const std::vector<RestoreTarget>& targets,
                                  const RestoreOptions& options, std::source_location where) {
  const std::string path = plain_path(folder);
  std::vector<Array> arrays(targets.size());
  all_or_none([&] {
    const Index index = read_index(path);
    check_subtree(index, path, options, where);
    check_model(index, path, targets, options, where);
    SavedFiles files(path, index);
    parallel_for(targets.size(), num_threads(), [&](std::size_t i) {
      const RestoreTarget& target = targets[i];
      const IndexedArray* const saved = index.find(saved_name(target.name, options));
      if (saved == nullptr) return;  // ignore_missing
      // A single process reads the tiles of all devices, and several of them may need bytes of the
      // same block.
      HeldTiles held;
      HeldTiles* const shared =
          process_count() == 1 && !target.sharding.is_fully_replicated() ? &held : nullptr;
      arrays[i] = make_array_from_callback(
          target.type, target.sharding,
          [&](const std::vector<IndexRange>& part, std::span<std::byte> elements) {
            read_part(files, *saved, part, elements, shared);
          },
          where);
    });
  });
  return arrays;
}

std::vector<Array> detail::restore_leaves(const std::string& path,
                                          const std::vector<NamedArray>& leaves,
                                          const std::vector<NamedSharding>& shardings,
                                          const RestoreOptions& options,
                                          const std::source_location& where) {
  std::vector<RestoreTarget> targets;
  for (const NamedArray& leaf : leaves) {
    targets.push_back(
        {.name = leaf.name, .type = leaf.array.type(where), .sharding = shardings[targets.size()]});
  }
  std::vector<Array> arrays = restore_arrays(path, targets, options, where);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].is_empty()) arrays[i] = kept_value(leaves[i], shardings[i], path, where);
  }
  return arrays;
}

bool is_checkpoint(const std::string& path) {
  return kind_of(plain_path(path) + "/" + kIndexName) != PathKind::none;
}

CheckpointInfo read_info(const std::string& folder) {
  const std::string path = plain_path(folder);
  const Index index = read_index(path);
  CheckpointInfo info{.step = index.step, .metric = index.metric, .metadata = index.metadata};
  for (const auto& [name, file] : index.files) {
    info.bytes += file.size;
    info.files.push_back(name);
  }
  for (const IndexedArray& array : index.arrays) {
    info.arrays.push_back({.name = array.name,
                           .type = array.type,
                           .num_tiles = static_cast<std::int64_t>(array.tiles.size())});
  }
  return info;
}

namespace {

/// Runs `look` and returns what its error says; empty if it throws none.
std::string problem_of(const std::function<void()>& look) {
  try {
    look();
  } catch (const UserError& error) {
    return error.mistake().found;
  } catch (const RuntimeFault& fault) {
    return fault.what();
  } catch (const BadText& error) {
    return error.what();
  }
  return {};
}

struct TileOfArray {
  const IndexedArray* array;
  const SavedTile* tile;
};

/// Throws BadText unless the header of a file lists exactly `tiles`, which the index has in this
/// file, at the same offsets. Other programs rely on the header, not on the index.
void check_header(const InputFile& file, const std::vector<TileOfArray>& tiles) {
  const Header header = read_header(file);
  std::unordered_map<std::string_view, const HeaderEntry*> entries;
  for (const HeaderEntry& entry : header.entries) entries[entry.name] = &entry;
  for (const auto& [array, tile] : tiles) {
    const auto found = entries.find(array->name);
    const Type type{array->type.dtype, sizes_of(tile->index)};
    if (found == entries.end() || found->second->type != type || !found->second->foreign.empty() ||
        header.size + found->second->begin != tile->offset) {
      throw BadText(file.path() + ": the header does not describe " + array->name +
                    " as the index describes it");
    }
  }
  if (tiles.size() != header.entries.size())
    throw BadText(file.path() + ": the header has arrays that are not in the index");
}

}  // namespace

std::vector<std::string> verify(const std::string& folder) {
  const std::string path = plain_path(folder);
  std::vector<std::string> problems;
  std::unordered_set<std::string> known;
  const auto look = [&](const std::function<void()>& body) {
    const std::string problem = problem_of(body);
    if (!problem.empty() && known.insert(problem).second) problems.push_back(problem);
    return problem.empty();
  };
  Index index;
  if (!look([&] { index = read_index(path); })) return problems;
  SavedFiles files(path, index);
  std::unordered_map<std::string_view, std::vector<TileOfArray>> tiles_of;
  for (const IndexedArray& array : index.arrays) {
    for (const SavedTile& tile : array.tiles) tiles_of[tile.file].push_back({&array, &tile});
  }
  std::unordered_set<std::string_view> bad_files;
  for (const auto& [name, file] : index.files) {
    if (!look([&] { check_header(files.open(name), tiles_of[name]); })) bad_files.insert(name);
  }
  std::vector<std::byte> elements;
  for (const IndexedArray& array : index.arrays) {
    for (const SavedTile& tile : array.tiles) {
      if (bad_files.contains(tile.file)) continue;
      elements.resize(static_cast<std::size_t>(bytes_of(tile, array.type.dtype)));
      look([&] { read_part(files, array, tile.index, elements); });
    }
  }
  return problems;
}

}  // namespace tessera::checkpoint
