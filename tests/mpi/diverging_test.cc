// One rank does not do the same as the others: all ranks end, and the message names that rank once,
// with a collective.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <regex>

#include "tests/mpi/launchers.h"

namespace tessera::testing {
namespace {

class Diverging : public ::testing::TestWithParam<Launcher> {
 protected:
  CommandOutcome run(int ranks, const std::string& kind, int rank, int step) const {
    return launch(GetParam(), ranks,
                  fmt::format("{} {} {} {}", TESSERA_DIVERGING, kind, rank, step),
                  std::filesystem::temp_directory_path());
  }

  /// Expects exactly one message, which must match `form`.
  static void expect_message(const CommandOutcome& run, const std::string& form) {
    EXPECT_EQ(run.exit_code, 2);
    const std::regex message("rank [0-9]+: rank [^\n]*|rank [0-9]+: an error[^\n]*");
    std::vector<std::string> found;
    for (std::sregex_iterator i(run.stderr_text.begin(), run.stderr_text.end(), message), end;
         i != end; ++i) {
      found.push_back(i->str());
    }
    ASSERT_EQ(found.size(), 1U) << run.stderr_text;
    EXPECT_TRUE(std::regex_match(found[0], std::regex(form))) << found[0];
  }
};

TEST_P(Diverging, TheSameProgramOnAllRanks) {
  const CommandOutcome outcome = run(3, "none", 1, 5);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  EXPECT_EQ(outcome.stdout_text, "w = 120\n");
}

TEST_P(Diverging, OtherCollectives) {
  for (const std::string kind : {"extra", "fewer", "other"}) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(kind + ", ranks: " + std::to_string(ranks));
      const std::string form =
          "rank [0-9]: rank 1 has diverged: .*; rank [0-9] .* in [a-z_]+ [0-9]+ \\(.*\\)";
      expect_message(run(ranks, kind, 1, 5), form);
    }
  }
}

TEST_P(Diverging, ARankThatEndsEarly) {
  const std::string form =
      "rank [0-9]: rank 1 has diverged: .*(barrier [0-9]+ \\(end of the program\\))?.*; rank [0-9] "
      ".* in [a-z_]+ [0-9]+ \\(.*\\)";
  expect_message(run(3, "ends", 1, 5), form);
}

TEST_P(Diverging, ARankThatThrows) {
  expect_message(run(3, "throws", 1, 5), "rank 1: an error of one rank");
}

TEST_P(Diverging, ALongTaskIsNoFault) {
  const CommandOutcome outcome = run(3, "slow", 1, 5);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
  EXPECT_EQ(outcome.stdout_text, "w = 120\n");
}

TEST_P(Diverging, ARankThatIsStoppedWhenItHasLeft) {
  const CommandOutcome outcome = run(3, "halts", 2, 5);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.stdout_text.find("w = 120\n"), std::string::npos) << outcome.stdout_text;
  const std::string wanted = "rank 2 has been stopped for 1.5 s while exiting, and is being killed";
  EXPECT_NE(outcome.stderr_text.find(wanted), std::string::npos) << outcome.stderr_text;
}

INSTANTIATE_TEST_SUITE_P(Launchers, Diverging, ::testing::ValuesIn(launchers()),
                         [](const auto& one) { return one.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Diverging);

}  // namespace
}  // namespace tessera::testing
