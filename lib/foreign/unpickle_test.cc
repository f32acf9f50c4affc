// Pickles that Python 2 and 3 wrote, and pickles that no program writes.
#include <gtest/gtest.h>

#include "checkpoint/json.h"
#include "foreign/numpy_pickle.h"
#include "tests/peers/golden.h"

namespace tessera::foreign {
namespace {

using nlohmann::json;
using Kind = Value::Kind;

Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Why a pickle is refused; empty if it is read.
std::string refusal(const std::string& pickle, std::size_t most_values = kMostValues) {
  try {
    read_pickle(bytes_of(pickle), most_values);
    return {};
  } catch (const checkpoint::BadText& error) {
    return error.what();
  }
}

TEST(Unpickle, ReadsWhatPython3Writes) {
  ASSERT_EQ(data_golden().at("pickles").size(), 6U);
  for (const json& item : data_golden().at("pickles")) {
    const Bytes bytes = from_hex(item.at("bytes"));
    const Pickle pickle = read_pickle(bytes);
    const Value* const labels = find(*pickle.result, "labels");
    ASSERT_NE(labels, nullptr);
    EXPECT_EQ(labels->items[1]->number, 9);
    const Value* const names = find(*pickle.result, "filenames");
    ASSERT_NE(names, nullptr);
    ASSERT_EQ(names->items.size(), 3U);
    EXPECT_EQ(names->items[1]->text, "b.png");
    EXPECT_EQ(names->items[2]->text, "a.png") << "from the memo";
  }
}

TEST(Unpickle, ReadsArraysOfEveryProtocol) {
  for (const json& item : data_golden().at("pickled_arrays")) {
    const Bytes bytes = from_hex(item.at("bytes"));
    const Pickle pickle = read_pickle(bytes);
    const std::optional<NumpyArray> array = numpy_array(*pickle.result);
    ASSERT_TRUE(array.has_value()) << item;
    EXPECT_EQ(array->type, item.at("type")) << item;
    EXPECT_EQ(array->shape, item.at("shape").get<Shape>()) << item;
    const std::span<const std::uint8_t> found = array->elements.bytes;
    EXPECT_EQ(Bytes(found.begin(), found.end()), from_hex(item.at("elements"))) << item;
  }
}

/// What Python 2 gives for
/// pickle.dumps({"a\n'\\": "\xe9\x00", u"\u20ac\U0001f600": (-5, 1L << 40, True, None, 1.5)}, 0).
TEST(Unpickle, ReadsTheLinesOfProtocol0) {
  const std::string bytes =
      "(dp0\nS\"a\\n'\\\\\"\np1\nS'\\xe9\\x00'\np2\nsV\\u20ac\\U0001f600\np3\n"
      "(I-5\nL1099511627776L\nI01\nNF1.5\ntp4\ns.";
  const Pickle pickle = read_pickle(bytes_of(bytes));
  const Value* const text = find(*pickle.result, "a\n'\\");
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text->text, std::string_view("\xe9\0", 2));
  const Value* const tuple = find(*pickle.result, "\u20ac\U0001f600");
  ASSERT_NE(tuple, nullptr);
  ASSERT_EQ(tuple->items.size(), 5U);
  EXPECT_EQ(tuple->items[0]->number, -5);
  EXPECT_EQ(tuple->items[1]->number, std::int64_t{1} << 40);
  EXPECT_EQ(tuple->items[2]->number, 1);
  EXPECT_EQ(tuple->items[3]->kind, Kind::none);
}

TEST(Unpickle, DescribesCallsAndRunsNone) {
  for (const std::string& bytes :
       {std::string("cos\nsystem\nU\x04true\x85R."), std::string("(S'true'\nios\nsystem\n."),
        std::string("(cos\nsystem\nS'true'\no.")}) {
    const Pickle pickle = read_pickle(bytes_of(bytes));
    EXPECT_EQ(pickle.result->kind, Kind::opaque);
    EXPECT_EQ(name_of_call(*pickle.result), "os.system");
    EXPECT_FALSE(numpy_array(*pickle.result));
  }
}

TEST(Unpickle, SaysWhereAPickleIsDamaged) {
  EXPECT_EQ(refusal("\x80\x02}q\x01(U\x05lab"), "at byte 6 of the pickle: it is cut off");
  EXPECT_EQ(refusal("\x80\x09N."), "at byte 0 of the pickle: it has a protocol above 5");
  EXPECT_EQ(refusal("N\xff."),
            "at byte 1 of the pickle: it has an operation that does not describe data: 255");
  EXPECT_EQ(refusal("S'\\q'\n."), "at byte 0 of the pickle: a text has an unknown escape");
  EXPECT_EQ(refusal("S'\\x4'\n."),
            "at byte 0 of the pickle: a text has an escape that is not complete");
  EXPECT_EQ(refusal("V\\U00110000\n."),
            "at byte 0 of the pickle: a text has a character that does not exist");
  EXPECT_EQ(refusal("Ifour\n."),
            "at byte 0 of the pickle: a number has other characters than digits");
  EXPECT_EQ(refusal("N(\x86."), "at byte 2 of the pickle: it takes a value that is not there");
  EXPECT_EQ(refusal("g7\n."), "at byte 0 of the pickle: it takes a value that is not there");
}

TEST(Unpickle, LimitsItsMemory) {
  EXPECT_EQ(refusal("(NNNt.", 4), "at byte 4 of the pickle: it has more than 4 values");
  EXPECT_EQ(refusal("(NNNt.", 5), "");
  // The same text is decoded again and again.
  const std::string text = "X" + std::string("\x80\0\0\0", 4) + std::string(128, 'x');
  std::string calls = "c_codecs\nencode\n(" + text + "U\x06latin1tq\1c_codecs\nencode\nq\2";
  for (int i = 0; i < 20; ++i) calls += "h\2h\1R";
  EXPECT_NE(refusal(calls + ".").find("it decodes the same text too often"), std::string::npos);
}

}  // namespace
}  // namespace tessera::foreign
