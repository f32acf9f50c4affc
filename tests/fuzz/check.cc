#include "tests/fuzz/check.h"

#include <algorithm>
#include <fmt/format.h>

#include "ir/simplify.h"
#include "ir/text.h"
#include "ops/record.h"
#include "partition/moves.h"
#include "partition/partition.h"
#include "run/engine.h"

namespace tessera::fuzz {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using testing::Arrays;

/// Host and reference may differ in the last places.
bool is_transcendental(const ops::OpRecord& op) {
  for (const ops::Sample& sample : *op.samples) {
    if (sample.max_ulp > 0.0) return true;
  }
  return false;
}

/// Per output, whether host and reference agree bit for bit.
std::vector<bool> exact_outputs(const Function& function) {
  std::vector<bool> is_exact(function.values.size(), true);
  for (const Equation& equation : function.equations) {
    bool is_result_exact = !is_transcendental(*equation.op);
    for (ValueId id : equation.operands) is_result_exact = is_result_exact && is_exact[id];
    for (ValueId id : equation.results) is_exact[id] = is_result_exact;
  }
  std::vector<bool> result;
  for (ValueId id : function.outputs) result.push_back(is_exact[id]);
  return result;
}

class Checker {
 public:
  Checker(const Case& c, Coverage* coverage, const testing::Fault& fault)
      : c_(c), coverage_(coverage), fault_(fault) {}

  std::optional<Failure> run() {
    try {
      check_text(c_.function, "the program");
      check_passes();
      run::Engine::instance().set_num_threads(1);
      whole_ = testing::run_whole(c_.function, c_.inputs);
      check_reference();
      check_sharded();
    } catch (const std::exception& error) {
      if (!failure_) fail("nothing throws", error.what());
    }
    return failure_;
  }

 private:
  void fail(const std::string& rule, const std::string& detail) {
    if (!failure_) failure_ = Failure{rule, detail};
  }
  void expect_same(const std::string& rule, const Arrays& found, const Arrays& wanted) {
    const auto difference = testing::first_difference(found, wanted);
    if (difference) fail(rule, *difference);
  }

  void check_text(const Function& function, const std::string& subject) {
    ir::verify(function, subject);
    const std::string text = ir::print(function);
    if (ir::parse(text) != function) fail("parse(print(x)) is x", subject + "\n" + text);
  }

  void check_passes() {
    const Function live = ir::without_dead_code(c_.function);
    ir::verify(live, "without_dead_code");
    if (ir::without_dead_code(live) != live) {
      fail("without_dead_code is idempotent", ir::print(live));
    }
    merged_ = ir::without_common_subexpressions(c_.function);
    ir::verify(merged_, "without_common_subexpressions");
    if (ir::without_common_subexpressions(merged_) != merged_) {
      fail("without_common_subexpressions is idempotent", ir::print(merged_));
    }
    reference_ = testing::run_reference(c_.function, c_.inputs);
    expect_same("dead code changes no result", testing::run_reference(live, c_.inputs), reference_);
    expect_same("merging repeated equations changes no result",
                testing::run_reference(merged_, c_.inputs), reference_);
  }

  void check_reference() {
    const std::vector<bool> is_exact = exact_outputs(c_.function);
    bool is_any_exact = false;
    for (std::size_t i = 0; i < whole_.size(); ++i) {
      if (!is_exact[i]) continue;
      is_any_exact = true;
      const auto difference = testing::first_difference(whole_[i], reference_[i]);
      if (difference) {
        fail("the host engine is the reference", fmt::format("output {}: {}", i, *difference));
      }
    }
    if (coverage_ != nullptr && is_any_exact) ++coverage_->against_reference;
  }

  void check_sharded() {
    const Function split = testing::partition_verified(c_.function, c_.placed);
    check_text(split, "the partitioned program");
    check_placement(split);
    count(split);
    run::Engine& engine = run::Engine::instance();
    for (int threads : {1, 2}) {
      engine.set_num_threads(threads);
      engine.reset_collective_counts();
      const Arrays found =
          testing::run_partitioned(split, c_.placed.output_alias, c_.inputs, fault_);
      const auto difference = testing::first_difference(found, whole_);
      if (difference) {
        fail(fmt::format("{} threads on the mesh give the bits of one device", threads),
             *difference + "\n" + ir::print(split));
      }
      check_collectives(split);
    }
    // What jit does: repeated equations are merged first.
    expect_same("the merged program gives the bits of one device",
                testing::run_sharded(merged_, c_.placed, c_.inputs), whole_);
  }

  void check_placement(const Function& split) {
    for (std::size_t i = 0; i < split.inputs.size(); ++i) {
      if (split.sharding(split.inputs[i]) != c_.placed.inputs[i]) {
        fail("inputs live where asked", fmt::format("input {}\n{}", i, ir::print(split)));
      }
    }
    for (std::size_t i = 0; i < split.outputs.size(); ++i) {
      const auto& asked = c_.placed.outputs[i];
      if (asked && split.sharding(split.outputs[i]) != *asked) {
        fail("outputs live where asked", fmt::format("output {}\n{}", i, ir::print(split)));
      }
    }
  }

  void check_collectives(const Function& split) {
    std::map<std::string, std::int64_t> planned, executed;
    for (const Equation& equation : split.equations) {
      const auto kind = partition::kind_of(*equation.op);
      if (kind && *kind != partition::MoveKind::all_slice) ++planned[*equation.op->name];
    }
    for (const auto& [kind, use] : run::Engine::instance().collective_counts()) {
      executed[kind] = use.count;
    }
    if (planned == executed) return;
    std::string text;
    for (const auto& [kind, n] : planned) text += fmt::format("planned {} {}\n", n, kind);
    for (const auto& [kind, n] : executed) text += fmt::format("executed {} {}\n", n, kind);
    fail("executed collectives are the planned ones", text + ir::print(split));
  }

  void count(const Function& split) {
    if (coverage_ == nullptr) return;
    ++coverage_->cases;
    bool moves = false;
    for (const Equation& equation : split.equations) {
      const auto kind = partition::kind_of(*equation.op);
      ++(kind ? coverage_->collectives : coverage_->ops)[*equation.op->name];
      moves = moves || (kind && *kind != partition::MoveKind::all_slice);
    }
    // Constraints are gone after partitioning.
    for (const Equation& equation : ir::without_dead_code(c_.function).equations) {
      if (*equation.op->name == "sharding_constraint") ++coverage_->ops["sharding_constraint"];
    }
    coverage_->communicating += moves ? 1 : 0;
    const std::vector<int> aliases = testing::possible_aliases(split, c_.placed.output_alias);
    const bool donates =
        std::any_of(aliases.begin(), aliases.end(), [](int alias) { return alias >= 0; });
    coverage_->donating += donates ? 1 : 0;
    count_sizes(split);
  }

  void count_sizes(const Function& split) {
    bool is_uneven = false;
    bool is_empty = false;
    for (const ir::Value& value : split.values) {
      const Layout layout(split.mesh, *value.sharding, value.type.shape);
      for (std::size_t dim = 0; dim < value.type.shape.size(); ++dim) {
        const std::int64_t shards = layout.num_shards_of(dim);
        is_uneven = is_uneven || value.type.shape[dim] % shards != 0;
        is_empty = is_empty || value.type.shape[dim] < shards;
      }
    }
    coverage_->uneven += is_uneven ? 1 : 0;
    coverage_->empty += is_empty ? 1 : 0;
  }

  const Case& c_;
  Coverage* coverage_;
  const testing::Fault& fault_;
  std::optional<Failure> failure_;
  Function merged_;
  Arrays reference_;
  Arrays whole_;
};

}  // namespace

std::optional<Failure> check(const Case& c, Coverage* coverage, const testing::Fault& fault) {
  return Checker(c, coverage, fault).run();
}

}  // namespace tessera::fuzz
