// Checkpoints with one process per device: each process writes its own tiles.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <gtest/gtest.h>
#include <regex>
#include <stdexcept>
#include <sys/resource.h>

#include <tessera/checkpoint.h>
#include <tessera/tessera.h>

#include "tests/isolated/reports.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

using Tree = std::map<std::string, Array>;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

Mesh grid() { return make_mesh({{"a", 2}, {"b", 2}}, {2, 0, 3, 1}); }

/// Arrays split over both mesh axes, over one and over none, and arrays without a mesh.
Tree make_tree() {
  const Mesh mesh = grid();
  const auto put = [&](const Array& x, const PartitionSpec& spec) {
    return device_put(x, NamedSharding(mesh, spec));
  };
  return {{"both", put(random::normal(Key(0), {7, 5}), P{"a", "b"})},
          {"one", put(random::normal(Key(1), {300, 301}), P{none, "a"})},
          {"all", put(random::normal(Key(2), {9}), P{})},
          {"none", zeros({0, 3})},
          {"step", scalar(7)}};
}

class Program final : public IsolatedProgram {
 public:
  explicit Program(void (*body)(const std::string&), std::string path)
      : body_(body), path_(std::move(path)) {}
  void run() override { body_(path_); }
  int report(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const RuntimeFault& fault) {
      const std::string text = fault.what();
      // Processes that have written their part report what the other process could not write.
      const std::regex told("(process 2: )?cannot write " + path_ + "[^]*: File too large");
      const bool is_told = std::regex_match(text, told);
      if (!is_told) std::fprintf(stderr, "rank %d: %s\n", process_index(), text.c_str());
      return is_told ? 2 : 3;
    } catch (const std::exception& what) {
      std::fprintf(stderr, "rank %d: %s\n", process_index(), what.what());
    }
    return 3;
  }

 private:
  void (*body_)(const std::string&);
  std::string path_;
};

int in_processes(int count, void (*body)(const std::string&), const std::string& path) {
  Program program(body, path);
  return run_isolated(program, {.num_processes = count});
}

std::string new_path(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("tessera_isolated_" + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return (folder / "saved").string();
}

int in_one_process(void (*body)(const std::string&), const std::string& path) {
  Program program(body, path);
  return testing::run_in_child(program);
}

std::string hash(const Tree& tree) {
  return checkpoint::fingerprint(checkpoint::named_arrays(tree));
}

void save_tree(const std::string& path) { checkpoint::save(path, make_tree()); }

void check_saved(const std::string& path) {
  expect(checkpoint::verify(path).empty(), "the checkpoint is whole");
  expect(hash(checkpoint::restore(path, make_tree())) == hash(make_tree()), "other values");
}

void check_on_a_ring(const std::string& path) {
  const Tree tree = make_tree();
  const Mesh ring = make_mesh({{"r", 4}});
  Shardings shardings;
  for (const auto& [name, x] : tree)
    shardings.set(name, NamedSharding(ring, x.rank() > 0 ? P{"r"} : P{}));
  for (const auto& [name, x] : checkpoint::restore(path, tree, shardings)) {
    const std::int64_t devices = 4 / process_count();
    expect(std::ssize(x.addressable_shards()) == devices, "a shard per device");
    expect(hash({{name, x}}) == hash({{name, tree.at(name)}}), "other values: " + name);
  }
}

TEST(IsolatedCheckpoint, HasTheTilesOfAllProcesses) {
  const std::string path = new_path("save");
  ASSERT_EQ(in_processes(4, save_tree, path), 0);
  EXPECT_EQ(in_one_process(check_saved, path), 0);
  EXPECT_EQ(checkpoint::read_info(path).files.size(), 4U);
  // One process for all devices must write files of the same sizes.
  ASSERT_EQ(in_one_process(save_tree, path + "_by_one"), 0);
  for (const std::string& name : checkpoint::read_info(path).files)
    EXPECT_EQ(fs::file_size(path + "/" + name), fs::file_size(path + "_by_one/" + name)) << name;
}

TEST(IsolatedCheckpoint, IsRestoredWhereEachDeviceNeedsIt) {
  const std::string path = new_path("restore");
  ASSERT_EQ(in_one_process(save_tree, path), 0);
  EXPECT_EQ(in_processes(4, check_on_a_ring, path), 0);
}

TEST(IsolatedCheckpoint, GoesBetweenAnyNumbersOfProcesses) {
  for (const int writers : {2, 4}) {
    const std::string path = new_path("between");
    ASSERT_EQ(in_processes(writers, save_tree, path), 0);
    EXPECT_EQ(in_one_process(check_saved, path), 0);
    for (const int readers : {2, 4}) {
      EXPECT_EQ(in_processes(readers, check_saved, path), 0);
      EXPECT_EQ(in_processes(readers, check_on_a_ring, path), 0);
    }
  }
}

/// Saves steps in the background while the arrays change, and finishes them at different times.
void save_steps(const std::string& folder) {
  Tree tree = make_tree();
  checkpoint::Checkpointer steps(folder, {.keep_latest = 2});
  for (std::int64_t step = 0; step < 4; ++step) {
    steps.save(step, tree);
    for (auto& [name, x] : tree) x = x + x;
    if (step == 1) {
      while (steps.latest() != 1) steps.finish_if_written();
    }
  }
  steps.wait();
  if (process_index() > 0) return;  // the first process removes the others
  expect(steps.steps() == std::vector<std::int64_t>{2, 3}, "the last two are kept");
}

void check_steps(const std::string& folder) {
  for (const std::int64_t step : {2, 3}) {
    Tree wanted = make_tree();
    for (std::int64_t i = 0; i < step; ++i) {
      for (auto& [name, x] : wanted) x = x + x;
    }
    const std::string path = checkpoint::step_path(folder, step);
    expect(checkpoint::verify(path).empty(), "the checkpoint is whole");
    expect(hash(checkpoint::restore(path, make_tree())) == hash(wanted), "other values");
  }
}

TEST(IsolatedCheckpoint, SavesInTheBackground) {
  for (const int writers : {2, 4}) {
    const std::string folder = new_path("background");
    ASSERT_EQ(in_processes(writers, save_steps, folder), 0);
    EXPECT_EQ(in_one_process(check_steps, folder), 0);
  }
}

TEST(IsolatedCheckpoint, ThatOneProcessCannotWriteLeavesTheOldOne) {
  const std::string path = new_path("fault");
  ASSERT_EQ(in_processes(4, save_tree, path), 0);
  const int code = in_processes(
      4,
      [](const std::string& to) {
        Tree tree = make_tree();
        for (auto& [name, x] : tree) x = x + x;
        if (process_index() == 2) {
          std::signal(SIGXFSZ, SIG_IGN);
          const rlimit limit{1000, 1000};
          setrlimit(RLIMIT_FSIZE, &limit);
        }
        checkpoint::save(to, tree);
      },
      path);
  EXPECT_EQ(code, 2);
  EXPECT_EQ(in_one_process(check_saved, path), 0);
  const auto files = fs::directory_iterator(fs::path(path).parent_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

}  // namespace
}  // namespace tessera
