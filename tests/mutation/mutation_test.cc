// Shows that the conformance tests can fail: for every op, they find each rule that was made wrong
// in one way.
//
// The checks see a copy of the record. The unchanged copy passes all checks, so what they find in a
// mutant is due to the mutation.
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/error.h>

#include "ops/ops.h"
#include "partition/moves.h"
#include "run/engine.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/mutation/mutate_record.h"
#include "tests/ops/conformance.h"

namespace tessera {
namespace {

using mutation::Mutant;
using mutation::Rule;
using ops::OpRecord;
using testing::Case;
using testing::Verdict;

using Check = std::function<Verdict(const Case&)>;

testing::ShardingChoices few_choices() {
  return {.meshes = {make_mesh({{"a", 2}, {"b", 4}}), make_mesh({{"x", 3}})}, .max_choices = 60};
}

/// Runs the check in a child process, because kernels with wrong factors may write out of bounds.
Verdict in_child(const Check& check, const Case& c) {
  // The threads of the engine would not exist in the child.
  run::Engine::instance().set_num_threads(1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    try {
      _exit(check(c) ? 1 : 0);
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  require(child > 0 && waitpid(child, &status, 0) == child, "a check runs in a child");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return WIFEXITED(status) ? "fails in a child" : "crashes in a child";
}

Verdict shardings_agree(const Case& c) {
  return testing::shardings_are_one_device(c, few_choices());
}

/// The checks that a rule must pass, the fast ones first.
std::vector<Check> checks_of(Rule rule, const Case& c) {
  std::vector<Check> checks;
  const bool is_all = rule == Rule::none;
  if ((is_all || rule == Rule::vjp) && c.op->bodies == nullptr && testing::has_derivative(c)) {
    checks.push_back(testing::derivative_is_difference);
  }
  if ((is_all || rule == Rule::batch) && testing::has_batch_rule(c)) {
    checks.push_back(testing::batch_is_the_op);
  }
  if (is_all || rule == Rule::factors) {
    checks.push_back(testing::factors_cover_dimensions);
    checks.push_back(testing::factors_list_reductions);
    checks.push_back(testing::pass_factors_keep_blocks_apart);
    checks.push_back(testing::reduce_factors_are_combined);
  }
  const bool is_collective = partition::kind_of(*c.op).has_value();
  if ((is_all || rule == Rule::reference) && is_collective) {
    checks.push_back(testing::collective_keeps_values);
  }
  if (!testing::runs_on_host(c)) return checks;
  if (is_all || rule == Rule::reference) checks.push_back(testing::host_is_reference);
  if (is_all || rule == Rule::factors) {
    checks.push_back([](const Case& one) { return in_child(shardings_agree, one); });
  }
  return checks;
}

/// Ops that stages recognise by the address of their record, so that a copy is another op to them.
/// Stages do not read the factors of these ops; src/differentiate and src/batch handle those with
/// bodies.
const std::set<const OpRecord*>& known_by_place() {
  static const std::set<const OpRecord*> ops = {&ops::call_op,
                                                &ops::cond_op,
                                                &ops::custom_vjp_op,
                                                &ops::optimization_barrier_op,
                                                &ops::remat_op,
                                                &ops::scan_op,
                                                &ops::task_op,
                                                &ops::while_op,
                                                &ops::sharding_constraint_op};
  return ops;
}

/// Compares the op itself on the host engine with its copy on the reference.
Verdict host_is_reference_of(const OpRecord& copy, const Case& c) {
  const auto inputs = testing::random_inputs(c);
  return testing::first_difference(
      testing::run_whole(testing::function_of(*c.op, c.sample()), inputs),
      testing::run_reference(testing::function_of(copy, c.sample()), inputs),
      testing::ErrorBound::of(c.sample()));
}

/// The first problem that the checks find in any sample.
Verdict verdict_of(const Mutant& mutant) {
  const OpRecord& op = *ir::find_op(*mutant.record->name);
  const bool is_known = known_by_place().contains(&op);
  for (std::size_t i = 0; i < mutant.record->samples->size(); ++i) {
    const Case c{mutant.record.get(), i};
    if (is_known && mutant.rule != Rule::vjp && mutant.rule != Rule::batch) {
      const Verdict verdict = host_is_reference_of(*mutant.record, {&op, i});
      if (verdict) return c.name() + ": " + *verdict;
      continue;
    }
    for (const Check& check : checks_of(mutant.rule, c)) {
      try {
        const Verdict verdict = check(c);
        if (verdict) return c.name() + ": " + *verdict;
      } catch (const std::exception& error) {
        return c.name() + ": " + error.what();
      }
    }
  }
  return std::nullopt;
}

/// Mutations without a visible effect, and why.
const std::map<std::string, std::string>& without_effect() {
  static const std::map<std::string, std::string> reasons = {
      {"reshape: factor 2 passed",
       "it is the result's alone, whose parts come from whole operands"},
      {"random_bits: batch rule without a shift of dimensions", "its shape is that of one element"},
      {"axis_index: reference negated", "it is 0 without other elements"},
      {"pure_callback: batch rule with its rows in reverse",
       "its samples have no function, so results are zeros"},
      {"pure_callback: batch rule with the first row everywhere",
       "its samples have no function, so results are zeros"},
      {"axis_permute: batch rule without a shift of dimensions", "it names elements, no dimension"},
      {"conv: batch rule without a shift of dimensions",
       "its attributes count from the last ones"}};
  return reasons;
}

class Mutation : public ::testing::TestWithParam<const OpRecord*> {};

TEST_P(Mutation, IsFound) {
  const OpRecord& op = *GetParam();
  ASSERT_EQ(verdict_of(mutation::unchanged(op)), std::nullopt);
  int num_found = 0;
  for (const Mutant& mutant : mutation::mutants_of(op)) {
    const std::string name = *op.name + ": " + mutant.name;
    const bool matters = !without_effect().contains(name);
    const bool is_found = verdict_of(mutant).has_value();
    EXPECT_EQ(is_found, matters) << name;
    num_found += is_found ? 1 : 0;
  }
  EXPECT_GT(num_found, 0);
  RecordProperty("mutations", num_found);
}

INSTANTIATE_TEST_SUITE_P(Ops, Mutation, ::testing::ValuesIn(ops::all_ops()),
                         [](const auto& tested) { return *tested.param->name; });

}  // namespace
}  // namespace tessera
