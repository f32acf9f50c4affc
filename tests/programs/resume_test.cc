// `tessera train MODEL --resume` reaches the bits of a run that was never interrupted, also on
// another mesh.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <tessera/checkpoint.h>

#include "tests/cases/case_file.h"
#include "tests/data/cifar_folder.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

struct Model {
  const char* label;
  const char* name;
  const char* sizes;
  std::vector<std::string> layouts;  // the interrupted run has the first one
};

std::ostream& operator<<(std::ostream& out, const Model& model) { return out << model.label; }

class Resume : public ::testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / (std::string("tessera_resume_") + GetParam().label);
    fs::remove_all(folder_);
    write_cifar_folder(folder_ / "cifar", CifarLayout::binary, 8);  // 36 images to train on
    write_file(folder_ / "text.txt", cifar_planes(1));
  }
  CommandOutcome run(const std::string& flags) const {
    return run_command(TESSERA_COMMAND,
                       std::string("train ") + GetParam().name + " " + GetParam().sizes +
                           (flags.find("--threads") == std::string::npos ? " --threads 2" : "") +
                           " --progress off " + flags,
                       "", folder_);
  }
  nlohmann::json report(const std::string& flags) const {
    const CommandOutcome outcome = run(flags + " --json report.json");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
    std::ifstream in(folder_ / "report.json");
    return nlohmann::json::parse(in);
  }

  fs::path folder_;
};

TEST_P(Resume, GoesOnToTheSameBitsOnAnyMesh) {
  const std::vector<std::string>& layouts = GetParam().layouts;
  const nlohmann::json whole = report(layouts[0] + " --steps 6");
  report(layouts[0] + " --steps 3 --checkpoint first --every 2");
  EXPECT_EQ(checkpoint::steps_in((folder_ / "first").string()), std::vector<std::int64_t>({2, 3}));
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const std::string copy = "copy" + std::to_string(i);
    fs::copy(folder_ / "first", folder_ / copy, fs::copy_options::recursive);
    const nlohmann::json rest = report(layouts[i] + " --steps 6 --resume --checkpoint " + copy);
    for (std::size_t step = 3; step < 6; ++step)
      EXPECT_EQ(rest["loss_bits"][step - 3], whole["loss_bits"][step]) << layouts[i];
    EXPECT_EQ(rest["loss_bits"].size(), 3U);
    EXPECT_EQ(rest["params_hash"], whole["params_hash"]) << layouts[i];
  }
}

TEST_P(Resume, AfterAKillGoesOnFromTheLastWholeStep) {
  const std::string& layout = GetParam().layouts[0];
  const nlohmann::json whole = report(layout + " --steps 8");
  const std::string flags = layout + " --steps 8 --checkpoint run --every 1 --keep 2 --resume";
  for (int round = 0; round < 3; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      run(flags);
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(150 + 170 * round));
    kill(-child, SIGKILL);
    waitpid(child, nullptr, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto steps = checkpoint::steps_in((folder_ / "run").string());
    for (const std::int64_t step : steps) {
      EXPECT_EQ(checkpoint::verify(checkpoint::step_path((folder_ / "run").string(), step)),
                std::vector<std::string>());
    }
    if (!steps.empty() && steps.back() == 8) break;
  }
  // A run that had reached its end before it was killed must report, too.
  EXPECT_EQ(report(flags)["params_hash"], whole["params_hash"]);
  EXPECT_EQ(checkpoint::steps_in((folder_ / "run").string()), std::vector<std::int64_t>({7, 8}));
  report(layout + " --steps 8 --checkpoint run --keep 1 --resume");
  EXPECT_EQ(checkpoint::steps_in((folder_ / "run").string()), std::vector<std::int64_t>({8}));
}

INSTANTIATE_TEST_SUITE_P(
    Models, Resume,
    ::testing::Values(
        Model{"lm",
              "lm",
              "--d-model 32 --d-ff 48 --heads 4 --layers 2 --vocab 67 --seq 12 --batch 8",
              {"--mesh data=4 --params fsdp", "--mesh data=3 --params fsdp", "--mesh none",
               "--mesh data=8 --params replicated"}},
        Model{"lm_text",
              "lm",
              "--d-model 32 --d-ff 48 --heads 4 --layers 1 --seq 12 --batch 8 --text text.txt",
              {"--mesh data=4 --params fsdp", "--mesh none"}},
        Model{"mlp",
              "mlp",
              "--depth 24 --layers 3 --batch 8",
              {"--mesh data=2,model=4", "--mesh data=4,model=1", "--mesh none",
               "--mesh data=2,model=3 --params fsdp"}},
        Model{"vit_data",
              "vit",
              "--layers 1 --embed 24 --mlp-dim 32 --heads 4 --patch 16 --batch 8 --data cifar",
              {"--mesh batch=2,model=2", "--mesh none --threads 1",
               "--mesh batch=4,model=1 --params fsdp"}},
        Model{"vit",
              "vit",
              "--layers 2 --embed 24 --mlp-dim 32 --heads 4 --patch 16 --batch 8 "
              "--optimizer muon --accumulate 2 --clip 1",
              {"--mesh batch=2,model=2", "--mesh none", "--mesh batch=4,model=1 --params fsdp"}},
        Model{"pipeline",
              "pipeline",
              "--layers 2 --d-model 64 --heads 4 --seq 8 --batch 4 --microbatches 2 "
              "--optimizer adafactor --lr-schedule linear --warmup 2 --decay-steps 9",
              {"--mesh fsdp=4", "--mesh none", "--mesh fsdp=2 --params replicated"}}),
    [](const ::testing::TestParamInfo<Model>& model) { return std::string(model.param.label); });

TEST(ResumeData, TheCheckpointHasThePlaceOfTheNextImage) {
  const fs::path folder = fs::path(::testing::TempDir()) / "tessera_resume_data";
  fs::remove_all(folder);
  write_cifar_folder(folder / "cifar", CifarLayout::binary, 8);
  write_cifar_folder(folder / "other", CifarLayout::binary, 12);
  const auto run = [&](const std::string& flags) {
    return run_command(TESSERA_COMMAND,
                       "train vit --layers 1 --embed 24 --mlp-dim 32 --heads 4 --patch 16 "
                       "--threads 1 --progress off --mesh none --checkpoint run " +
                           flags,
                       "", folder);
  };
  ASSERT_EQ(run("--data cifar --batch 8 --steps 3").exit_code, 0);
  const std::string path = checkpoint::step_path((folder / "run").string(), 3);
  const nlohmann::json place = nlohmann::json::parse(checkpoint::read_info(path).metadata["data"]);
  EXPECT_EQ(place[0], 24) << place;
  // The position counts images, not batches.
  ASSERT_EQ(run("--data cifar --batch 4 --steps 5 --resume").exit_code, 0);
  const std::string next = checkpoint::step_path((folder / "run").string(), 5);
  EXPECT_EQ(nlohmann::json::parse(checkpoint::read_info(next).metadata["data"])[0], 32);
  EXPECT_EQ(run("--data other --batch 4 --steps 6 --resume").stderr_text,
            "tessera: --data: the position belongs to another stream\n"
            "  found:  seed 12, shard 0 of 1, 36 records\n"
            "  wanted: seed 12, shard 0 of 1, 54 records\n"
            "  cure:   use the data and the flags of the run that saved it\n");
}

TEST(ResumeMistakes, TellWhatDoesNotFit) {
  const fs::path folder = fs::path(::testing::TempDir()) / "tessera_resume_errors";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const auto run = [&](const std::string& flags) {
    return run_command(TESSERA_COMMAND,
                       "train mlp --layers 2 --batch 8 --threads 1 --progress off --mesh none "
                       "--checkpoint run " +
                           flags,
                       "", folder);
  };
  ASSERT_EQ(run("--depth 16 --steps 2").exit_code, 0);
  EXPECT_EQ(run("--depth 16 --steps 4").stderr_text,
            "tessera: --checkpoint: the folder already has the checkpoints of a run\n"
            "  found:  run with step 2\n"
            "  wanted: a new folder, or --resume\n"
            "  cure:   add --resume to continue that run, or choose another folder\n");
  EXPECT_EQ(
      run("--depth 16 --steps 1 --resume").stderr_text,
      "tessera: --steps: the checkpoint already has more steps\n"
      "  found:  run/step_00000002 and --steps 1\n"
      "  wanted: at least 2 steps\n"
      "  cure:   --steps also counts the steps before --resume: write for example --steps 4\n");
  const CommandOutcome other = run("--depth 24 --steps 4 --resume");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_NE(other.stderr_text.find("--resume: the checkpoint is of another model\n"),
            std::string::npos)
      << other.stderr_text;
}

TEST(ResumeMistakes, OnAFullDiskKeepWhatWasSaved) {
  const fs::path folder = fs::path(::testing::TempDir()) / "tessera_resume_full";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string command =
      "train mlp --depth 64 --layers 4 --batch 8 --threads 1 --progress off --mesh none "
      "--checkpoint run --every 2 ";
  ASSERT_EQ(run_command(TESSERA_COMMAND, command + "--steps 2", "", folder).exit_code, 0);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const CommandOutcome full =
      run_command(TESSERA_COMMAND, command + "--steps 8 --resume", "", folder);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_EQ(full.stderr_text,
            "tessera: fault: cannot write "
            "run/step_00000004/shard-00001-model-00001-of-00001.safetensors: File too large\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "run"), fs::directory_iterator()), 1);
  EXPECT_EQ(run_command(TESSERA_COMMAND, command + "--steps 8 --resume", "", folder).exit_code, 0);
}

}  // namespace
}  // namespace tessera::testing
