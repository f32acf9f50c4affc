// Fast numerics: where the program sums over devices, and how often.
#include "partition/sums/defer.h"

#include <gtest/gtest.h>
#include <map>

#include "ops/control/control.h"
#include "partition/test_programs.h"

namespace tessera::partition {
namespace {

using testing::Function;
using testing::Program;
using testing::ValueId;

/// The kinds, counts and bytes of the program's collectives when its inputs are sharded by `inputs`
/// and its only output by `output`.
std::string sent(const Program& program, const std::vector<P>& inputs, Numerics numerics,
                 const P& output = {}) {
  Function function = program.function;
  function.numerics = numerics;
  const auto change = [&](const Function& body) {
    Function changed = body;
    changed.numerics = numerics;
    return changed;
  };
  function = ir::with_changed_bodies(function, change);
  PartitionOptions options;
  options.passes.verify = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    options.inputs.push_back(program.spec(function.inputs[i], inputs[i]));
  }
  options.outputs = {program.spec(function.outputs[0], output)};
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> kinds;
  for (const CollectiveInfo& info : explain(partition(function, options))) {
    kinds[info.kind].first += info.count;
    kinds[info.kind].second += info.count * info.bytes;
  }
  std::string text;
  for (const auto& [kind, total] : kinds) {
    text += (text.empty() ? "" : ", ") + kind + " " + std::to_string(total.first) + " " +
            std::to_string(total.second);
  }
  return text;
}

/// The products x [8,64] w1 [64,16] and y [8,64] w2 [64,16], with their contracted dimensions
/// split.
struct Products {
  Program program{make_mesh({{"model", 4}})};
  ValueId a, b;
  std::vector<P> inputs{{none, "model"}, {"model"}, {none, "model"}, {"model"}};
  Products() {
    const auto product = [&] {
      const ValueId x = program.input({8, 64});
      return program.dot(x, program.input({64, 16}), {1}, {0});
    };
    a = product();
    b = product();
  }
  std::string sent(Numerics numerics, const P& output = {}) {
    return partition::sent(program, inputs, numerics, output);
  }
};

constexpr const char* kOne = "all_reduce 1 512";
constexpr const char* kTwo = "all_reduce 2 1024";

TEST(Defer, TheSumOfTwoProductsIsResolvedOnce) {
  Products p;
  p.program.b.set_outputs({p.program.add(p.a, p.b)});
  EXPECT_EQ(p.sent(Numerics::exact), kTwo);
  EXPECT_EQ(p.sent(Numerics::fast), kOne);
}

TEST(Defer, ThroughLinearEquations) {
  Products p;
  Program& q = p.program;
  const ValueId scaled = q.scaled(q.transpose(p.a, {1, 0}), 0.5);
  const ValueId other = ops::neg(q.b, q.transpose(p.b, {1, 0}));
  q.b.set_outputs({q.reshape(q.sub(scaled, other), {4, 32})});
  EXPECT_EQ(p.sent(Numerics::exact), kTwo);
  EXPECT_EQ(p.sent(Numerics::fast), kOne);
}

TEST(Defer, ReducesAfterSummingUp) {
  Products p;
  p.program.b.set_outputs({p.program.sum(p.a, {0})});
  EXPECT_EQ(p.sent(Numerics::exact), kOne);
  EXPECT_EQ(p.sent(Numerics::fast), "all_reduce 1 64");
}

TEST(Defer, NotWhereTheValueGrows) {
  Products p;
  p.program.b.set_outputs({p.program.broadcast(p.a, {1, 2}, {10, 8, 16})});
  EXPECT_EQ(p.sent(Numerics::fast), kOne);
}

TEST(Defer, NotThroughWhatIsNotLinear) {
  for (bool is_square : {false, true}) {
    Products p;
    const ValueId two = is_square ? p.program.mul(p.a, p.a) : p.program.relu(p.a);
    p.program.b.set_outputs({p.program.add(two, two)});
    EXPECT_EQ(p.sent(Numerics::fast), kOne);
  }
}

TEST(Defer, WhatSeveralNeedIsResolvedOnce) {
  Products p;
  Program& q = p.program;
  const ValueId half = q.scaled(p.a, 0.5);
  q.b.set_outputs({q.add(q.relu(p.a), q.relu(ops::neg(q.b, half)))});
  EXPECT_EQ(p.sent(Numerics::fast), kOne);
}

TEST(Defer, TheProductOfTwoSumsIsNone) {
  Products p;
  p.program.b.set_outputs({p.program.mul(p.a, p.b)});
  EXPECT_EQ(p.sent(Numerics::fast), kTwo);
}

TEST(Defer, ScattersWhereThePartsAreNeeded) {
  Products p;
  p.program.b.set_outputs({p.program.add(p.a, p.b)});
  EXPECT_EQ(p.sent(Numerics::exact, {"model"}), "reduce_scatter 2 1024");
  EXPECT_EQ(p.sent(Numerics::fast, {"model"}), "reduce_scatter 1 512");
}

TEST(Defer, ThreeDevicesNeedNotDivideTheLeaves) {
  Program p(make_mesh({{"data", 3}}));
  p.b.set_outputs({p.sum(p.input({12, 100}), {0})});
  EXPECT_EQ(sent(p, {{"data"}}, Numerics::exact).find("all_reduce"), std::string::npos);
  EXPECT_EQ(sent(p, {{"data"}}, Numerics::fast), "all_reduce 1 400");
}

TEST(Defer, SeveralAxesInAnyOrder) {
  const P both{SpecEntry{"b", "a"}};
  for (const P& input : {P{"a", "b"}, P{"b", "a"}, both}) {
    Program p(make_mesh({{"a", 2}, {"b", 2}}));
    p.b.set_outputs({p.sum(p.input({8, 8, 50}), {1, 0})});
    EXPECT_EQ(sent(p, {input}, Numerics::fast), "all_reduce 1 200");
    EXPECT_EQ(sent(p, {input}, Numerics::fast, both), "reduce_scatter 1 200");
  }
}

/// The collectives of a loop whose rounds compute c + x_i w_i over slices of x [5,8,64] and w
/// [5,64,16]. c begins as `start`.
std::string sent_by_loop(double start, bool is_used, Numerics numerics) {
  Program p(make_mesh({{"model", 4}}));
  const ValueId xs = p.input({5, 8, 64});
  const ValueId ws = p.input({5, 64, 16});
  Program inside(p.function.mesh);
  inside.function.name = "body";
  const ValueId c = inside.input({8, 16});
  const ValueId x = inside.input({8, 64});
  const ValueId product = inside.dot(x, inside.input({64, 16}), {1}, {0});
  inside.b.set_outputs({inside.add(c, is_used ? inside.mul(c, product) : product)});
  const auto body = std::make_shared<const Function>(inside.function);
  p.b.set_outputs(ops::scan(p.b, {.length = 5, .num_consts = 0, .num_carry = 1}, body,
                            {p.full(start, {8, 16}), xs, ws}));
  return sent(p, {{none, none, "model"}, {none, "model"}}, numerics);
}

TEST(Defer, AddsUpInALoopAndResolvesBehindIt) {
  EXPECT_EQ(sent_by_loop(0, false, Numerics::exact), "all_reduce 5 2560");
  EXPECT_EQ(sent_by_loop(0, false, Numerics::fast), kOne);
  // A carry that does not start at zero, or that is read in a round, is whole in each round.
  EXPECT_EQ(sent_by_loop(1, false, Numerics::fast), "all_reduce 5 2560");
  EXPECT_EQ(sent_by_loop(0, true, Numerics::fast), "all_reduce 5 2560");
}

}  // namespace
}  // namespace tessera::partition
