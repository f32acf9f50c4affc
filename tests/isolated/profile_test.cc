// Profiles of runs with one process per device.
#include <filesystem>
#include <gtest/gtest.h>
#include <set>

#include "tests/cases/case_file.h"
#include "tests/programs/profile_reader.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

/// Trains a small model and returns the trace of each process, by its rank.
std::vector<SpaceReader> traces_of(const std::string& arguments) {
  const fs::path folder = fs::path(::testing::TempDir()) / "tessera_isolated_profile";
  fs::remove_all(folder);
  const CommandOutcome outcome =
      run_command(TESSERA_COMMAND,
                  "train " + arguments +
                      " --d-model 32 --heads 4 --layers 4 --isolated --steps 3 --threads 1 "
                      "--progress off --profile " +
                      folder.string(),
                  "", fs::temp_directory_path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  std::set<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".pb") files.insert(entry.path());
  }
  std::vector<SpaceReader> traces;
  for (const fs::path& file : files) traces.emplace_back(bytes_of_file(file.string()));
  fs::remove_all(folder);
  return traces;
}

/// The kinds of the ops in the row of exchanges, or of those in all other rows. The kind of
/// `block_0.Dense_0.all_gather.12` is `all_gather`.
std::set<std::string> ops_of(const ReadPlane& host, bool communicate) {
  std::set<std::string> names;
  for (const ReadLine& line : host.lines) {
    if ((line.name == "communication") != communicate) continue;
    for (const ReadEvent& event : line.events) {
      std::string name = host.kinds.at(event.kind).name;
      name.resize(name.find_last_not_of(".0123456789") + 1);
      names.insert(name.substr(name.rfind('.') + 1));
    }
  }
  return names;
}

TEST(IsolatedProfile, ExchangesHaveARowOfTheirOwn) {
  const std::vector<SpaceReader> traces =
      traces_of("lm --mesh data=2 --params fsdp --batch 8 --seq 8 --vocab 64");
  ASSERT_EQ(traces.size(), 2U);
  for (const SpaceReader& trace : traces) {
    const ReadPlane& host = trace.plane("/host:CPU");
    const std::set<std::string> exchanges = ops_of(host, true);
    EXPECT_EQ(exchanges.count("all_gather"), 1U);
    EXPECT_EQ(exchanges.count("reduce_scatter"), 1U);
    EXPECT_EQ(exchanges.count("dot_general"), 0U);
    const std::set<std::string> computed = ops_of(host, false);
    EXPECT_EQ(computed.count("all_gather"), 0U);
    EXPECT_EQ(computed.count("dot_general"), 1U);
  }
}

TEST(IsolatedProfile, PipelinesShowTheirTransfers) {
  const std::vector<SpaceReader> traces =
      traces_of("pipeline --mesh stage=2,fsdp=2 --batch 8 --seq 8 --microbatches 4");
  ASSERT_EQ(traces.size(), 4U);
  for (const SpaceReader& trace : traces) {
    const std::set<std::string> exchanges = ops_of(trace.plane("/host:CPU"), true);
    EXPECT_EQ(exchanges.count("send"), 1U);
    EXPECT_EQ(exchanges.count("receive"), 1U);
  }
}

}  // namespace
}  // namespace tessera::testing
