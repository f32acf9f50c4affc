// A save that fails or is killed at any moment leaves the old checkpoint or the new one.
#include "checkpoint/save.h"

#include <csignal>
#include <gtest/gtest.h>
#include <random>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <tessera/jit.h>

#include "checkpoint/test_support.h"

namespace tessera::checkpoint {
namespace {

/// Calls `fault` on the call with number `at`, counted from 1.
class FaultyDisk : public Disk {
 public:
  FaultyDisk(int at, std::function<void()> fault) : left_(at), fault_(std::move(fault)) {}
  int create(const std::string& path, const std::string& shown) override {
    count();
    return Disk::create(path, shown);
  }
  void write(int file, std::span<const std::byte> bytes, std::int64_t offset,
             const std::string& shown) override {
    // Write half of the bytes first, as happens when the disk becomes full.
    if (left_ == 1) Disk::write(file, bytes.first(bytes.size() / 2), offset, shown);
    count();
    Disk::write(file, bytes, offset, shown);
  }
  void sync(int file, const std::string& shown) override {
    count();
    Disk::sync(file, shown);
  }
  void make_folder(const std::string& path, const std::string& shown) override {
    count();
    Disk::make_folder(path, shown);
  }
  void sync_folder(const std::string& path, const std::string& shown) override {
    count();
    Disk::sync_folder(path, shown);
  }
  void replace(const std::string& from, const std::string& to) override {
    count();
    Disk::replace(from, to);
  }
  bool has_happened() const { return left_ <= 0; }

 private:
  void count() {
    if (--left_ == 0) fault_();
  }
  int left_;
  std::function<void()> fault_;
};

Tree on_two_devices(std::int64_t seed) {
  const Mesh mesh = make_mesh({{"a", 2}});
  Tree tree = sample_tree(seed);
  for (auto& [name, x] : tree) {
    if (x.rank() > 0) x = device_put(x, NamedSharding(mesh, P{"a"}));
  }
  return tree;
}

Snapshot snapshot_of(const Tree& tree) { return snapshot(named_arrays(tree), {}, {}); }

/// Which state the folder has: 0 for the old one, 1 for the new one. Anything else fails the test.
int which(const std::string& path, const Tree& old_tree, const Tree& new_tree) {
  EXPECT_EQ(verify(path), std::vector<std::string>());
  const Tree found = restore(path, old_tree);
  if (has_same_bits(found, old_tree)) return 0;
  EXPECT_TRUE(has_same_bits(found, new_tree));
  return 1;
}

TEST(Save, ThatFailsAtAnyCallLeavesTheOldOneAndNothingElse) {
  const std::string folder = test_folder();
  const std::string path = folder + "/saved";
  const Tree old_tree = on_two_devices(0);
  const Tree new_tree = on_two_devices(1);
  int at = 1;
  for (bool is_done = false; !is_done; ++at) {
    for (const bool is_first : {true, false}) {
      fs::remove_all(path);
      if (!is_first) save(path, old_tree);
      FaultyDisk disk(at, [] { throw RuntimeFault("no space left"); });
      try {
        write_checkpoint(disk, snapshot_of(new_tree), path, 1);
        is_done = true;
      } catch (const RuntimeFault& fault) {
        EXPECT_STREQ(fault.what(), "no space left");
      }
      EXPECT_EQ(is_done, !disk.has_happened());
      const auto files = fs::directory_iterator(folder);
      const auto count = std::distance(begin(files), end(files));
      if (is_first && !fs::exists(path)) {
        EXPECT_EQ(count, 0) << "call " << at;
      } else {
        EXPECT_EQ(count, 1) << "call " << at;
        const int found = which(path, old_tree, new_tree);
        EXPECT_TRUE(found == 1 || !is_done);
      }
    }
  }
  EXPECT_GT(at, 20) << "hardly anything was written";
}

/// Runs `body` in a child process; returns its wait status.
int in_process(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
      _exit(0);
    } catch (const RuntimeFault&) {
      _exit(2);
    } catch (...) {
      _exit(3);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(Save, KilledAtAnyCallLeavesTheOldOneOrTheNewOne) {
  const std::string folder = test_folder();
  const std::string path = folder + "/saved";
  const Tree old_tree = on_two_devices(0);
  const Tree new_tree = on_two_devices(1);
  const Snapshot state = snapshot_of(new_tree);
  bool is_done = false;
  int seen[2] = {0, 0};
  for (int at = 1; !is_done; ++at) {
    fs::remove_all(path);
    save(path, old_tree);
    const int status = in_process([&] {
      FaultyDisk disk(at, [] { kill(getpid(), SIGKILL); });
      write_checkpoint(disk, state, path, 1);
    });
    is_done = WIFEXITED(status);
    ++seen[which(path, old_tree, new_tree)];
    // Files that the killed process left behind do not disturb the next save.
    if (!is_done) {
      save(path, new_tree);
      EXPECT_EQ(which(path, old_tree, new_tree), 1);
      const auto files = fs::directory_iterator(folder);
      EXPECT_EQ(std::distance(begin(files), end(files)), 1);
    }
  }
  EXPECT_GT(seen[0], 10);
  EXPECT_GT(seen[1], 0);
}

TEST(Save, KilledAtRandomMomentsLeavesWholeSteps) {
  const std::string folder = test_folder();
  const Tree first = on_two_devices(0);
  std::vector<Snapshot> states;
  std::vector<Tree> trees;
  for (std::int64_t i = 0; i < 4; ++i) {
    trees.push_back(on_two_devices(i));
    states.push_back(snapshot_of(trees.back()));
  }
  const auto start = std::chrono::steady_clock::now();
  write_checkpoint(local_disk(), states[0], step_path(folder, 0), 1);
  const std::chrono::duration<double> one_save = std::chrono::steady_clock::now() - start;
  std::mt19937 random(7);
  std::int64_t furthest = 0;
  for (int round = 0; round < 20 || (furthest <= 5 && round < 200); ++round) {
    const std::int64_t from = furthest;
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the test is killed, the child must not go on saving
      Disk disk;
      for (std::int64_t step = from;; ++step) {
        Snapshot& state = states[static_cast<std::size_t>(step % 4)];
        state.options.step = step;
        write_checkpoint(disk, state, step_path(folder, step), 1);
      }
    }
    // Wait longer in later rounds, in case the machine has become busy.
    const double saves = static_cast<double>(random() % 300) * 0.01 * (1 + round / 20);
    std::this_thread::sleep_for(one_save * saves);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const std::vector<std::int64_t> steps = steps_in(folder);
    for (const std::int64_t step : steps) {
      const std::string path = step_path(folder, step);
      EXPECT_EQ(verify(path), std::vector<std::string>());
      EXPECT_TRUE(has_same_bits(restore(path, first), trees[static_cast<std::size_t>(step % 4)]));
      if (step + 3 < steps.back()) fs::remove_all(path);
    }
    if (!steps.empty()) furthest = steps.back();
  }
  EXPECT_GT(furthest, 5);
}

TEST(Save, OnAFullDiskKeepsTheOldOne) {
  const std::string folder = test_folder();
  const std::string path = folder + "/saved";
  const Tree old_tree{{"x", random::normal(Key(0), {100})}};
  const Tree new_tree{{"x", random::normal(Key(1), {100'000})}};
  save(path, old_tree);
  const Snapshot state = snapshot_of(new_tree);
  const int status = in_process([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    Disk disk;
    write_checkpoint(disk, state, path, 1);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_TRUE(has_same_bits(restore(path, old_tree), old_tree));
  const auto files = fs::directory_iterator(folder);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST(Save, InAFolderThatCannotBeWrittenKeepsTheOldOne) {
  const std::string folder = test_folder();
  const std::string path = folder + "/saved";
  const Tree old_tree = on_two_devices(0);
  save(path, old_tree);
  const auto before = files_below(folder);
  const Snapshot state = snapshot_of(on_two_devices(1));
  fs::permissions(folder, fs::perms(0555));
  const int status = in_process([&] {
    // Permissions do not stop root, so become another user.
    constexpr uid_t kNobody = 65534;
    if (getuid() == 0 && setuid(kNobody) != 0) _exit(4);
    Disk disk;
    write_checkpoint(disk, state, path, 1);
  });
  fs::permissions(folder, fs::perms::owner_all);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(files_below(folder), before);
}

TEST(Save, NeverReplacesWhatIsNoCheckpoint) {
  const std::string folder = test_folder();
  write_file(folder + "/notes.txt", "mine");
  EXPECT_THROW(save(folder, sample_tree()), UserError);
  EXPECT_THROW(save(folder + "/notes.txt", sample_tree()), UserError);
  EXPECT_EQ(files_below(folder), (std::map<std::string, std::string>{{"notes.txt", "mine"}}));
}

TEST(Save, TakesPathsWithSlashesAtTheEnd) {
  const std::string path = test_folder() + "/saved";
  save(path + "//", sample_tree());
  EXPECT_TRUE(has_same_bits(restore(path + "/", sample_tree(1)), sample_tree()));
}

TEST(Checkpointer, SavesWhatWasThereWhenItWasAsked) {
  const std::string folder = test_folder();
  auto step = jit([](Array x) { return x * 1.5F + 1.0F; }, {.donate_argnums = {0}});
  Array x = random::normal(Key(0), {1 << 20});
  std::vector<std::string> wanted;
  Checkpointer steps(folder);
  for (std::int64_t i = 0; i < 6; ++i) {
    wanted.push_back(bits_of(x));
    steps.save(i, Tree{{"x", x}});
    // The step donates `x`, whose memory is being saved.
    x = step(std::move(x));
  }
  steps.wait();
  for (std::int64_t i = 0; i < 6; ++i) {
    const Tree restored = steps.restore(i, Tree{{"x", x}});
    EXPECT_EQ(bits_of(restored.at("x")), wanted[static_cast<std::size_t>(i)]) << i;
  }
}

TEST(Checkpointer, KeepsTheLatestAndTheBest) {
  const Tree tree{{"x", ones({3})}};
  const std::vector<double> losses = {5, 1, 4, 2, NAN, 3, 6};
  const auto kept = [&](const CheckpointerOptions& options) {
    const std::string folder = test_folder();
    Checkpointer steps(folder, options);
    for (std::size_t i = 0; i < losses.size(); ++i)
      steps.save(static_cast<std::int64_t>(i), tree, {.metric = losses[i]});
    steps.wait();
    EXPECT_EQ(steps.latest(), 6);
    const auto files = fs::directory_iterator(folder);
    EXPECT_EQ(std::distance(begin(files), end(files)), std::ssize(steps.steps()));
    return std::pair(steps.steps(), steps.best());
  };
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(kept({}), std::pair(Steps({0, 1, 2, 3, 4, 5, 6}), std::optional<std::int64_t>(1)));
  EXPECT_EQ(kept({.keep_latest = 2}).first, Steps({5, 6}));
  EXPECT_EQ(kept({.keep_latest = 2, .keep_best = 2}).first, Steps({1, 3, 5, 6}));
  EXPECT_EQ(kept({.keep_best = 1}).first, Steps({1, 6}));
  EXPECT_EQ(kept({.keep_latest = 1, .is_async = false}).first, Steps({6}));
}

TEST(Checkpointer, KeepsTheNamedStepBesides) {
  const Tree tree{{"x", ones({3})}};
  Checkpointer steps(test_folder(), {.keep_latest = 2});
  using Steps = std::vector<std::int64_t>;
  for (std::int64_t i = 0; i < 6; ++i) {
    if (i == 2) steps.keep(1);
    steps.save(i, tree);
    steps.wait();
  }
  EXPECT_EQ(steps.steps(), Steps({1, 4, 5}));
  steps.keep(4);
  for (std::int64_t i = 6; i < 9; ++i) steps.save(i, tree);
  steps.wait();
  EXPECT_EQ(steps.steps(), Steps({4, 7, 8}));
}

TEST(Checkpointer, NeverRemovesWhatItJustSaved) {
  using Steps = std::vector<std::int64_t>;
  for (const bool is_async : {false, true}) {
    Checkpointer steps(test_folder(), {.keep_latest = 2, .is_async = is_async});
    const auto save_at = [&](std::int64_t step) {
      steps.save(step, Tree{{"x", full({3}, static_cast<double>(step))}});
      steps.wait();
    };
    for (const std::int64_t step : {10, 20, 30}) save_at(step);
    save_at(15);
    EXPECT_EQ(steps.steps(), Steps({15, 20, 30}));
    save_at(16);
    EXPECT_EQ(steps.steps(), Steps({16, 20, 30}));
  }
}

TEST(Checkpointer, DiscardsWhatIsLater) {
  using Steps = std::vector<std::int64_t>;
  const Tree tree{{"x", ones({3})}};
  Checkpointer steps(test_folder(), {.keep_latest = 3});
  for (const std::int64_t step : {10, 20, 30}) steps.save(step, tree);
  steps.discard_after(10);
  EXPECT_EQ(steps.steps(), Steps({10}));
  for (const std::int64_t step : {11, 12, 13}) steps.save(step, tree);
  steps.wait();
  EXPECT_EQ(steps.steps(), Steps({11, 12, 13}));
  steps.discard_after(100);
  EXPECT_EQ(steps.latest(), 13);
}

TEST(Checkpointer, PrunesWithoutASave) {
  const std::string folder = test_folder();
  const Tree tree{{"x", ones({3})}};
  using Steps = std::vector<std::int64_t>;
  {
    Checkpointer all(folder);
    for (std::int64_t i = 0; i < 5; ++i) all.save(i, tree);
    all.wait();
    all.prune();
    EXPECT_EQ(all.steps(), Steps({0, 1, 2, 3, 4}));
  }
  Checkpointer steps(folder, {.keep_latest = 2});
  EXPECT_EQ(steps.steps(), Steps({0, 1, 2, 3, 4}));
  steps.keep(1);
  steps.prune();
  EXPECT_EQ(steps.steps(), Steps({1, 3, 4}));
}

TEST(Checkpointer, TellsLaterWhatFailedInTheBackground) {
  const std::string folder = test_folder() + "/run";
  Checkpointer steps(folder);
  const Tree tree{{"x", ones({3})}};
  steps.save(0, tree);
  steps.wait();
  // A file that is no checkpoint is at the path of the next step.
  write_file(step_path(folder, 1), "notes");
  steps.save(1, tree);
  EXPECT_THROW(steps.save(2, tree), UserError);
  steps.save(2, tree);
  steps.wait();
  EXPECT_TRUE(has_same_bits(steps.restore(2, tree), tree));
  EXPECT_THROW(steps.save(-1, tree), UserError);
}

TEST(Checkpointer, HasAFolderForItself) {
  const std::string folder = test_folder();
  const Checkpointer first(folder);
  EXPECT_THROW(const Checkpointer second(folder), UserError);
}

TEST(Checkpointer, RemovesWhatAKilledOneLeft) {
  const std::string folder = test_folder();
  const Tree tree{{"x", ones({3})}};
  { Checkpointer(folder).save(3, tree); }
  fs::create_directory(folder + "/.step_00000004.unfinished");
  write_file(folder + "/.step_00000004.unfinished/part", "half");
  fs::create_directory(folder + "/.step_00000001.removed");
  write_file(folder + "/notes", "mine");
  const Checkpointer steps(folder);
  EXPECT_EQ(steps.steps(), std::vector<std::int64_t>({3}));
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, std::vector<std::string>({"notes", "step_00000003"}));
}

}  // namespace
}  // namespace tessera::checkpoint
