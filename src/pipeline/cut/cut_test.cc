// Compares cuts of short sequences with all possible cuts.
#include <gtest/gtest.h>
#include <random>

#include "pipeline/cut/balance.h"
#include "pipeline/cut/costs.h"

namespace tessera::pipeline {
namespace {

Row random_row(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<double>(random() % n); };
  Row row;
  row.weight_bytes = {100, 40, 7, 300};
  for (std::size_t i = 0; i < size; ++i) {
    row.pieces.push_back({.forward = 1 + below(9),
                          .backward = 2 + below(18),
                          .sent = i + 1 == size ? 0 : (1 + below(4)) * kBytesPerSecond / 4,
                          .held = below(50),
                          .weights = {random() % 4}});
  }
  return row;
}

/// All ways to cut `num_pieces` pieces into `num_stages` stages.
std::vector<Ends> all_cuts(std::size_t num_pieces, std::size_t num_stages) {
  if (num_stages == 1) return {{num_pieces}};
  std::vector<Ends> cuts;
  for (std::size_t last = num_stages - 1; last < num_pieces; ++last) {
    for (Ends ends : all_cuts(last, num_stages - 1)) {
      ends.push_back(num_pieces);
      cuts.push_back(std::move(ends));
    }
  }
  return cuts;
}

double bytes_of(const Row& row, std::size_t first, std::size_t end, double in_flight) {
  std::vector<bool> is_read(row.weight_bytes.size(), false);
  double bytes = 0;
  for (std::size_t i = first; i < end; ++i) {
    bytes += in_flight * row.pieces[i].held;
    for (const std::size_t weight : row.pieces[i].weights) is_read[weight] = true;
  }
  for (std::size_t i = 0; i < is_read.size(); ++i)
    bytes += is_read[i] ? 2 * row.weight_bytes[i] : 0;
  return bytes;
}

struct Score {
  double slowest = 0;
  double makespan = 0;
  double bytes = 0;  // of the fullest stage
};

Score score_of(const Row& row, const Ends& ends, const ScheduleTasks& tasks) {
  Score score{.makespan = simulate(tasks, costs_of_stages(row, ends)).makespan};
  std::size_t first = 0;
  for (std::size_t stage = 0; stage < ends.size(); ++stage) {
    double seconds = 2 * row.pieces[ends[stage] - 1].sent / kBytesPerSecond;
    for (std::size_t i = first; i < ends[stage]; ++i) {
      seconds += row.pieces[i].forward + row.pieces[i].backward;
    }
    score.slowest = std::max(score.slowest, seconds);
    // In 1F1B, a stage has as many microbatches in flight as there are stages from it to the last.
    const auto in_flight = static_cast<double>(ends.size() - stage);
    score.bytes = std::max(score.bytes, bytes_of(row, first, ends[stage], in_flight));
    first = ends[stage];
  }
  return score;
}

TEST(Balance, NoCutHasAFasterSlowestStageUnlessTheScheduleEndsLater) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const Row row = random_row(9, seed);
    const BalanceOptions options{.tasks = Std1F1B{3}.tasks(6), .num_stages = 3};
    const Score found = score_of(row, balance(row, options), options.tasks);
    Score best{.slowest = 1e300, .makespan = 1e300};
    double of_best = 1e300;  // makespan of the cut whose slowest stage is fastest
    for (const Ends& ends : all_cuts(9, 3)) {
      const Score score = score_of(row, ends, options.tasks);
      if (score.slowest < best.slowest) of_best = 1e300;
      best.slowest = std::min(best.slowest, score.slowest);
      best.makespan = std::min(best.makespan, score.makespan);
      if (score.slowest == best.slowest)
        of_best = std::max(of_best == 1e300 ? 0 : of_best, score.makespan);
    }
    EXPECT_LE(found.makespan, of_best * (1 + 1e-9)) << seed;
    EXPECT_LE(found.makespan, best.makespan * 1.1) << seed;
  }
}

TEST(Balance, FewerBytesGoOnWhereTimesAreEqual) {
  Row row;
  for (const double sent : {5.0, 1.0, 5.0, 0.0}) {
    row.pieces.push_back({.forward = 1, .backward = 2, .sent = sent});
  }
  row.pieces[1].forward = 0;
  row.pieces[1].backward = 0;
  const BalanceOptions options{.tasks = GPipe{2}.tasks(4), .num_stages = 2};
  // A cut after the first piece and a cut after the second piece both give stages of equal time.
  EXPECT_EQ(balance(row, options), (Ends{2, 4}));
}

TEST(Balance, KeepsTheMemoryLimitOrSaysTheLeast) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const Row row = random_row(8, seed);
    BalanceOptions options{.tasks = Std1F1B{4}.tasks(8), .num_stages = 4};
    double least = 1e300;
    for (const Ends& ends : all_cuts(8, 4)) {
      least = std::min(least, score_of(row, ends, options.tasks).bytes);
    }
    EXPECT_DOUBLE_EQ(least_bytes(row, options), least);
    options.memory_limit = least;
    EXPECT_LE(score_of(row, balance(row, options), options.tasks).bytes, least);
    options.memory_limit = least - 1;
    EXPECT_TRUE(balance(row, options).empty());
  }
}

}  // namespace
}  // namespace tessera::pipeline
