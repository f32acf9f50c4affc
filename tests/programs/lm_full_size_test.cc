// The language model in full size: the same bits, and only the collectives that it should need.

#include <gtest/gtest.h>

#include <tessera/engine.h>

#include "lm_support.h"

namespace tessera::testing {
namespace {

TEST(LmFullSize, SameBitsInFullSize) {
  const TrainingRun want = train({}, Mesh(), Layout::replicated, 2, 32);
  expect_same_bits(train({}, make_mesh({{"data", 8}}), Layout::replicated, 2, 32), want);
  expect_same_bits(train({}, make_mesh({{"data", 4}}), Layout::fsdp, 2, 32), want);
}

TEST(LmFullSize, FsdpGathersWeightsAndScattersGradients) {
  reset_collective_counts();
  const lm::Config config;
  const Mesh mesh = make_mesh({{"data", 8}});
  const use_mesh scope(mesh);
  const State state = make_state(config, mesh, Layout::fsdp);
  auto step = jit([](State old, Array ids) {
    auto [loss, grads] = loss_and_grads(old.params, ids);
    return std::tuple(old.apply_gradients(grads), loss);
  });
  const Array ids = device_put(data::random_tokens(1, 32, 64, 512).batch(0, 32), P{"data"});
  reset_collective_counts();
  step(state, ids);
  constexpr std::int64_t kParameterBytes = 4 * 3433984;
  for (const CollectiveUse& use : collective_counts()) {
    if (use.kind == "all_gather") {
      EXPECT_LE(use.bytes, 13750000);
    } else if (use.kind == "reduce_scatter") {
      EXPECT_EQ(use.bytes, kParameterBytes);
    } else {
      EXPECT_EQ(use.kind, "all_reduce");
      EXPECT_EQ(use.bytes, 4) << "only the loss is reduced everywhere";
    }
  }
  EXPECT_EQ(collective_counts().size(), 3U);
}

}  // namespace
}  // namespace tessera::testing
