#include "run/transport/verdict.h"

#include <gtest/gtest.h>

#include "run/transport/link.h"

namespace tessera::run {
namespace {

using Findings = std::vector<std::optional<Finding>>;

Finding finding(Reason reason, int culprit, const std::string& text = "") {
  return {.reason = reason, .culprit = culprit, .text = text, .text_hash = hash_of(text)};
}

const Finding kTold = finding(Reason::told, -1);

/// The culprit, and the rank that reports it.
struct Told {
  int culprit;
  std::vector<int> reporters;
};

Told all_of(const Findings& findings) {
  Told told{.culprit = -1, .reporters = {}};
  for (std::size_t rank = 0; rank < findings.size(); ++rank) {
    if (!findings[rank]) continue;
    const Verdict verdict = verdict_of(findings, static_cast<int>(rank));
    if (verdict.is_reporter) told.reporters.push_back(static_cast<int>(rank));
    if (told.culprit < 0) told.culprit = verdict.finding.culprit;
    EXPECT_EQ(told.culprit, verdict.finding.culprit) << "all blame the same";
  }
  return told;
}

TEST(Verdict, OneReportsWhatSeveralHaveSeen) {
  const Told told = all_of({kTold, finding(Reason::silent, 3), finding(Reason::silent, 3), {}});
  EXPECT_EQ(told.culprit, 3);
  EXPECT_EQ(told.reporters, std::vector{1});
}

TEST(Verdict, AnExceptionExplainsMoreThanItsConsequences) {
  const Told told = all_of({finding(Reason::ended, 2), finding(Reason::silent, 3),
                            finding(Reason::failed, 2, "disk full"), kTold});
  EXPECT_EQ(told.culprit, 2);
  EXPECT_EQ(told.reporters, std::vector{2});
}

TEST(Verdict, TheMajorityDecidesWhoHasDiverged) {
  const Told told = all_of({finding(Reason::diverged, 1), finding(Reason::diverged, 0),
                            finding(Reason::diverged, 1), kTold});
  EXPECT_EQ(told.culprit, 1);
  EXPECT_EQ(told.reporters, std::vector{0});
}

TEST(Verdict, OfTwoTheFirstDecides) {
  const Told told = all_of({finding(Reason::diverged, 1), finding(Reason::diverged, 0)});
  EXPECT_EQ(told.culprit, 1);
  EXPECT_EQ(told.reporters, std::vector{0});
}

TEST(Verdict, TheCollectiveOfMostDecidesWhoHasDiverged) {
  Findings all = {kTold, finding(Reason::diverged, 2), kTold};
  all[0]->where = all[2]->where = "all_gather 9";
  all[1]->where = "gather 9";
  EXPECT_EQ(all_of(all).culprit, 1) << "rank 1 was the first to notice it";
  EXPECT_EQ(all_of(all).reporters, std::vector{1});
  EXPECT_EQ(verdict_of(all, 0).sender, 2) << "its message was the first that rank 1 did not expect";
  std::swap(all[1]->where, all[2]->where);
  EXPECT_EQ(all_of(all).culprit, 2);
  EXPECT_EQ(verdict_of(all, 0).sender, -1);
}

TEST(Verdict, TheSameExceptionIsReportedOnce) {
  const Finding mistake = finding(Reason::failed, 0, "no such file");
  Findings all = {mistake, mistake, mistake};
  for (int rank = 0; rank < 3; ++rank) all[static_cast<std::size_t>(rank)]->culprit = rank;
  EXPECT_EQ(all_of(all).reporters, std::vector{0});
  all[1] = finding(Reason::failed, 1, "another one");
  EXPECT_EQ(all_of(all).reporters, (std::vector{0, 1}));
}

std::optional<Finding> deadlock(const std::vector<std::optional<Beat>>& beats) {
  return deadlock_of(beats, 0, 100, [](int rank) { return "rank " + std::to_string(rank); });
}

Beat waiting(int for_rank, std::uint64_t collective, std::uint32_t stuck_ms = 200) {
  return {.waits_for = for_rank,
          .stuck_ms = stuck_ms,
          .collective = collective,
          .where = "gather " + std::to_string(collective)};
}

TEST(Deadlock, WhoeverIsInAnotherCollectiveHasDiverged) {
  const auto found = deadlock({waiting(1, 7), waiting(2, 8), waiting(0, 7), waiting(0, 7)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->culprit, 1);
  EXPECT_EQ(found->text,
            "has diverged: it waits for rank 2 in gather 8, and rank 0 waits for it in gather 7");
}

TEST(Deadlock, NotWhileOneComputes) {
  EXPECT_FALSE(deadlock({waiting(1, 7), waiting(2, 7), Beat{}}));
  EXPECT_FALSE(deadlock({waiting(1, 7), waiting(2, 7), std::nullopt}));
  EXPECT_FALSE(deadlock({waiting(1, 7), waiting(0, 8, 50)})) << "it moved a moment ago";
}

TEST(Deadlock, NotInTheCircle) {
  // Rank 0 waits for rank 1; ranks 1 and 2 wait for each other.
  const auto found = deadlock({waiting(1, 7), waiting(2, 7), waiting(1, 8)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->culprit, 2);
}

TEST(Notes, ArriveAsTheyWereSent) {
  const Note beat = note_of(to_bytes({.beat = waiting(3, 12)}));
  ASSERT_TRUE(beat.beat);
  EXPECT_FALSE(beat.finding);
  EXPECT_EQ(beat.beat->waits_for, 3);
  EXPECT_EQ(beat.beat->stuck_ms, 200U);
  EXPECT_EQ(beat.beat->where, "gather 12");
  Finding long_one = finding(Reason::failed, 2, std::string(5000, 'x'));
  long_one.where = std::string(5000, 'y');
  const std::string bytes = to_bytes({.finding = long_one});
  EXPECT_LE(bytes.size(), Link::kMostNoteBytes);
  const Note note = note_of(bytes);
  ASSERT_TRUE(note.finding);
  EXPECT_EQ(note.finding->text_hash, long_one.text_hash);
  EXPECT_TRUE(long_one.text.starts_with(note.finding->text));
  EXPECT_FALSE(note_of("?").beat) << "bytes that are no note";
  EXPECT_FALSE(note_of(to_bytes({})).finding);
}

}  // namespace
}  // namespace tessera::run
