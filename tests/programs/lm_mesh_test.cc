// The language model gives the same bits on every mesh, layout, engine, number of threads and
// instruction set.

#include <gtest/gtest.h>

#include <tessera/engine.h>

#include "compile/compile.h"
#include "compile/host/kernels/on_every_target.h"
#include "lm_support.h"

namespace tessera::testing {
namespace {

const lm::Config kSmall{
    .vocab = 50, .seq = 12, .d_model = 32, .heads = 4, .layers = 2, .d_ff = 48, .is_causal = true};

TEST(LmMesh, SameBitsOnEveryMesh) {
  const TrainingRun want = train(kSmall, Mesh(), Layout::replicated, 3, 8);
  // Three devices divide neither the grains nor any dimension evenly.
  for (std::int64_t devices : {1, 2, 3, 4, 8}) {
    for (Layout layout : {Layout::replicated, Layout::fsdp}) {
      SCOPED_TRACE(std::to_string(devices) + (layout == Layout::fsdp ? " fsdp" : " replicated"));
      expect_same_bits(train(kSmall, make_mesh({{"data", devices}}), layout, 3, 8), want);
    }
  }
}

TEST(LmMesh, SameBitsForBatchesThatDevicesDoNotDivide) {
  const TrainingRun want = train(kSmall, Mesh(), Layout::replicated, 2, 5);
  expect_same_bits(train(kSmall, make_mesh({{"data", 8}}), Layout::fsdp, 2, 5), want);
}

TEST(LmMesh, SameBitsForEveryNumberOfThreads) {
  const int before = num_threads();
  set_num_threads(1);
  const TrainingRun want = train(kSmall, make_mesh({{"data", 4}}), Layout::fsdp, 3, 8);
  for (int threads : {2, 3}) {
    set_num_threads(threads);
    expect_same_bits(train(kSmall, make_mesh({{"data", 4}}), Layout::fsdp, 3, 8), want);
  }
  set_num_threads(before);
}

TEST(LmMesh, SameBitsOnEveryInstructionSet) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const TrainingRun want = train(kSmall, mesh, Layout::fsdp, 3, 8);
  kernels::testing::on_every_target([&](const char* /*target*/) {
    expect_same_bits(train(kSmall, mesh, Layout::fsdp, 3, 8), want);
  });
}

lm::Config in_bf16(lm::Config config) {
  config.dtype = DType::bf16;
  return config;
}

/// Runs `body` with each unit of this machine that multiplies bf16.
template <typename Body>
void with_each_dot_unit(const Body& body) {
  for (const DotUnit unit : compile::dot_units()) {
    SCOPED_TRACE(name(unit));
    set_dot_unit(name(unit));
    body();
  }
  set_dot_unit("auto");
}

TEST(LmBf16, SameBitsOnEveryMeshAndNumberOfThreads) {
  const int before = num_threads();
  with_each_dot_unit([&] {
    set_num_threads(1);
    const TrainingRun want = train(in_bf16(kSmall), Mesh(), Layout::replicated, 3, 8);
    for (std::int64_t devices : {2, 3, 8}) {
      set_num_threads(static_cast<int>(devices));
      for (Layout layout : {Layout::replicated, Layout::fsdp}) {
        SCOPED_TRACE(devices);
        expect_same_bits(train(in_bf16(kSmall), make_mesh({{"data", devices}}), layout, 3, 8),
                         want);
      }
    }
  });
  set_num_threads(before);
}

TEST(LmBf16, LossesStayCloseToThoseOfF32) {
  const Mesh mesh = make_mesh({{"data", 2}});
  expect_close_losses(train(in_bf16(kSmall), mesh, Layout::replicated, 24, 8),
                      train(kSmall, mesh, Layout::replicated, 24, 8));
}

TEST(LmBf16, ReferenceEngineAgrees) {
  with_each_dot_unit([] {
    const TrainingRun host = train(in_bf16(kSmall), Mesh(), Layout::replicated, 2, 4);
    set_engine("reference");
    const TrainingRun reference = train(in_bf16(kSmall), Mesh(), Layout::replicated, 2, 4);
    set_engine("host");
    for (std::size_t i = 0; i < host.losses.size(); ++i) {
      // Values that differ by an ulp of f32 may round to neighbouring values of bf16.
      EXPECT_NEAR(host.losses[i], reference.losses[i], 2e-3F) << "step " << i;
    }
  });
}

TEST(LmMesh, ReferenceEngineAgrees) {
  const TrainingRun host = train(kSmall, make_mesh({{"data", 2}}), Layout::fsdp, 3, 8);
  set_engine("reference");
  const TrainingRun reference = train(kSmall, Mesh(), Layout::replicated, 3, 8);
  set_engine("host");
  for (std::size_t i = 0; i < host.losses.size(); ++i) {
    // Functions such as exp may differ by a few units in the last place.
    EXPECT_NEAR(host.losses[i], reference.losses[i], 2e-5F) << "step " << i;
  }
}

}  // namespace
}  // namespace tessera::testing
