// The command under the launchers of MPI: the same bits as one process, and each mistake is
// reported once.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/mpi/launchers.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

const std::string kTextLm =
    "train lm --seq 12 --d-model 32 --heads 4 --layers 2 --d-ff 48 --batch 12 --steps 3 "
    "--grains 24 --progress off --text text ";
const std::string kLm =
    "train lm --seq 12 --d-model 32 --heads 4 --layers 2 --d-ff 48 --batch 12 --steps 3 "
    "--grains 24 --progress off --vocab 50 ";
const std::string kPipeline =
    "train pipeline --batch 8 --microbatches 2 --seq 8 --d-model 16 --heads 2 --layers 2 --steps 3 "
    "--progress off ";
const std::string kVit =
    "--batch 8 --layers 1 --embed 16 --mlp-dim 16 --heads 2 --patch 16 --steps 2 --threads 1 "
    "--grains "
    "24 ";
const std::string kMlp = "train mlp --depth 16 --layers 2 --batch 12 --grains 24 --progress off ";

class Mpi : public ::testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "mpi_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  CommandOutcome on_ranks(int ranks, const std::string& arguments) const {
    return launch(GetParam(), ranks, TESSERA_COMMAND " " + arguments, folder_);
  }
  nlohmann::json report() const {
    std::ifstream file(folder_ / "r.json");
    return nlohmann::json::parse(file, nullptr, false);
  }
  /// The report of a run in one process, without a launcher.
  nlohmann::json alone(const std::string& arguments) const {
    const CommandOutcome run =
        run_command(TESSERA_COMMAND, arguments + "--json r.json", "", folder_);
    EXPECT_EQ(run.exit_code, 0) << run.stderr_text;
    return report();
  }
  void expect_bits(const nlohmann::json& want, int ranks, const std::string& arguments) const {
    SCOPED_TRACE(std::to_string(ranks) + " ranks: " + arguments);
    fs::remove(folder_ / "r.json");
    const CommandOutcome run = on_ranks(ranks, arguments + "--json r.json");
    ASSERT_EQ(run.exit_code, 0) << run.stderr_text;
    const nlohmann::json found = report();
    ASSERT_TRUE(found.is_object());
    EXPECT_EQ(found["loss_bits"], want["loss_bits"]);
    EXPECT_EQ(found["params_hash"], want["params_hash"]);
    // Only the first rank prints.
    EXPECT_EQ(run.stdout_text.find("step 0000"), run.stdout_text.rfind("step 0000"));
  }

  fs::path folder_;
};

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

/// Everything from "tessera: " to the end of the cure.
std::string message(const std::string& output) {
  const std::size_t begin = output.find("tessera: ");
  if (begin == std::string::npos) return output;
  const std::size_t cure = output.find("  cure: ", begin);
  return output.substr(begin, output.find('\n', std::min(cure, output.size() - 1)) - begin);
}

/// Expects that the run ended with a mistake of the user, which one rank reported.
void expect_told_once(const CommandOutcome& run, const std::string& text) {
  EXPECT_EQ(run.exit_code, 1) << run.stderr_text;
  EXPECT_EQ(message(run.stderr_text), text);
  EXPECT_EQ(count(run.stderr_text, "tessera: "), 1) << run.stderr_text;
}

TEST_P(Mpi, TheBitsOfOneProcess) {
  const nlohmann::json lm = alone(kLm + "--mesh none ");
  expect_bits(lm, 2, kLm + "--mesh data=2 ");
  expect_bits(lm, 3, kLm + "--mesh data=3 --params fsdp ");
  expect_bits(lm, 4, kLm + "--mesh data=2,model=2 --threads 2 ");
  const nlohmann::json mlp = alone(kMlp + "--steps 3 --mesh none ");
  expect_bits(mlp, 4, kMlp + "--steps 3 --mesh data=2,model=2 ");
}

TEST_P(Mpi, ARankOwnsSeveralDevices) {
  const nlohmann::json lm = alone(kLm + "--mesh none ");
  expect_bits(lm, 2, kLm + "--mesh data=4 --params fsdp ");
  expect_bits(lm, 3, kLm + "--mesh data=3,model=2 ");
}

TEST_P(Mpi, ManyRanks) {
  const nlohmann::json lm = alone(kLm + "--mesh none ");
  expect_bits(lm, 6, kLm + "--mesh data=3,model=2 --threads 1 ");
  expect_bits(lm, 8, kLm + "--mesh data=8 --threads 1 ");
}

TEST_P(Mpi, Images) {
  const std::string vit = "train vit --progress off " + kVit;
  const nlohmann::json want = alone(vit + "--mesh none ");
  expect_bits(want, 2, vit + "--mesh batch=2,model=2 ");
  expect_bits(want, 4, vit + "--mesh batch=4,model=1 ");
}

/// Each run of the experiments is started with the launcher.
TEST_P(Mpi, Experiments) {
  const std::string launcher = GetParam().program + " " + GetParam().options + "-n 2";
  const std::string experiments = "experiments vit --out out --batches 8 --meshes batch=2,model=1 ";
  const CommandOutcome run = run_command(
      TESSERA_COMMAND,
      experiments + kVit.substr(kVit.find("--layers")) + "--launcher '" + launcher + "'", "",
      folder_);
  ASSERT_EQ(run.exit_code, 0) << run.stdout_text << run.stderr_text;
  std::ifstream results(folder_ / "out" / "results.json");
  EXPECT_EQ(nlohmann::json::parse(results)["runs"][0]["steps"], 2);
  for (const auto& file : fs::directory_iterator(folder_ / "out" / "runs")) {
    if (file.path().extension() != ".json" || file.path().stem().extension() == ".plan") continue;
    fs::copy_file(file.path(), folder_ / "r.json");
  }
  const nlohmann::json found = report();
  EXPECT_EQ(found["params_hash"],
            alone("train vit --progress off " + kVit + "--mesh none ")["params_hash"]);
}

TEST_P(Mpi, ExperimentsUnderALauncher) {
  const CommandOutcome run = on_ranks(2, "experiments vit --out out");
  expect_told_once(run,
                   "tessera: experiments: a launcher such as mpirun has started this process\n"
                   "  found:  several processes that would all start the same runs\n"
                   "  wanted: one process, which starts each run with the launcher\n"
                   "  cure:   write: tessera experiments vit --launcher \"mpirun -n 4\" ...");
}

TEST_P(Mpi, PipelinesOverGroupsOfRanks) {
  const nlohmann::json want = alone(kPipeline + "--mesh none ");
  expect_bits(want, 2, kPipeline + "--mesh stage=2,fsdp=1 ");
  expect_bits(want, 4, kPipeline + "--mesh stage=2,fsdp=2 ");
}

TEST_P(Mpi, OtherNumbersOfRanksResume) {
  const nlohmann::json want = alone(kMlp + "--steps 3 --mesh none ");
  const std::string saved = kMlp + "--checkpoint saved --resume --mesh ";
  ASSERT_EQ(on_ranks(4, saved + "data=4,model=1 --steps 2").exit_code, 0);
  ASSERT_EQ(on_ranks(2, saved + "data=2,model=1 --steps 3 --json r.json").exit_code, 0);
  EXPECT_EQ(report()["params_hash"], want["params_hash"]);
}

TEST_P(Mpi, MoreRanksThanDevices) {
  const CommandOutcome run = on_ranks(3, kLm + "--mesh data=2");
  expect_told_once(run,
                   "tessera: --mesh: there are more ranks than devices\n"
                   "  found:  data=2 with 2 devices, and 3 ranks\n"
                   "  wanted: a number of ranks that divides the number of devices\n"
                   "  cure:   start for example 2 ranks, or write a --mesh of 3 devices");
}

TEST_P(Mpi, RanksThatDoNotDivideTheDevices) {
  const CommandOutcome run = on_ranks(2, kLm + "--mesh data=3");
  expect_told_once(run,
                   "tessera: --mesh: the devices cannot be divided evenly among the ranks\n"
                   "  found:  data=3 with 3 devices, and 2 ranks\n"
                   "  wanted: a number of ranks that divides the number of devices\n"
                   "  cure:   start for example 3 ranks, or write a --mesh of 2 devices");
}

TEST_P(Mpi, MistakesBeforeTheRanksMeet) {
  const CommandOutcome run = on_ranks(3, kLm + "--mesh data");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(count(run.stderr_text, "tessera: --mesh: "), 1) << run.stderr_text;
}

TEST_P(Mpi, ProcessesOfItsOwn) {
  const CommandOutcome run = on_ranks(2, kLm + "--mesh data=2 --isolated");
  expect_told_once(run,
                   "tessera: --isolated: a launcher such as mpirun has already started processes\n"
                   "  found:  --isolated under a launcher\n"
                   "  wanted: one of them\n"
                   "  cure:   leave out --isolated, or start the program without the launcher");
}

TEST_P(Mpi, OtherFlagsOnOneRank) {
  const std::string command = TESSERA_COMMAND " " + kLm + "--mesh data=3 ";
  const CommandOutcome run = launch(
      GetParam(), 2, command + "--seed 1 : -n 1 " + command + "--seed 7 --threads 1", folder_);
  expect_told_once(run,
                   "tessera: the processes do not agree: --seed differs\n"
                   "  found:  rank 2: 7\n"
                   "  wanted: the same as on rank 0: 1\n"
                   "  cure:   start the same program with the same flags on all ranks");
}

TEST_P(Mpi, AnotherExecutableOnOneRank) {
  const std::string arguments = " " + kLm + "--mesh data=3 ";
  fs::copy_file(TESSERA_COMMAND, folder_ / "other");
  std::ofstream(folder_ / "other", std::ios::app) << "more";
  const CommandOutcome run = launch(
      GetParam(), 2,
      TESSERA_COMMAND + arguments + ": -n 1 " + (folder_ / "other").string() + arguments, folder_);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.stderr_text.find("the processes do not agree: the executable differs\n"
                                 "  found:  rank 2: one with hash "),
            std::string::npos)
      << run.stderr_text;
  EXPECT_EQ(count(run.stderr_text, "tessera: "), 1) << run.stderr_text;
}

TEST_P(Mpi, AModuleThatIsMissing) {
  setenv("TESSERA_MPI", "other", 1);
  const CommandOutcome run = on_ranks(3, kLm + "--mesh data=3");
  unsetenv("TESSERA_MPI");
  expect_told_once(
      run,
      "tessera: an MPI launcher started this process, but the module for its MPI cannot be loaded\n"
      "  found:  libtessera_mpi_other.so: cannot open shared object file: No such file or "
      "directory\n"
      "  wanted: libtessera_mpi_other.so, which is built with Tessera where this MPI is "
      "installed\n"
      "  cure:   install the MPI (Debian: libopenmpi-dev or libmpich-dev) and build Tessera "
      "again, or set TESSERA_MPI to openmpi, mpich or the path of a module; TESSERA_MPI=none "
      "ignores the launcher");
}

TEST_P(Mpi, AModuleThatOneRankLacks) {
  // MPICH's launcher lets the first rank wait for the one that lacks the module.
  const bool ends_others = GetParam().name == "openmpi";
  const std::string command =
      TESSERA_COMMAND " " + kLm + "--mesh data=2 --timeout " + (ends_others ? "30" : "5");
  const CommandOutcome run =
      launch(GetParam(), 1,
             command + " : -n 1 /bin/sh -c \"TESSERA_MPI=other exec " + command + "\"", folder_);
  // MPICH's launcher returns the bitwise OR of all exit codes, 1 and 2, or one of them.
  EXPECT_GE(run.exit_code, 1) << run.stderr_text;
  EXPECT_LE(run.exit_code, ends_others ? 1 : 3) << run.stderr_text;
  EXPECT_EQ(count(run.stderr_text, "tessera: "), 1) << run.stderr_text;
  const std::string told = ends_others ? "found:  libtessera_mpi_other.so: cannot open"
                                       : "MPI_Init did not end within the timeout of 5 s: a "
                                         "process has stopped or has not called it";
  EXPECT_NE(run.stderr_text.find(told), std::string::npos) << run.stderr_text;
}

TEST_P(Mpi, ALauncherThatIsIgnored) {
  setenv("TESSERA_MPI", "none", 1);
  const CommandOutcome run = on_ranks(2, kLm + "--mesh data=2");
  unsetenv("TESSERA_MPI");
  EXPECT_EQ(run.exit_code, 0) << run.stderr_text;
  EXPECT_EQ(count(run.stdout_text, "step 0000"), 2) << run.stdout_text;
}

TEST_P(Mpi, AMistakeThatOneRankFinds) {
  std::ofstream(folder_ / "text") << std::string(2000, 'a');
  // The folder of the second rank has no such file.
  const std::string command = TESSERA_COMMAND " " + kTextLm + "--mesh data=2";
  const CommandOutcome run =
      launch(GetParam(), 1, command + " : -n 1 /bin/sh -c \"cd /; exec " + command + "\"", folder_);
  EXPECT_EQ(run.exit_code, 1) << run.stderr_text;
  EXPECT_EQ(count(run.stderr_text, "tessera: "), 1) << run.stderr_text;
  EXPECT_NE(run.stderr_text.find("tessera: text: the file cannot be read"), std::string::npos)
      << run.stderr_text;
}

TEST_P(Mpi, OtherDataOnOneRank) {
  fs::create_directory(folder_ / "other");
  std::ofstream(folder_ / "text") << std::string(2000, 'a');
  std::ofstream(folder_ / "other" / "text") << 'b' << std::string(1999, 'a');
  const std::string command = TESSERA_COMMAND " " + kTextLm + "--mesh data=3";
  const CommandOutcome run = launch(
      GetParam(), 1, "/bin/sh -c \"cd other; exec " + command + "\" : -n 2 " + command, folder_);
  expect_told_once(
      run,
      "tessera: the processes do not have the same data\n"
      "  found:  the data of rank 0 differ from those of rank 1\n"
      "  wanted: files with the same contents on all machines\n"
      "  cure:   put the files into a folder that all machines share, or copy them again");
}

INSTANTIATE_TEST_SUITE_P(Launchers, Mpi, ::testing::ValuesIn(launchers()),
                         [](const auto& one) { return one.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Mpi);

}  // namespace
}  // namespace tessera::testing
