// tessera_fuzz [--seed S] [--cases N] [--seconds T]
//
// Random programs on random meshes must give the same bits as on one device. Case i has seed S + i,
// so `--seed <its seed> --cases 1` repeats it alone. Exit code 1: a case failed, or too little was
// covered.
#include <algorithm>
#include <fmt/format.h>

#include "ops/ops.h"
#include "partition/moves.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/run_cases.h"

namespace {

using tessera::fuzz::Case;
using tessera::fuzz::Coverage;

constexpr int kCasesToJudge = 300;  // with fewer, coverage is not judged
constexpr unsigned kSecondsPerCase = 120;

void print_counts(const char* title, const std::map<std::string, int>& counts) {
  fmt::print("{}:", title);
  for (const auto& [name, count] : counts) fmt::print(" {}={}", name, count);
  fmt::print("\n");
}

/// The constructs that must occur in some case.
std::vector<std::string> constructs_needed() {
  std::vector<std::string> names = {"scan of length 0", "scan of length 1", "scan reversed",
                                    "three deep"};
  for (const tessera::ops::OpRecord* op : tessera::ops::all_ops()) {
    if (op->bodies == nullptr || !op->batch.has_rule()) continue;
    names.push_back(*op->name);
    names.push_back(*op->name + " nested");
    names.push_back("batch of " + *op->name);
    if (op->vjp.is_differentiable()) names.push_back("gradient of " + *op->name);
  }
  return names;
}

/// Prints what was covered and returns whether it was enough.
bool is_covered(const Coverage& coverage) {
  fmt::print(
      "cases {}: communicating {}, uneven {}, with empty shards {}, donating {}, batches {}\n",
      coverage.cases, coverage.communicating, coverage.uneven, coverage.empty, coverage.donating,
      coverage.batched);
  fmt::print("cases compared with the reference bit by bit: {}\n", coverage.against_reference);
  fmt::print("cases with values computed again: {}\n", coverage.recomputed);
  fmt::print("cases with work moved into loops: {}\n", coverage.sunk);
  fmt::print("results of tasks that may share memory: {}\n", coverage.sharing);
  fmt::print("outputs on which fast and exact numerics must agree: {}\n", coverage.whole_sums);
  print_counts("ops", coverage.ops);
  print_counts("collectives", coverage.collectives);
  print_counts("collectives inside", coverage.inside);
  print_counts("constructs", coverage.constructs);
  if (coverage.cases < kCasesToJudge) return true;
  bool is_enough = true;
  for (const tessera::ops::OpRecord* op : tessera::ops::all_ops()) {
    const bool is_collective = tessera::partition::kind_of(*op).has_value();
    const auto& counts = is_collective ? coverage.collectives : coverage.ops;
    const bool is_gone = op == &tessera::ops::add_any_op;  // partitioning makes it an `add`
    if (is_gone || counts.contains(*op->name)) continue;
    fmt::print("FAILED: no case used {}\n", *op->name);
    is_enough = false;
  }
  for (const std::string& construct : constructs_needed()) {
    if (coverage.constructs.contains(construct)) continue;
    fmt::print("FAILED: no case has: {}\n", construct);
    is_enough = false;
  }
  for (const char* around : {"scan", "while", "cond"}) {
    const bool is_hit = std::any_of(
        coverage.inside.begin(), coverage.inside.end(),
        [&](const auto& item) { return item.first.ends_with(std::string(" in ") + around); });
    if (is_hit) continue;
    fmt::print("FAILED: no case communicates inside {}\n", around);
    is_enough = false;
  }
  if (coverage.sunk == 0) {
    fmt::print("FAILED: no case moves work into a loop\n");
    is_enough = false;
  }
  if (2 * coverage.communicating < coverage.cases) {
    fmt::print("FAILED: fewer than half of the cases communicate\n");
    is_enough = false;
  }
  return is_enough;
}

void report(const Case& failing, const tessera::fuzz::Failure& failure) {
  fmt::print("FAILED, seed {}: not so: {}\n{}\n", failing.seed, failure.rule, failure.detail);
  const auto recheck = [](const Case& c) { return tessera::fuzz::check(c); };
  const Case small = tessera::fuzz::minimised(failing, failure.rule, recheck, 20.0);
  const auto again = recheck(small);
  fmt::print("\nminimised: {}\n{}\n", again ? again->detail : failure.detail,
             tessera::fuzz::to_string(small));
}

}  // namespace

int main(int argc, char** argv) {
  const char* program = "tessera_fuzz";
  const auto options = tessera::fuzz::read_options(program, argc, argv, {});
  Coverage coverage;
  const bool is_good =
      tessera::fuzz::run_cases(program, options, kSecondsPerCase, [&](std::uint64_t seed) {
        const Case c = tessera::fuzz::make_case(seed);
        const auto failure = tessera::fuzz::check(c, &coverage);
        if (failure) report(c, *failure);
        return !failure;
      });
  return is_good && is_covered(coverage) ? 0 : 1;
}
