// Runs the programs of examples/ inside tests: losses and a hash of the final parameters.
#pragma once

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include <tessera/checkpoint.h>

#include "tests/peers/golden.h"

namespace tessera::testing {

struct TrainingRun {
  std::vector<float> losses;
  std::string params_hash;
};

inline void expect_same_bits(const TrainingRun& run, const TrainingRun& want) {
  EXPECT_EQ(run.losses, want.losses);
  EXPECT_EQ(run.params_hash, want.params_hash);
}

/// Losses in bf16 must be close to those in f32, but not equal.
inline void expect_close_losses(const TrainingRun& run, const TrainingRun& want) {
  ASSERT_EQ(run.losses.size(), want.losses.size());
  EXPECT_NE(run.losses, want.losses);
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i], want.losses[i], 5e-3F * std::fabs(want.losses[i])) << "step " << i;
  }
}

struct Sums {
  double sum = 0;
  double abs_sum = 0;
};

inline Sums sums_of(const std::vector<float>& values) {
  Sums sums;
  for (float x : values) {
    sums.sum += static_cast<double>(x);
    sums.abs_sum += std::fabs(static_cast<double>(x));
  }
  return sums;
}

/// Every parameter must have the shape, the first elements and the sums of the peer's. `want_all`
/// maps paths to these.
template <typename Model>
void expect_parameters(const Model& model, const nlohmann::json& want_all) {
  const auto arrays = checkpoint::named_arrays(model);
  EXPECT_EQ(arrays.size(), want_all.size());
  for (const checkpoint::NamedArray& item : arrays) {
    SCOPED_TRACE(item.name);
    ASSERT_TRUE(want_all.contains(item.name));
    const auto& want = want_all[item.name];
    EXPECT_EQ(item.array.shape(), want["shape"].template get<Shape>());
    const std::vector<float> values = item.array.to_vector<float>();
    for (std::size_t i = 0; i < want["first"].size(); ++i) {
      const double x = want["first"][i];
      EXPECT_NEAR(static_cast<double>(values[i]), x, 1e-6 * std::fabs(x));
    }
    const double abs_sum = want["abs_sum"];
    EXPECT_NEAR(sums_of(values).abs_sum, abs_sum, 1e-6 * abs_sum);
    EXPECT_NEAR(sums_of(values).sum, want["sum"], 1e-6 * abs_sum);
  }
}

inline void expect_losses(const TrainingRun& run, const nlohmann::json& want, double relative) {
  ASSERT_EQ(run.losses.size(), want.size());
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    const double loss = want[i];
    EXPECT_NEAR(static_cast<double>(run.losses[i]), loss, relative * std::fabs(loss))
        << "step " << i;
  }
}

}  // namespace tessera::testing
