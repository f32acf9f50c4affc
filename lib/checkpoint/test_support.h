// Helpers that the tests of checkpoints share.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>
#include <tessera/error.h>
#include <tessera/ops.h>
#include <tessera/random.h>

#include "checkpoint/elements.h"

namespace tessera::checkpoint {

namespace fs = std::filesystem;

/// A new empty folder for the running test.
inline std::string test_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const fs::path path = fs::path(::testing::TempDir()) /
                        (std::string("tessera_") + test->test_suite_name() + "_" + test->name());
  fs::remove_all(path);
  fs::create_directories(path);
  return path.string();
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, const std::string& text) {
  fs::remove(path);  // faster: some file systems immediately flush files that are truncated
  std::ofstream out(path, std::ios::binary);
  out << text;
}

/// Names and bytes of all files below a folder.
inline std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    files[name] = entry.is_regular_file() ? read_file(entry.path().string()) : "a folder";
  }
  return files;
}

using Tree = std::map<std::string, Array>;

/// Arrays of several dtypes and of ranks 0 to 3. Meshes do not divide their sizes; large arrays
/// have several blocks.
inline Tree sample_tree(std::int64_t seed = 0) {
  const auto keys = random::split(Key(seed), 5);
  Tree tree;
  tree["w"] = random::normal(keys[0], {37, 26});
  tree["large"] = random::normal(keys[1], {96, 10, 48});
  tree["half"] = astype(random::normal(keys[2], {12, 5}), DType::bf16);
  tree["mask"] = random::bernoulli(keys[3], 0.5F, {13});
  tree["key"] = random::bits(keys[4], {2});
  tree["step"] = full({}, seed, DType::i32);
  tree["none"] = zeros({0, 4});
  tree["double"] = array<double>({0.1 + static_cast<double>(seed), -1e300, 3.0});
  return tree;
}

inline std::string bits_of(const Array& x) {
  const Elements elements(x, std::source_location());
  return {reinterpret_cast<const char*>(elements.bytes().data()), elements.bytes().size()};
}

inline bool has_same_bits(const Tree& a, const Tree& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, x] : a) {
    const auto y = b.find(name);
    if (y == b.end() || x.type() != y->second.type() || bits_of(x) != bits_of(y->second)) {
      return false;
    }
  }
  return true;
}

}  // namespace tessera::checkpoint
