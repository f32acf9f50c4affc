// Exports checkpoints to the formats of other frameworks.
#include <algorithm>
#include <map>
#include <set>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "checkpoint/json.h"
#include "checkpoint/read_tile.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save.h"
#include "data/npy_file.h"
#include "foreign/write.h"

namespace tessera::checkpoint {

namespace {

/// The checkpoint to read and the folder to write.
struct Export {
  Disk& disk;
  SavedFiles& files;
  std::vector<std::pair<std::string, const IndexedArray*>> arrays;  // with their new names
  const Unfinished& target;

  void write_file(const std::string& name, const std::string& text) const {
    write_text(disk, target.place() + "/" + name, target.path() + "/" + name, text);
  }
  std::vector<std::byte> elements(const IndexedArray& array) const {
    std::vector<IndexRange> whole;
    for (const std::int64_t size : array.type.shape) whole.push_back({0, size});
    std::vector<std::byte> bytes(static_cast<std::size_t>(size_bytes(array.type)));
    read_part(files, array, whole, bytes);
    return bytes;
  }
};

// --- safetensors

std::string padded(std::size_t number) {
  const std::string text = std::to_string(number);
  return std::string(5 - std::min<std::size_t>(5, text.size()), '0') + text;
}

using Group = std::vector<std::size_t>;  // arrays of one file

std::vector<Group> groups_of(const Export& work, std::int64_t file_bytes) {
  std::vector<Group> groups(1);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < work.arrays.size(); ++i) {
    const std::int64_t size = size_bytes(work.arrays[i].second->type);
    if (!groups.back().empty() && bytes + size > file_bytes) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(i);
    bytes += size;
  }
  return groups;
}

void write_group(const Export& work, const Group& group, const std::string& name) {
  std::vector<HeaderEntry> entries;
  std::map<std::string, const IndexedArray*> by_name;
  for (const std::size_t i : group) {
    const auto& [new_name, array] = work.arrays[i];
    entries.push_back({.name = new_name, .type = array->type});
    by_name[new_name] = array;
  }
  lay_out(entries);
  const std::string header = header_text(entries, {{"format", "pt"}});
  OutputFile file(work.disk, work.target.place() + "/" + name, work.target.path() + "/" + name);
  file.write(std::as_bytes(std::span(header)), 0);
  for (const HeaderEntry& entry : entries) {
    file.write(work.elements(*by_name.at(entry.name)),
               static_cast<std::int64_t>(header.size()) + entry.begin);
  }
  file.sync();
}

void export_safetensors(const Export& work, std::int64_t file_bytes) {
  const std::vector<Group> groups = groups_of(work, file_bytes);
  Json weight_map = Json::object();
  std::int64_t total = 0;
  for (std::size_t k = 0; k < groups.size(); ++k) {
    const std::string name =
        "model-" + padded(k + 1) + "-of-" + padded(groups.size()) + ".safetensors";
    for (const std::size_t i : groups[k]) {
      weight_map[work.arrays[i].first] = name;
      total += size_bytes(work.arrays[i].second->type);
    }
    write_group(work, groups[k], name);
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  work.write_file("model.safetensors.index.json", dump_json(index));
}

// --- Orbax: Zarr arrays of one chunk each, and _METADATA with the tree

constexpr const char* kOrbaxTree = "_METADATA";

const char* zarr_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : data::npy_type(dtype);
}

std::vector<std::string> keys_of(const std::string& path) {
  std::vector<std::string> keys(1);
  for (const char c : path) {
    if (c == '/') {
      keys.emplace_back();
    } else {
      keys.back() += c;
    }
  }
  return keys;
}

std::string python_text(const std::string& key) {
  std::string text = "'";
  for (const char c : key) {
    if (c == '\'' || c == '\\') text += '\\';
    text += c;
  }
  return text + "'";
}

void write_zarr(const Export& work, const std::string& folder, const IndexedArray& array) {
  work.disk.make_folder(work.target.place() + "/" + folder, work.target.path() + "/" + folder);
  Shape chunks = array.type.shape;
  std::string chunk_name;
  for (std::int64_t& size : chunks) {
    size = std::max<std::int64_t>(1, size);
    chunk_name += chunk_name.empty() ? "0" : ".0";
  }
  const Json zarray = {{"chunks", chunks},
                       {"compressor", nullptr},
                       {"dimension_separator", "."},
                       {"dtype", zarr_name(array.type.dtype)},
                       {"fill_value", nullptr},
                       {"filters", nullptr},
                       {"order", "C"},
                       {"shape", array.type.shape},
                       {"zarr_format", 2}};
  work.write_file(folder + "/.zarray", dump_json(zarray));
  const std::vector<std::byte> elements = work.elements(array);
  if (!elements.empty()) {
    const std::string name = "/" + folder + "/" + (chunk_name.empty() ? "0" : chunk_name);
    OutputFile file(work.disk, work.target.place() + name, work.target.path() + name);
    file.write(elements, 0);
    file.sync();
  }
  work.disk.sync_folder(work.target.place() + "/" + folder, work.target.path() + "/" + folder);
}

/// Orbax names the folder of an array by its keys, with dots between them.
std::string orbax_folder(const std::vector<std::string>& keys) {
  std::string folder;
  for (const std::string& key : keys) folder += (folder.empty() ? "" : ".") + key;
  return folder;
}

/// Throws UserError unless each array has a folder of its own and a place of its own in the tree.
void check_orbax_names(const Export& work) {
  const auto fail = [](const std::string& found, const std::string& wanted) {
    throw UserError({.what = "export: an array cannot be written for Orbax",
                     .found = found,
                     .wanted = wanted,
                     .cure = "export safetensors instead"});
  };
  std::map<std::string, std::string> by_folder;
  std::set<std::string> names;
  for (const auto& [name, array] : work.arrays) {
    constexpr std::size_t kMostBytes = 255;  // of the name of a folder
    const std::vector<std::string> keys = keys_of(name);
    const std::string folder = orbax_folder(keys);
    const bool has_all_keys = std::find(keys.begin(), keys.end(), "") == keys.end();
    if (!has_all_keys || folder == "." || folder == ".." || folder == kOrbaxTree)
      fail("the path `" + name + "`", "paths whose keys can name a folder");
    if (folder.size() > kMostBytes)
      fail(name.substr(0, 64) + "... of " + std::to_string(name.size()) + " bytes",
           "paths of at most 255 bytes");
    const auto [taken, is_new] = by_folder.try_emplace(folder, name);
    if (!is_new)
      fail(taken->second + " and " + name, "paths that differ when dots replace slashes");
    names.insert(name);
  }
  for (const std::string& name : names) {
    for (std::size_t end = name.find('/'); end != std::string::npos;
         end = name.find('/', end + 1)) {
      if (names.contains(name.substr(0, end)))
        fail(name.substr(0, end) + " and " + name, "paths none of which continues another");
    }
  }
}

void export_orbax(const Export& work) {
  check_orbax_names(work);
  Json tree = Json::object();
  for (const auto& [name, array] : work.arrays) {
    std::string tuple;
    Json keys = Json::array();
    const std::vector<std::string> parts = keys_of(name);
    for (const std::string& key : parts) {
      tuple += (tuple.empty() ? "" : ", ") + python_text(key);
      keys.push_back({{"key", key}, {"key_type", 2}});
    }
    if (parts.size() == 1) tuple += ",";
    tree["(" + tuple + ")"] = {
        {"key_metadata", keys},
        {"value_metadata", {{"value_type", "np.ndarray"}, {"skip_deserialize", false}}}};
    write_zarr(work, orbax_folder(parts), *array);
  }
  work.write_file(kOrbaxTree, dump_json({{"tree_metadata", tree},
                                         {"use_ocdbt", false},
                                         {"use_zarr3", false},
                                         {"store_array_data_equal_to_fill_value", true},
                                         {"custom_metadata", nullptr}}));
}

// --- one file of another program

void export_file(const Export& work, const std::string& name,
                 void (*write)(const foreign::Sources&, const foreign::Append&)) {
  foreign::Sources sources;
  for (const auto& [new_name, array] : work.arrays) {
    sources.push_back({.name = new_name, .type = array->type, .elements = [&work, saved = array] {
                         return work.elements(*saved);
                       }});
  }
  OutputFile file(work.disk, work.target.place() + "/" + name, work.target.path() + "/" + name);
  std::int64_t size = 0;
  write(sources, [&](std::span<const std::byte> bytes) {
    file.write(bytes, size);
    size += std::ssize(bytes);
  });
  file.sync();
}

/// The arrays below `subtree`, with names relative to it, or the array at this path, with the last
/// part of its name; all arrays if it is empty.
std::vector<std::pair<std::string, const IndexedArray*>> below(const Index& index,
                                                               std::string subtree,
                                                               const std::string& path,
                                                               const std::source_location& where) {
  while (subtree.ends_with('/')) subtree.pop_back();
  std::vector<std::pair<std::string, const IndexedArray*>> arrays;
  for (const IndexedArray& array : index.arrays) {
    if (subtree.empty()) {
      arrays.emplace_back(array.name, &array);
    } else if (array.name.starts_with(subtree + "/")) {
      arrays.emplace_back(array.name.substr(subtree.size() + 1), &array);
    } else if (array.name == subtree) {
      arrays.emplace_back(subtree.substr(subtree.rfind('/') + 1), &array);
    }
  }
  if (!arrays.empty()) return arrays;
  throw UserError({.what = "export_checkpoint: the checkpoint has no arrays at this path",
                   .where = where,
                   .found = subtree.empty() ? "none at all" : "none below " + subtree,
                   .wanted = "the path of a subtree, such as params",
                   .cure = "`tessera checkpoint ls " + path + "` lists the arrays"});
}

}  // namespace

void export_checkpoint(const std::string& folder, const std::string& target,
                       const ExportOptions& options, std::source_location where) {
  const std::string path = plain_path(folder);
  const std::string to = plain_path(target);
  const Index index = read_index(path);
  if (kind_of(to) != PathKind::none) {
    throw UserError({.what = "export_checkpoint: the target path already exists",
                     .where = where,
                     .found = to,
                     .wanted = "a path that does not exist",
                     .cure = "choose another path, or remove what is there"});
  }
  auto arrays = below(index, options.subtree, path, where);
  SavedFiles files(path, index);
  Disk& disk = local_disk();
  Unfinished unfinished(disk, to);
  disk.make_folder(unfinished.place(), to);
  const Export work{disk, files, std::move(arrays), unfinished};
  switch (options.format) {
    case ExportFormat::safetensors:
      export_safetensors(work, options.file_bytes);
      break;
    case ExportFormat::orbax:
      export_orbax(work);
      break;
    case ExportFormat::npz:
      export_file(work, "arrays.npz", foreign::write_npz);
      break;
    case ExportFormat::torch:
      export_file(work, "weights.pt", foreign::write_torch);
      break;
    case ExportFormat::msgpack:
      export_file(work, "arrays.msgpack", foreign::write_msgpack);
      break;
  }
  disk.sync_folder(unfinished.place(), to);
  unfinished.commit();
}

}  // namespace tessera::checkpoint
