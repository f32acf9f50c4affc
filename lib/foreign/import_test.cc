// Files that NumPy, PyTorch and Flax wrote, and damaged copies of them.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

#include "tests/cases/source_dir.h"

namespace tessera::checkpoint {
namespace {

std::string golden(const std::string& name) {
  return source_dir() / "tests/peers/golden/foreign" / name;
}

using Arrays = std::map<std::string, Array>;

Arrays imported(const std::string& path, std::vector<FileTensor>* left = nullptr) {
  Arrays arrays;
  for (const auto& [name, x] : import_arrays(path, {.f16_as_f32 = true, .left = left})) {
    arrays[name] = x;
  }
  return arrays;
}

std::vector<float> eighths() {
  std::vector<float> values;
  for (int i = 0; i < 12; ++i) values.push_back(static_cast<float>(i) / 8);
  return values;
}

void expect_arrays(const Arrays& arrays, const std::string& kernel, const std::string& bias) {
  EXPECT_EQ(arrays.at(kernel).shape(), (Shape{3, 4}));
  EXPECT_EQ(arrays.at(kernel).to_vector<float>(), eighths());
  EXPECT_EQ(arrays.at(bias).to_vector<float>(), (std::vector<float>{1.5, -2, 65504}));
  EXPECT_EQ(arrays.at(kernel).dtype(), DType::f32);
}

TEST(Import, ReadsArraysOfNumPyAndFlax) {
  for (const char* name : {"stored.npz", "deflated.npz", "flax.msgpack"}) {
    std::vector<FileTensor> left;
    const Arrays arrays = imported(golden(name), &left);
    EXPECT_EQ(arrays.size(), 5U) << name;
    expect_arrays(arrays, "dense/kernel", "dense/bias");
    EXPECT_EQ(arrays.at("ids").to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, -2, 3, 4}));
    EXPECT_EQ(arrays.at("mask").to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 0}));
    EXPECT_EQ(arrays.at("steps").dtype(), DType::i64);
    EXPECT_TRUE(left.empty());
  }
}

TEST(Import, ReadsTensorsOfPyTorch) {
  std::vector<FileTensor> left;
  const Arrays arrays = imported(golden("torch.pt"), &left);
  EXPECT_EQ(arrays.size(), 10U);
  expect_arrays(arrays, "model.dense.kernel", "model.dense.bias");
  const Array& kernel = arrays.at("model.dense.kernel");
  EXPECT_TRUE(array_equal(arrays.at("model.transposed"), transpose(kernel)));
  EXPECT_TRUE(array_equal(arrays.at("model.part"), kernel.slice(0, 1).slice(1, 1, 3)));
  EXPECT_EQ(arrays.at("model.bf16").dtype(), DType::bf16);
  EXPECT_EQ(astype(arrays.at("model.bf16"), DType::f32).to_vector<float>(),
            (std::vector<float>{1, -3}));
  EXPECT_EQ(arrays.at("model.empty").shape(), (Shape{0, 2}));
  EXPECT_EQ(arrays.at("model.scalar").item<float>(), 2.5F);
  EXPECT_EQ(arrays.at("lists.0").to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(arrays.at("model.steps").dtype(), DType::i64);
  EXPECT_TRUE(left.empty());
}

std::string written(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/tessera_import_" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Import, RefusesFilesThatAreCutOrChanged) {
  for (const char* name : {"stored.npz", "deflated.npz", "torch.pt", "flax.msgpack"}) {
    const std::string whole = contents(golden(name));
    for (std::size_t size = 0; size < whole.size(); size += 1 + size / 10) {
      EXPECT_THROW(imported(written(name, whole.substr(0, size))), UserError) << name << size;
    }
    std::uint32_t random = 1;
    for (int i = 0; i < 100; ++i) {
      std::string changed = whole;
      for (int k = 0; k < 2; ++k) {
        random = random * 1664525 + 1013904223;
        changed[(random >> 8) % whole.size()] = static_cast<char>(random >> 3);
      }
      try {
        imported(written(name, changed));  // is either read or refused with UserError
      } catch (const UserError&) {
        continue;
      }
    }
  }
}

TEST(Import, RefusesOldFilesOfPyTorch) {
  EXPECT_THROW(imported(written("old.pt", "\x80\x02\x8a\x0a")), UserError);
}

TEST(Import, RunsNothing) {
  const std::string path = golden("runs.pt");
  try {
    imported(path);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().found, path + ": the pickle calls posix system, which is not run");
  }
}

}  // namespace
}  // namespace tessera::checkpoint
