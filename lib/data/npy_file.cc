#include "data/npy_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include <tessera/error.h>
#include <tessera/ops.h>
#include <tessera/shardings.h>

#include "data/file.h"

namespace tessera::data {

namespace {

constexpr std::array<std::uint8_t, 6> kNpyMagic = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/// Parses and judges the header of one file.
class HeaderParser {
 public:
  HeaderParser(std::span<const std::uint8_t> bytes, const std::string& path,
               const NpyReader& reader)
      : bytes_(bytes), path_(path), reader_(reader) {}

  NpyHeader parse() const {
    if (bytes_.size() < 12 || !std::equal(kNpyMagic.begin(), kNpyMagic.end(), bytes_.begin())) {
      fail(0, "no NumPy signature");
    }
    const bool is_long = bytes_[6] > 1;
    const std::size_t begin = is_long ? 12 : 10;
    std::uint32_t size = 0;
    std::memcpy(&size, bytes_.data() + 8, is_long ? 4 : 2);
    if (size > bytes_.size() - begin) fail(8, "a header that is longer than the file");
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + begin, size);
    NpyHeader header{
        .type = std::string(type_of(text)),
        .is_column_major = text.find("'fortran_order': True") != std::string_view::npos,
        .shape = {},
        .begin = begin + size};
    if (header.type.empty()) fail(begin, "no type of the elements");
    if (!header.is_column_major && text.find("'fortran_order': False") == std::string_view::npos) {
      fail(begin, "no order of the elements");
    }
    const std::size_t shape = text.rfind("'shape':");  // a type may have a field of this name
    if (shape == std::string_view::npos) fail(10, "no shape");
    header.shape = shape_of(between(text.substr(shape), "'shape':", '(', ')'));
    return header;
  }

  /// Throws UserError unless the reader accepts the array.
  void check(const NpyHeader& header) const {
    if (!reader_.takes(header.type)) {
      fail(10, "the type `" + header.type.substr(0, 32) + "`", cure_of_type(header.type));
    }
    if (header.shape.size() < reader_.least_rank) {
      fail(10, "a single number", "write it with numpy.save(path, numpy.atleast_1d(array))");
    }
    const bool is_empty =
        std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end();
    if (is_empty && !reader_.takes_empty) {
      fail(10, "an array without elements", "save an array whose sizes are all 1 or more");
    }
    check_size(header);
  }

 private:
  [[noreturn]] void fail(std::uint64_t offset, const std::string& found,
                         const std::string& cure = "write the file again with NumPy") const {
    throw UserError({.what = "npy: the file cannot be read as an array",
                     .found = at_byte(path_, offset, found),
                     .wanted = reader_.wanted,
                     .cure = cure});
  }

  std::string cure_of_type(const std::string& type) const {
    const bool is_complex = type.starts_with("<c") || type.starts_with(">c");
    return is_complex ? "save two arrays: array.real and array.imag" : reader_.cure;
  }

  /// The text between the first `from` after the key and the next `to`; empty if one is missing.
  static std::string_view between(std::string_view text, std::string_view key, char from, char to) {
    const std::size_t at = text.find(key);
    if (at == std::string_view::npos) return {};
    const std::size_t begin = text.find(from, at + key.size());
    const std::size_t end = begin == std::string_view::npos ? begin : text.find(to, begin + 1);
    if (end == std::string_view::npos) return {};
    return text.substr(begin + 1, end - begin - 1);
  }

  /// The quoted type. A type of several fields is not quoted: then this is the list of the fields.
  static std::string_view type_of(std::string_view header) {
    constexpr std::string_view kName = "'descr':";
    const std::size_t at = header.find(kName);
    const std::size_t begin =
        at == std::string_view::npos ? at : header.find_first_not_of(' ', at + kName.size());
    if (begin == std::string_view::npos) return {};
    if (header[begin] == '\'') return between(header, kName, '\'', '\'');
    const std::size_t end = header.rfind(", 'fortran_order'");
    return end < begin ? std::string_view() : header.substr(begin, end - begin);
  }

  Shape shape_of(std::string_view text) const {
    Shape shape;
    while (!text.empty()) {
      const std::size_t comma = std::min(text.find(','), text.size());
      std::string_view word = text.substr(0, comma);
      word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
      text.remove_prefix(std::min(comma + 1, text.size()));
      if (word.empty()) continue;
      std::int64_t extent = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), extent);
      if (error != std::errc() || end != word.data() + word.size() || extent < 0 ||
          extent > std::int64_t{1} << 40U) {
        fail(10, "an invalid size `" + std::string(word.substr(0, 32)) + "`");
      }
      shape.push_back(extent);
    }
    return shape;
  }

  void check_size(const NpyHeader& header) const {
    auto size = static_cast<std::uint64_t>(header.type.back() - '0');
    for (const std::int64_t extent : header.shape) {
      if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(extent), &size)) {
        fail(10, "an array of more than 2^64 bytes");
      }
    }
    const std::size_t rest = bytes_.size() - header.begin;
    if (size == rest) return;
    fail(header.begin,
         std::to_string(rest) + " bytes of data, " + std::to_string(size) + " in the header");
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& path_;
  const NpyReader& reader_;
};

}  // namespace

std::vector<std::uint8_t> row_major(const std::uint8_t* from, const Shape& shape,
                                    std::size_t size) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(num_elements(shape)) * size);
  Shape index(shape.size(), 0);
  for (std::size_t to = 0; to < result.size(); to += size) {
    std::int64_t at = 0;
    for (std::size_t i = shape.size(); i-- > 0;) at = at * shape[i] + index[i];
    std::memcpy(&result[to], from + static_cast<std::size_t>(at) * size, size);
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
  return result;
}

const char* npy_type(DType dtype) {
  static constexpr const char* kTypes[] = {"|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2",
                                           "<u4", "<u8", "<f2", "|V2", "<f4", "<f8"};
  static_assert(std::size(kTypes) == std::size(kAllDTypes));
  return kTypes[static_cast<std::size_t>(dtype)];
}

bool NpyReader::takes(std::string_view type) const {
  return std::find(types.begin(), types.end(), type) != types.end();
}

NpyHeader npy_header(std::span<const std::uint8_t> bytes, const std::string& path,
                     const NpyReader& reader) {
  return HeaderParser(bytes, path, reader).parse();
}

NpyHeader accepted_npy_header(std::vector<std::uint8_t>& bytes, const std::string& path,
                              const NpyReader& reader) {
  const HeaderParser parser(bytes, path, reader);
  NpyHeader header = parser.parse();
  parser.check(header);
  if (header.is_column_major) {
    const auto size = static_cast<std::size_t>(header.type.back() - '0');
    const std::vector<std::uint8_t> elements =
        row_major(bytes.data() + header.begin, header.shape, size);
    std::copy(elements.begin(), elements.end(),
              bytes.begin() + static_cast<std::ptrdiff_t>(header.begin));
  }
  return header;
}

Array read_npy(const std::string& path) {
  static const NpyReader reader = [] {
    NpyReader all{.types = {},
                  .least_rank = 0,
                  .takes_empty = true,
                  .wanted = "an array of bool, integers or floats, in little-endian order",
                  .cure =
                      "write it with numpy.save(path, array.astype(\"<f4\")), or as one of the "
                      "other types"};
    for (const DType dtype : kAllDTypes) {
      if (dtype != DType::bf16) all.types.push_back(npy_type(dtype));
    }
    return all;
  }();
  std::vector<std::uint8_t> bytes =
      read_file(path, "npy", "a readable .npy file", "check the path");
  const NpyHeader header = accepted_npy_header(bytes, path, reader);
  const DType dtype = *std::find_if(std::begin(kAllDTypes), std::end(kAllDTypes),
                                    [&](DType each) { return npy_type(each) == header.type; });
  return make_array_from_callback(
      {dtype, header.shape}, NamedSharding(),
      [&](const std::vector<IndexRange>& /*whole*/, std::span<std::byte> elements) {
        // A bool of NumPy is a byte that is 0 or 1.
        for (std::size_t i = 0; i < elements.size(); ++i) {
          const std::uint8_t byte = bytes[header.begin + i];
          elements[i] = std::byte{dtype == DType::boolean ? std::uint8_t{byte != 0} : byte};
        }
      });
}

std::string npy_header_for(const Type& type) {
  std::string shape;  // a tuple of Python: (4, 3), (5,), ()
  for (const std::int64_t size : type.shape) {
    shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  }
  if (type.shape.size() == 1) shape += ",";
  std::string header = "{'descr': '" + std::string(npy_type(type.dtype)) +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  // The elements begin at a multiple of 64 bytes, behind a line break.
  constexpr std::size_t kBefore = kNpyMagic.size() + 4;
  header.resize((kBefore + header.size() + 64) / 64 * 64 - kBefore - 1, ' ');
  header += '\n';
  std::string start(kNpyMagic.begin(), kNpyMagic.end());
  start += {'\1', '\0'};
  start += {static_cast<char>(header.size() & 255U), static_cast<char>(header.size() >> 8U)};
  return start + header;
}

std::string npy_bytes(const Array& array) {
  const Array x = array.dtype() == DType::bf16 ? astype(array, DType::f32) : array;
  std::string file = npy_header_for(x.type());
  const Array whole = device_put(x, NamedSharding());
  for (const Shard& shard : whole.addressable_shards()) {
    const std::span<const std::byte> elements = shard.bytes();
    file.append(reinterpret_cast<const char*>(elements.data()), elements.size());
  }
  return file;
}

}  // namespace tessera::data
