#include "foreign/orbax/key_values.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <set>

#include "checkpoint/disk.h"
#include "data/crc32c.h"
#include "data/file.h"
#include "data/varint.h"
#include "foreign/cursor.h"
#include "foreign/orbax/zstd_frame.h"

namespace tessera::foreign {

using checkpoint::BadText;
using checkpoint::kind_of;
using checkpoint::PathKind;

namespace {

constexpr std::uint32_t kManifestMagic = 0x0CDB3A2A, kNodeMagic = 0x0CDB20DE;
constexpr std::uint64_t kMissing = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMostNodeBytes = std::uint64_t{1} << 27;
constexpr std::uint64_t kMostPathBytes = 1 << 16;
constexpr const char* kManifest = "/manifest.ocdbt";

std::uint64_t varint(Cursor& cursor) {
  const std::optional<std::uint64_t> value = data::read_varint([&] { return cursor.byte(); });
  if (!value) throw BadText("a number of more than 64 bits");
  return *value;
}

/// `count` numbers in sequence. Each takes a byte at least.
std::vector<std::uint64_t> varints(Cursor& cursor, std::uint64_t count) {
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = 0; i < count; ++i) values.push_back(varint(cursor));
  return values;
}

/// What is between the header and the checksum of a manifest or a node.
Bytes body_of(std::span<const std::uint8_t> block, std::uint32_t magic) {
  Cursor cursor(block);
  if (cursor.big_endian<std::uint32_t>() != magic) throw BadText("a block of another kind");
  if (cursor.little_endian<std::uint64_t>() != block.size())
    throw BadText("a block of another size");
  if (varint(cursor) != 0) throw BadText("a later version of the format OCDBT");
  const std::uint64_t compression = varint(cursor);
  if (block.size() - cursor.at() < 4) throw BadText("it is cut off");
  const auto body = cursor.take(block.size() - cursor.at() - 4);
  const auto checked = block.first(cursor.at());
  if (cursor.little_endian<std::uint32_t>() != data::crc32c(checked))
    throw BadText("a wrong checksum");
  if (compression == 1) return unpack_zstd(body, kMostNodeBytes);
  if (compression != 0) throw BadText("an unknown compression");
  return {body.begin(), body.end()};
}

/// A data file; the paths that a node names are relative to `base`.
struct DataFile {
  std::string base, path;
};

/// Each text begins with a part of the one before it; `suffixes` has the lengths of the rest.
std::vector<std::string> prefixed_texts(Cursor& cursor, const std::vector<std::uint64_t>& prefixes,
                                        const std::vector<std::uint64_t>& suffixes) {
  std::vector<std::string> texts;
  std::uint64_t total = 0;  // a few bytes can stand for many long texts
  for (std::size_t i = 0; i < suffixes.size(); ++i) {
    std::string text;
    if (i > 0) {
      if (prefixes[i - 1] > texts[i - 1].size()) throw BadText("a prefix that is too long");
      text = texts[i - 1].substr(0, prefixes[i - 1]);
    }
    text += cursor.text(suffixes[i]);
    total += text.size();
    if (text.size() > kMostPathBytes || total > kMostNodeBytes)
      throw BadText("a path that is too long");
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<DataFile> data_files(Cursor& cursor, const std::string& base) {
  const std::uint64_t count = varint(cursor);
  if (count == 0) return {};
  const auto prefixes = varints(cursor, count - 1);
  const auto suffixes = varints(cursor, count);
  const auto bases = varints(cursor, count);
  std::vector<DataFile> files;
  for (const std::string& path : prefixed_texts(cursor, prefixes, suffixes)) {
    const std::uint64_t own_base = bases[files.size()];
    if (own_base > path.size()) throw BadText("a base path that is too long");
    files.push_back({.base = base + path.substr(0, own_base), .path = base + path});
    if (files.back().path.size() > kMostPathBytes) throw BadText("a path that is too long");
  }
  return files;
}

const DataFile& file_at(const std::vector<DataFile>& files, std::uint64_t index) {
  if (index >= files.size()) throw BadText("a data file that is not listed");
  return files[index];
}

/// A block of a data file.
struct Place {
  DataFile file;
  std::uint64_t offset = 0, length = 0;
};

std::vector<Place> places(Cursor& cursor, const std::vector<DataFile>& files, std::uint64_t count) {
  const auto ids = varints(cursor, count);
  const auto offsets = varints(cursor, count);
  const auto lengths = varints(cursor, count);
  std::vector<Place> result;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_missing = offsets[i] == kMissing;
    result.push_back({.file = is_missing ? DataFile() : file_at(files, ids[i]),
                      .offset = offsets[i],
                      .length = lengths[i]});
  }
  return result;
}

/// Paths in a database stay inside its folder.
Bytes read_part(const std::string& folder, const std::string& path, std::uint64_t offset,
                std::uint64_t length) {
  const std::filesystem::path inside = std::filesystem::path(path).lexically_normal();
  if (inside.is_absolute() || path.find('\0') != std::string::npos ||
      inside.begin() == inside.end() || *inside.begin() == "..") {
    throw BadText("a data file outside of the folder");
  }
  std::ifstream file(folder + "/" + inside.string(), std::ios::binary | std::ios::ate);
  if (!file) throw BadText("the data file " + inside.string() + " cannot be opened");
  const auto size = static_cast<std::uint64_t>(file.tellg());
  if (offset > size || length > size - offset) {
    throw BadText("the data file " + inside.string() + " is cut off");
  }
  Bytes bytes(length);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(length));
  if (!file) throw BadText("the data file " + inside.string() + " cannot be read");
  return bytes;
}

/// The root of the latest version of the tree.
Place root_of(Cursor& cursor) {
  cursor.take(16);  // the id of the database
  if (cursor.byte() != 0) throw BadText("a manifest in several files");
  varint(cursor);                           // the most bytes of a value in a node
  varint(cursor);                           // the most bytes of a node
  cursor.byte();                            // the arity of the tree of versions
  if (varint(cursor) == 1) cursor.take(4);  // the level of the compression
  const std::vector<DataFile> files = data_files(cursor, "");
  const std::uint64_t count = varint(cursor);
  if (count == 0) throw BadText("a manifest without a version");
  varints(cursor, count);  // numbers of the versions
  cursor.take(count);      // heights of the trees
  return places(cursor, files, count).back();
}

}  // namespace

/// Reads all nodes of a tree.
class OcdbtTree {
 public:
  explicit OcdbtTree(KeyValues& store) : store_(store) {}

  /// Reads a node whose keys begin with `prefix`, and those below it. `height` is that of the node
  /// above, so that a tree without end is found out.
  void read(const Place& place, const std::string& prefix, int height) {
    if (!read_.insert({place.file.path, place.offset}).second) {
      throw BadText("a node that occurs twice in the tree");
    }
    const Bytes block = read_part(store_.folder_, place.file.path, place.offset, place.length);
    const Bytes body = body_of(block, kNodeMagic);
    Cursor cursor(body);
    const int own_height = cursor.byte();
    if (own_height >= height) throw BadText("a node below one of the same height");
    const std::vector<DataFile> files = data_files(cursor, place.file.base);
    const std::uint64_t count = varint(cursor);
    if (count == 0) throw BadText("a node without entries");
    const auto prefixes = varints(cursor, count - 1);
    const auto suffixes = varints(cursor, count);
    if (own_height > 0) {
      const auto shared = varints(cursor, count);
      const auto keys = prefixed_texts(cursor, prefixes, suffixes);
      const std::vector<Place> below = places(cursor, files, count);
      for (std::size_t i = 0; i < count; ++i) {
        read(below[i], prefix + keys[i].substr(0, shared[i]), own_height);
      }
    } else {
      read_values(cursor, files, prefix, prefixed_texts(cursor, prefixes, suffixes));
    }
  }

 private:
  void read_values(Cursor& cursor, const std::vector<DataFile>& files, const std::string& prefix,
                   const std::vector<std::string>& keys) {
    const auto lengths = varints(cursor, keys.size());
    const auto kinds = cursor.take(keys.size());
    const auto elsewhere = static_cast<std::uint64_t>(std::count(kinds.begin(), kinds.end(), 1));
    const auto ids = varints(cursor, elsewhere);
    const auto offsets = varints(cursor, elsewhere);
    std::size_t next = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (kinds[i] > 1) throw BadText("a value of an unknown kind");
      KeyValues::Value& value = store_.values_[prefix + keys[i]];
      value.length = lengths[i];
      if (kinds[i] == 1) {
        value.path = file_at(files, ids[next]).path;
        value.offset = offsets[next++];
      } else {
        const auto here = cursor.take(lengths[i]);
        value.here.assign(here.begin(), here.end());
      }
    }
  }

  KeyValues& store_;
  std::set<std::pair<std::string, std::uint64_t>> read_;  // nodes
};

KeyValues::KeyValues(std::string folder) : folder_(std::move(folder)) {
  is_database_ = kind_of(folder_ + kManifest) == PathKind::file;
  if (!is_database_) return;
  const std::optional<Bytes> manifest = data::read_bytes(folder_ + kManifest);
  if (!manifest) throw BadText("the file manifest.ocdbt cannot be read");
  const Bytes body = body_of(*manifest, kManifestMagic);
  Cursor cursor(body);
  const Place root = root_of(cursor);
  constexpr int kAboveAll = 256;
  if (root.offset != kMissing) OcdbtTree(*this).read(root, "", kAboveAll);
}

std::optional<Bytes> KeyValues::read(const std::string& key) const {
  if (!is_database_) {
    if (kind_of(folder_ + "/" + key) != PathKind::file) return std::nullopt;
    return data::read_bytes(folder_ + "/" + key);
  }
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  const Value& value = found->second;
  if (value.path.empty()) return value.here;
  return read_part(folder_, value.path, value.offset, value.length);
}

std::uint64_t KeyValues::stored_bytes(const std::string& prefix) const {
  std::uint64_t bytes = 0;
  if (!is_database_) {
    std::error_code ignored;
    using Walk = std::filesystem::recursive_directory_iterator;
    for (const auto& entry : Walk(folder_ + "/" + prefix, ignored)) {
      if (entry.is_regular_file(ignored)) bytes += entry.file_size(ignored);
    }
    return bytes;
  }
  for (auto it = values_.lower_bound(prefix); it != values_.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    bytes += it->second.length;
  }
  return bytes;
}

}  // namespace tessera::foreign
