// Checkpoints that Orbax wrote, and damaged copies of them.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include <tessera/checkpoint.h>
#include <tessera/error.h>
#include <tessera/ops.h>

#include "tests/cases/source_dir.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

fs::path saved_by_orbax(const std::string& name) {
  return source_dir() / "tests/peers/golden/foreign/orbax" / name;
}

std::map<std::string, Array> orbax_arrays(const fs::path& folder,
                                          std::vector<FileTensor>* left = nullptr) {
  std::map<std::string, Array> arrays;
  for (const auto& [name, x] : import_arrays(folder, {.f16_as_f32 = true, .left = left})) {
    arrays[name] = x;
  }
  return arrays;
}

TEST(Orbax, ReadsZarrInFilesAndInDatabases) {
  for (const char* name : {"ocdbt", "zarr", "zarr3"}) {
    std::vector<FileTensor> left;
    const auto arrays = orbax_arrays(saved_by_orbax(name), &left);
    ASSERT_EQ(arrays.size(), 6U) << name;
    EXPECT_TRUE(array_equal(arrays.at("dense/kernel"), reshape(arange(12, DType::f32), {3, 4}) / 8))
        << name;
    EXPECT_TRUE(array_equal(arrays.at("dense/bias"), array({1.5F, -2.0F, 65504.0F})));
    EXPECT_TRUE(array_equal(arrays.at("mask"), array({1, 0}) > 0));
    EXPECT_TRUE(array_equal(arrays.at("ids"), array({1, -2, 3, 4}, {2, 2})));
    EXPECT_TRUE(array_equal(arrays.at("bf16"), astype(array({1.0F, -3.0F}), DType::bf16)));
    EXPECT_TRUE(array_equal(arrays.at("count"), full({}, 7, DType::i64)));
    ASSERT_EQ(left.size(), 2U);
    EXPECT_EQ(left[0].name + ": " + left[0].problem, "float8: arrays cannot have this dtype");
    EXPECT_EQ(left[1].name + ": " + left[1].problem, "name: it is not stored as an array");
  }
}

TEST(Orbax, ReadsDatabasesOfSeveralLevels) {
  const auto arrays = orbax_arrays(saved_by_orbax("deep"));
  const Array stored = reshape(arange(36, DType::f32), {9, 4});
  const Array missing = full({9, 1}, 0.5);  // the fill value
  ASSERT_EQ(arrays.size(), 1U);
  EXPECT_TRUE(array_equal(arrays.at("some/values"), concatenate({missing, stored}, 1)));
}

TEST(Orbax, ReadsTheArraysThatAreAskedFor) {
  const std::string cut = ::testing::TempDir() + "/tessera_orbax_named";
  fs::remove_all(cut);
  fs::copy(saved_by_orbax("zarr"), cut, fs::copy_options::recursive);
  fs::resize_file(cut + "/ids/0.0", 3);
  EXPECT_EQ(import_arrays(cut, {.names = {"mask"}}).size(), 1U);
  EXPECT_THROW(import_arrays(cut, {.names = {"ids"}}), UserError);
}

TEST(Orbax, FindsTheTreeInAStep) {
  const std::string step = ::testing::TempDir() + "/tessera_orbax_step";
  fs::remove_all(step);
  fs::create_directories(step);
  std::ofstream(step + "/_CHECKPOINT_METADATA") << "{}";
  const auto found = [&] {
    try {
      return std::to_string(orbax_arrays(step).size()) + " arrays";
    } catch (const UserError& error) {
      return error.mistake().what + "; " + error.mistake().found;
    }
  };
  const std::string problem =
      "import_arrays: the checkpoint of Orbax does not have exactly one tree; " + step;
  EXPECT_EQ(found(), problem + ", which has no file _METADATA");
  fs::copy(saved_by_orbax("zarr"), step + "/params", fs::copy_options::recursive);
  EXPECT_EQ(found(), "6 arrays");
  fs::copy(saved_by_orbax("deep"), step + "/more", fs::copy_options::recursive);
  EXPECT_EQ(found(), problem + ", which has more params");
}

TEST(Orbax, DatabasesDoNotReadOtherFolders) {
  const std::string folder = ::testing::TempDir() + "/tessera_orbax_outside";
  fs::remove_all(folder);
  fs::copy(saved_by_orbax("deep"), folder, fs::copy_options::recursive);
  fs::rename(folder + "/d", folder + "/e");
  try {
    orbax_arrays(folder);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(error.mistake().found.find("the data file d/"), std::string::npos)
        << error.mistake().found;
  }
}

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_to(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string damaged(std::string bytes, std::mt19937& random) {
  if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
  for (unsigned i = 0; i < 1 + random() % 3 && !bytes.empty(); ++i) {
    bytes[random() % bytes.size()] = static_cast<char>(random());
  }
  return bytes;
}

TEST(Orbax, DamagedCheckpointsAreErrorsOrHaveOtherNumbers) {
  std::mt19937 random(5);
  for (const char* name : {"ocdbt", "zarr", "zarr3", "deep"}) {
    const std::string folder = ::testing::TempDir() + "/tessera_orbax_damaged_" + name;
    fs::remove_all(folder);
    fs::copy(saved_by_orbax(name), folder, fs::copy_options::recursive);
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::ranges::sort(files);
    for (int round = 0; round < 100; ++round) {
      const fs::path& file = files[random() % files.size()];
      const std::string whole = bytes_of(file);
      write_to(file, damaged(whole, random));
      try {
        orbax_arrays(folder);
      } catch (const UserError& error) {
        EXPECT_FALSE(error.mistake().cure.empty()) << name << ", round " << round;
      }
      write_to(file, whole);
    }
  }
}

}  // namespace
}  // namespace tessera::checkpoint
