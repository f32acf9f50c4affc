// Compares jitted functions on the devices of a plugin with the host engine.
#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include <tessera/checkpoint.h>
#include <tessera/engine.h>
#include <tessera/jit.h>
#include <tessera/ops.h>
#include <tessera/random.h>
#include <tessera/shardings.h>

#include "tests/pjrt/plugin.h"
#include "tests/programs/pipeline_support.h"

namespace tessera::testing {
namespace {

class PjrtDevices : public Pjrt {};

void expect_near(const Array& found, const Array& wanted) {
  ASSERT_EQ(to_string(found.type()), to_string(wanted.type()));
  const std::vector<float> x = found.to_vector<float>();
  const std::vector<float> y = wanted.to_vector<float>();
  float largest = 1e-30F;
  for (const float each : y) largest = std::max(largest, std::fabs(each));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-5F * largest) << i;
}

/// The result of `f` on the plugin and on the host.
template <typename F, typename... Arrays>
void expect_same(const F& f, const Arrays&... arrays) {
  const auto jitted = jit(f);
  set_engine(test_plugin());
  const Array found = jitted(arrays...);
  set_engine("host");
  expect_near(found, jitted(arrays...));
}

using Generator = std::mt19937;

std::int64_t from_to(Generator& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

/// A random spec of a matrix over the axes a and b.
PartitionSpec random_spec(Generator& random) {
  switch (from_to(random, 0, 5)) {
    case 0:
      return P{};
    case 1:
      return P{"a"};
    case 2:
      return P{none, "a"};
    case 3:
      return P{"a", "b"};
    case 4:
      return P{"b", "a"};
    default:
      return P{{"a", "b"}};
  }
}

/// A chain of ops on two matrices, chosen by `seed`.
Array random_chain(std::uint32_t seed, Array x, const Array& y) {
  Generator random(seed);
  for (int step = 0; step < 6; ++step) {
    switch (from_to(random, 0, 8)) {
      case 0:
        x = matmul(x, matmul(transpose(x, {1, 0}), x)) * 0.01F;
        break;
      case 1:
        x = x + y;
        break;
      case 2:
        x = x - max(x, 1, keepdims);
        break;
      case 3:
        x = x * sum(y, 0, keepdims);
        break;
      case 4:
        x = where(y > 0.0F, x, y * 0.5F);
        break;
      case 5:
        x = tanh(x);
        break;
      case 6:
        x = cumsum(x, from_to(random, 0, 1)) * 0.1F;
        break;
      case 7:
        x = reverse(x, {from_to(random, 0, 1)});
        break;
      default:
        x = x / (1.0F + abs(y));
        break;
    }
  }
  return x;
}

TEST_F(PjrtDevices, RandomProgramsOnRandomShardings) {
  const std::uint32_t first = 1;
  for (std::uint32_t seed = first; seed < first + 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const Mesh mesh = make_mesh({{"a", from_to(random, 1, 4)}, {"b", from_to(random, 1, 2)}});
    // Most sizes do not divide evenly, and tiles are padded.
    const Shape shape = {from_to(random, 8, 13), from_to(random, 8, 13)};
    const Array x =
        device_put(random::normal(Key(seed), shape), NamedSharding(mesh, random_spec(random)));
    const Array y =
        device_put(random::normal(Key(seed + 1), shape), NamedSharding(mesh, random_spec(random)));
    expect_same([&](const Array& a, const Array& b) { return random_chain(seed, a, b); }, x, y);
  }
}

TEST_F(PjrtDevices, MovesIntegersAndRandomBitsAreEqual) {
  const auto bits = jit([](const Array& x) {
    return std::tuple(random::bits(Key(7), {37}), reverse(x, {0}) * 3 - 5, astype(x, DType::bf16),
                      x > 4);
  });
  const Array x = arange(11);
  set_engine(test_plugin());
  const auto found = bits(x);
  set_engine("host");
  const auto wanted = bits(x);
  EXPECT_EQ(std::get<0>(found).to_vector<std::uint32_t>(),
            std::get<0>(wanted).to_vector<std::uint32_t>());
  EXPECT_EQ(std::get<1>(found).to_vector<std::int32_t>(),
            std::get<1>(wanted).to_vector<std::int32_t>());
  EXPECT_EQ(astype(std::get<2>(found), DType::f32).to_vector<float>(),
            astype(std::get<2>(wanted), DType::f32).to_vector<float>());
  EXPECT_EQ(astype(std::get<3>(found), DType::i32).to_vector<std::int32_t>(),
            astype(std::get<3>(wanted), DType::i32).to_vector<std::int32_t>());
}

TEST_F(PjrtDevices, DonatedStateStaysOnTheDevices) {
  const Mesh mesh = make_mesh({{"a", 3}});
  const auto step = jit([](const Array& state, const Array& x) { return state * 0.5F + x; },
                        {.donate_argnums = {0}});
  const auto run = [&] {
    const Array x = device_put(random::normal(Key(1), {10, 4}), NamedSharding(mesh, P{"a"}));
    Array state = device_put(random::normal(Key(2), {10, 4}), NamedSharding(mesh, P{"a"}));
    state = step(std::move(state), x);
    reset_peak_buffer_bytes();
    const std::int64_t before = peak_buffer_bytes();
    for (int i = 0; i < 5; ++i) state = step(std::move(state), x);
    // No step allocates memory of the host.
    if (engine() == "pjrt") {
      EXPECT_EQ(peak_buffer_bytes(), before);
    }
    return state;
  };
  set_engine(test_plugin());
  const Array found = run();
  set_engine("host");
  expect_near(found, run());
}

TEST_F(PjrtDevices, DonationKeepsWhatAnotherArrayHolds) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const auto add = jit([](const Array& x) { return x + 1.0F; }, {.donate_argnums = {0}});
  const auto same = jit([](const Array& x) { return std::tuple(x, x * 2.0F); });
  set_engine(test_plugin());
  const Array x = device_put(astype(arange(6), DType::f32), NamedSharding(mesh, P{"a"}));
  auto [shared, twice] = same(x);  // the tiles of x
  const Array next = add(std::move(shared));
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(next.to_vector<float>(), std::vector<float>({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(add(std::move(twice)).to_vector<float>(), std::vector<float>({1, 3, 5, 7, 9, 11}));
}

TEST_F(PjrtDevices, ArraysGoBackAndForth) {
  const Mesh mesh = make_mesh({{"a", 4}});
  const auto triple = jit([](const Array& x) { return x * 3.0F; });
  const auto add = jit([](const Array& x) { return x + 1.0F; }, {.donate_argnums = {0}});
  const Array x = device_put(astype(arange(7), DType::f32), NamedSharding(mesh, P{"a"}));
  set_engine(test_plugin());
  Array y = triple(x);
  set_engine("host");
  const Array kept = triple(y);  // read from the devices
  y = add(std::move(y));         // overwritten by the host
  set_engine(test_plugin());
  EXPECT_EQ(triple(y).to_vector<float>(), std::vector<float>({3, 12, 21, 30, 39, 48, 57}));
  EXPECT_EQ(kept.to_vector<float>(), std::vector<float>({0, 9, 18, 27, 36, 45, 54}));
  EXPECT_EQ((y + 1.0F).to_vector<float>(), std::vector<float>({2, 5, 8, 11, 14, 17, 20}));
}

/// The model has a weight in two groups, one that a stage uses twice, a skip connection, and a
/// global norm.
TEST_F(PjrtDevices, PipelinesKeepTheirStateInTheirGroups) {
  const MpmdMesh mesh = groups(2, 2);
  const use_mesh scope(mesh.group_mesh());
  const auto run = [&] {
    const auto step = mpmd_jit_with_loop(
        [](const PipelineNet& net, const PipelineBatch& batch) {
          return step_of(net, batch, Std1F1B{2});
        },
        mesh, {.donate_argnums = {0}});
    PipelineNet net = make_net();
    const PipelineBatch batch = make_batch(3);
    const MemoryPlan plan = step.lower(net, batch).compile().memory();
    EXPECT_EQ(plan.group_peaks.size(), 2U);
    EXPECT_EQ(plan.peak, std::max(plan.group_peaks[0], plan.group_peaks[1]));
    Array loss;
    for (int i = 0; i < 3; ++i) {
      auto [next, mean, losses] = step(std::move(net), batch);
      net = next;
      loss = mean;
    }
    std::vector<Array> leaves = tree_leaves(net);
    leaves.push_back(loss);
    return leaves;
  };
  set_engine(test_plugin());
  const std::vector<Array> found = run();
  set_engine("host");
  const std::vector<Array> wanted = run();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(i);
    expect_near(found[i], wanted[i]);
    EXPECT_EQ(found[i].sharding().mpmd_idxs, wanted[i].sharding().mpmd_idxs);
  }
}

TEST_F(PjrtDevices, TheCompilerTellsTheMemory) {
  set_engine(test_plugin());
  const auto f = jit([](const Array& x) { return matmul(x, x); });
  const MemoryPlan plan = f.lower(random::normal(Key(1), {64, 64})).compile().memory();
  EXPECT_EQ(plan.arguments, 64 * 64 * 4);
  EXPECT_EQ(plan.results, 64 * 64 * 4);
  EXPECT_GE(plan.peak, plan.arguments + plan.results);
}

TEST_F(PjrtDevices, AreListed) {
  EXPECT_EQ(accelerator().platform, "");
  set_engine(test_plugin());
  EXPECT_EQ(engine(), "pjrt");
  const Accelerator found = accelerator();
  EXPECT_EQ(found.platform, "cpu");
  EXPECT_EQ(found.devices.size(), 8U);
}

}  // namespace
}  // namespace tessera::testing
