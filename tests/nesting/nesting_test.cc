// Nested functions give the same values, derivatives and batches as the same program without nested
// functions.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>

#include <tessera/control.h>
#include <tessera/grad.h>
#include <tessera/ops.h>
#include <tessera/transform.h>

#include "batch/batch.h"
#include "differentiate/differentiate.h"
#include "ops/control/control.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/nesting/programs.h"

namespace tessera::nesting {
namespace {

using ir::Function;
using ops::HostArray;
using testing::Arrays;

constexpr std::size_t kDeepest = 12;

HostArray random_array(const Type& type, std::mt19937& random) {
  HostArray array(type);
  std::uniform_real_distribution<float> numbers(-1.0F, 1.0F);
  for (float& x : array.data<float>()) x = numbers(random);
  return array;
}

Arrays random_inputs(const Function& function, std::mt19937& random) {
  Arrays inputs;
  for (const ir::ValueId id : function.inputs) {
    inputs.push_back(random_array(function.type(id), random));
  }
  return inputs;
}

/// A random nest of these kinds. At most three levels have two iterations, the others have one.
Nest random_nest(std::size_t depth, std::vector<Kind> kinds, std::mt19937& random) {
  Nest nest;
  int num_long = 0;
  for (std::size_t i = 0; i < depth; ++i) {
    nest.kinds.push_back(kinds[random() % kinds.size()]);
    const bool is_long = num_long < 3 && random() % 3 == 0;
    num_long += is_long ? 1 : 0;
    nest.rounds.push_back(is_long ? 2 : 1);
  }
  return nest;
}

Nest flat(Nest nest) {
  nest.is_flat = true;
  return nest;
}

/// Results are only close, because sums are added in another order.
void expect_close(const Arrays& found, const Arrays& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto x = found[i].data<float>();
    const auto y = wanted[i].data<float>();
    ASSERT_EQ(x.size(), y.size());
    float largest = 0.0F;
    for (const float value : y) largest = std::max(largest, std::fabs(value));
    for (std::size_t e = 0; e < x.size(); ++e) {
      ASSERT_NEAR(x[e], y[e], 1e-5F * largest) << "output " << i << ", element " << e;
    }
  }
}

class Nesting : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::mt19937 random_{static_cast<std::uint32_t>(GetParam())};
};

TEST_P(Nesting, ValuesAreThoseOfTheFlatProgram) {
  for (int i = 0; i < 3; ++i) {
    const Nest nest = random_nest(
        GetParam(), {Kind::scan, Kind::loop, Kind::cond, Kind::call, Kind::remat, Kind::custom_vjp},
        random_);
    SCOPED_TRACE(to_string(nest));
    const Function function = nested(nest);
    const Arrays inputs = random_inputs(function, random_);
    const Arrays wanted = testing::run_reference(nested(flat(nest)), inputs);
    EXPECT_EQ(testing::first_difference(testing::run_reference(function, inputs), wanted),
              std::nullopt);
    EXPECT_EQ(testing::first_difference(testing::run_whole(function, inputs),
                                        testing::run_whole(nested(flat(nest)), inputs)),
              std::nullopt);
  }
}

TEST_P(Nesting, GradientsAreThoseOfTheFlatProgram) {
  for (int i = 0; i < 3; ++i) {
    const Nest nest =
        random_nest(GetParam(), {Kind::scan, Kind::cond, Kind::call, Kind::remat}, random_);
    SCOPED_TRACE(to_string(nest));
    const Function function = differentiate::value_and_grad(nested_loss(nest), {0, 1, 2, 3});
    const Function wanted = differentiate::value_and_grad(nested_loss(flat(nest)), {0, 1, 2, 3});
    const Arrays inputs = random_inputs(function, random_);
    expect_close(testing::run_reference(function, inputs), testing::run_reference(wanted, inputs));
  }
}

TEST_P(Nesting, TangentsAreThoseOfTheFlatProgram) {
  for (int i = 0; i < 3; ++i) {
    const Nest nest = random_nest(
        GetParam(), {Kind::scan, Kind::loop, Kind::cond, Kind::call, Kind::remat}, random_);
    SCOPED_TRACE(to_string(nest));
    std::vector<std::size_t> wrt;
    for (std::size_t input = 0; input < 4; ++input) {
      if (random_() % 2 == 0) wrt.push_back(input);
    }
    const Function function = differentiate::jvp(nested(nest), wrt);
    const Arrays inputs = random_inputs(function, random_);
    expect_close(testing::run_reference(function, inputs),
                 testing::run_reference(differentiate::jvp(nested(flat(nest)), wrt), inputs));
  }
}

TEST_P(Nesting, TangentsOfALossAreProductsWithItsGradients) {
  const Nest nest =
      random_nest(GetParam(), {Kind::scan, Kind::cond, Kind::call, Kind::remat}, random_);
  SCOPED_TRACE(to_string(nest));
  const Function forward = differentiate::jvp(nested_loss(nest), {0, 1, 2, 3});
  const Arrays inputs = random_inputs(forward, random_);  // then the tangents
  const Function reverse = differentiate::value_and_grad(nested_loss(nest), {0, 1, 2, 3});
  const Arrays gradients =
      testing::run_reference(reverse, Arrays(inputs.begin(), inputs.begin() + 4));
  float product = 0.0F, largest = 0.0F;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto gradient = gradients[i + 1].data<float>();
    const auto tangent = inputs[i + 4].data<float>();
    for (std::size_t e = 0; e < gradient.size(); ++e) {
      product += gradient[e] * tangent[e];
      largest = std::max(largest, std::fabs(gradient[e] * tangent[e]));
    }
  }
  EXPECT_NEAR(testing::run_reference(forward, inputs)[1].data<float>()[0], product,
              1e-5F * largest);
}

TEST_P(Nesting, GradientsOfSomeInputsAreThoseOfAll) {
  const Nest nest =
      random_nest(GetParam(), {Kind::scan, Kind::cond, Kind::call, Kind::remat}, random_);
  SCOPED_TRACE(to_string(nest));
  const Function all = differentiate::value_and_grad(nested_loss(nest), {0, 1, 2, 3});
  const Arrays inputs = random_inputs(all, random_);
  const Arrays wanted = testing::run_reference(all, inputs);
  for (std::size_t input = 0; input < 4; ++input) {
    const Function one = differentiate::value_and_grad(nested_loss(nest), {input});
    expect_close(testing::run_reference(one, inputs), {wanted[0], wanted[input + 1]});
  }
}

TEST_P(Nesting, RowsOfABatchAreTheFunctionOfTheRows) {
  constexpr std::int64_t kRows = 2;
  const Nest nest = random_nest(
      GetParam(), {Kind::scan, Kind::loop, Kind::cond, Kind::call, Kind::remat, Kind::custom_vjp},
      random_);
  SCOPED_TRACE(to_string(nest));
  const Function function = nested(nest);
  std::vector<bool> is_batched(4);
  for (std::size_t i = 0; i < 4; ++i) is_batched[i] = random_() % 2 == 0;
  is_batched[random_() % 4] = true;
  const batch::Batched batched = batch::batch(function, is_batched, kRows);
  const Arrays inputs = random_inputs(batched.function, random_);
  const Arrays found = testing::run_reference(batched.function, inputs);
  const auto row_of = [](const HostArray& array, bool is_batch, std::int64_t row) {
    if (!is_batch) return array;
    Type type = array.type();
    type.shape.erase(type.shape.begin());
    HostArray one(type);
    const auto size = static_cast<std::ptrdiff_t>(one.bytes().size());
    std::copy_n(array.bytes().begin() + row * size, size, one.bytes().begin());
    return one;
  };
  for (std::int64_t row = 0; row < kRows; ++row) {
    Arrays of_row, wanted;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      of_row.push_back(row_of(inputs[i], is_batched[i], row));
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      wanted.push_back(row_of(found[i], batched.is_output_batched[i], row));
    }
    EXPECT_EQ(testing::first_difference(testing::run_reference(function, of_row), wanted),
              std::nullopt);
  }
}

TEST_P(Nesting, AMeshHasTheBitsOfOneDevice) {
  const Nest nest =
      random_nest(GetParam(), {Kind::scan, Kind::cond, Kind::call, Kind::remat}, random_);
  SCOPED_TRACE(to_string(nest));
  const Function gradient = differentiate::value_and_grad(nested_loss(nest), {0, 1});
  const Function batched =
      batch::batch(gradient, {false, true, false, random_() % 2 == 0}, 2).function;
  const Function function = ir::with_mesh(batched, Mesh({{"data", 2}, {"model", 2}}));
  const Arrays inputs = random_inputs(function, random_);
  testing::Placed placed;
  for (const ir::ValueId id : function.inputs) {
    Sharding sharding = replicated_sharding(function.type(id).rank());
    for (AtomId atom = 0; atom < 2; ++atom) {
      if (random_() % 2 == 0) sharding.dims[sharding.dims.size() - 1 - atom] = {atom};
    }
    placed.inputs.push_back(std::move(sharding));
  }
  const Function simple = ir::run_passes(ops::simplify_passes(), function, {.verify = true});
  EXPECT_EQ(testing::first_difference(testing::run_sharded(simple, placed, inputs),
                                      testing::run_whole(batched, inputs)),
            std::nullopt);
}

/// A user's function is called once per level, whatever transformations are applied to it.
TEST_P(Nesting, IsTracedOnce) {
  std::size_t num_calls = 0;
  std::function<Array(std::size_t, Array)> level = [&](std::size_t depth, Array x) {
    ++num_calls;
    if (depth == 0) return tanh(x);
    const auto step = [&](Array carry, Array row) {
      carry = level(depth - 1, carry * row);
      return std::pair(carry, carry);
    };
    return scan(step, x, ones({1, 3})).first;
  };
  const auto loss = [&](Array x) { return sum(level(GetParam(), x)); };
  const Array x = ones({2, 3}) * 0.5F;
  const Array found = jit(vmap(grad(loss)))(x);
  EXPECT_EQ(num_calls, GetParam() + 1);
  const Array wanted = vmap(grad([](Array row) { return sum(tanh(row)); }))(x);
  EXPECT_EQ(found.to_vector<float>(), wanted.to_vector<float>());
}

INSTANTIATE_TEST_SUITE_P(Depth, Nesting, ::testing::Range(std::size_t{1}, kDeepest + 1));

}  // namespace
}  // namespace tessera::nesting
