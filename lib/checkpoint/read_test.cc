// Files of other programs: dtypes that arrays do not have, names, and several files with an index.
#include <cmath>
#include <gtest/gtest.h>

#include "checkpoint/json.h"
#include "checkpoint/test_support.h"

namespace tessera::checkpoint {
namespace {

/// A file with these members in its header and these bytes of elements.
std::string file_of(const Json& header, const std::string& elements) {
  const std::string json = header.dump();
  const auto size = static_cast<std::uint64_t>(json.size());
  std::string text(sizeof(size), '\0');
  std::memcpy(text.data(), &size, sizeof(size));
  return text + json + elements;
}

Json entry(const char* dtype, const Shape& shape, std::int64_t begin, std::int64_t end) {
  return {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, end}}};
}

/// Tensors f F8_E8M0[4], h F16[2], i I64[1] and x F32[1].
std::string mixed_file(const std::string& path) {
  const float x = 2.5F;
  std::string elements("\x00\x3c\x00\xc0", 4);
  elements += std::string(8, '\x01') + "abcd";
  elements.append(reinterpret_cast<const char*>(&x), sizeof(x));
  write_file(path, file_of({{"h", entry("F16", {2}, 0, 4)},
                            {"i", entry("I64", {1}, 4, 12)},
                            {"f", entry("F8_E8M0", {2, 2}, 12, 16)},
                            {"x", entry("F32", {1}, 16, 20)}},
                           elements));
  return path;
}

std::vector<std::string> names_of(const std::vector<NamedArray>& arrays) {
  std::vector<std::string> names;
  for (const NamedArray& item : arrays) names.push_back(item.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(ReadSafetensors, LeavesAndNamesOtherDtypes) {
  const std::string path = mixed_file(test_folder() + "/mixed.safetensors");
  std::vector<FileTensor> left;
  const auto arrays = read_safetensors(path, {.left = &left});
  EXPECT_EQ(names_of(arrays), (Names{"h", "i", "x"}));
  EXPECT_EQ(arrays[0].array.dtype(), DType::f16);
  EXPECT_EQ(arrays[1].array.to_vector<std::int64_t>(),
            std::vector<std::int64_t>{0x0101010101010101});
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].name + left[0].dtype + to_string(left[0].shape), "fF8_E8M0[2,2]");
  EXPECT_EQ(names_of(read_safetensors(path)), (Names{"h", "i", "x"}));
  const auto widened = read_safetensors(path, {.f16_as_f32 = true});
  EXPECT_EQ(widened[0].array.to_vector<float>(), (std::vector<float>{1, -2}));
  EXPECT_EQ(list_safetensors(path).size(), 4U);
}

TEST(ReadSafetensors, ReadsTheNamesThatAreAskedFor) {
  const std::string path = mixed_file(test_folder() + "/mixed.safetensors");
  EXPECT_EQ(names_of(read_safetensors(path, {.names = {"x"}})), Names{"x"});
  EXPECT_EQ(names_of(read_safetensors(path, {.names = {"x", "h"}})), (Names{"h", "x"}));
  EXPECT_THROW(read_safetensors(path, {.names = {"x", "f"}}), UserError);
  EXPECT_THROW(read_safetensors(path, {.names = {"x", "y"}}), UserError);
}

TEST(ReadSafetensors, KeepsEveryDtype) {
  std::vector<NamedArray> arrays;
  for (const DType dtype : kAllDTypes)
    arrays.push_back({std::string(name(dtype)), astype(arange(5), dtype)});
  const std::string path = test_folder() + "/dtypes.safetensors";
  write_safetensors(path, arrays);
  const std::vector<NamedArray> found = read_safetensors(path);
  ASSERT_EQ(found.size(), arrays.size());
  for (const NamedArray& item : found) {
    EXPECT_EQ(name(item.array.dtype()), item.name);
    const bool is_bool = item.array.dtype() == DType::boolean;
    EXPECT_EQ(sum(astype(item.array, DType::f32)).item<float>(), is_bool ? 4.0F : 10.0F);
  }
}

TEST(ReadSafetensors, ReadsEveryFloatOfEightBits) {
  std::string elements;
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int bits = 0; bits < 256; ++bits) elements += static_cast<char>(bits);
  }
  const std::string path = test_folder() + "/float8.safetensors";
  write_file(path, file_of({{"a", entry("F8_E4M3", {16, 16}, 0, 256)},
                            {"b", entry("F8_E5M2", {256}, 256, 512)}},
                           elements));
  const auto arrays = read_safetensors(path);
  EXPECT_EQ(to_string(arrays[0].array.type()) + to_string(arrays[1].array.type()),
            "bf16[16,16]bf16[256]");
  const auto a = astype(arrays[0].array, DType::f32).to_vector<float>();
  // 1, the largest number, the least subnormal one, and -0.
  EXPECT_EQ((std::vector{a[0x38], a[0x7E], a[0x01], a[0xB8]}),
            (std::vector{1.0F, 448.0F, std::ldexp(1.0F, -9), -1.0F}));
  EXPECT_TRUE(a[0x80] == 0 && std::signbit(a[0x80]));
  for (int bits = 0; bits < 256; ++bits)
    EXPECT_EQ(std::isnan(a[static_cast<std::size_t>(bits)]), (bits & 0x7F) == 0x7F);
  // E5M2 has the upper bits of f16.
  const auto b = astype(arrays[1].array, DType::f32).to_vector<float>();
  for (std::size_t bits = 0; bits < 256; ++bits) {
    const auto half = static_cast<float>(float16::from_bits(static_cast<std::uint16_t>(bits << 8)));
    EXPECT_TRUE(b[bits] == half || (std::isnan(b[bits]) && std::isnan(half))) << bits;
  }
}

TEST(ReadSafetensors, ConvertsEveryHalf) {
  std::string elements;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    elements += static_cast<char>(bits & 0xFF);
    elements += static_cast<char>(bits >> 8);
  }
  const std::string path = test_folder() + "/halves.safetensors";
  write_file(path, file_of({{"h", entry("F16", {0x10000}, 0, 0x20000)}}, elements));
  const auto found = read_safetensors(path, {.f16_as_f32 = true})[0].array.to_vector<float>();
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int fraction = static_cast<int>(bits & 1023);
    const double sign = bits >> 15 == 0 ? 1 : -1;
    const auto expected =
        static_cast<float>(sign * (exponent == 0 ? std::ldexp(fraction, -24)
                                                 : std::ldexp(1024 + fraction, exponent - 25)));
    const float value = found[bits];
    if (exponent == 31) {
      EXPECT_TRUE(fraction == 0 ? std::isinf(value) && (value > 0) == (sign > 0)
                                : std::isnan(value));
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected));
    }
  }
}

TEST(ReadSafetensors, ReadsSeveralFilesWithAnIndex) {
  const std::string folder = test_folder();
  save(folder + "/saved", sample_tree());
  export_checkpoint(folder + "/saved", folder + "/all", {.file_bytes = 100'000});
  for (const char* path : {"/all", "/all/model.safetensors.index.json"}) {
    Tree found;
    for (const auto& [name, x] : read_safetensors(folder + path)) found[name] = x;
    EXPECT_TRUE(has_same_bits(found, sample_tree()));
  }
  const std::string index = folder + "/all/model.safetensors.index.json";
  for (const char* text : {"{", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})",
                           R"({"weight_map":{"a":"../x"}})", R"({"weight_map":{"a":"none"}})"}) {
    write_file(index, text);
    EXPECT_THROW(read_safetensors(index), UserError) << text;
  }
  fs::remove(index);
  EXPECT_THROW(read_safetensors(folder + "/all"), UserError);
  mixed_file(folder + "/all/model.safetensors");
  EXPECT_EQ(list_safetensors(folder + "/all").size(), 4U);
}

TEST(ReadSafetensors, RefusesANameInTwoFiles) {
  const std::string folder = test_folder();
  write_safetensors(folder + "/a.safetensors", {{"x", ones({1})}});
  write_safetensors(folder + "/b.safetensors", {{"x", ones({1})}});
  write_file(folder + "/model.safetensors.index.json",
             R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  EXPECT_THROW(read_safetensors(folder), UserError);
}

TEST(ReadSafetensors, RefusesAnIndexThatListsMoreThanItsFilesHave) {
  const std::string folder = test_folder();
  write_safetensors(folder + "/a.safetensors", {{"x", ones({1})}});
  write_file(folder + "/model.safetensors.index.json",
             R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors"}})");
  try {
    read_safetensors(folder);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().found,
              folder + "/a.safetensors: it does not have y, which the index lists");
  }
}

}  // namespace
}  // namespace tessera::checkpoint
