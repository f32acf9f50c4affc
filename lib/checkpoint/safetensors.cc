#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <tessera/checkpoint.h>
#include <tessera/engine.h>

#include "checkpoint/disk.h"
#include "checkpoint/elements.h"
#include "checkpoint/json.h"

namespace tessera::checkpoint {

namespace {

constexpr const char* kMetadata = "__metadata__";
constexpr std::int64_t kSizeBytes = 8;
constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // the limit of other readers

/// The size of an element of a type that arrays do not have; 0 if this reader does not know it.
std::int64_t foreign_bytes(const std::string& dtype) {
  constexpr std::pair<const char*, std::int64_t> kSizes[] = {
      {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"C64", 8}};
  for (const auto& [name, bytes] : kSizes) {
    if (dtype == name) return bytes;
  }
  return 0;
}

bool has_size_of_type(const HeaderEntry& entry) {
  const std::int64_t found = entry.end - entry.begin;
  if (entry.foreign.empty()) return found == size_bytes(entry.type);
  const std::int64_t bytes = foreign_bytes(entry.foreign);
  return bytes == 0 || found == num_elements(entry.type.shape) * bytes;
}

HeaderEntry entry_of(const std::string& name, const Json& value) {
  HeaderEntry entry{.name = name, .type = {}};
  const std::string dtype = text_at(value, "dtype");
  entry.type.shape = shape_at(value, "shape");
  if (const std::optional<DType> known = find_safetensors_dtype(dtype)) {
    entry.type.dtype = *known;
  } else {
    entry.foreign = dtype;
  }
  const Json& offsets = member(value, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) throw BadText("data_offsets are not two numbers");
  entry.begin = whole_number(offsets[0]);
  entry.end = whole_number(offsets[1]);
  if (entry.begin > entry.end || !has_size_of_type(entry))
    throw BadText("data_offsets do not match the shape");
  return entry;
}

void check_metadata(const Json& metadata) {
  const bool is_texts =
      metadata.is_object() && std::all_of(metadata.begin(), metadata.end(),
                                          [](const Json& value) { return value.is_string(); });
  if (!is_texts) throw BadText("__metadata__ is not an object of strings");
}

}  // namespace

void lay_out(std::vector<HeaderEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    const std::size_t x = size_bytes(a.type.dtype);
    const std::size_t y = size_bytes(b.type.dtype);
    return x != y ? x > y : a.name < b.name;
  });
  std::int64_t offset = 0;
  for (HeaderEntry& entry : entries) {
    entry.begin = offset;
    entry.end = offset += size_bytes(entry.type);
  }
}

std::string header_text(const std::vector<HeaderEntry>& entries,
                        const std::map<std::string, std::string>& metadata) {
  Json object = Json::object();
  if (!metadata.empty()) object[kMetadata] = metadata;
  for (const HeaderEntry& entry : entries) {
    object[entry.name] = {{"dtype", safetensors_name(entry.type.dtype)},
                          {"shape", entry.type.shape},
                          {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string json = dump_json(object);
  json.append((8 - json.size() % 8) % 8, ' ');
  const auto size = static_cast<std::uint64_t>(json.size());
  std::string text(kSizeBytes, '\0');
  std::memcpy(text.data(), &size, sizeof(size));
  return text + json;
}

Header parse_header(std::string_view json, std::int64_t file_size) {
  Header header{.size = kSizeBytes + static_cast<std::int64_t>(json.size()), .entries = {}};
  const Json object = parse_json(json);
  if (!object.is_object()) throw BadText("the header is not an object");
  for (const auto& [name, value] : object.items()) {
    if (name == kMetadata) {
      check_metadata(value);
    } else {
      header.entries.push_back(entry_of(name, value));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const HeaderEntry& a, const HeaderEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  std::int64_t reached = 0;
  for (const HeaderEntry& entry : header.entries) {
    if (entry.begin != reached) throw BadText("the arrays overlap, or leave a gap");
    reached = entry.end;
  }
  const std::int64_t found = file_size - header.size;
  if (reached != found) {
    throw BadText("its arrays have " + std::to_string(reached) + " bytes, and " +
                  std::to_string(found) + " follow the header");
  }
  return header;
}

Header read_header(const InputFile& file) {
  std::uint64_t size = 0;
  if (!file.read(std::as_writable_bytes(std::span(&size, 1)), 0))
    throw BadText("it has fewer than 8 bytes");
  if (size > static_cast<std::uint64_t>(file.size() - kSizeBytes))
    throw BadText("the header is longer than the file");
  if (size > static_cast<std::uint64_t>(kMostHeaderBytes)) throw BadText("the header is too long");
  std::string json(static_cast<std::size_t>(size), '\0');
  if (!file.read(std::as_writable_bytes(std::span(json)), kSizeBytes))
    throw BadText("the header is longer than the file");
  return parse_header(json, file.size());
}

void write_safetensors(const std::string& path, const std::vector<NamedArray>& arrays,
                       std::source_location where) {
  std::vector<HeaderEntry> entries;
  std::map<std::string, const Array*> by_name;
  for (const NamedArray& item : arrays) {
    entries.push_back({.name = item.name, .type = item.array.type(where)});
    by_name[item.name] = &item.array;
  }
  check_names(arrays, "write_safetensors", where);
  lay_out(entries);
  const std::string header = header_text(entries);
  // Only the first process writes, but all of them take part in reading the elements.
  const bool is_writer = process_index() == 0;
  std::optional<WholeFile> file;
  if (is_writer) {
    file.emplace(local_disk(), path);
    file->write(std::as_bytes(std::span(header)), 0);
  }
  for (const HeaderEntry& entry : entries) {
    const Elements elements(*by_name.at(entry.name), where);
    if (!is_writer) continue;
    file->write(elements.bytes(), static_cast<std::int64_t>(header.size()) + entry.begin);
  }
  if (is_writer) file->commit();
}

}  // namespace tessera::checkpoint
