#include "checkpoint/index.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <set>
#include <xxhash.h>

#include <tessera/error.h>

#include "checkpoint/disk.h"
#include "checkpoint/json.h"

namespace tessera::checkpoint {

namespace {

constexpr const char* kFormat = "tessera checkpoint 1";
constexpr std::string_view kSeal = R"(,"checksum":")";
constexpr std::string_view kEnd = "\"}\n";
constexpr std::size_t kDigits = 16;  // of a checksum
constexpr std::string_view kStepPrefix = "step_";
constexpr std::size_t kStepDigits = 8;

std::string hex(std::uint64_t value) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string text(kDigits, '0');
  for (std::size_t i = kDigits; i-- > 0; value >>= 4) text[i] = kHex[value & 15U];
  return text;
}

std::vector<std::uint64_t> checksums_of(const std::string& text) {
  if (text.size() % kDigits != 0) throw BadText("a checksum does not have 16 digits");
  std::vector<std::uint64_t> values;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i % kDigits == 0) values.push_back(0);
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (!is_digit && (text[i] < 'a' || text[i] > 'f'))
      throw BadText("a checksum is not a hexadecimal number");
    values.back() = values.back() << 4 |
                    static_cast<std::uint64_t>(is_digit ? text[i] - '0' : text[i] - 'a' + 10);
  }
  return values;
}

Json json_of(const SavedTile& tile) {
  Shape start;
  for (const IndexRange& range : tile.index) start.push_back(range.start);
  std::string checksums;
  for (const std::uint64_t value : tile.checksums) checksums += hex(value);
  return {{"file", tile.file},
          {"start", start},
          {"shape", sizes_of(tile.index)},
          {"offset", tile.offset},
          {"checksums", checksums}};
}

Json json_of(const Index& index) {
  Json arrays = Json::object();
  for (const IndexedArray& array : index.arrays) {
    Json tiles = Json::array();
    for (const SavedTile& tile : array.tiles) tiles.push_back(json_of(tile));
    arrays[array.name] = {{"dtype", safetensors_name(array.type.dtype)},
                          {"shape", array.type.shape},
                          {"tiles", std::move(tiles)}};
  }
  Json files = Json::object();
  for (const auto& [name, file] : index.files) {
    files[name] = {{"size", file.size},
                   {"header_size", file.header_size},
                   {"header_checksum", hex(file.header_checksum)}};
  }
  Json object = {{"format", kFormat},           {"step", index.step},
                 {"block", kBlockBytes},        {"metadata", index.metadata},
                 {"arrays", std::move(arrays)}, {"files", std::move(files)}};
  if (index.metric) object["metric"] = *index.metric;
  return object;
}

std::string sealed(const Json& object) {
  std::string text = dump_json(object);
  text.pop_back();
  const std::string seal = hex(checksum(std::as_bytes(std::span(text))));
  return text + std::string(kSeal) + seal + std::string(kEnd);
}

Json unsealed(std::string_view text) {
  const std::size_t tail = kSeal.size() + kDigits + kEnd.size();
  if (text.size() < tail || !text.ends_with(kEnd)) throw BadText("it is cut off");
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view seal = text.substr(body.size(), tail - kEnd.size());
  if (!seal.starts_with(kSeal) ||
      seal.substr(kSeal.size()) != hex(checksum(std::as_bytes(std::span(body))))) {
    throw BadText("its checksum does not match");
  }
  return parse_json(text);
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

SavedTile tile_of(const Json& object, const IndexedArray& array, const Index& index) {
  SavedTile tile{.file = text_at(object, "file"), .index = {}, .checksums = {}};
  const Shape start = shape_at(object, "start");
  const Shape sizes = shape_at(object, "shape");
  const Shape& whole = array.type.shape;
  if (start.size() != whole.size() || sizes.size() != whole.size())
    throw BadText("a tile of " + array.name + " has the wrong rank");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (start[i] > whole[i] || sizes[i] > whole[i] - start[i])
      throw BadText("a tile of " + array.name + " reaches beyond the array");
    tile.index.push_back({start[i], start[i] + sizes[i]});
  }
  const auto file = index.files.find(tile.file);
  if (file == index.files.end()) throw BadText("a tile is in a file that is not listed");
  tile.offset = whole_number_at(object, "offset");
  const std::int64_t bytes = bytes_of(tile, array.type.dtype);
  if (tile.offset < file->second.header_size || tile.offset > file->second.size ||
      bytes > file->second.size - tile.offset) {
    throw BadText("a tile of " + array.name + " reaches beyond its file");
  }
  tile.checksums = checksums_of(text_at(object, "checksums"));
  const std::int64_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  if (static_cast<std::int64_t>(tile.checksums.size()) != blocks)
    throw BadText("a tile of " + array.name + " has the wrong number of checksums");
  return tile;
}

/// Whether a tile comes before another in row-major order.
bool is_before(const SavedTile& a, const SavedTile& b) {
  return std::lexicographical_compare(
      a.index.begin(), a.index.end(), b.index.begin(), b.index.end(),
      [](const IndexRange& x, const IndexRange& y) { return x.start < y.start; });
}

/// Sorts the tiles in row-major order, sets `starts`, and throws BadText unless the tiles cover the
/// array without overlap. Tiles must be the cells of a grid. So it is enough to check that the
/// ranges of each dimension follow each other and that each cell has exactly one tile.
void arrange(IndexedArray& array) {
  if (num_elements(array.type.shape) == 0) return;
  const auto fail = [&] {
    throw BadText("the tiles of " + array.name + " do not cover the array exactly once");
  };
  std::size_t cells = 1;
  for (std::size_t dim = 0; dim < array.type.shape.size(); ++dim) {
    std::set<std::pair<std::int64_t, std::int64_t>> ranges;
    for (const SavedTile& tile : array.tiles)
      ranges.insert({tile.index[dim].start, tile.index[dim].limit});
    Shape& starts = array.starts.emplace_back();
    std::int64_t reached = 0;
    for (const auto& [start, limit] : ranges) {
      if (start != reached) fail();
      starts.push_back(start);
      reached = limit;
    }
    if (reached != array.type.shape[dim]) fail();
    if (ranges.empty() || cells > array.tiles.size()) fail();
    cells *= ranges.size();
  }
  if (cells != array.tiles.size()) fail();
  std::sort(array.tiles.begin(), array.tiles.end(), is_before);
  for (std::size_t i = 1; i < array.tiles.size(); ++i) {
    if (!is_before(array.tiles[i - 1], array.tiles[i])) fail();
  }
}

std::map<std::string, SavedFile> files_of(const Json& object) {
  std::map<std::string, SavedFile> files;
  if (!object.is_object()) throw BadText("files is not an object");
  for (const auto& [name, value] : object.items()) {
    const std::vector<std::uint64_t> header = checksums_of(text_at(value, "header_checksum"));
    const SavedFile file{.size = whole_number_at(value, "size"),
                         .header_size = whole_number_at(value, "header_size"),
                         .header_checksum = header.size() == 1 ? header[0] : 0};
    if (header.size() != 1 || file.header_size > file.size || !is_plain_name(name))
      throw BadText("the description of a file is not valid");
    files[name] = file;
  }
  return files;
}

Index index_of(const Json& object) {
  Index index;
  if (text_at(object, "format") != kFormat) throw BadText("it has an unknown format");
  if (whole_number_at(object, "block") != kBlockBytes)
    throw BadText("its blocks have an unsupported size");
  index.step = whole_number_at(object, "step");
  if (const auto metric = object.find("metric"); metric != object.end()) {
    // JSON has no NaN and no infinity: such a metric is written as null.
    if (!metric->is_number() && !metric->is_null()) throw BadText("metric is not a number");
    if (metric->is_number()) index.metric = metric->get<double>();
  }
  for (const auto& [name, value] : member(object, "metadata").items()) {
    if (!value.is_string()) throw BadText("a value of metadata is not a string");
    index.metadata[name] = value;
  }
  index.files = files_of(member(object, "files"));
  const Json& arrays = member(object, "arrays");
  if (!arrays.is_object()) throw BadText("arrays is not an object");
  for (const auto& [name, value] : arrays.items()) {
    IndexedArray array{.name = name, .type = {}, .tiles = {}};
    array.type = {dtype_of_safetensors(text_at(value, "dtype")), shape_at(value, "shape")};
    const Json& tiles = member(value, "tiles");
    if (!tiles.is_array()) throw BadText("tiles is not a list");
    for (const Json& tile : tiles) array.tiles.push_back(tile_of(tile, array, index));
    index.arrays.push_back(std::move(array));
  }
  return index;
}

}  // namespace

const IndexedArray* Index::find(const std::string& name) const {
  const auto found = std::lower_bound(
      arrays.begin(), arrays.end(), name,
      [](const IndexedArray& array, const std::string& wanted) { return array.name < wanted; });
  return found != arrays.end() && found->name == name ? &*found : nullptr;
}

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::vector<std::uint64_t> block_checksums(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> values;
  for (std::size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    values.push_back(
        checksum(bytes.subspan(at, std::min<std::size_t>(kBlockBytes, bytes.size() - at))));
  }
  return values;
}

Shape sizes_of(const std::vector<IndexRange>& index) {
  Shape sizes;
  for (const IndexRange& range : index) sizes.push_back(range.limit - range.start);
  return sizes;
}

std::int64_t bytes_of(const SavedTile& tile, DType dtype) {
  return num_elements(sizes_of(tile.index)) * static_cast<std::int64_t>(size_bytes(dtype));
}

std::string to_text(const Index& index) { return sealed(json_of(index)); }

Index parse_index(std::string_view text) {
  Index index = index_of(unsealed(text));
  for (IndexedArray& array : index.arrays) arrange(array);
  return index;
}

Index read_index(const std::string& folder) {
  const std::string path = folder + "/" + kIndexName;
  if (kind_of(path) != PathKind::file) {
    throw UserError({.what = "checkpoint: this is not a checkpoint",
                     .found = kind_of(folder) != PathKind::none ? folder + " without " + kIndexName
                                                                : "no folder " + folder,
                     .wanted = "the folder of a saved checkpoint",
                     .cure = "check the path; `tessera checkpoint ls` lists what a folder holds"});
  }
  try {
    Index index = parse_index(InputFile("checkpoint", path).text());
    check_step_name(folder, index.step);
    return index;
  } catch (const BadText& error) {
    throw UserError({.what = "checkpoint: the index is damaged",
                     .found = path + ": " + error.what(),
                     .wanted = "the file that was saved",
                     .cure = "remove this step, so that the step before it becomes the last one; "
                             "`tessera checkpoint ls` lists the steps"});
  }
}

std::string part_to_text(const Index& part) { return sealed(json_of(part)); }

void add_part(Index& index, std::string_view text) {
  Index part = index_of(unsealed(text));
  index.files.merge(part.files);
  std::vector<IndexedArray> joined;
  auto own = index.arrays.begin();
  for (IndexedArray& array : part.arrays) {
    while (own != index.arrays.end() && own->name < array.name) joined.push_back(std::move(*own++));
    if (own == index.arrays.end() || own->name != array.name) {
      joined.push_back(std::move(array));
    } else {
      std::move(array.tiles.begin(), array.tiles.end(), std::back_inserter(own->tiles));
    }
  }
  std::move(own, index.arrays.end(), std::back_inserter(joined));
  index.arrays = std::move(joined);
}

std::string step_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return std::string(kStepPrefix) +
         std::string(kStepDigits - std::min(kStepDigits, digits.size()), '0') + digits;
}

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  std::int64_t step = -1;
  std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), step);
  return step >= 0 && name == step_name(step) ? std::optional(step) : std::nullopt;
}

void check_step_name(const std::string& folder, std::int64_t step,
                     const std::source_location& where) {
  const std::optional<std::int64_t> named =
      step_of(std::filesystem::path(folder).filename().string());
  if (!named || *named == step) return;
  throw UserError({.what = "checkpoint: the folder has the name of another step",
                   .where = where,
                   .found = folder + " with step " + std::to_string(step),
                   .wanted = step_name(step) + ", or a name that is not the name of a step",
                   .cure = "name the folder after the step that it holds"});
}

}  // namespace tessera::checkpoint
