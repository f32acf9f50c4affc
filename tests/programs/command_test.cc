// Commands that compare runs, draw and report: what they write and print.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cases/case_file.h"
#include "tests/data/cifar_folder.h"
#include "tests/peers/golden.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSmallVit = "--layers 1 --embed 16 --mlp-dim 16 --heads 2 --patch 16 ";

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("tessera_command_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  CommandOutcome run(const std::string& arguments) const {
    return run_command(TESSERA_COMMAND, arguments, "", folder_);
  }
  json object_of(const std::string& name) const { return json::parse(bytes_of(folder_ / name)); }

  fs::path folder_;
};

TEST_F(Commands, ExperimentsMeasureEveryRunAndKeepIt) {
  const std::string command = std::string(
                                  "experiments vit --out out --batches 8,16 --steps 3 "
                                  "--threads 1 --meshes 'batch=4,model=2 none' ") +
                              kSmallVit;
  const CommandOutcome first = run(command);
  ASSERT_EQ(first.exit_code, 0) << first.stderr_text;
  const json results = object_of("out/results.json");
  ASSERT_EQ(results["runs"].size(), 4U);
  for (const json& one : results["runs"]) {
    EXPECT_EQ(one["outcome"], "done");
    EXPECT_EQ(one["steps"], 3);
    EXPECT_EQ(one["steps_per_epoch"], 45000 / one["experiment"]["batch"].get<int>());
    EXPECT_GT(one["epoch_s"], 0);
    EXPECT_GT(one["planned_device_bytes"], 0);
    EXPECT_GT(one["peak_buffer_bytes"], 0);
    EXPECT_GT(one["peak_rss_bytes"], one["peak_buffer_bytes"]);
    EXPECT_GE(one["planned_bytes"], one["peak_rss_bytes"]);
  }
  // A device needs less memory if the work is split.
  EXPECT_LT(results["runs"][0]["planned_device_bytes"], results["runs"][1]["planned_device_bytes"]);
  for (const char* name : {"epoch_run_time", "peak_memory"}) {
    EXPECT_EQ(bytes_of(folder_ / "out" / (name + std::string(".png"))).substr(1, 3), "PNG");
    EXPECT_NE(bytes_of(folder_ / "out" / (name + std::string(".svg"))).find("<svg"),
              std::string::npos);
  }
  const CommandOutcome second = run(command);
  EXPECT_NE(second.stdout_text.find("already done"), std::string::npos) << second.stdout_text;
  EXPECT_EQ(object_of("out/results.json"), results);
  const CommandOutcome other = run(command + "--seed 3");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_EQ(other.stderr_text.find("tessera: --out: the folder has the results of runs with other "
                                   "flags\n  found:  out/results.json of "),
            0U)
      << other.stderr_text;
}

TEST_F(Commands, ExperimentsLeaveOutWhatDoesNotFit) {
  const CommandOutcome outcome =
      run(std::string("experiments vit --out out --batches 8,20000 --steps 2 --threads 1 "
                      "--meshes none --device-memory 1 --mlp-dim 512 --layers 2 --patch 8 "
                      "--embed 64 --heads 2"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  const json runs = object_of("out/results.json")["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["outcome"], "done");
  EXPECT_EQ(runs[1]["outcome"], "does not fit");
  EXPECT_EQ(runs[1]["why"], "does not fit: a device has 1.0 GiB");
  EXPECT_GT(runs[1]["planned_device_bytes"], std::int64_t{1} << 30);
  EXPECT_EQ(runs[1]["steps"], 0);
}

/// All runs are tried and written, and the exit code tells that some failed.
TEST_F(Commands, ExperimentsThatFailAreAnError) {
  const CommandOutcome outcome =
      run(std::string("experiments vit --out out --batches 8,16 --steps 2 --threads 1 "
                      "--meshes none --launcher false ") +
          kSmallVit);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.stderr_text,
            "tessera: experiments: runs have failed\n"
            "  found:  mesh_none_batch_8, mesh_none_batch_16\n"
            "  wanted: runs that end with the exit code 0\n"
            "  cure:   read their output in out/runs; the same command starts them again\n");
  const json runs = object_of("out/results.json")["runs"];
  ASSERT_EQ(runs.size(), 2U);
  for (const json& one : runs) EXPECT_EQ(one["why"], "failed: exit code 1");
  EXPECT_TRUE(fs::exists(folder_ / "out/peak_memory.svg"));
}

TEST_F(Commands, ExperimentsTrainOnFiles) {
  write_cifar_folder(folder_ / "cifar", CifarLayout::binary, 8);
  const CommandOutcome outcome =
      run(std::string("experiments vit --out out --batches 9 --threads 1 --meshes none "
                      "--data cifar ") +
          kSmallVit);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  const json run = object_of("out/results.json")["runs"][0];
  EXPECT_EQ(run["steps"], 4);  // 36 images in batches of 9
  EXPECT_EQ(run["steps_per_epoch"], 4);
  EXPECT_GT(run["planned_bytes"], run["planned_device_bytes"].get<std::int64_t>() + 48 * 3073 - 1);
}

TEST_F(Commands, TilesAreThoseOfJax) {
  const json golden = read_golden("visualize.json");
  const auto picture = [&](const char* name) { return golden[name]["plain"].get<std::string>(); };
  const std::string leaves =
      "--leaf 0/params/encoder_blocks/0/mlp/fc2/kernel --leaf "
      "0/params/encoder_blocks/0/mlp/fc2/bias "
      "--leaf 1/1 ";
  const CommandOutcome grid =
      run("show vit --layers 1 --what tiles --picture tiles.png --json tiles.json " + leaves);
  ASSERT_EQ(grid.exit_code, 0) << grid.stderr_text;
  const std::string line = "---------------------------\n";
  const std::string on = "\nNamedSharding(mesh=Mesh('batch': 4, 'model': 2), spec=";
  EXPECT_EQ(grid.stdout_text,
            "0/params/encoder_blocks/0/mlp/fc2/kernel  f32[1536,384]" + on + "P(None, 'model'))\n" +
                picture("kernel_1536x384_P(None,model)_mesh4x2") + line +
                "0/params/encoder_blocks/0/mlp/fc2/bias  f32[384]" + on + "P('model',))\n" +
                picture("bias_384_P(model)_mesh4x2") + line + "1/1  i32[128]" + on +
                "P('batch',))\n" + picture("labels_128_P(batch)_mesh4x2"));
  EXPECT_EQ(bytes_of(folder_ / "tiles.png").substr(1, 3), "PNG");
  const json tiles = object_of("tiles.json")["tiles"];
  ASSERT_EQ(tiles.size(), 3U);
  EXPECT_EQ(tiles[0]["tiles"][1],
            json({{"devices", {1, 3, 5, 7}}, {"index", {{0, 1536}, {192, 384}}}}));
  const CommandOutcome row =
      run("show vit --layers 1 --mesh batch=8,model=1 --what tiles --leaf 1/1 --picture row.svg");
  EXPECT_NE(row.stdout_text.find(picture("labels_128_P(batch)_mesh8x1")), std::string::npos)
      << row.stdout_text;
  EXPECT_NE(bytes_of(folder_ / "row.svg").find("<svg"), std::string::npos);
}

/// Checks that byte counts are sums over the leaves, and returns the number of leaves.
std::int64_t count_leaves(const json& module) {
  std::int64_t bytes = 0;
  std::int64_t device_bytes = 0;
  std::int64_t count = 0;
  const auto size = [](const json& shape) {
    std::int64_t total = 4;
    for (const json& extent : shape) total *= extent.get<std::int64_t>();
    return total;
  };
  for (const json& leaf : module["leaves"]) {
    bytes += size(leaf["shape"]);
    device_bytes += size(leaf["local_shape"]);
    ++count;
  }
  for (const json& inner : module["modules"]) {
    const auto times = inner["count"].get<std::int64_t>();
    bytes += times * inner["bytes"].get<std::int64_t>();
    device_bytes += times * inner["device_bytes"].get<std::int64_t>();
    count += times * count_leaves(inner);
  }
  EXPECT_EQ(module["bytes"], bytes) << module["name"];
  EXPECT_EQ(module["device_bytes"], device_bytes) << module["name"];
  return count;
}

TEST_F(Commands, ModulesHaveTheBytesOfTheirLeaves) {
  const std::string lm = "show lm --layers 3 --mesh data=2,model=2 --params fsdp ";
  const CommandOutcome shown = run(lm + "--what graph --picture graph.svg --json graph.json");
  ASSERT_EQ(shown.exit_code, 0) << shown.stderr_text;
  EXPECT_NE(shown.stdout_text.find("blocks_0 to blocks_2, 3 times  "), std::string::npos);
  EXPECT_NE(bytes_of(folder_ / "graph.svg").find("<svg"), std::string::npos);
  ASSERT_EQ(run(lm + "--what sharding --json sharding.json").exit_code, 0);
  EXPECT_EQ(count_leaves(object_of("graph.json")["graph"]),
            std::ssize(object_of("sharding.json")["sharding"]["arguments"]));
}

TEST_F(Commands, PlotsCurvesOfReports) {
  std::ofstream(folder_ / "a.json")
      << json{{"losses", {2.0, 1.0, nullptr, 0.5}},
              {"epochs", {{{"validation_accuracy", 0.5}, {"validation_loss", 1.5}}}}};
  EXPECT_EQ(run("plot a.json a.json --label one --label two --out loss.svg").exit_code, 0);
  EXPECT_NE(bytes_of(folder_ / "loss.svg").find("<svg"), std::string::npos);
  EXPECT_EQ(run("plot a.json --what accuracy --out accuracy.png").exit_code, 0);
  EXPECT_EQ(bytes_of(folder_ / "accuracy.png").substr(1, 3), "PNG");
}

/// The curve of a run that continues another one begins where that one ended.
TEST_F(Commands, PlotsCurvesOfContinuedRuns) {
  const auto epoch = [](double accuracy) { return json{{"validation_accuracy", accuracy}}; };
  std::ofstream(folder_ / "late.json") << json{{"first_step", 2},
                                               {"losses", {2.0, 1.0}},
                                               {"first_epoch", 2},
                                               {"epochs", {epoch(0.5), epoch(0.6)}}};
  std::ofstream(folder_ / "gap.json") << json{{"losses", {nullptr, nullptr, 2.0, 1.0}},
                                              {"epochs", {json::object(), epoch(0.5), epoch(0.6)}}};
  for (const std::string what : {"loss", "accuracy"}) {
    const std::string flags = " --label run --what " + what + " --out ";
    ASSERT_EQ(run("plot late.json" + flags + "late.svg").exit_code, 0);
    ASSERT_EQ(run("plot gap.json" + flags + "gap.svg").exit_code, 0);
    EXPECT_EQ(bytes_of(folder_ / "late.svg"), bytes_of(folder_ / "gap.svg")) << what;
  }
}

TEST_F(Commands, TensorBoardGetsTheLossesOfTheReport) {
  const CommandOutcome outcome =
      run("train mlp --depth 16 --layers 2 --batch 8 --mesh none --threads 1 --steps 4 "
          "--tensorboard curves --json report.json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  const fs::path file = fs::directory_iterator(folder_ / "curves")->path();
  const std::string events = bytes_of(file);
  // In the file, the tag is followed by the value as the bytes of an f32.
  const std::string tag = "train/loss\x15";
  std::size_t at = 0;
  const json report = object_of("report.json");
  ASSERT_EQ(report["losses"].size(), 4U);
  for (const json& loss : report["losses"]) {
    at = events.find(tag, at);
    ASSERT_NE(at, std::string::npos);
    at += tag.size();
    float value = 0;
    std::memcpy(&value, events.data() + at, sizeof(value));
    EXPECT_EQ(value, loss.get<float>());
  }
  EXPECT_EQ(events.find(tag, at), std::string::npos);
  for (const char* other : {"train/step_ms", "train/rows_per_s", "train/learning_rate"})
    EXPECT_NE(events.find(other), std::string::npos) << other;
}

/// printf would show the sign of a NaN.
TEST_F(Commands, ALossThatIsNotANumberHasNoSign) {
  const CommandOutcome outcome =
      run("train mlp --depth 16 --layers 2 --batch 8 --mesh none --threads 1 --steps 6 "
          "--optimizer sgd --lr 1e29 --allow-nan");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  EXPECT_NE(outcome.stdout_text.find("loss nan\n"), std::string::npos) << outcome.stdout_text;
  EXPECT_EQ(outcome.stdout_text.find("-nan"), std::string::npos) << outcome.stdout_text;
}

TEST_F(Commands, DevicesAreThoseOfTheMesh) {
  const CommandOutcome outcome = run("devices --mesh a=2,b=3 --threads 3 --json devices.json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  EXPECT_NE(outcome.stdout_text.find("CPU 5  a 1, b 2\n"), std::string::npos)
      << outcome.stdout_text;
  const json devices = object_of("devices.json");
  EXPECT_EQ(devices["threads"], 3);
  EXPECT_EQ(devices["device_ids"].size(), 6U);
  EXPECT_GE(devices["memory_bytes"], devices["free_memory_bytes"]);
  EXPECT_GT(devices["free_memory_bytes"], 0);
}

/// What a command writes to a terminal of this kind that has so many columns.
std::string on_terminal(unsigned short columns, const std::vector<const char*>& words,
                        const char* kind = "xterm") {
  winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    setenv("TERM", kind, 1);
    std::vector<char*> arguments;
    for (const char* word : words) arguments.push_back(const_cast<char*>(word));
    arguments.push_back(nullptr);
    execv(TESSERA_COMMAND, arguments.data());
    _exit(127);
  }
  std::string text;
  char part[4096];
  for (ssize_t count = 0; (count = read(terminal, part, sizeof(part))) > 0;)
    text.append(part, static_cast<std::size_t>(count));
  waitpid(child, nullptr, 0);
  close(terminal);
  return text;
}

TEST(ProgressBar, FitsTheTerminal) {
  const std::vector<const char*> words = {"tessera",  "train",   "mlp",     "--depth",   "16",
                                          "--layers", "2",       "--batch", "8",         "--mesh",
                                          "none",     "--steps", "12",      "--threads", "1"};
  const std::string text = on_terminal(100, words);
  EXPECT_NE(text.find("\r\033[K[==============================] 12/12  loss "), std::string::npos)
      << text;
  EXPECT_NE(text.find(" rows/s  "), std::string::npos) << text;
  EXPECT_NE(text.find(" left"), std::string::npos) << text;
  EXPECT_NE(text.find("\r\033[Kstep 0011  loss "), std::string::npos) << text;
  const std::string dumb = on_terminal(100, words, "dumb");
  EXPECT_NE(dumb.find("step 0011  loss "), std::string::npos) << dumb;
  EXPECT_EQ(dumb.find('\033'), std::string::npos) << dumb;
  for (const unsigned short columns : {std::uint16_t{20}, std::uint16_t{60}}) {
    const std::string narrow = on_terminal(columns, words);
    for (std::size_t at = narrow.find("\033[K"); at != std::string::npos;
         at = narrow.find("\033[K", at + 1)) {
      const std::size_t end = narrow.find('\r', at);
      const std::string line = narrow.substr(at + 3, end - at - 3);
      const bool is_bar = line.find("12  loss") != std::string::npos && line[0] != 's';
      if (is_bar) {
        EXPECT_LT(line.size(), columns) << line;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
