// Every op under every sharding gives the bits that one device gives.
//
// Generated from the op table: every sample of every record, on several meshes, with operands that
// include -0, denormals, infinities and NaN; and the same for the program of its derivative.
#include <algorithm>
#include <gtest/gtest.h>

#include "differentiate/differentiate.h"
#include "ir/text.h"
#include "ops/emit.h"
#include "partition/moves.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/ops/sample_inputs.h"

namespace tessera {
namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using testing::Arrays;
using testing::Case;
using testing::Placed;

/// Choices of shardings per sample and mesh; all of them where there are fewer.
constexpr std::size_t kMaxChoices = 80;
constexpr std::size_t kMaxDerivativeChoices = 15;

std::vector<Mesh> meshes() {
  return {make_mesh({{"a", 2}, {"b", 4}}), make_mesh({{"x", 3}}), make_mesh({{"x", 8}})};
}

/// The atoms of each axis of a mesh.
std::vector<AtomList> axes_of(const Mesh& mesh) {
  std::vector<AtomList> axes(mesh.axes().size());
  const std::vector<Atom> atoms = atoms_of(mesh);
  for (std::size_t i = 0; i < atoms.size(); ++i) {
    axes[static_cast<std::size_t>(atoms[i].axis)].push_back(static_cast<AtomId>(i));
  }
  return axes;
}

/// Every sharding by whole axes of an array of rank `rank`, in every order within a dimension.
std::vector<Sharding> all_shardings(const Mesh& mesh, std::int64_t rank) {
  std::vector<Sharding> result = {replicated_sharding(rank)};
  for (const AtomList& axis : axes_of(mesh)) {
    const std::vector<Sharding> without = result;
    for (const Sharding& sharding : without) {
      for (std::size_t dim = 0; dim < sharding.dims.size(); ++dim) {
        Sharding minor = sharding;
        minor.dims[dim].insert(minor.dims[dim].end(), axis.begin(), axis.end());
        result.push_back(minor);
        if (sharding.dims[dim].empty()) continue;
        Sharding major = sharding;
        major.dims[dim].insert(major.dims[dim].begin(), axis.begin(), axis.end());
        result.push_back(major);
      }
    }
  }
  return result;
}

/// Shardings of all inputs of a function: all combinations, or `max_count` drawn at random.
std::vector<Placed> choices(const Function& function, std::size_t max_count,
                            std::mt19937_64& generator) {
  std::vector<std::vector<Sharding>> options;
  double count = 1;
  for (ValueId id : function.inputs) {
    options.push_back(all_shardings(function.mesh, function.type(id).rank()));
    count *= static_cast<double>(options.back().size());
  }
  const bool is_whole = count <= static_cast<double>(max_count);
  std::vector<Placed> result(is_whole ? static_cast<std::size_t>(count) : max_count);
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::size_t rest = i;
    for (const std::vector<Sharding>& list : options) {
      const std::size_t number = is_whole ? rest : static_cast<std::size_t>(generator());
      result[i].inputs.push_back(list[number % list.size()]);
      rest /= list.size();
    }
    for (ValueId id : function.outputs) {
      const std::vector<Sharding> list = all_shardings(function.mesh, function.type(id).rank());
      const std::size_t number = static_cast<std::size_t>(generator());
      result[i].outputs.emplace_back();
      if (number % 2 == 0) result[i].outputs.back() = list[number / 2 % list.size()];
    }
  }
  return result;
}

std::string text_of(const Mesh& mesh, const Placed& placed) {
  std::string text = "mesh " + to_string(mesh) + "\ninputs";
  for (const Sharding& sharding : placed.inputs) text += " <" + to_string(mesh, sharding) + ">";
  text += "\noutputs";
  for (const auto& asked : placed.outputs) {
    text += asked ? " <" + to_string(mesh, *asked) + ">" : " open";
  }
  return text + "\n";
}

/// Expects every choice of shardings on every mesh to give `wanted`.
void expect_same_bits(Function function, const Arrays& inputs, const Arrays& wanted,
                      std::size_t max_choices, std::mt19937_64& generator) {
  for (const Mesh& mesh : meshes()) {
    function = ir::with_mesh(std::move(function), mesh);
    for (const Placed& placed : choices(function, max_choices, generator)) {
      SCOPED_TRACE(text_of(mesh, placed) + ir::print(function) +
                   "TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
      std::optional<std::string> difference;
      ASSERT_NO_THROW(difference = testing::first_difference(
                          testing::run_sharded(function, placed, inputs), wanted));
      ASSERT_EQ(difference, std::nullopt)
          << ir::print(testing::partition_verified(function, placed));
    }
  }
}

bool has_f64(const ops::Sample& sample) {
  for (const ops::SampleOperand& operand : sample.operands) {
    if (operand.type.dtype == DType::f64) return true;
  }
  for (const auto& [name, value] : sample.attributes.items()) {
    const DType* dtype = std::get_if<DType>(&value);
    if (dtype != nullptr && *dtype == DType::f64) return true;
  }
  return false;
}

/// The samples that the host engine takes; collectives are placed by the partitioner only.
std::vector<Case> host_cases() {
  std::vector<Case> cases;
  for (const Case& c : testing::all_cases()) {
    if (!partition::kind_of(*c.op) && !has_f64(c.sample())) cases.push_back(c);
  }
  return cases;
}

/// Those of them with a float operand and a float result.
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
  const Function function = testing::function_of(*GetParam().op, GetParam().sample());
  for (testing::Values values : {testing::Values::ordinary, testing::Values::special}) {
    const Arrays inputs = testing::random_inputs(GetParam(), values);
    const auto difference = testing::first_difference(testing::run_whole(function, inputs),
                                                      testing::run_reference(function, inputs),
                                                      GetParam().sample().max_ulp);
    EXPECT_EQ(difference, std::nullopt) << ir::print(function);
  }
}

TEST_P(OpSharding, EveryShardingIsOneDevice) {
  const Function function = testing::function_of(*GetParam().op, GetParam().sample());
  std::mt19937_64 generator = testing::generator_for(GetParam(), 1);
  const Arrays inputs = testing::random_inputs(GetParam(), testing::Values::special);
  expect_same_bits(function, inputs, testing::run_whole(function, inputs), kMaxChoices, generator);
}

/// sum(op(x) * w) over the float results and all weights, which become inputs.
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
    loss = ops::add(b, loss, ops::reduce_sum(b, weighted, dims));
  }
  b.set_outputs({loss});
  return function;
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
  expect_same_bits(gradient, inputs, wanted, kMaxDerivativeChoices, generator);
  if (GetParam().sample().max_ulp > 0.0) return;  // the sum of inexact terms
  EXPECT_EQ(testing::first_difference(wanted, testing::run_reference(gradient, inputs)),
            std::nullopt)
      << ir::print(gradient);
}

INSTANTIATE_TEST_SUITE_P(Ops, OpSharding, ::testing::ValuesIn(host_cases()),
                         [](const auto& tested) { return tested.param.name(); });

INSTANTIATE_TEST_SUITE_P(Ops, OpDerivativeSharding, ::testing::ValuesIn(float_cases()),
                         [](const auto& tested) { return tested.param.name(); });

}  // namespace
}  // namespace tessera
