#include <algorithm>
#include <charconv>
#include <cstring>

#include <tessera/data.h>
#include <tessera/error.h>

#include "data/file.h"

namespace tessera::data {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr const char* kCure =
    "write it with numpy.save(path, array.astype(\"<f4\")), or as \"<i4\" or "
    "\"|u1\"";

[[noreturn]] void fail_at(const std::string& path, std::uint64_t offset, const std::string& found) {
  throw UserError({.what = "npy: the file cannot be read as an array",
                   .found = at_byte(path, offset, found),
                   .wanted = "a row-major array of |u1, <i4 or <f4 with at least one dimension",
                   .cure = kCure});
}

/// The contents of the header.
struct Header {
  std::size_t type = 0;  // index into the variant HostArray::values
  Shape shape;
  std::size_t data = 0;  // offset of the elements in the file
};

/// The text between the first `from` after the key and the next `to`; empty if one is missing.
std::string_view between(std::string_view text, std::string_view key, char from, char to) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  const std::size_t begin = text.find(from, at + key.size());
  const std::size_t end = begin == std::string_view::npos ? begin : text.find(to, begin + 1);
  if (end == std::string_view::npos) return {};
  return text.substr(begin + 1, end - begin - 1);
}

Shape parse_shape(std::string_view text, const std::string& path) {
  Shape shape;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view word = text.substr(0, comma);
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (word.empty()) continue;
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), extent);
    if (error != std::errc() || end != word.data() + word.size() || extent < 1 ||
        extent > std::int64_t{1} << 40U) {
      fail_at(path, 10, "an extent `" + std::string(word.substr(0, 32)) + "`");
    }
    shape.push_back(extent);
  }
  if (shape.empty()) fail_at(path, 10, "no shape");
  return shape;
}

Header parse_header(const Bytes& bytes, const std::string& path) {
  constexpr std::array<std::uint8_t, 6> kMagic = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  if (bytes.size() < 12 || !std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) {
    fail_at(path, 0, "no NumPy signature");
  }
  const bool is_long = bytes[6] > 1;
  const std::size_t begin = is_long ? 12 : 10;
  std::uint32_t size = 0;
  std::memcpy(&size, bytes.data() + 8, is_long ? 4 : 2);
  if (size > bytes.size() - begin) fail_at(path, 8, "a header that is longer than the file");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + begin, size);
  Header header{.type = 0, .shape = {}, .data = begin + size};
  constexpr std::array<std::string_view, 3> kTypes = {"|u1", "<i4", "<f4"};
  const std::string_view type = between(text, "'descr':", '\'', '\'');
  header.type =
      static_cast<std::size_t>(std::find(kTypes.begin(), kTypes.end(), type) - kTypes.begin());
  if (header.type == kTypes.size()) {
    fail_at(path, begin, "the type `" + std::string(type.substr(0, 32)) + "`");
  }
  if (text.find("'fortran_order': False") == std::string_view::npos) {
    fail_at(path, begin, "an array that is not row-major");
  }
  header.shape = parse_shape(between(text, "'shape':", '(', ')'), path);
  return header;
}

class Npy final : public Source {
 public:
  explicit Npy(const std::string& path)
      : bytes_(read_file(path, "npy", "a readable .npy file", "check the path")),
        header_(parse_header(bytes_, path)) {
    std::uint64_t size = header_.type == 0 ? 1 : 4;
    for (const std::int64_t extent : header_.shape) {
      if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(extent), &size)) {
        fail_at(path, 10, "an array of more than 2^64 bytes");
      }
    }
    if (size != bytes_.size() - header_.data) {
      fail_at(path, header_.data,
              std::to_string(bytes_.size() - header_.data) + " bytes of data, " +
                  std::to_string(size) + " in the header");
    }
    record_bytes_ = size / static_cast<std::uint64_t>(header_.shape[0]);
  }
  std::int64_t size() const override { return header_.shape[0]; }
  Record read(std::int64_t record, RecordRandom& /*random*/) const override {
    HostArray field{.shape = {header_.shape.begin() + 1, header_.shape.end()}, .values = {}};
    const std::uint8_t* from =
        bytes_.data() + header_.data + static_cast<std::uint64_t>(record) * record_bytes_;
    if (header_.type == 0) field.values = copied<std::uint8_t>(from);
    if (header_.type == 1) field.values = copied<std::int32_t>(from);
    if (header_.type == 2) field.values = copied<float>(from);
    return {std::move(field)};
  }

 private:
  template <typename T>
  std::vector<T> copied(const std::uint8_t* from) const {
    std::vector<T> values(record_bytes_ / sizeof(T));
    std::memcpy(values.data(), from, record_bytes_);
    return values;
  }

  Bytes bytes_;
  Header header_;
  std::uint64_t record_bytes_ = 0;
};

}  // namespace

Dataset npy(const std::string& path) { return Dataset(std::make_shared<Npy>(path)); }

}  // namespace tessera::data
