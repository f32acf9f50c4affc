#include <cstring>
#include <filesystem>
#include <numeric>

#include <tessera/data.h>
#include <tessera/error.h>
#include <tessera/shardings.h>

#include "data/file.h"
#include "data/numpy_random.h"

namespace tessera::data {

namespace {

void check_length(std::int64_t length, const std::source_location& where) {
  if (length >= 1) return;
  throw UserError({.what = "Tokens: the length of the sequences is not positive",
                   .where = where,
                   .found = std::to_string(length),
                   .wanted = "1 or more",
                   .cure = "give the number of tokens of one sequence"});
}

}  // namespace

Tokens::Tokens(std::vector<std::int32_t> tokens, std::int64_t length, std::source_location where)
    : tokens_(std::move(tokens)), length_(length) {
  check_length(length, where);
  const std::int64_t rest = std::ssize(tokens_) % length;
  if (rest == 0) return;
  throw UserError({.what = "Tokens: the tokens do not divide into whole sequences",
                   .where = where,
                   .found = std::to_string(tokens_.size()) + " tokens, and sequences of " +
                            std::to_string(length),
                   .wanted = "a number of tokens that is a multiple of the length",
                   .cure = "leave out the last " + std::to_string(rest) +
                           ", or add padding to the last sequence"});
}

std::int64_t Tokens::num_sequences() const {
  return static_cast<std::int64_t>(tokens_.size()) / length_;
}

Array Tokens::batch(std::int64_t first, std::int64_t size, const NamedSharding& sharding,
                    std::source_location where) const {
  if (first < 0 || size < 0 || (size > 0 && num_sequences() == 0)) {
    throw UserError({.what = "Tokens: there is no such batch",
                     .where = where,
                     .found = "first = " + std::to_string(first) +
                              ", size = " + std::to_string(size) + " of " +
                              std::to_string(num_sequences()) + " sequences",
                     .wanted = "first and size of 0 or more, and at least one sequence to take",
                     .cure = "count sequences from 0, and give some tokens to the constructor"});
  }
  const auto fill = [&](const std::vector<IndexRange>& index, std::span<std::byte> elements) {
    const IndexRange columns = index[1];
    const auto bytes =
        static_cast<std::size_t>(columns.limit - columns.start) * sizeof(std::int32_t);
    std::byte* to = elements.data();
    for (std::int64_t i = index[0].start; i < index[0].limit; ++i, to += bytes) {
      const std::int64_t row = (first % num_sequences() + i) % num_sequences();
      std::memcpy(to, tokens_.data() + row * length_ + columns.start, bytes);
    }
  };
  return make_array_from_callback({DType::i32, {size, length_}}, sharding, fill, where);
}

Tokens random_tokens(std::uint32_t seed, std::int64_t num_sequences, std::int64_t length,
                     std::int32_t vocab, std::source_location where) {
  check_length(length, where);
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
  if (num_sequences < 0 || num_sequences > kMostTokens / length) {
    throw UserError({.what = "random_tokens: the number of sequences is not valid",
                     .where = where,
                     .found = std::to_string(num_sequences),
                     .wanted = "0 or more, and at most 2^40 tokens in all",
                     .cure = "give the number of sequences, for example 1024"});
  }
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(num_sequences * length));
  NumpyRandomState(seed).randint_i32(0, vocab, tokens, where);
  return Tokens(std::move(tokens), length, where);
}

namespace {

std::vector<std::uint8_t> read_text_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  using std::filesystem::file_type;
  // A device may never end. A pipe can be read only once, and by one process only.
  if (type == file_type::character || type == file_type::block || type == file_type::fifo ||
      type == file_type::socket) {
    throw UserError({.what = "text: the path is not a regular file",
                     .found = path,
                     .wanted = "a text file, which can be read again when the run is resumed",
                     .cure = "write the text to a file first, and give that file"});
  }
  return read_file(path, "text", "a readable text file",
                   "check the path; every Debian system has /usr/share/common-licenses/GPL-3");
}

}  // namespace

Text read_text(const std::string& path, std::int64_t length, std::source_location where) {
  const std::vector<std::uint8_t> bytes = at_line(where, [&] { return read_text_file(path); });
  const std::size_t cut = bytes.size() - bytes.size() / 10;
  if (bytes.size() - cut < static_cast<std::size_t>(length) + 1) {
    throw UserError({.what = "text: the file is too short",
                     .where = where,
                     .found = path + " with " + std::to_string(bytes.size()) + " bytes",
                     .wanted = "at least " + std::to_string(10 * (length + 1)) +
                               " bytes, so that the last tenth is longer than a sequence",
                     .cure = "use a longer text or shorter sequences: --seq"});
  }
  const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(cut);
  return {.train = {bytes.begin(), middle}, .held_out = {middle, bytes.end()}};
}

Tokens consecutive_windows(std::span<const std::uint8_t> text, std::int64_t length,
                           std::source_location where) {
  check_length(length, where);
  const std::size_t whole = text.size() / static_cast<std::size_t>(length);
  const auto used = text.first(whole * static_cast<std::size_t>(length));
  return Tokens({used.begin(), used.end()}, length, where);
}

Tokens shuffled(const Tokens& tokens, std::uint32_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(tokens.num_sequences()));
  std::iota(order.begin(), order.end(), 0);
  // The Fisher-Yates shuffle, written out because std::shuffle differs between standard libraries.
  NumpyRandomState random(seed);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::int32_t other = 0;
    random.randint_i32(0, static_cast<std::int64_t>(i), std::span(&other, 1));
    std::swap(order[i - 1], order[static_cast<std::size_t>(other)]);
  }
  std::vector<std::int32_t> values;
  for (std::int64_t index : order) {
    const auto begin = tokens.values().begin() + index * tokens.length();
    values.insert(values.end(), begin, begin + tokens.length());
  }
  return Tokens(std::move(values), tokens.length());
}

}  // namespace tessera::data
