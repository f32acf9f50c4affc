// Compares cross-entropies with products and log_softmax, and expects the same bits on every mesh.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera {
namespace {

/// Numbers of classes that need one block, several blocks, several groups, and both.
constexpr std::int64_t kClasses[] = {1, 7, 512, 4099, 5000, 8194, 8208};

struct Problem {
  Array x, kernel, labels;

  explicit Problem(std::int64_t classes, std::uint32_t seed = 0)
      : x(random::normal(random::fold_in(Key(3), seed), {4, 6, 8})),
        kernel(random::normal(random::fold_in(Key(4), seed), {8, classes})),
        // Some labels are not valid classes.
        labels(random::randint(Key(5), {4, 6}, -1, static_cast<std::int32_t>(classes) + 1)) {}
};

struct Outcome {
  Array losses, loss, of_x, of_kernel;
};

using Loss = Array (*)(const Array& x, const Array& kernel, const Array& labels);

Array of_logits(const Array& x, const Array& kernel, const Array& labels) {
  return cross_entropy(dot(x, kernel), labels);
}
Array of_blocks(const Array& x, const Array& kernel, const Array& labels) {
  return linear_cross_entropy(x, kernel, labels);
}
Array of_log_softmax(const Array& x, const Array& kernel, const Array& labels) {
  return -sum(one_hot(labels, kernel.dim(1)) * log_softmax(dot(x, kernel)), -1);
}

Outcome outcome_of(Loss loss, const Problem& p) {
  auto run = jit([=](Array x, Array kernel, Array labels) {
    const auto weighted = [&](const Array& a, const Array& b) {
      const Array losses = loss(a, b, labels);
      const Array weights = astype(iota({4, 6}, 1), DType::f32) - 2.0;
      return std::pair(sum(losses * weights), losses);
    };
    const auto [total, losses, gradients] = value_and_grad<0, 1>(weighted)(x, kernel);
    return std::tuple(losses, total, std::get<0>(gradients), std::get<1>(gradients));
  });
  const auto [losses, total, of_x, of_kernel] = run(p.x, p.kernel, p.labels);
  return {losses, total, of_x, of_kernel};
}

void expect_near(const Array& found, const Array& wanted, float tolerance) {
  const auto a = found.to_vector<float>();
  const auto b = wanted.to_vector<float>();
  ASSERT_EQ(a.size(), b.size());
  float distance = 0;
  for (std::size_t i = 0; i < a.size(); ++i) distance = std::max(distance, std::abs(a[i] - b[i]));
  EXPECT_LE(distance, tolerance);
}

TEST(CrossEntropy, IsThatOfLogSoftmax) {
  for (const std::int64_t classes : kClasses) {
    SCOPED_TRACE(classes);
    const Problem p(classes, static_cast<std::uint32_t>(classes));
    const Outcome wanted = outcome_of(of_log_softmax, p);
    for (const Loss loss : {of_logits, of_blocks}) {
      const Outcome found = outcome_of(loss, p);
      expect_near(found.losses, wanted.losses, 1e-5F);
      expect_near(found.of_x, wanted.of_x, 5e-5F);
      expect_near(found.of_kernel, wanted.of_kernel, 5e-5F);
    }
  }
}

TEST(CrossEntropy, IsThatOfTheReferenceEngine) {
  for (const std::int64_t classes : {7, 4099, 8208}) {
    for (const Loss loss : {of_logits, of_blocks}) {
      SCOPED_TRACE(classes);
      const Problem p(classes);
      const Outcome found = outcome_of(loss, p);
      set_engine("reference");
      const Outcome wanted = outcome_of(loss, p);
      set_engine("host");
      expect_near(found.losses, wanted.losses, 1e-5F);
      expect_near(found.of_x, wanted.of_x, 1e-5F);
      expect_near(found.of_kernel, wanted.of_kernel, 1e-5F);
    }
  }
}

TEST(CrossEntropy, HasTheSameBitsOnMeshes) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  for (const std::int64_t classes : kClasses) {
    for (const Loss loss : {of_logits, of_blocks}) {
      SCOPED_TRACE(classes);
      const Problem whole(classes);
      const Outcome wanted = outcome_of(loss, whole);
      Problem split(classes);
      split.x = device_put(split.x, NamedSharding(mesh, P{"data"}));
      split.labels = device_put(split.labels, NamedSharding(mesh, P{"data"}));
      split.kernel = device_put(split.kernel, NamedSharding(mesh, P{none, "model"}));
      const Outcome found = outcome_of(loss, split);
      testing::expect_same_bits(found.losses, wanted.losses);
      testing::expect_same_bits(found.loss, wanted.loss);
      testing::expect_same_bits(found.of_x, wanted.of_x);
      testing::expect_same_bits(found.of_kernel, wanted.of_kernel);
    }
  }
}

TEST(CrossEntropy, OfSplitClassesMovesNoLogits) {
  const Mesh mesh = make_mesh({{"model", 4}});
  constexpr std::int64_t classes = 8208;
  const Problem p(classes);
  for (const Loss loss : {of_logits, of_blocks}) {
    auto run = jit([=](Array x, Array kernel, Array labels) {
      return grad<0, 1>([&](const Array& a, const Array& b) { return sum(loss(a, b, labels)); })(
          x, kernel);
    });
    run(p.x, device_put(p.kernel, NamedSharding(mesh, P{none, "model"})), p.labels);
    const CompiledProgram program = run.compiled();
    EXPECT_FALSE(program.planned_collectives().empty());
    for (const PlannedCollective& use : program.planned_collectives()) {
      EXPECT_LT(use.bytes, 4 * 24 * classes / 4) << program.explain();
    }
  }
}

TEST(CrossEntropy, IgnoresLabelsThatAreNoClasses) {
  const Array x = array({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2});
  const Array labels = array({-100, 2});
  EXPECT_EQ(cross_entropy(x, labels).to_vector<float>(), (std::vector<float>{0, 0}));
  const auto loss = [&](const Array& logits) { return sum(cross_entropy(logits, labels)); };
  EXPECT_EQ(grad(loss)(x).to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
}

TEST(CrossEntropy, ClassesMayBeImpossible) {
  // The first block has no finite logit.
  const float none = -std::numeric_limits<float>::infinity();
  const Array low = full({1, 5000}, none);
  const Array high = full({1, 3200}, -1000.0);
  const Array logits = concatenate({low, high}, -1);
  const Array losses = cross_entropy(concatenate({logits, logits}), array({5000, 0}));
  EXPECT_NEAR(losses.to_vector<float>()[0], std::log(3200.0F), 1e-5F);
  EXPECT_EQ(losses.to_vector<float>()[1], std::numeric_limits<float>::infinity());
}

TEST(CrossEntropy, OfRowsOfABatch) {
  const Problem p(4099);
  const auto rows = vmap([&](const Array& x, const Array& labels) {
    return linear_cross_entropy(x, p.kernel, labels);
  });
  testing::expect_same_bits(rows(p.x, p.labels), linear_cross_entropy(p.x, p.kernel, p.labels));
}

TEST(CrossEntropy, HasSecondDerivatives) {
  const Problem p(7);
  const auto slope = [&](Loss loss) {
    const auto first = grad([=](const Array& x) { return sum(loss(x, p.kernel, p.labels)); });
    return grad([=](const Array& x) { return sum(square(first(x))); })(p.x);
  };
  const Array wanted = slope(of_log_softmax);
  expect_near(slope(of_logits), wanted, 1e-4F);
  expect_near(slope(of_blocks), wanted, 1e-4F);
}

TEST(CrossEntropy, OfBf16HasAnF32Loss) {
  const Problem p(4099);
  const Array x = astype(p.x, DType::bf16);
  const Array kernel = astype(p.kernel, DType::bf16);
  const auto loss = [&](const Array& a) { return sum(linear_cross_entropy(a, kernel, p.labels)); };
  const auto [found, gradient] = value_and_grad(loss)(x);
  EXPECT_EQ(found.dtype(), DType::f32);
  EXPECT_EQ(gradient.dtype(), DType::bf16);
  testing::expect_same_bits(found, sum(cross_entropy(dot(x, kernel), p.labels)));
}

TEST(CrossEntropy, OfBlocksNeedsNoMemoryForLogits) {
  const Array x = ones({512, 16});
  const Array kernel = ones({16, 32768});
  const Array labels = zeros({512}, DType::i32);
  const auto peak_of = [&](Loss loss) {
    auto run = jit([=](Array a, Array b, Array c) {
      return value_and_grad<0, 1>([&](const Array& rows, const Array& matrix) {
        return mean(loss(rows, matrix, c));
      })(a, b);
    });
    run(x, kernel, labels);
    return run.compiled().device_peak_bytes();
  };
  const std::int64_t logits = 4 * 512 * 32768;
  EXPECT_GT(peak_of(of_logits), logits);
  EXPECT_LT(peak_of(of_blocks), logits / 2);
}

TEST(CrossEntropy, OfF64IsF64) {
  const Array logits = array<double>({1.0, 2.0, 3.0, -1.0, 0.5, 0.25}, {2, 3});
  const Array labels = array({0, 2});
  const auto wanted = [&](const Array& x) {
    return -sum(astype(one_hot(labels, 3), DType::f64) * log_softmax(x), -1);
  };
  const Array kernel = astype(eye(3), DType::f64);
  const Array smooth = wanted(logits) * 0.9 - mean(log_softmax(logits), -1) * 0.1;
  for (const auto& [found, want] :
       {std::pair(cross_entropy(logits, labels), wanted(logits)),
        {linear_cross_entropy(logits, kernel, labels), wanted(logits)},
        {cross_entropy(logits, labels, 0.1), smooth},
        {grad([&](const Array& x) { return sum(cross_entropy(x, labels)); })(logits),
         grad([&](const Array& x) { return sum(wanted(x)); })(logits)}}) {
    EXPECT_EQ(found.dtype(), DType::f64);
    EXPECT_LT(max(abs(found - want)).item<double>(), 1e-14);
  }
}

}  // namespace
}  // namespace tessera
