#include "tests/fuzz/check.h"

#include <algorithm>
#include <fmt/format.h>

#include "compile/recompute.h"
#include "compile/sink.h"
#include "ir/simplify.h"
#include "ir/text.h"
#include "ops/axis/axis.h"
#include "ops/control/mpmd.h"
#include "ops/ops.h"
#include "partition/combine_collectives.h"
#include "partition/moves.h"
#include "partition/partition.h"
#include "partition/project.h"
#include "run/engine.h"
#include "tests/fuzz/rounds.h"
#include "tests/fuzz/tasks.h"
#include "tests/fuzz/whole_numbers.h"

namespace tessera::fuzz {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using testing::Arrays;

/// Whether host and reference may differ in the last places.
bool is_transcendental(const ops::OpRecord& op) {
  for (const ops::Sample& sample : *op.samples) {
    if (!sample.is_exact()) return true;
  }
  return false;
}

/// Whether the equation, or one nested in it, has such an op.
bool has_transcendental(const Equation& equation) {
  Function alone;
  alone.equations = {equation};
  bool is_found = false;
  for_each_equation(alone, [&](const Equation& nested, const auto&) {
    is_found = is_found || is_transcendental(*nested.op);
  });
  return is_found;
}

/// Per output, whether host and reference must agree bit for bit.
std::vector<bool> exact_outputs(const Function& function) {
  std::vector<bool> is_exact(function.values.size(), true);
  for (const Equation& equation : function.equations) {
    bool is_result_exact = !has_transcendental(equation);
    for (ValueId id : equation.operands) is_result_exact = is_result_exact && is_exact[id];
    for (ValueId id : equation.results) is_exact[id] = is_result_exact;
  }
  std::vector<bool> result;
  for (ValueId id : function.outputs) result.push_back(is_exact[id]);
  return result;
}

/// The arrays, with row `row` taken of each one that is a batch.
Arrays row_of(const Arrays& arrays, const std::vector<bool>& is_batched, std::int64_t row) {
  Arrays rows;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!is_batched[i]) {
      rows.push_back(arrays[i]);
      continue;
    }
    Type type = arrays[i].type();
    type.shape.erase(type.shape.begin());
    ops::HostArray& array = rows.emplace_back(type);
    const auto size = static_cast<std::ptrdiff_t>(array.bytes().size());
    std::copy_n(arrays[i].bytes().begin() + row * size, size, array.bytes().begin());
  }
  return rows;
}

class Checker {
 public:
  Checker(const Case& c, Coverage* coverage, const testing::Fault& fault)
      : c_(c), coverage_(coverage), fault_(fault) {}

  std::optional<Failure> run() {
    try {
      program_ = program_of(c_);
      check_text(program_, "the program");
      check_passes();
      run::Engine::instance().set_num_threads(1);
      whole_ = testing::run_whole(program_, c_.inputs);
      check_reference();
      check_rows();
      check_sharded();
      if (c_.seed % 2 == 0) check_fast();
    } catch (const EndlessLoop&) {
      fail("every loop ends", ir::print(program_));
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

  /// The function after the pass. Applying the pass again must change nothing.
  Function checked_pass(const ir::Pass& pass, const Function& function) {
    Function once = pass.run(function);
    pass.gives(once, pass.name);
    const Function twice = pass.run(once);
    if (twice != once) {
      fail(pass.name + " is idempotent", "once\n" + ir::print(once) + "twice\n" + ir::print(twice));
    }
    return once;
  }

  void check_passes() {
    Rounds rounds;
    reference_ = run_counting(program_, c_.inputs, rounds);
    expect_same("the interpreter counts what it runs", testing::run_reference(program_, c_.inputs),
                reference_);
    const std::vector<ir::Pass> passes = ops::simplify_passes();
    merged_ = program_;
    for (const ir::Pass& pass : passes) {
      const Function alone = checked_pass(pass, program_);
      expect_same(pass.name + " changes no result", testing::run_reference(alone, c_.inputs),
                  reference_);
      merged_ = checked_pass(pass, merged_);
    }
    expect_same("passes one after another change no result",
                testing::run_reference(merged_, c_.inputs), reference_);
  }

  /// Row i of a batched result must equal the result of the function for row i of its inputs.
  void check_rows() {
    const std::vector<bool> all(whole_.size(), true);
    for (std::int64_t row = 0; row < c_.batch_size && !c_.is_batched.empty(); ++row) {
      if (!c_.axis.empty()) return;  // rows depend on each other
      const Arrays inputs = row_of(c_.inputs, c_.is_batched, row);
      expect_same("a row of a batch is the function of the rows", row_of(reference_, all, row),
                  testing::run_reference(c_.function, inputs));
      expect_same("a row of a batch on the host is the function of the rows",
                  row_of(whole_, all, row), testing::run_whole(c_.function, inputs));
    }
  }

  void check_reference() {
    const std::vector<bool> is_exact = exact_outputs(program_);
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
    const Function split = testing::partition_verified(program_, c_.placed);
    check_text(split, "the partitioned program");
    check_placement(split);
    check_combining(split);
    check_recomputing(split);
    check_sinking(split);
    check_tasks(split);
    count(split);
    Rounds planned;
    run_counting(split, c_.inputs, planned);
    run::Engine& engine = run::Engine::instance();
    for (int threads : {1, c_.seed % 3 == 0 ? 16 : 2}) {
      engine.set_num_threads(threads);
      engine.reset_collective_counts();
      const Arrays found =
          testing::run_partitioned(split, c_.placed.output_alias, c_.inputs, fault_);
      const auto difference = testing::first_difference(found, whole_);
      if (difference) {
        fail(fmt::format("{} threads on the mesh give the bits of one device", threads),
             *difference + "\n" + ir::print(split));
      }
      check_collectives(split, planned);
    }
    // As in jit: equal equations are merged before partitioning.
    expect_same("the merged program gives the bits of one device",
                testing::run_sharded(merged_, c_.placed, c_.inputs), whole_);
  }

  /// nullopt if a loop does not end with these inputs.
  std::optional<Arrays> exact_results(const Arrays& inputs) const {
    try {
      Rounds rounds;
      return run_counting(program_, inputs, rounds);
    } catch (const EndlessLoop&) {
      return std::nullopt;
    }
  }

  Arrays run_with_threads(const Function& split, const Arrays& inputs, int threads) {
    run::Engine& engine = run::Engine::instance();
    const int before = engine.num_threads();
    engine.set_num_threads(threads);
    Arrays found = testing::run_partitioned(split, c_.placed.output_alias, inputs, fault_);
    engine.set_num_threads(before);
    return found;
  }

  /// Fast numerics must give the same bits for any number of threads. Sums of integers are exact in
  /// any order, so they must equal those of exact numerics.
  void check_fast() {
    const Function fast = testing::with_numerics(program_, Numerics::fast);
    const Function split = testing::partition_verified(fast, c_.placed);
    check_text(split, "the program with fast numerics");
    const Arrays inputs = whole_numbers(c_.inputs);
    const std::optional<Arrays> wanted_all = exact_results(inputs);
    if (!wanted_all) return;
    const Arrays& wanted = *wanted_all;
    const std::vector<bool> is_whole = whole_outputs(program_);
    const Arrays sums = run_with_threads(split, inputs, 2);
    const Arrays one = run_with_threads(split, c_.inputs, 1);
    // With more threads than grains, sums are computed in other ways.
    const Arrays many = run_with_threads(split, c_.inputs, 16);
    expect_same("fast numerics do not depend on threads", many, one);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!is_whole[i] || wanted[i].type().dtype != DType::f32) continue;
      if (coverage_ != nullptr) ++coverage_->whole_sums;
      const auto x = sums[i].data<float>();
      const auto y = wanted[i].data<float>();
      // The sign of a zero depends on the order of the sum. NaN equals NaN: an out-of-range gather
      // gives NaN.
      const auto is_same = [](float a, float b) { return a == b || (a != a && b != b); };
      if (std::equal(x.begin(), x.end(), y.begin(), is_same)) continue;
      fail("fast numerics add whole numbers up", fmt::format("output {}\n{}", i, ir::print(split)));
    }
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

  /// Combining moves equations, so a second run may combine others. The results must stay correct.
  void check_combining(const Function& split) {
    const auto combine = [](const Function& body) { return partition::combine_collectives(body); };
    const Function again = combine(ir::with_changed_bodies(split, combine));
    partition::verify_partitioned(again, "combine_collectives");
    expect_same("combining again changes no result",
                testing::run_partitioned(again, c_.placed.output_alias, c_.inputs), whole_);
  }

  /// Recomputes as much as possible, whether or not that saves memory.
  void check_recomputing(const Function& split) {
    const auto change = [](const Function& body) {
      return compile::recompute(body, {.least_bytes = 0, .most_work = 1e9, .least_gain = -1.0});
    };
    const Function again = change(ir::with_changed_bodies(split, change));
    partition::verify_partitioned(again, "recompute_cheap_values");
    if (coverage_ != nullptr && again != split) ++coverage_->recomputed;
    expect_same("computing again changes no result",
                testing::run_partitioned(again, c_.placed.output_alias, c_.inputs), whole_);
  }

  void check_sinking(const Function& split) {
    const Function again =
        compile::sink_into_loops(ir::with_changed_bodies(split, compile::sink_into_loops));
    if (again == split) return;
    partition::verify_partitioned(again, "sink_into_loops");
    if (coverage_ != nullptr) ++coverage_->sunk;
    expect_same("work that moves into loops changes no result",
                testing::run_partitioned(again, c_.placed.output_alias, c_.inputs), whole_);
  }

  /// Groups of devices run tasks of the function, with shared threads or with one thread per group.
  void check_tasks(const Function& split) {
    Random random(c_.seed);
    const Function cut = as_tasks(split, static_cast<int>(random.between(2, 3)), random);
    check_text(cut, "the program as tasks");
    partition::verify_partitioned(cut, "as_tasks");
    expect_same("tasks change no result of the reference", testing::run_reference(cut, c_.inputs),
                reference_);
    if (coverage_ != nullptr) count_tasks(cut);
    run::Engine& engine = run::Engine::instance();
    engine.set_num_threads(static_cast<int>(random.between(1, 3)));
    engine.set_threads_per_group(random.chance(50) ? 1 : 0);
    const Arrays found = testing::run_partitioned(cut, c_.placed.output_alias, c_.inputs);
    engine.set_threads_per_group(0);
    const auto difference = testing::first_difference(found, whole_);
    if (difference) {
      fail("tasks of groups give the bits of one device", *difference + "\n" + ir::print(cut));
    }
  }

  void count_tasks(const Function& cut) {
    for (const Equation& equation : cut.equations) {
      ++coverage_->ops[*equation.op->name];
      if (!ops::is_task(equation)) continue;
      const ir::Ints& shares = equation.attributes.ints("shares");
      for (const std::int64_t operand : shares) coverage_->sharing += operand >= 0 ? 1 : 0;
    }
  }

  void check_collectives(const Function& split, const Rounds& planned) {
    std::map<std::string, std::int64_t> executed;
    for (const auto& [kind, use] : run::Engine::instance().collective_counts()) {
      executed[kind] = use.count;
    }
    if (planned.collectives == executed) return;
    std::string text;
    for (const auto& [kind, n] : planned.collectives)
      text += fmt::format("planned {} {}\n", n, kind);
    for (const auto& [kind, n] : executed) text += fmt::format("executed {} {}\n", n, kind);
    fail("executed collectives are the planned ones", text + ir::print(split));
  }

  void count(const Function& split) {
    if (coverage_ == nullptr) return;
    ++coverage_->cases;
    bool moves = false;
    for_each_equation(split, [&](const Equation& equation, const auto& around) {
      const auto kind = partition::kind_of(*equation.op);
      ++(kind ? coverage_->collectives : coverage_->ops)[*equation.op->name];
      const bool is_move = (kind && *kind != partition::MoveKind::all_slice) ||
                           (around.empty() && partition::permuted_shards(split, equation) > 1);
      moves = moves || is_move;
      if (is_move && !around.empty()) {
        ++coverage_->inside[*equation.op->name + " in " + *around.back()->op->name];
      }
    });
    // Constraints and calls do not appear in the partitioned program, so count them here.
    for_each_equation(
        ir::without_dead_code(c_.function), [&](const Equation& equation, const auto&) {
          const bool goes = equation.op == &ops::sharding_constraint_op ||
                            equation.op == &ops::inspect_sharding_op ||
                            equation.op == &ops::call_op || equation.op == &ops::remat_op ||
                            equation.op == &ops::custom_vjp_op || ops::is_axis_op(equation);
          if (goes) ++coverage_->ops[*equation.op->name];
        });
    for (const auto& [name, number] : c_.constructs) coverage_->constructs[name] += number;
    coverage_->communicating += moves ? 1 : 0;
    coverage_->batched += c_.is_batched.empty() ? 0 : 1;
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
  Function program_;
  Function merged_;
  Arrays reference_;
  Arrays whole_;
};

}  // namespace

std::optional<Failure> check(const Case& c, Coverage* coverage, const testing::Fault& fault) {
  return Checker(c, coverage, fault).run();
}

}  // namespace tessera::fuzz
