// Byte-level byte-pair encoding. A text is cut into words; the bytes of a word are tokens, and
// pairs of tokens become one, the pair that comes first in the list of merges first.
#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <unordered_map>

#include <tessera/data.h>
#include <tessera/error.h>

#include "checkpoint/json.h"
#include "data/file.h"
#include "data/unicode.h"

namespace tessera::data {

namespace {

constexpr std::int32_t kNone = -1;

struct Merge {
  std::int32_t rank;
  std::int32_t token;  // what the pair becomes
};

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// --- the files

/// The code points that stand for bytes in the files: visible characters of Latin-1 for themselves,
/// and the others in their order from 256 on.
class ByteLetters {
 public:
  ByteLetters() {
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool is_visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      bytes_[is_visible ? byte : next++] = static_cast<std::uint8_t>(byte);
    }
  }
  /// The bytes that a token of a file stands for; empty if a character is none of these. `text` is
  /// UTF-8.
  std::optional<std::string> bytes_of(std::string_view text) const {
    std::string bytes;
    for (std::size_t at = 0; at < text.size();) {
      const Char c = char_at(text, at);
      const auto found = bytes_.find(c.code_point);
      if (c.bytes == 0 || found == bytes_.end()) return std::nullopt;
      bytes += static_cast<char>(found->second);
      at += c.bytes;
    }
    return bytes;
  }

 private:
  std::unordered_map<std::uint32_t, std::uint8_t> bytes_;
};

std::string text_of(const std::string& path, const char* what) {
  const std::vector<std::uint8_t> bytes =
      read_file(path, "BytePairTokenizer", std::string("the ") + what + " of a tokenizer",
                "check the path; vocab.json and merges.txt are beside the weights of GPT-2");
  return {bytes.begin(), bytes.end()};
}

[[noreturn]] void damaged(const std::string& path, const std::string& found,
                          const std::string& wanted) {
  throw UserError({.what = "BytePairTokenizer: the file is damaged or belongs to another tokenizer",
                   .found = path + ": " + found,
                   .wanted = wanted,
                   .cure = "copy the file again from its source"});
}

constexpr const char* kWantedVocab = "an object that maps tokens to ids, each id once";
constexpr const char* kWantedMerges = "two tokens of the vocabulary on each line";

}  // namespace

struct BytePairTokenizer::Tables {
  std::vector<std::optional<std::string>> tokens;  // by id: their bytes
  std::array<std::int32_t, 256> of_byte = {};
  std::unordered_map<std::uint64_t, Merge> merges;

  void read_vocab(const std::string& path);
  void read_merges(const std::string& path);
  std::vector<std::int32_t> encode(std::string_view text) const;
  std::vector<std::int32_t> encode_word(std::string_view word) const;

 private:
  std::unordered_map<std::string, std::int32_t> ids_;  // by bytes
  ByteLetters letters_;
};

void BytePairTokenizer::Tables::read_vocab(const std::string& path) {
  constexpr std::int64_t kMostTokens = 10'000'000;
  const std::string text = text_of(path, "vocabulary");
  try {
    const checkpoint::Json vocab = checkpoint::parse_json(text);
    if (!vocab.is_object() || vocab.empty()) throw checkpoint::BadText("it is not an object");
    for (const auto& [token, value] : vocab.items()) {
      const std::int64_t id = checkpoint::whole_number(value);
      if (id >= kMostTokens) throw checkpoint::BadText("the id " + std::to_string(id));
      const auto index = static_cast<std::size_t>(id);
      if (index >= tokens.size()) tokens.resize(index + 1);
      if (tokens[index]) throw checkpoint::BadText("the id " + std::to_string(id) + " twice");
      // A token that has other letters is no sequence of bytes. It stands for its text.
      const std::optional<std::string> bytes = letters_.bytes_of(token);
      tokens[index] = bytes.value_or(token);
      if (bytes) ids_[*bytes] = static_cast<std::int32_t>(id);
    }
  } catch (const checkpoint::BadText& error) {
    damaged(path, error.what(), kWantedVocab);
  }
  for (std::size_t byte = 0; byte < of_byte.size(); ++byte) {
    const auto found = ids_.find(std::string(1, static_cast<char>(byte)));
    of_byte[byte] = found == ids_.end() ? kNone : found->second;
  }
}

void BytePairTokenizer::Tables::read_merges(const std::string& path) {
  const std::string text = text_of(path, "merges");
  std::int32_t rank = 0;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    const auto fail = [&](const std::string& found) {
      damaged(path, "line " + std::to_string(number) + ": " + found, kWantedMerges);
    };
    const std::size_t gap = line.find(' ');
    if (gap == std::string::npos || line.find(' ', gap + 1) != std::string::npos)
      fail("not two tokens with a space between them");
    const auto id_of = [&](const std::string& token) {
      const std::optional<std::string> bytes = letters_.bytes_of(token);
      const auto found = bytes ? ids_.find(*bytes) : ids_.end();
      if (found == ids_.end()) fail("the vocabulary does not have one of the tokens");
      return found->second;
    };
    const std::string left = line.substr(0, gap);
    const std::string right = line.substr(gap + 1);
    const std::uint64_t pair = pair_of(id_of(left), id_of(right));
    merges.insert_or_assign(pair, Merge{.rank = rank++, .token = id_of(left + right)});
  }
}

BytePairTokenizer::BytePairTokenizer(const std::string& vocab, const std::string& merges,
                                     std::source_location where) {
  tables_ = at_line(where, [&] {
    auto tables = std::make_shared<Tables>();
    tables->read_vocab(vocab);
    tables->read_merges(merges);
    return tables;
  });
}

std::int64_t BytePairTokenizer::size() const {
  return static_cast<std::int64_t>(tables_->tokens.size());
}

// --- words

namespace {

/// 's, 't, 're, 've, 'm, 'll or 'd at the beginning of the text; its size, or 0.
std::size_t contraction_size(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  return 0;
}

/// Cuts a text into words as the regular expression
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  bool is_at_end() const { return at_ == text_.size(); }
  std::string_view next() {
    const std::size_t begin = at_;
    if (const std::size_t size = contraction_size(text_.substr(at_)); size > 0) {
      at_ += size;
    } else {
      const bool has_space = text_[at_] == ' ' && at_ + 1 < text_.size();
      if (has_space && kind_at(at_ + 1) != CharClass::space) ++at_;
      skip_equal();
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  CharClass kind_at(std::size_t at) const { return class_of(checked(at).code_point); }
  Char checked(std::size_t at) const {
    const Char c = char_at(text_, at);
    if (c.bytes > 0) return c;
    throw UserError({.what = "BytePairTokenizer: the text is not UTF-8",
                     .found = "invalid bytes at position " + std::to_string(at),
                     .wanted = "text in UTF-8",
                     .cure = "convert it, for example with iconv -t UTF-8"});
  }
  /// Skips characters of one class. The last space before a word is left for the word.
  void skip_equal() {
    const CharClass kind = kind_at(at_);
    const std::size_t begin = at_;
    std::size_t last = at_;
    while (at_ < text_.size() && kind_at(at_) == kind) {
      last = at_;
      at_ += checked(at_).bytes;
    }
    if (kind == CharClass::space && at_ < text_.size() && last > begin) at_ = last;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// A token of a word, in a doubly linked list.
struct Symbol {
  std::int32_t token;
  std::int32_t before, after;  // positions in the list, or kNone
};

/// A pair that may be merged: that of a symbol and the one after it.
struct Candidate {
  std::int32_t rank, at, token;
  // The queue takes the greatest first: that is the smallest rank, and of equal ones the leftmost.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

class WordMerger {
 public:
  WordMerger(const std::unordered_map<std::uint64_t, Merge>& merges,
             const std::vector<std::int32_t>& tokens)
      : merges_(merges) {
    const auto size = static_cast<std::int32_t>(tokens.size());
    for (std::int32_t i = 0; i < size; ++i) {
      symbols_.push_back({.token = tokens[static_cast<std::size_t>(i)],
                          .before = i - 1,
                          .after = i + 1 < size ? i + 1 : kNone});
    }
    for (std::int32_t i = 0; i + 1 < size; ++i) push(i);
  }

  std::vector<std::int32_t> merged() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const Merge* merge = merge_at(best.at);
      // The pair may have changed since it was pushed.
      if (merge != nullptr && merge->token == best.token) join(best);
    }
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i != kNone; i = symbol(i).after) tokens.push_back(symbol(i).token);
    return tokens;
  }

 private:
  Symbol& symbol(std::int32_t at) { return symbols_[static_cast<std::size_t>(at)]; }
  const Merge* merge_at(std::int32_t at) {
    const Symbol& left = symbol(at);
    if (left.token == kNone || left.after == kNone) return nullptr;
    const auto found = merges_.find(pair_of(left.token, symbol(left.after).token));
    return found == merges_.end() ? nullptr : &found->second;
  }
  void push(std::int32_t at) {
    if (const Merge* merge = merge_at(at))
      queue_.push({.rank = merge->rank, .at = at, .token = merge->token});
  }
  void join(const Candidate& best) {
    Symbol& left = symbol(best.at);
    Symbol& right = symbol(left.after);
    left.token = best.token;
    left.after = right.after;
    right.token = kNone;
    if (left.after != kNone) symbol(left.after).before = best.at;
    if (left.before != kNone) push(left.before);
    push(best.at);
  }

  const std::unordered_map<std::uint64_t, Merge>& merges_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

std::vector<std::int32_t> BytePairTokenizer::Tables::encode_word(std::string_view word) const {
  std::vector<std::int32_t> bytes;
  for (const char c : word) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (of_byte[byte] == kNone) {
      throw UserError({.what = "BytePairTokenizer: the vocabulary cannot express this text",
                       .found = "byte " + std::to_string(byte) + ", which has no token",
                       .wanted = "a vocabulary with a token for each of the 256 bytes",
                       .cure = "use another vocabulary, or leave the character out"});
    }
    bytes.push_back(of_byte[byte]);
  }
  return WordMerger(merges, bytes).merged();
}

std::vector<std::int32_t> BytePairTokenizer::Tables::encode(std::string_view text) const {
  std::unordered_map<std::string_view, std::vector<std::int32_t>> known;  // words of this text
  std::vector<std::int32_t> ids;
  Words words(text);
  while (!words.is_at_end()) {
    const std::string_view word = words.next();
    const auto [place, is_new] = known.try_emplace(word);
    if (is_new) place->second = encode_word(word);
    ids.insert(ids.end(), place->second.begin(), place->second.end());
  }
  return ids;
}

std::vector<std::int32_t> BytePairTokenizer::encode(std::string_view text,
                                                    std::source_location where) const {
  return at_line(where, [&] { return tables_->encode(text); });
}

std::string BytePairTokenizer::decode(std::span<const std::int32_t> ids,
                                      std::source_location where) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const bool is_known = id >= 0 && id < size() && tables_->tokens[static_cast<std::size_t>(id)];
    if (!is_known) {
      throw UserError({.what = "BytePairTokenizer: the vocabulary does not have this id",
                       .where = where,
                       .found = std::to_string(id),
                       .wanted = "ids from 0 to " + std::to_string(size() - 1),
                       .cure = "use the vocabulary of the model that made the ids"});
    }
    text += *tables_->tokens[static_cast<std::size_t>(id)];
  }
  return text;
}

}  // namespace tessera::data
