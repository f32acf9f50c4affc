// `tessera train gpt2` and `tessera generate gpt2`: what they write and print.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cases/case_file.h"
#include "tests/cases/source_dir.h"
#include "tests/peers/golden.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Gpt2Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("tessera_gpt2_cli_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 300; ++i) text << "The license of work " << i * i << " is für dich. ";
  }
  json object_of(const std::string& arguments) const {
    const CommandOutcome outcome =
        run_command(TESSERA_COMMAND, arguments + " --json run.json", "", folder_);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.stderr_text;
    return outcome.exit_code == 0 ? json::parse(std::ifstream(folder_ / "run.json")) : json();
  }
  json generated(const std::string& flags, const std::string& weights = golden()) const {
    return object_of("generate gpt2 --weights " + weights +
                     " --prompt 'The licensee may convey a work' " + flags);
  }
  json generated_of(const std::string& flags) const {
    return object_of("generate gpt2 --weights " + golden() + " " + flags);
  }
  json trained(const std::string& flags) const {
    return object_of("train gpt2 --text text.txt --seq 24 --batch 4 " + flags);
  }
  static std::string golden() { return source_dir() / "tests/peers/golden/gpt2"; }

  fs::path folder_;
};

TEST_F(Gpt2Commands, ContinueTheTextOfThePeer) {
  const json expected = read_golden("gpt2/expected.json")["greedy"];
  const json found = generated("--tokens 20 --temperature 0");
  EXPECT_EQ(found["prompt_ids"], expected["prompt_ids"]);
  EXPECT_EQ(found["ids"], expected["ids"]);
  EXPECT_EQ(std::string(found["text"]).substr(0, 5), "A2you");
  EXPECT_GT(found["tokens_per_second"], 0);
}

TEST_F(Gpt2Commands, DrawTheSameTokensOnMeshes) {
  const std::string draw = "--tokens 16 --sequences 3 --top-k 50 --top-p 0.9 --seed 7 ";
  const json alone = generated(draw);
  ASSERT_EQ(alone["sequences"].size(), 3U);
  EXPECT_NE(alone["sequences"][0], alone["sequences"][1]);
  EXPECT_EQ(alone["sequences"][0]["ids"], alone["ids"]);
  for (const char* how : {"--mesh data=2", "--mesh data=3 --params fsdp", "--threads 1"}) {
    EXPECT_EQ(generated(draw + how)["sequences"], alone["sequences"]) << how;
  }
}

TEST_F(Gpt2Commands, ContinueEachPromptAsIfItWereAlone) {
  const std::string how = "--tokens 5 --temperature 1.5 --seed 3 --sequences 2 ";
  const std::vector<std::string> prompts = {"The licensee", "A2", "A licence", "A3"};
  std::string all = how;
  for (const std::string& prompt : prompts) all += "--prompt '" + prompt + "' ";
  const json together = generated_of(all);
  const json on_mesh = generated_of(all + "--mesh data=2");
  ASSERT_EQ(together["prompts"].size(), prompts.size());
  EXPECT_FALSE(together.contains("text"));
  std::set<std::size_t> lengths;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const json alone = generated_of(how + "--prompt '" + prompts[i] + "'");
    EXPECT_EQ(together["prompts"][i], alone["prompts"][0]);
    EXPECT_EQ(on_mesh["prompts"][i], alone["prompts"][0]);
    EXPECT_EQ(alone["sequences"], alone["prompts"][0]["sequences"]);
    lengths.insert(alone["prompt_ids"].size());
  }
  EXPECT_GT(lengths.size(), 1U);
  EXPECT_LT(lengths.size(), prompts.size());
}

TEST_F(Gpt2Commands, EndBeforeAStopString) {
  const json found = generated("--tokens 20 --temperature 0 --stop 'zzz' --stop 'you'");
  EXPECT_EQ(found["text"], "A2");
  EXPECT_EQ(found["ids"].size(), 3U);
}

TEST_F(Gpt2Commands, EndBehindTheTokenThatEndsTexts) {
  fs::create_directories(folder_ / "ending");
  for (const char* name : {"vocab.json", "merges.txt", "model.safetensors", "config.json"}) {
    fs::copy_file(golden() + "/" + name, folder_ / "ending" / name);
  }
  json config = json::parse(std::ifstream(golden() + "/config.json"));
  config["eos_token_id"] = 219;
  std::ofstream(folder_ / "ending/config.json") << config;
  const json found = generated("--tokens 20 --temperature 0", "ending");
  EXPECT_EQ(found["ids"], (json{32, 17, 291, 219}));
  EXPECT_EQ(found["text"], "A2you");
}

TEST_F(Gpt2Commands, TrainFromWeightsAndSaveThem) {
  const std::string flags = "--weights " + golden() + " --lr 1e-2 --log-every 100 ";
  const json run = trained(flags + "--steps 8 --save tuned");
  EXPECT_LT(run["losses"].back(), run["losses"].front());
  EXPECT_TRUE(run["config"]["pretrained"]);
  // The same bits on a mesh.
  EXPECT_EQ(trained(flags + "--steps 8 --mesh data=2 --params fsdp")["params_hash"],
            run["params_hash"]);
  // Training continues from the saved weights where it was.
  const json more = trained("--weights tuned --steps 1");
  EXPECT_LT(more["losses"].front(), run["losses"].front());
  const json found = generated("--tokens 4 --temperature 0", "tuned");
  EXPECT_EQ(found["ids"].size(), 4U);
}

TEST_F(Gpt2Commands, DropElementsInTraining) {
  const std::string flags = "--weights " + golden() + " --steps 2 ";
  const json run = trained(flags + "--dropout 0.2");
  EXPECT_NE(run["losses"], trained(flags)["losses"]);
  EXPECT_EQ(run["config"]["dropout"], 0.2);
  EXPECT_EQ(trained(flags + "--dropout 0.2 --mesh data=2")["params_hash"], run["params_hash"]);
}

TEST_F(Gpt2Commands, DropProbabilitiesInTraining) {
  const std::string flags = "--weights " + golden() + " --steps 2 ";
  const json run = trained(flags + "--attention-dropout 0.3");
  EXPECT_NE(run["losses"], trained(flags)["losses"]);
  EXPECT_EQ(run["config"]["attention_dropout"], 0.3);
  EXPECT_EQ(trained(flags + "--attention-dropout 0.3 --mesh data=2,model=2")["params_hash"],
            run["params_hash"]);
}

TEST_F(Gpt2Commands, ResumeWithTheSameBits) {
  const std::string flags =
      "--config " + golden() + " --accumulate 2 --dtype bf16 --recompute-logits ";
  const json whole = trained(flags + "--steps 6");
  trained(flags + "--steps 4 --checkpoint saved");
  const json rest = trained(flags + "--steps 6 --checkpoint saved --resume");
  EXPECT_EQ(rest["params_hash"], whole["params_hash"]);
  EXPECT_FALSE(whole["config"]["pretrained"]);
}

}  // namespace
}  // namespace tessera::testing
