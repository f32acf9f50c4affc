// Reads zip archives: files that are stored or deflated.
#include <algorithm>
#include <cstring>
#include <zlib.h>

#include "checkpoint/json.h"
#include "foreign/foreign.h"

namespace tessera::foreign {

namespace {

using checkpoint::BadText;

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kLocatorBytes = 20;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;

class Archive {
 public:
  explicit Archive(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::vector<ZipEntry> entries() const {
    const auto [first, count] = directory();
    std::vector<ZipEntry> found;
    std::uint64_t at = first;
    std::uint64_t packed = 0;  // bytes of all files
    for (std::uint64_t i = 0; i < count; ++i) at = add_entry(at, packed, found);
    return found;
  }

 private:
  template <typename T>
  T number(std::uint64_t at) const {
    if (at > bytes_.size() || bytes_.size() - at < sizeof(T))
      throw BadText("the archive is cut off");
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }
  std::span<const std::uint8_t> part(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) throw BadText("the archive is cut off");
    return bytes_.subspan(at, size);
  }

  /// Where the list of files begins, and how many there are.
  std::pair<std::uint64_t, std::uint64_t> directory() const {
    if (bytes_.size() < kEndBytes) throw BadText("the archive has no end");
    const std::uint64_t last = bytes_.size() - kEndBytes;
    const std::uint64_t first = last > 0xFFFF ? last - 0xFFFF : 0;  // a comment may follow the end
    for (std::uint64_t at = last + 1; at-- > first;) {
      if (number<std::uint32_t>(at) != kEnd) continue;
      const bool is_long =
          at >= kLocatorBytes && number<std::uint32_t>(at - kLocatorBytes) == kLocator64;
      if (!is_long) return {number<std::uint32_t>(at + 16), number<std::uint16_t>(at + 10)};
      const auto end = number<std::uint64_t>(at - kLocatorBytes + 8);
      if (number<std::uint32_t>(end) != kEnd64) throw BadText("the archive has no end");
      return {number<std::uint64_t>(end + 48), number<std::uint64_t>(end + 32)};
    }
    throw BadText("the archive has no end");
  }

  struct Sizes {
    std::uint64_t whole, packed, offset;
  };
  /// Sizes that do not fit 32 bits stand in an extra field.
  Sizes sizes_of(std::uint64_t at, std::uint64_t extra, std::uint64_t extra_end) const {
    Sizes sizes{.whole = number<std::uint32_t>(at + 24),
                .packed = number<std::uint32_t>(at + 20),
                .offset = number<std::uint32_t>(at + 42)};
    constexpr std::uint16_t kLongSizes = 1;
    while (extra + 4 <= extra_end) {
      const auto id = number<std::uint16_t>(extra);
      const std::uint64_t next = extra + 4 + number<std::uint16_t>(extra + 2);
      if (id == kLongSizes) {
        std::uint64_t from = extra + 4;
        for (std::uint64_t* size : {&sizes.whole, &sizes.packed, &sizes.offset}) {
          if (*size != 0xFFFFFFFF) continue;
          *size = number<std::uint64_t>(from);
          from += sizeof(std::uint64_t);
        }
      }
      extra = next;
    }
    return sizes;
  }

  /// Adds the file of the list at `at`; returns where the next one is.
  std::uint64_t add_entry(std::uint64_t at, std::uint64_t& packed,
                          std::vector<ZipEntry>& found) const {
    if (number<std::uint32_t>(at) != kCentral) throw BadText("the list of files is damaged");
    const auto method = number<std::uint16_t>(at + 10);
    const auto checksum = number<std::uint32_t>(at + 16);
    const std::uint64_t name_size = number<std::uint16_t>(at + 28);
    const std::uint64_t extra = at + kCentralBytes + name_size;
    const std::uint64_t extra_end = extra + number<std::uint16_t>(at + 30);
    const Sizes sizes = sizes_of(at, extra, extra_end);
    const auto name = part(at + kCentralBytes, name_size);
    // Files that share their bytes could need any amount of memory.
    if (sizes.packed > bytes_.size() - packed) throw BadText("the files of the archive overlap");
    packed += sizes.packed;
    if (number<std::uint32_t>(sizes.offset) != kLocal) throw BadText("a file is not in its place");
    const std::uint64_t begin = sizes.offset + kLocalBytes +
                                number<std::uint16_t>(sizes.offset + 26) +
                                number<std::uint16_t>(sizes.offset + 28);
    ZipEntry entry{.name = std::string(name.begin(), name.end()),
                   .content = unpacked(part(begin, sizes.packed), method, sizes.whole)};
    const std::span<const std::uint8_t> bytes = entry.content.bytes;
    if (crc32_z(0, bytes.data(), bytes.size()) != checksum)
      throw BadText("the checksum of " + entry.name + " does not match");
    found.push_back(std::move(entry));
    return extra_end + number<std::uint16_t>(at + 32);
  }

  static Content unpacked(std::span<const std::uint8_t> packed, std::uint16_t method,
                          std::uint64_t size) {
    constexpr std::uint16_t kStored = 0, kDeflated = 8;
    constexpr std::uint64_t kMostRatio = 1032;  // of deflate
    if (method == kStored && size == packed.size()) return {.bytes = packed};
    if (method != kDeflated || size > kMostBytes || size > packed.size() * kMostRatio)
      throw BadText("a file is compressed with an unknown method");
    Bytes bytes(size);
    z_stream stream = {};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    const bool is_whole = inflated(stream, packed, bytes);
    inflateEnd(&stream);
    if (!is_whole) throw BadText("a compressed file is damaged");
    return content_of(std::move(bytes));
  }

  /// zlib counts 32 bits at a time.
  static bool inflated(z_stream& stream, std::span<const std::uint8_t> packed,
                       std::span<std::uint8_t> bytes) {
    constexpr std::size_t kBlock = std::size_t{1} << 30;
    std::size_t read = 0;
    std::size_t written = 0;
    int state = Z_OK;
    while (state == Z_OK) {
      const std::size_t in = std::min(kBlock, packed.size() - read);
      const std::size_t out = std::min(kBlock, bytes.size() - written);
      stream.next_in = const_cast<Bytef*>(packed.data() + read);  // NOLINT: zlib only reads it
      stream.next_out = bytes.data() + written;
      stream.avail_in = static_cast<uInt>(in);
      stream.avail_out = static_cast<uInt>(out);
      state = inflate(&stream, Z_NO_FLUSH);
      read += in - stream.avail_in;
      written += out - stream.avail_out;
    }
    return state == Z_STREAM_END && written == bytes.size();
  }

  std::span<const std::uint8_t> bytes_;
};

}  // namespace

std::vector<ZipEntry> read_zip(std::span<const std::uint8_t> archive) {
  return Archive(archive).entries();
}

}  // namespace tessera::foreign
