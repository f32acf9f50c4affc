// Checkpoint folders that cannot be read or that hold a step other than their name says, and what a
// loss of power leaves of them.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include <tessera/checkpoint.h>

#include "tests/faults/traced.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;

Files files_below(const fs::path& folder) {
  Files files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    std::string text = "a folder";
    if (entry.is_regular_file()) {
      std::ifstream in(entry.path(), std::ios::binary);
      text = {std::istreambuf_iterator<char>(in), {}};
    }
    files[fs::relative(entry.path(), folder).string()] = text;
  }
  return files;
}

class Folders : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_trace()) GTEST_SKIP() << "processes may not be traced here";
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("tessera_folders_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  TraceResult run(const std::vector<std::string>& arguments, TraceOptions options = {}) const {
    options.folder = folder_;
    return run_traced(TESSERA_COMMAND, arguments, options);
  }
  TraceResult train(int steps, const std::string& folder, TraceOptions options = {},
                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train",     "mlp",      "--depth",
                                          "4",         "--layers", "1",
                                          "--batch",   "4",        "--loop",
                                          "--threads", "1",        "--progress",
                                          "off",       "--steps",  std::to_string(steps),
                                          "--every",   "1",        "--checkpoint",
                                          folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, std::move(options));
  }
  const std::vector<std::string> alone_ = {"--mesh", "none", "--resume"};
  const std::vector<std::string> isolated_ = {"--mesh",     "data=3,model=1", "--params",
                                              "replicated", "--isolated",     "--resume"};

  fs::path folder_;
};

struct Site {
  const char* call;
  const char* below;  // path below the folder of the run
};

TraceOptions answering(const std::string& path, const char* call, std::int64_t result, int& count,
                       int process = -1) {
  TraceOptions options;
  options.answer = [=, &count](const SystemCall& seen) -> std::optional<std::int64_t> {
    if (seen.path != path || seen.name != call) return std::nullopt;
    if (process >= 0 && seen.process != process) return std::nullopt;
    ++count;
    return result;
  };
  return options;
}

/// Expects that the error found by one process is reported by that process or by another one.
void expect_told(const TraceResult& result, int finder, const std::string& text) {
  const std::string rank = std::to_string(finder);
  const std::regex told("tessera: rank (" + rank + ": fault: |[012]: fault: process " + rank +
                        ": )" + text + "\n[^]*");
  EXPECT_TRUE(std::regex_match(result.stderr_text, told)) << result.stderr_text;
}

TEST_F(Folders, ThatCannotBeReadAreNotTakenForEmpty) {
  ASSERT_EQ(train(2, "run", {}, {"--mesh", "none"}).exit_code, 0);
  const Files before = files_below(folder_);
  const std::string index = "/step_00000002/checkpoint.json";
  for (const int reason : {EIO, ENOMEM, EACCES, EMFILE, ESTALE}) {
    for (const auto& [call, below] :
         {Site{"newfstatat", ""}, Site{"openat", ""}, Site{"getdents64", ""},
          Site{"newfstatat", index.c_str()}, Site{"openat", index.c_str()},
          Site{"pread64", index.c_str()}}) {
      int count = 0;
      const std::string path = fs::canonical(folder_ / "run").string() + below;
      const TraceResult result = train(4, "run", answering(path, call, -reason, count), alone_);
      EXPECT_GT(count, 0) << call << " " << below;
      EXPECT_EQ(result.exit_code, 2) << call << " " << below;
      const std::string reader =
          *below == '\0' || std::string(call) == "newfstatat" ? "" : "checkpoint: ";
      EXPECT_EQ(result.stderr_text, "tessera: fault: " + reader + "cannot read run" + below + ": " +
                                        std::strerror(reason) + "\n");
      EXPECT_EQ(files_below(folder_), before);
    }
  }
}

TEST_F(Folders, ThatAreNotThereBeginARun) {
  const TraceResult result = train(2, "run", {}, alone_);
  EXPECT_EQ(result.exit_code, 0) << result.stderr_text;
  EXPECT_EQ(checkpoint::steps_in((folder_ / "run").string()), std::vector<std::int64_t>({1, 2}));
}

TEST_F(Folders, ThatOneProcessSeesOtherwiseEndAnIsolatedRun) {
  ASSERT_EQ(train(2, "run", {}, {"--mesh", "none"}).exit_code, 0);
  const std::string path = fs::canonical(folder_ / "run").string();
  const Files before = files_below(folder_);
  // The program is process 0; its children 1, 2 and 3 are the ranks 0, 1 and 2.
  for (const int process : {1, 2, 3}) {
    int count = 0;
    const TraceResult empty =
        train(4, "run", answering(path, "getdents64", 0, count, process), isolated_);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(empty.exit_code, 2);
    const std::string found[] = {"no checkpoint by process 0, step 2 by processes 1 and 2",
                                 "no checkpoint by process 1, step 2 by processes 0 and 2",
                                 "no checkpoint by process 2, step 2 by processes 0 and 1"};
    // All ranks find the same problem, and one of them reports it.
    const std::regex told(
        "tessera: rank [012]: fault: the processes do not see the same "
        "checkpoints in run: " +
        found[process - 1] + "\n");
    EXPECT_TRUE(std::regex_match(empty.stderr_text, told)) << empty.stderr_text;
    EXPECT_EQ(files_below(folder_), before);

    count = 0;
    const TraceResult broken =
        train(4, "run", answering(path, "getdents64", -EIO, count, process), isolated_);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(broken.exit_code, 2);
    expect_told(broken, process - 1, "cannot read run: Input/output error");
    EXPECT_EQ(files_below(folder_), before);
  }
  const TraceResult good = train(4, "run", {}, isolated_);
  EXPECT_EQ(good.exit_code, 0) << good.stderr_text;
}

TEST_F(Folders, WhoseDamageOneProcessFindsAreTold) {
  const std::vector<std::string> sharded = {"--mesh", "data=3,model=1", "--params",
                                            "fsdp",   "--isolated",     "--resume"};
  ASSERT_EQ(train(2, "run", {}, sharded).exit_code, 0);
  {
    std::fstream shard(folder_ / "run/step_00000002/shard-00003-model-00001-of-00001.safetensors",
                       std::ios::binary | std::ios::in | std::ios::out);
    shard.seekp(-1, std::ios::end);
    shard.put('\x55');
  }
  const TraceResult result = train(4, "run", {}, sharded);
  EXPECT_EQ(result.exit_code, 2);
  expect_told(result, 2, "checkpoint: a file is damaged");
}

TEST_F(Folders, OfAnotherStepAreRefused) {
  ASSERT_EQ(train(3, "run", {}, {"--mesh", "none"}).exit_code, 0);
  fs::rename(folder_ / "run/step_00000003", folder_ / "run/step_00000007");
  const Files before = files_below(folder_);
  const TraceResult resumed = train(9, "run", {}, alone_);
  EXPECT_EQ(resumed.exit_code, 1);
  EXPECT_EQ(resumed.stderr_text,
            "tessera: checkpoint: the folder has the name of another step\n"
            "  found:  run/step_00000007 with step 3\n"
            "  wanted: step_00000003, or a name that is not the name of a step\n"
            "  cure:   name the folder after the step that it holds\n");
  const TraceResult verified = run({"checkpoint", "verify", "run"});
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_NE(verified.stdout_text.find("run/step_00000002  intact\n"
                                      "run/step_00000007  damaged\n"
                                      "  run/step_00000007 with step 3\n"),
            std::string::npos)
      << verified.stdout_text;
  EXPECT_EQ(files_below(folder_), before);
  fs::rename(folder_ / "run/step_00000007", folder_ / "run/step_00000003");
  EXPECT_EQ(train(4, "run", {}, alone_).exit_code, 0);
}

/// Tracks what a loss of power may destroy according to POSIX: the bytes of a file written since
/// its last fsync, and the names in a folder changed since the folder's last fsync. Records each
/// action of a run that comes too early to be safe.
class UnsafeCalls {
 public:
  explicit UnsafeCalls(std::string run) : run_(std::move(run)) {}

  void see(const SystemCall& call) {
    if (call.result < 0) return;
    if (call.name == "openat" && (call.flags & O_CREAT) != 0)
      names_[parent(call.path)].insert(call.path);
    if (call.name.starts_with("mkdir")) {
      if (is_hidden(call.path)) expect_safe_names("begins another save");
      names_[parent(call.path)].insert(call.path);
    }
    if (call.name == "pwrite64" || call.name == "write") bytes_.insert(call.path);
    if (call.name == "fsync") {
      ++num_syncs_;
      bytes_.erase(call.path);
      names_.erase(call.path);
      if (call.path == run_) is_renaming_ = false;
    }
    if (call.name.starts_with("rename")) rename(call.path, call.target);
    const bool is_removal = call.name.starts_with("unlink") || call.name == "rmdir";
    if (is_removal && is_renaming_ && is_below(call.path, run_))
      note("removes " + call.path + " before its folder's new name is safe");
  }
  /// To be called at the end: also checks that every name that was made is on the disk.
  const std::vector<std::string>& found() {
    for (const auto& [folder, names] : names_) {
      for (const std::string& name : names) {
        if (!is_hidden(name)) note("leaves " + name + " without its name on the disk");
      }
    }
    return found_;
  }
  int num_syncs() const { return num_syncs_; }

 private:
  static std::string parent(const std::string& path) { return fs::path(path).parent_path(); }
  static bool is_below(const std::string& path, const std::string& folder) {
    return path.starts_with(folder + "/");
  }
  static bool is_hidden(const std::string& path) { return path.find("/.") != std::string::npos; }
  void expect_safe_names(const std::string& action) {
    for (const std::string& name : names_[run_]) {
      if (!is_hidden(name)) note(action + " before the name " + name + " is safe");
    }
  }
  void note(const std::string& text) { found_.push_back(text); }

  void rename(const std::string& from, const std::string& to) {
    if (!is_hidden(to)) {
      for (const std::string& path : bytes_) {
        if (is_below(path, from)) note("gives " + to + " its name before the bytes of " + path);
      }
      for (const auto& [folder, names] : names_) {
        if (folder == from || is_below(folder, from))
          note("gives " + to + " its name before those in " + folder);
      }
    } else {
      expect_safe_names("hides " + from);
    }
    names_[parent(to)].erase(from);
    names_[parent(to)].insert(to);
    is_renaming_ = true;
  }

  std::string run_;
  std::set<std::string> bytes_;                         // files with bytes that are not safe yet
  std::map<std::string, std::set<std::string>> names_;  // per folder: names that are not safe yet
  bool is_renaming_ = false;
  int num_syncs_ = 0;
  std::vector<std::string> found_;
};

TEST_F(Folders, LoseNothingThatWasSavedWhenThePowerFails) {
  const std::string run = fs::canonical(folder_).string() + "/a/b/run";
  const auto trained = [&](int skipped) {
    fs::remove_all(folder_ / "a");
    UnsafeCalls calls(run);
    int count = 0;
    TraceOptions options;
    options.seen = [&](const SystemCall& call) { calls.see(call); };
    options.answer = [&](const SystemCall& call) -> std::optional<std::int64_t> {
      if (call.name != "fsync" || ++count != skipped) return std::nullopt;
      return 0;  // pretend that it succeeded
    };
    const TraceResult result =
        train(3, "a/b/run", options, {"--mesh", "data=2,model=1", "--keep", "1"});
    EXPECT_EQ(result.exit_code, 0) << result.stderr_text;
    EXPECT_EQ(checkpoint::steps_in(run), std::vector<std::int64_t>({3}));
    return std::pair(calls.found(), calls.num_syncs());
  };
  const auto [found, num_syncs] = trained(0);
  EXPECT_EQ(found, std::vector<std::string>());
  EXPECT_GT(num_syncs, 15);
  // Every fsync is needed: skipping any one of them is unsafe.
  for (int skipped = 1; skipped <= num_syncs; ++skipped)
    EXPECT_NE(trained(skipped).first, std::vector<std::string>()) << "fsync " << skipped;
}

}  // namespace
}  // namespace tessera::testing
