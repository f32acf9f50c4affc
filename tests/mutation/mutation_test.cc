// The conformance tests can fail: for every op, each rule made wrong in one way is found.
//
// The checks see a copy of the record. Unchanged it passes them all, so what they find is the
// mutation.
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "ops/ops.h"
#include "partition/moves.h"
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
  return {.meshes = {make_mesh({{"a", 2}, {"b", 4}}), make_mesh({{"x", 3}})}, .max_choices = 12};
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
    checks.push_back(
        [](const Case& one) { return testing::shardings_are_one_device(one, few_choices()); });
  }
  return checks;
}

/// What the checks find in any sample.
Verdict verdict_of(const Mutant& mutant) {
  for (std::size_t i = 0; i < mutant.record->samples->size(); ++i) {
    const Case c{mutant.record.get(), i};
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

/// Ops that stages know by the place of their record: a copy is another op to them.
const std::set<const OpRecord*>& known_by_place() {
  static const std::set<const OpRecord*> ops = {
      &ops::call_op,  &ops::cond_op, &ops::custom_vjp_op, &ops::optimization_barrier_op,
      &ops::remat_op, &ops::scan_op, &ops::while_op,      &ops::sharding_constraint_op};
  return ops;
}

/// Mutations that change nothing that anybody could see, and why.
const std::map<std::string, std::string>& without_effect() {
  static const std::map<std::string, std::string> reasons = {};
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
}

std::vector<const OpRecord*> mutable_ops() {
  std::vector<const OpRecord*> ops;
  for (const OpRecord* op : ops::all_ops()) {
    if (!known_by_place().contains(op)) ops.push_back(op);
  }
  return ops;
}

INSTANTIATE_TEST_SUITE_P(Ops, Mutation, ::testing::ValuesIn(mutable_ops()),
                         [](const auto& tested) { return *tested.param->name; });

}  // namespace
}  // namespace tessera
