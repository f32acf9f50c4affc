// JitOptions::check_finite names the op that produces a NaN or an infinity.
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::numbers;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename F>
auto checked(F f, std::vector<int> donated = {}) {
  return jit(f, {.donate_argnums = std::move(donated), .name = "f", .check_finite = true});
}

/// The mistake that a call of a checked function throws.
template <typename F, typename... Args>
Mistake mistake_of(const F& f, Args&&... args) {
  try {
    f(std::forward<Args>(args)...);
  } catch (const UserError& error) {
    EXPECT_EQ(error.mistake().what, "jit(f): a result is not finite");
    return error.mistake();
  }
  ADD_FAILURE() << "all results count as finite";
  return {.what = "", .cure = ""};
}

/// The number of the line that calls it.
std::uint32_t here(std::source_location where = std::source_location::current()) {
  return where.line();
}

TEST(CheckFinite, NamesTheOpAndItsLine) {
  const use_mesh mesh(make_mesh({{"data", 4}}));
  const Array x = device_put(numbers({8, 3}, 1), P{"data"});  // some elements are negative
  std::uint32_t line = 0;
  const auto f = checked([&](const Array& a) {
    line = here() + 1;
    const Array b = log(a * 2.0F);
    return std::tuple(sum(exp(b) + 1.0F), a);
  });
  const Mistake mistake = mistake_of(f, x);
  EXPECT_EQ(mistake.where.line, line);
  EXPECT_NE(mistake.found.find("; first in log f32[8,3] with "), std::string::npos)
      << mistake.found;
  EXPECT_NE(mistake.found.find("of 24 elements, computed from finite operands"), std::string::npos);
}

TEST(CheckFinite, ChangesNoBits) {
  const auto f = [](const Array& a) {
    return value_and_grad([](const Array& b) { return sum(tanh(b) * b); })(a);
  };
  const Array x = numbers({5, 7}, 2);
  const auto [loss, grads] = jit(f)(x);
  const auto [checked_loss, checked_grads] = checked(f)(x);
  EXPECT_EQ(loss.item<float>(), checked_loss.item<float>());
  EXPECT_EQ(grads.to_vector<float>(), checked_grads.to_vector<float>());
}

TEST(CheckFinite, LooksIntoLoops) {
  const auto f = checked([](const Array& a) {
    const auto step = [](const Array& carry, const Array& row) {
      return std::tuple(carry - 1.0F, sqrt(carry) + row);
    };
    return std::get<1>(scan(step, scalar(2.5F), a));
  });
  const Mistake mistake = mistake_of(f, numbers({6, 2}, 3));
  EXPECT_NE(mistake.found.find("first in sqrt f32[] with 1 NaN of 1 elements"), std::string::npos)
      << mistake.found;
}

TEST(CheckFinite, LooksIntoDerivatives) {
  const auto f =
      checked([](const Array& a) { return grad([](const Array& b) { return sum(sqrt(b)); })(a); });
  const Mistake mistake = mistake_of(f, zeros({3}));
  EXPECT_NE(mistake.found.find("3 infinite of 3 elements, computed from finite operands"),
            std::string::npos)
      << mistake.found;
}

/// The host engine computes large products.
TEST(CheckFinite, NamesLargeProducts) {
  const auto f = checked([](const Array& a) { return sum(matmul(a * 1e30F, a * 1e30F)); });
  const Mistake mistake = mistake_of(f, ones({128, 128}));
  EXPECT_NE(mistake.found.find("first in dot_general f32[128,128] with 16384 infinite of 16384"),
            std::string::npos)
      << mistake.found;
}

TEST(CheckFinite, FollowsNaNsBeforeInfinities) {
  const auto f = checked([](const Array& a) {
    const Array masked = where(a > 0.0F, a, -kInfinity);
    return exp(masked) + log(a);
  });
  const Mistake mistake = mistake_of(f, array({1.0F, 2.0F, -3.0F, 4.0F}));
  EXPECT_NE(mistake.found.find("first in log f32[4] with 1 NaN"), std::string::npos)
      << mistake.found;
}

TEST(CheckFinite, NamesTheArgument) {
  const auto f = checked([](const Array& a, const Array& b) { return a * b; });
  const Mistake mistake = mistake_of(f, ones({2}), array({1.0F, kInfinity}));
  EXPECT_NE(mistake.found.find("; argument 1 f32[2] has 1 infinite of 2 elements"),
            std::string::npos)
      << mistake.found;
}

TEST(CheckFinite, DonatedArgumentsKeepTheirValues) {
  const auto f = checked([](const Array& a) { return log(a); }, {0});
  const Array bad = array({1.0F, -1.0F});
  mistake_of(f, bad);
  EXPECT_EQ(bad.to_vector<float>(), (std::vector<float>{1.0F, -1.0F}));
  const Array good = array({1.0F, 1.0F});
  EXPECT_EQ(f(good).to_vector<float>(), (std::vector<float>{0.0F, 0.0F}));
  EXPECT_THROW(good.to_vector<float>(), UserError);
}

/// Chains of ops that are finite for these arguments, except one logarithm of negative numbers.
TEST(CheckFinite, FindsWhatIsPlantedInRandomChains) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pick = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
    const int length = 2 + pick(8);
    const int planted = pick(length - 1);
    std::uint32_t line = 0;
    const auto f = checked([&](Array a) {
      for (int i = 0; i < length; ++i) {
        if (i == planted) {
          line = here() + 1;
          a = a + log(-1.0F - abs(a));
        }
        switch (pick(4)) {
          case 0:
            a = tanh(a) + transpose(a, {1, 0});
            break;
          case 1:
            a = matmul(a, a) * 0.1F;
            break;
          case 2:
            a = std::get<1>(
                scan([](const Array& x, const Array& row) { return std::tuple(x + row, x * row); },
                     sum(a, 0), a));
            break;
          case 3:
            a = where(a > 0.0F, a, -a);
            break;
          default:
            a = a - max(a, 1, keepdims);
        }
      }
      return a;
    });
    const Mistake mistake = mistake_of(f, numbers({4, 4}, static_cast<int>(seed)));
    EXPECT_EQ(mistake.where.line, line);
    EXPECT_NE(mistake.found.find("first in log f32[4,4] with 16 NaN of 16"), std::string::npos)
        << mistake.found;
  }
}

}  // namespace
}  // namespace tessera
