// Reads ArrayRecord files: Riegeli files whose last block says where the records end and the index
// of the records begins.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <list>
#include <mutex>
#include <span>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <tessera/data.h>
#include <tessera/error.h>

#include "data/file.h"
#include "data/highway_hash.h"
#include "data/varint.h"

namespace tessera::data {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kBlock = 1 << 16;
constexpr std::uint64_t kBlockHeader = 24;
constexpr std::uint64_t kChunkHeader = 40;
constexpr std::uint64_t kMagic = 0x71930e704fdae05e;
constexpr std::uint64_t kMostChunkBytes = std::uint64_t{1} << 29;
constexpr std::size_t kKept = 8;  // decoded chunks that are cached

std::uint64_t word_at(std::span<const std::uint8_t> bytes, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

/// An open file. Its errors give the position in the file.
class File {
 public:
  explicit File(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY)) {
    struct stat status {};
    const bool is_open = fd_ >= 0 && ::fstat(fd_, &status) == 0;
    if (is_open && S_ISREG(status.st_mode)) {
      size_ = static_cast<std::uint64_t>(status.st_size);
      return;
    }
    const std::string why = is_open ? "not a file" : std::strerror(errno);
    if (fd_ >= 0) ::close(fd_);
    throw UserError({.what = "array_record: the file cannot be opened",
                     .found = path + ": " + why,
                     .wanted = "a readable ArrayRecord file",
                     .cure = "check the path"});
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const { return size_; }
  [[noreturn]] void fail(std::uint64_t at, const std::string& found) const {
    throw UserError({.what = "array_record: the file is damaged",
                     .found = at_byte(path_, at, found),
                     .wanted = "an ArrayRecord file as its writer left it",
                     .cure = "copy or write the file again"});
  }
  [[noreturn]] void fail_kind(std::uint64_t at, const std::string& found) const {
    throw UserError(
        {.what = "array_record: the records are stored in a form that is not supported",
         .found = at_byte(path_, at, found),
         .wanted = "chunks that are not transposed, and are uncompressed or compressed with zstd",
         .cure = "write the file with the options `group_size:1,zstd`"});
  }

  /// Reads `count` bytes of content from offset `at` on and moves `at` to their end. Skips the
  /// headers at the beginning of each block, which are not content.
  Bytes read(std::uint64_t& at, std::uint64_t count) const {
    if (count > size_ || at > size_ - count) {
      fail(at, "the file ends " + std::to_string(size_) +
                   " bytes from its start, in the middle of " + "a chunk");
    }
    Bytes bytes(count);
    std::uint64_t done = 0;
    while (done < count) {
      if (at % kBlock < kBlockHeader) at += kBlockHeader - at % kBlock;
      const std::uint64_t part = std::min(count - done, kBlock - at % kBlock);
      const ssize_t got = ::pread(fd_, bytes.data() + done, part, static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        fail(at, got < 0 ? std::strerror(errno) : "the file ends in the middle of a chunk");
      }
      done += static_cast<std::uint64_t>(got);
      at += static_cast<std::uint64_t>(got);
    }
    return bytes;
  }

 private:
  std::string path_;
  int fd_;
  std::uint64_t size_ = 0;
};

/// Reads numbers and parts from the bytes of a chunk whose checksum has been checked.
class Cursor {
 public:
  Cursor(std::span<const std::uint8_t> bytes, const File& file, std::uint64_t chunk)
      : bytes_(bytes), file_(file), chunk_(chunk) {}
  bool is_at_end() const { return at_ == bytes_.size(); }
  std::uint64_t left() const { return bytes_.size() - at_; }
  std::uint8_t byte() {
    if (is_at_end()) file_.fail(chunk_, "a chunk that ends too early");
    return bytes_[at_++];
  }
  std::uint64_t varint() {
    const std::optional<std::uint64_t> value = read_varint([this] { return byte(); });
    if (!value) file_.fail(chunk_, "a number of more than 64 bits");
    return *value;
  }
  std::span<const std::uint8_t> part(std::uint64_t count) {
    if (count > left()) file_.fail(chunk_, "a part that is longer than its chunk");
    const auto result = bytes_.subspan(at_, count);
    at_ += count;
    return result;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  const File& file_;
  std::uint64_t chunk_;
  std::size_t at_ = 0;
};

struct Chunk {
  std::uint64_t begin = 0, data = 0, end = 0;  // offsets in the file
  std::uint64_t data_bytes = 0, data_hash = 0, num_records = 0, decoded_bytes = 0;
  std::uint8_t type = 0;
};

/// Reads and checks the header of the chunk at `begin`.
Chunk read_chunk(const File& file, std::uint64_t begin) {
  Chunk chunk{.begin = begin, .data = begin};
  const Bytes header = file.read(chunk.data, kChunkHeader);
  if (highway_hash(std::span(header).subspan(8)) != word_at(header, 0)) {
    file.fail(begin, "the header of a chunk with a wrong checksum");
  }
  chunk.data_bytes = word_at(header, 8);
  chunk.data_hash = word_at(header, 16);
  chunk.type = header[24];
  chunk.num_records = word_at(header, 24) >> 8U;
  chunk.decoded_bytes = word_at(header, 32);
  if (chunk.data_bytes > file.size() || chunk.data > file.size() - chunk.data_bytes) {
    file.fail(begin, "a chunk of " + std::to_string(chunk.data_bytes) + " bytes in a file of " +
                         std::to_string(file.size()));
  }
  // The end of the data in the file: every block boundary that the data crosses adds a block
  // header.
  const std::uint64_t in_block = std::max(chunk.data % kBlock, kBlockHeader) - kBlockHeader;
  constexpr std::uint64_t kContent = kBlock - kBlockHeader;
  const std::uint64_t content = in_block + chunk.data_bytes;
  chunk.end = chunk.data - chunk.data % kBlock + content / kContent * kBlock + content % kContent;
  if (content % kContent != 0) chunk.end += kBlockHeader;
  // Riegeli addresses a record by the begin of its chunk plus its number. Chunks with many small
  // records are padded so that all addresses differ.
  std::uint64_t least = begin + chunk.num_records;
  if (least % kBlock > 0 && least % kBlock < kBlockHeader) least += kBlockHeader - least % kBlock;
  chunk.end = std::max(chunk.end, least);
  return chunk;
}

Bytes read_data(const File& file, const Chunk& chunk) {
  std::uint64_t at = chunk.data;
  Bytes data = file.read(at, chunk.data_bytes);
  if (highway_hash(data) != chunk.data_hash)
    file.fail(chunk.begin, "a chunk with a wrong checksum");
  return data;
}

/// Decompresses a part of a chunk.
Bytes decompressed(std::span<const std::uint8_t> part, std::uint8_t compression, const File& file,
                   std::uint64_t chunk) {
  if (compression == 0) return {part.begin(), part.end()};
  if (compression != 'z') {
    file.fail_kind(chunk, std::string("a chunk compressed with ") +
                              (compression == 'b' ? "brotli" : "an unknown method"));
  }
  Cursor cursor(part, file, chunk);
  const std::uint64_t size = cursor.varint();
  if (size > kMostChunkBytes) file.fail(chunk, "a chunk of more than 512 MiB");
  const auto frame = cursor.part(cursor.left());
  Bytes plain(size);
  const std::size_t got = ZSTD_decompress(plain.data(), plain.size(), frame.data(), frame.size());
  if (ZSTD_isError(got) != 0 || got != size) file.fail(chunk, "zstd data that cannot be read");
  return plain;
}

/// The records of one chunk, concatenated.
struct Records {
  Bytes values;
  std::vector<std::uint64_t> ends;
};

Records read_records(const File& file, const Chunk& chunk) {
  const Bytes data = read_data(file, chunk);
  Cursor cursor(data, file, chunk.begin);
  const std::uint8_t compression = cursor.byte();
  const std::uint64_t sizes_bytes = cursor.varint();
  const Bytes sizes = decompressed(cursor.part(sizes_bytes), compression, file, chunk.begin);
  Records records;
  records.values = decompressed(cursor.part(cursor.left()), compression, file, chunk.begin);
  Cursor size(sizes, file, chunk.begin);
  std::uint64_t end = 0;
  while (!size.is_at_end()) {
    const std::uint64_t bytes = size.varint();
    if (bytes > records.values.size() - end) {
      file.fail(chunk.begin, "records that are longer than their chunk");
    }
    records.ends.push_back(end += bytes);
  }
  if (records.ends.size() != chunk.num_records || end != records.values.size()) {
    file.fail(chunk.begin, std::to_string(records.ends.size()) + " records in a chunk of " +
                               std::to_string(chunk.num_records));
  }
  return records;
}

/// The offset where the records end, read from the last block of the file.
std::uint64_t footer_offset(const File& file) {
  if (file.size() < 2 * kBlock || file.size() % kBlock != 0) {
    file.fail(file.size(), "its end, which is not a multiple of 65536 bytes from its start");
  }
  const std::uint64_t begin = file.size() - kBlock;
  const Chunk chunk = read_chunk(file, begin);
  if (chunk.type != 'r') file.fail(begin, "no index of the records");
  const Records records = read_records(file, chunk);
  Cursor cursor(std::span(records.values).first(records.ends.empty() ? 0 : records.ends[0]), file,
                begin);
  std::uint64_t offset = 0;
  std::uint64_t magic = 0;
  while (!cursor.is_at_end()) {
    const std::uint8_t field = cursor.byte();
    if (field != 0x08 && field != 0x10) file.fail(begin, "no index of the records");
    (field == 0x08 ? offset : magic) = cursor.varint();
  }
  if (magic != kMagic || offset >= begin) file.fail(begin, "no index of the records");
  return offset;
}

class ArrayRecords final : public Source {
 public:
  explicit ArrayRecords(const std::string& path) : file_(path) {
    if (file_.size() < 64 || read_chunk(file_, 0).type != 's') {
      file_.fail(0, "no signature of a Riegeli file");
    }
    const std::uint64_t end = footer_offset(file_);
    std::uint64_t at = kBlockHeader + kChunkHeader;
    while (at < end) {
      const Chunk chunk = read_chunk(file_, at);
      if (chunk.type == 't') file_.fail_kind(at, "a transposed chunk");
      if (chunk.type == 'r' && chunk.num_records > 0) {
        if (chunk.num_records > file_.size() * 16)
          file_.fail(at, "more records than its bytes can hold");
        chunks_.push_back(chunk);
        size_ += chunk.num_records;
        ends_.push_back(size_);
      }
      at = chunk.end;
    }
    if (at != end) file_.fail(at, "a chunk that reaches beyond the end of the records");
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(size_); }
  Record read(std::int64_t record, RecordRandom& /*random*/) const override {
    const auto number = static_cast<std::uint64_t>(record);
    const auto chunk = static_cast<std::size_t>(
        std::upper_bound(ends_.begin(), ends_.end(), number) - ends_.begin());
    const std::shared_ptr<const Records> records = decoded(chunk);
    const std::size_t i = number - (ends_[chunk] - chunks_[chunk].num_records);
    const auto begin =
        records->values.begin() + static_cast<std::ptrdiff_t>(i == 0 ? 0 : records->ends[i - 1]);
    const auto end = records->values.begin() + static_cast<std::ptrdiff_t>(records->ends[i]);
    return {{.shape = {end - begin}, .values = Bytes(begin, end)}};
  }

 private:
  std::shared_ptr<const Records> decoded(std::size_t chunk) const {
    {
      const std::lock_guard lock(mutex_);
      for (auto& [number, records] : kept_) {
        if (number == chunk) return records;
      }
    }
    auto records = std::make_shared<const Records>(read_records(file_, chunks_[chunk]));
    const std::lock_guard lock(mutex_);
    kept_.emplace_front(chunk, records);
    if (kept_.size() > kKept) kept_.pop_back();
    return records;
  }

  File file_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint64_t> ends_;  // the number of records up to the end of each chunk
  std::uint64_t size_ = 0;
  mutable std::mutex mutex_;
  mutable std::list<std::pair<std::size_t, std::shared_ptr<const Records>>> kept_;
};

}  // namespace

Dataset array_record(const std::string& path, std::source_location where) {
  return at_line(where, [&] { return Dataset(std::make_shared<ArrayRecords>(path)); });
}

}  // namespace tessera::data
