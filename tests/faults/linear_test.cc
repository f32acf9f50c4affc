// Readers of files take time linear in the size of what they read, however many parts it has.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>

#include <tessera/checkpoint.h>
#include <tessera/engine.h>
#include <tessera/ops.h>

#include "checkpoint/index.h"
#include "checkpoint/read_tile.h"
#include "checkpoint/safetensors.h"
#include "foreign/unpickle.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Prepares input of `count` parts and returns the function to be timed.
using Work = std::function<std::function<void()>(int count)>;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double least_seconds(const std::function<void()>& work) {
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double start = cpu_seconds();
    work();
    least = std::min(least, cpu_seconds() - start);
  }
  return least;
}

/// With eight times the parts, linear time grows about eightfold and quadratic time 64-fold.
void expect_linear(const Work& work) {
  constexpr int kParts = 1000;
  constexpr int kTimes = 8;
  const double few = std::max(1e-3, least_seconds(work(kParts)));
  const double many = least_seconds(work(kTimes * kParts));
  EXPECT_LT(many, 3 * kTimes * few)
      << kParts << " parts: " << few << " s, " << kTimes * kParts << " parts: " << many << " s";
}

class Linear : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("tessera_linear_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    set_num_threads(1);
  }
  std::string path(int count) const { return (folder_ / std::to_string(count)).string(); }

  fs::path folder_;
};

std::vector<NamedArray> arrays(int count) {
  std::vector<NamedArray> result;
  for (int i = 0; i < count; ++i)
    result.push_back({"layers/" + std::to_string(i) + "/kernel", scalar(i)});
  return result;
}

TEST_F(Linear, HeadersOfSafetensors) {
  expect_linear([](int count) {
    std::vector<HeaderEntry> entries;
    for (int i = 0; i < count; ++i)
      entries.push_back({.name = "layers/" + std::to_string(i), .type = {DType::f32, {1}}});
    lay_out(entries);
    return [=, json = header_text(entries).substr(8)] {
      const Header header =
          parse_header(json, 8 + static_cast<std::int64_t>(json.size()) + 4 * count);
      EXPECT_EQ(header.entries.size(), static_cast<std::size_t>(count));
    };
  });
}

TEST_F(Linear, FilesOfSafetensors) {
  expect_linear([&](int count) {
    write_safetensors(path(count), arrays(count));
    return [=, this] {
      EXPECT_EQ(read_safetensors(path(count)).size(), static_cast<std::size_t>(count));
    };
  });
}

TEST_F(Linear, Indices) {
  expect_linear([&](int count) {
    save_arrays(path(count), arrays(count));
    return [=, this] {
      EXPECT_EQ(read_info(path(count)).arrays.size(), static_cast<std::size_t>(count));
    };
  });
}

TEST_F(Linear, VerifiedCheckpoints) {
  expect_linear([&](int count) {
    save_arrays(path(count), arrays(count));
    return [=, this] { EXPECT_EQ(verify(path(count)), std::vector<std::string>()); };
  });
}

TEST_F(Linear, CheckpointsOfWhichAllIsDamaged) {
  expect_linear([&](int count) {
    save_arrays(path(count), arrays(count));
    for (const std::string& name : read_info(path(count)).files) {
      std::fstream file(path(count) + "/" + name, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(-4 * count, std::ios::end);
      file << std::string(static_cast<std::size_t>(4 * count), '\xee');
    }
    return [=, this] { EXPECT_EQ(verify(path(count)).size(), static_cast<std::size_t>(count)); };
  });
}

TEST_F(Linear, RestoredCheckpoints) {
  expect_linear([&](int count) {
    const std::vector<NamedArray> saved = arrays(count);
    save_arrays(path(count), saved);
    std::vector<RestoreTarget> targets;
    for (const NamedArray& item : saved)
      targets.push_back({item.name, item.array.type(), item.array.sharding()});
    return [=, this] {
      EXPECT_EQ(restore_arrays(path(count), targets).size(), static_cast<std::size_t>(count));
    };
  });
}

/// An array of `count` elements, each of which is a tile.
Index index_of_tiles(int count, const std::vector<float>& elements) {
  Index index;
  IndexedArray array{.name = "x", .type = {DType::f32, {count}}, .tiles = {}};
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    array.tiles.push_back({.file = "data",
                           .index = {{i, i + 1}},
                           .offset = 8 + 4 * i,
                           .checksums = {checksum(std::as_bytes(std::span(&elements[at], 1)))}});
  }
  index.arrays.push_back(std::move(array));
  index.files["data"] = {.size = 8 + 4 * count,
                         .header_size = 8,
                         .header_checksum = checksum(std::as_bytes(std::span("abcdefg", 8)))};
  return index;
}

TEST_F(Linear, ArraysOfManyTiles) {
  expect_linear([&](int count) {
    std::vector<float> elements(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(i);
    const Index index = parse_index(to_text(index_of_tiles(count, elements)));
    fs::create_directories(path(count));
    std::ofstream file(path(count) + "/data", std::ios::binary);
    file.write("abcdefg", 8);
    file.write(reinterpret_cast<const char*>(elements.data()), 4 * count);
    return [=, this] {
      SavedFiles files(path(count), index);
      for (int i = 0; i < count; ++i) {
        float element = -1;
        read_part(files, index.arrays[0], {{i, i + 1}},
                  std::as_writable_bytes(std::span(&element, 1)));
        EXPECT_EQ(element, static_cast<float>(i));
      }
    };
  });
}

TEST_F(Linear, PartsOfAnIndex) {
  expect_linear([](int count) {
    Index part;
    part.files["data"] = {.size = 8 + 4 * count, .header_size = 8};
    for (int i = 0; i < count; ++i) {
      const SavedTile tile{
          .file = "data", .index = {{0, 1}}, .offset = 8 + 4 * i, .checksums = {0}};
      part.arrays.push_back(
          {.name = "x" + std::to_string(i), .type = {DType::f32, {1}}, .tiles = {tile}});
    }
    return [=, text = part_to_text(part)] {
      Index index;
      for (int rank = 0; rank < 3; ++rank) add_part(index, text);
      ASSERT_EQ(index.arrays.size(), static_cast<std::size_t>(count));
      for (const IndexedArray& array : index.arrays) EXPECT_EQ(array.tiles.size(), 3U);
    };
  });
}

TEST_F(Linear, Pickles) {
  expect_linear([](int count) {
    // dtype("u1", None, None, ...), repeated. The arguments are written once and referenced.
    std::string bytes = "cnumpy\ndtype\nq";
    bytes += '\0';
    bytes += "(U\x02u1" + std::string(static_cast<std::size_t>(count), 'N') + "tq\x01(";
    for (int i = 0; i < count; ++i) {
      bytes += std::string("h\0h\x01R", 5);
    }
    bytes += "t.";
    return [=] {
      const foreign::Pickle pickle =
          foreign::read_pickle({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
      EXPECT_EQ(pickle.result->items.size(), static_cast<std::size_t>(count));
    };
  });
}

}  // namespace
}  // namespace tessera::checkpoint
