// Compares token ids with those of the package tokenizers.
#include <fstream>
#include <gtest/gtest.h>

#include <tessera/data.h>
#include <tessera/error.h>

#include "tests/cases/source_dir.h"
#include "tests/peers/golden.h"

namespace tessera::data {
namespace {

using nlohmann::json;

std::string golden_path(const std::string& name) {
  return source_dir() / "tests/peers/golden/gpt2" / name;
}

const BytePairTokenizer& tokenizer() {
  static const BytePairTokenizer made(golden_path("vocab.json"), golden_path("merges.txt"));
  return made;
}

TEST(BytePairs, GiveTheIdsOfTokenizersInManyScripts) {
  const json expected = read_golden("gpt2/expected.json");
  for (const json& item : expected["texts"]) {
    const std::string text = item["text"];
    const std::vector<std::int32_t> ids = tokenizer().encode(text);
    EXPECT_EQ(ids, item["ids"].get<std::vector<std::int32_t>>()) << text;
    EXPECT_EQ(tokenizer().decode(ids), text);
  }
  EXPECT_EQ(tokenizer().size(), 513);
  EXPECT_TRUE(tokenizer().encode("").empty());
  EXPECT_EQ(tokenizer().decode(std::vector<std::int32_t>{512}), "<|endoftext|>");
}

/// Generates the same numbers as make_gpt2_golden.py.
class Random {
 public:
  std::uint64_t below(std::uint64_t end) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return (state_ >> 33) % end;
  }

 private:
  std::uint64_t state_ = 12345;
};

std::string utf8(std::uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
}

std::string random_string(Random& random, const std::vector<std::string>& pieces) {
  std::string text;
  for (std::uint64_t left = random.below(24); left > 0; --left) {
    if (random.below(8) > 0) {
      text += pieces[random.below(pieces.size())];
    } else {
      const auto code = static_cast<std::uint32_t>(random.below(0x110000));
      text += utf8(code >= 0xD800 && code < 0xE000 ? 0x20 : code);
    }
  }
  return text;
}

TEST(BytePairs, GiveTheIdsOfTokenizersForRandomStrings) {
  const json expected = read_golden("gpt2/expected.json");
  const auto pieces = expected["pieces"].get<std::vector<std::string>>();
  const auto count = expected["strings"].get<std::size_t>();
  const std::size_t chunk = count / expected["hashes"].size();
  Random random;
  for (std::size_t i = 0; i < count; i += chunk) {
    std::uint64_t hash = 0xCBF29CE484222325;
    const auto add = [&](std::uint64_t number) { hash = (hash ^ number) * 0x100000001B3; };
    for (std::size_t k = 0; k < chunk; ++k) {
      const std::string text = random_string(random, pieces);
      const std::vector<std::int32_t> ids = tokenizer().encode(text);
      EXPECT_EQ(tokenizer().decode(ids), text);
      add(ids.size());
      for (const std::int32_t id : ids) add(static_cast<std::uint64_t>(id));
    }
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
    EXPECT_EQ(text, expected["hashes"][i / chunk]) << "strings from " << i;
  }
}

TEST(BytePairs, EncodeALongWordQuickly) {
  // An algorithm with quadratic time would take minutes here.
  const std::string word(1 << 20, 'e');
  EXPECT_EQ(tokenizer().decode(tokenizer().encode(word)), word);
}

/// The error that `make` throws.
template <typename F>
std::string error_of(const F& make) {
  try {
    make();
    return "no error";
  } catch (const UserError& error) {
    return error.mistake().found;
  }
}

std::string written_table(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/tessera_byte_pairs_" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(BytePairs, RefuseDamagedFiles) {
  const std::string vocab = written_table("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  const std::string merges = written_table("merges.txt", "#version: 0.2\na b\n");
  const BytePairTokenizer small(vocab, merges);
  EXPECT_EQ(small.encode("abba"), (std::vector<std::int32_t>{2, 1, 0}));
  EXPECT_EQ(error_of([&] { small.encode("abc"); }), "byte 99, which has no token");
  EXPECT_EQ(error_of([&] { small.decode(std::vector<std::int32_t>{3}); }), "3");
  const auto error_of_vocab = [&](const std::string& text) {
    const std::string path = written_table("bad_vocab.json", text);
    const std::string found = error_of([&] { BytePairTokenizer(path, merges); });
    return found.substr(std::min(found.size(), path.size() + 2));
  };
  EXPECT_EQ(error_of_vocab(R"(["a"])"), "it is not an object");
  EXPECT_EQ(error_of_vocab(R"({"a": 0, "b": 0})"), "the id 0 twice");
  EXPECT_EQ(error_of_vocab(R"({"a": -1})"), "a value is not a whole number of 0 or more");
  EXPECT_EQ(error_of_vocab(R"({"a": 99999999})"), "the id 99999999");
  EXPECT_EQ(error_of_vocab(R"({"a": 0,)").substr(0, 20), "it is not valid JSON");
  const auto error_of_merges = [&](const std::string& text) {
    const std::string path = written_table("bad_merges.txt", text);
    const std::string found = error_of([&] { BytePairTokenizer(vocab, path); });
    return found.substr(std::min(found.size(), path.size() + 2));
  };
  EXPECT_EQ(error_of_merges("a\n"), "line 1: not two tokens with a space between them");
  EXPECT_EQ(error_of_merges("a b\na b c\n"), "line 2: not two tokens with a space between them");
  EXPECT_EQ(error_of_merges("a b\n\nb a\n"),
            "line 3: the vocabulary does not have one of the tokens");
}

TEST(BytePairs, RefuseTextThatIsNotUtf8) {
  for (const char* text : {"ab\xff", "ab\xc3", "ab\xe2\x82", "ab\xc0\xaf", "ab\xed\xa0\x80",
                           "ab\xf4\x90\x80\x80", "ab\x80"}) {
    EXPECT_EQ(error_of([&] { tokenizer().encode(text); }), "invalid bytes at position 2");
  }
}

}  // namespace
}  // namespace tessera::data
