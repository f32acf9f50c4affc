// Every op gives the bits of one device under every sharding.
//
// Generated from the op table: every sample of every record, on several meshes, with operands that
// include -0, denormals, infinities and NaN. The same for the program of its derivative.
#include <algorithm>
#include <gtest/gtest.h>

#include "base/sanitized.h"
#include "differentiate/differentiate.h"
#include "ir/text.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "partition/moves.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/ops/conformance.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using testing::Arrays;
using testing::Case;

/// Choices of shardings per sample and mesh; all of them if there are fewer. Builds with
/// sanitizers try some of them, on one mesh.
constexpr std::size_t kMaxChoices = kIsSanitized ? 4 : 80;
constexpr std::size_t kMaxDerivativeChoices = kIsSanitized ? 1 : 15;

std::vector<Mesh> meshes() {
  const Mesh grid = make_mesh({{"a", 2}, {"b", 4}});
  if (kIsSanitized) return {grid};
  return {grid, make_mesh({{"x", 3}}), make_mesh({{"x", 8}})};
}

std::vector<Case> host_cases() {
  std::vector<Case> cases;
  for (const Case& c : testing::all_cases()) {
    if (testing::runs_on_host(c)) cases.push_back(c);
  }
  return cases;
}

std::vector<Case> collective_cases() {
  std::vector<Case> cases;
  for (const Case& c : testing::all_cases()) {
    if (partition::kind_of(*c.op)) cases.push_back(c);
  }
  return cases;
}

/// The cases on the host with a float operand, a float result and a derivative.
std::vector<Case> float_cases() {
  std::vector<Case> cases;
  for (const Case& c : host_cases()) {
    const Function function = testing::function_of(*c.op, c.sample());
    auto is_float_value = [&](ValueId id) { return is_float(function.type(id).dtype); };
    auto has_float = [&](const std::vector<ValueId>& ids) {
      return std::any_of(ids.begin(), ids.end(), is_float_value);
    };
    if (!c.op->vjp.is_differentiable()) continue;
    if (has_float(function.inputs) && has_float(function.outputs)) cases.push_back(c);
  }
  return cases;
}

class OpSharding : public ::testing::TestWithParam<Case> {};

class OpDerivativeSharding : public ::testing::TestWithParam<Case> {};

TEST_P(OpSharding, HostIsReference) {
  EXPECT_EQ(testing::host_is_reference(GetParam()), std::nullopt);
}

TEST_P(OpSharding, EveryShardingIsOneDevice) {
  const ops::OpRecord* op = GetParam().op;
  if (op == &ops::task_op || op == &ops::transfer_op) {
    GTEST_SKIP() << "made of programs that are partitioned";
  }
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  const testing::ShardingChoices tried{.meshes = meshes(), .max_choices = kMaxChoices};
  EXPECT_EQ(testing::shardings_are_one_device(GetParam(), tried), std::nullopt);
}

/// sum(op(x) * w) over the float results. The weights w become inputs.
Function weighted_loss(const Case& c) {
  Function function = testing::function_of(*c.op, c.sample());
  Builder b(function);
  ValueId loss = ops::scalar(b, 0.0, DType::f32);
  for (ValueId result : std::vector<ValueId>(function.outputs)) {
    const Type type = b.type(result);
    if (!is_float(type.dtype)) continue;
    ir::Ints dims;
    for (std::int64_t dim = 0; dim < type.rank(); ++dim) dims.push_back(dim);
    const ValueId weighted = ops::mul(b, result, b.add_input(type));
    loss = ops::add(b, loss, ops::reduce_sum(b, ops::convert(b, weighted, DType::f32), dims));
  }
  b.set_outputs({loss});
  return function;
}

/// Whether host and reference may differ in the last places of an op.
bool has_inexact_op(const Function& function) {
  for (const ir::Equation& equation : function.equations) {
    for (const ops::Sample& sample : *equation.op->samples) {
      if (!sample.is_exact()) return true;
    }
  }
  return false;
}

TEST_P(OpDerivativeSharding, EveryShardingIsOneDevice) {
  const Function loss = weighted_loss(GetParam());
  std::mt19937_64 generator = testing::generator_for(GetParam(), 2);
  Arrays inputs = testing::random_inputs(GetParam());
  std::vector<std::size_t> wrt;
  for (std::size_t i = 0; i < loss.inputs.size(); ++i) {
    const Type& type = loss.type(loss.inputs[i]);
    if (is_float(type.dtype)) wrt.push_back(i);
    if (i < inputs.size()) continue;
    inputs.push_back(testing::random_array(generator, {.type = type, .low = -1.0, .high = 1.0}));
  }
  const Function gradient = differentiate::value_and_grad(loss, wrt);
  const Arrays wanted = testing::run_whole(gradient, inputs);
  const testing::ShardingChoices tried{.meshes = meshes(), .max_choices = kMaxDerivativeChoices};
  EXPECT_EQ(testing::shardings_are_one_device(gradient, inputs, wanted, tried, generator),
            std::nullopt);
  // The gradient may sum terms that differ in the last places.
  if (!GetParam().sample().is_exact() || has_inexact_op(gradient)) return;
  EXPECT_EQ(testing::first_difference(wanted, testing::run_reference(gradient, inputs)),
            std::nullopt)
      << ir::print(gradient);
}

/// Few of the queries read the five keys, so the op reads a window of an array that is not split.
/// The other operands that belong to the queries are whole.
TEST(OpWindows, OfOperandsThatShareThemAreReadAlike) {
  const Function f = ir::parse(R"(function main[mesh="a=2,b=3", grains=8](%0: f32[3,300,1,2],
      %1: f32[3,5,1,2], %2: f32[3,5,1,1], %3: f32[3,1], %4: f32[300,1]) {
  %5: f32[3,300,1,1] = broadcast_in_dim[dims=[0,2], shape=[3,300,1,1]] %3
  %6: f32[3,300,1] = broadcast_in_dim[dims=[1,2], shape=[3,300,1]] %4
  %7: f32[3,5,1,2], %8: f32[3,5,1,1] = attention_grad_kv[after=3, before=7, drop_rate=0.0,
      has_bias=false, has_lengths=false, scale=0.5] %0, %1, %2, %5, %6, %6
  return %7, %8
})");
  std::mt19937_64 generator(5);
  Arrays inputs;
  testing::Placed placed;
  for (const ValueId id : f.inputs) {
    const Type& type = f.type(id);
    inputs.push_back(testing::random_array(generator, {.type = type, .low = -1.0, .high = 1.0}));
    placed.inputs.emplace_back().dims.resize(type.shape.size());
  }
  placed.inputs[0].dims[1] = {0};
  placed.inputs[0].dims[3] = {1};
  const Arrays wanted = testing::run_whole(f, inputs);
  const Arrays found = testing::run_sharded(f, placed, inputs);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(testing::first_difference(found[i], wanted[i]), std::nullopt) << i;
  }
}

class Collective : public ::testing::TestWithParam<Case> {};

TEST_P(Collective, KeepsValues) {
  EXPECT_EQ(testing::collective_keeps_values(GetParam()), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Ops, OpSharding, ::testing::ValuesIn(host_cases()),
                         [](const auto& tested) { return tested.param.name(); });

INSTANTIATE_TEST_SUITE_P(Ops, Collective, ::testing::ValuesIn(collective_cases()),
                         [](const auto& tested) { return tested.param.name(); });

INSTANTIATE_TEST_SUITE_P(Ops, OpDerivativeSharding, ::testing::ValuesIn(float_cases()),
                         [](const auto& tested) { return tested.param.name(); });

}  // namespace
}  // namespace tessera
