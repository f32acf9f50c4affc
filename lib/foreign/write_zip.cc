// Archives of stored files, and the two kinds of files that are such archives.
#include <map>
#include <zlib.h>

#include <tessera/error.h>

#include "data/little_endian.h"
#include "data/npy_file.h"
#include "foreign/foreign.h"
#include "foreign/write.h"

namespace tessera::foreign {

using data::little_endian;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::uint32_t checksum_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

constexpr std::uint64_t kIsElsewhere = 0xFFFFFFFF;  // in the extra field of wide numbers
constexpr std::uint64_t kNoDate = 0x0021;           // 1 January 1980

}  // namespace

void ZipWriter::write(const std::string& bytes) {
  append_(bytes_of(bytes));
  written_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  const Entry entry{name, checksum_of(bytes), bytes.size(), written_};
  const bool wide = is_wide(entry.size);
  const std::string extra = wide ? little_endian(1, 2) + little_endian(16, 2) +
                                       little_endian(entry.size, 8) + little_endian(entry.size, 8)
                                 : "";
  const std::uint64_t size = wide ? kIsElsewhere : entry.size;
  // Names are UTF-8: bit 11 of the flags.
  write("PK\x03\x04" + little_endian(wide ? 45 : 20, 2) + little_endian(0x800, 2) +
        little_endian(0, 2) + little_endian(0, 2) + little_endian(kNoDate, 2) +
        little_endian(entry.checksum, 4) + little_endian(size, 4) + little_endian(size, 4) +
        little_endian(name.size(), 2) + little_endian(extra.size(), 2) + name + extra);
  append_(bytes);
  written_ += bytes.size();
  entries_.push_back(entry);
}

void ZipWriter::finish() {
  const std::uint64_t begin = written_;
  for (const Entry& entry : entries_) {
    const bool wide = is_wide(entry.size) || is_wide(entry.begin);
    const std::string extra =
        wide ? little_endian(1, 2) + little_endian(24, 2) + little_endian(entry.size, 8) +
                   little_endian(entry.size, 8) + little_endian(entry.begin, 8)
             : "";
    const std::uint64_t size = wide ? kIsElsewhere : entry.size;
    write("PK\x01\x02" + little_endian(45, 2) + little_endian(wide ? 45 : 20, 2) +
          little_endian(0x800, 2) + little_endian(0, 2) + little_endian(0, 2) +
          little_endian(kNoDate, 2) + little_endian(entry.checksum, 4) + little_endian(size, 4) +
          little_endian(size, 4) + little_endian(entry.name.size(), 2) +
          little_endian(extra.size(), 2) + little_endian(0, 2) + little_endian(0, 2) +
          little_endian(0, 2) + little_endian(0, 4) +
          little_endian(wide ? kIsElsewhere : entry.begin, 4) + entry.name + extra);
  }
  const std::uint64_t end = written_;
  const std::uint64_t count = entries_.size();
  const bool wide = is_wide(end) || count >= 0xFFFF;
  if (wide) {
    write("PK\x06\x06" + little_endian(44, 8) + little_endian(45, 2) + little_endian(45, 2) +
          little_endian(0, 4) + little_endian(0, 4) + little_endian(count, 8) +
          little_endian(count, 8) + little_endian(end - begin, 8) + little_endian(begin, 8));
    write("PK\x06\x07" + little_endian(0, 4) + little_endian(end, 8) + little_endian(1, 4));
  }
  const std::uint64_t files = wide ? 0xFFFF : count;
  write("PK\x05\x06" + little_endian(0, 2) + little_endian(0, 2) + little_endian(files, 2) +
        little_endian(files, 2) + little_endian(wide ? kIsElsewhere : end - begin, 4) +
        little_endian(wide ? kIsElsewhere : begin, 4) + little_endian(0, 2));
}

// --- np.savez

void write_npz(const Sources& sources, const Append& append) {
  ZipWriter zip(append);
  for (const Source& source : sources) {
    const std::string header = data::npy_header_for(source.type);
    const std::vector<std::byte> elements = source.elements();
    std::vector<std::byte> file(header.size() + elements.size());
    std::copy_n(bytes_of(header).begin(), header.size(), file.begin());
    std::copy(elements.begin(), elements.end(),
              file.begin() + static_cast<std::ptrdiff_t>(header.size()));
    zip.add(source.name + ".npy", file);
  }
  zip.finish();
}

// --- torch.save

namespace {

/// Values in the language of pickles, protocol 2.
std::string pickled(const std::string& text) { return "X" + little_endian(text.size(), 4) + text; }
std::string pickled(std::int64_t value) {
  return std::string("\x8a\x08", 2) + little_endian(static_cast<std::uint64_t>(value), 8);
}
std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string tuple(const std::string& items) { return "(" + items + "t"; }
std::string tuple(const std::vector<std::int64_t>& items) {
  std::string text;
  for (const std::int64_t item : items) text += pickled(item);
  return tuple(text);
}

/// The call that makes a tensor of the storage in file `index`.
std::string pickled_tensor(const Type& type, std::size_t index) {
  const char* const storage = storage_name(type.dtype);
  const std::int64_t count = storage != nullptr ? num_elements(type.shape) : size_bytes(type);
  const std::string of_storage =
      storage != nullptr ? global("torch", storage) : global("torch.storage", "UntypedStorage");
  const std::string id = tuple(pickled("storage") + of_storage + pickled(std::to_string(index)) +
                               pickled("cpu") + pickled(count)) +
                         "Q";
  std::vector<std::int64_t> strides(type.shape.size(), 1);
  for (std::size_t dim = strides.size(); dim-- > 1;) {
    strides[dim - 1] = strides[dim] * std::max<std::int64_t>(1, type.shape[dim]);
  }
  const std::string no_hooks = global("collections", "OrderedDict") + ")R";
  std::string arguments = id + pickled(std::int64_t{0}) + tuple(type.shape) + tuple(strides) +
                          std::string("\x89") + no_hooks;
  if (storage == nullptr) arguments += global("torch", numpy_name(type.dtype));
  const char* const maker = storage != nullptr ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3";
  return global("torch._utils", maker) + tuple(arguments) + "R";
}

std::string with_dots(std::string path) {
  for (char& c : path) c = c == '/' ? '.' : c;
  return path;
}

}  // namespace

void write_torch(const Sources& sources, const Append& append) {
  std::string items;
  std::map<std::string, std::string> by_key;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::string key = with_dots(sources[i].name);
    const auto [taken, is_new] = by_key.try_emplace(key, sources[i].name);
    if (!is_new) {
      throw UserError({.what = "export: an array cannot be written for PyTorch",
                       .found = taken->second + " and " + sources[i].name,
                       .wanted = "paths that differ when dots replace slashes",
                       .cure = "export safetensors instead"});
    }
    items += pickled(key) + pickled_tensor(sources[i].type, i);
  }
  const std::string pickle = std::string("\x80\x02", 2) + "}(" + items + "u.";
  ZipWriter zip(append);
  zip.add("archive/data.pkl", bytes_of(pickle));
  zip.add("archive/byteorder", bytes_of("little"));
  for (std::size_t i = 0; i < sources.size(); ++i) {
    zip.add("archive/data/" + std::to_string(i), sources[i].elements());
  }
  zip.add("archive/version", bytes_of("3\n"));
  zip.finish();
}

}  // namespace tessera::foreign
