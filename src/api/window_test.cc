#include <cmath>
#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/grad.h>
#include <tessera/tessera.h>

#include "api/test_support.h"
#include "base/sanitized.h"

namespace tessera {
namespace {

using testing::mistake_of;

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

Array ramp(const Shape& shape) {
  return astype(reshape(arange(num_elements(shape)), shape), DType::f32);
}

TEST(Conv, PadsStridesAndDilates) {
  const Array x = ramp({1, 5, 1});
  const Array w = reshape(array({1.F, 10.F, 100.F}), {3, 1, 1});
  EXPECT_EQ(reshape(conv(x, w), {-1}).to_vector<float>(), (Floats{210, 321, 432}));
  EXPECT_EQ(reshape(conv(x, w, {.padding = "SAME"}), {-1}).to_vector<float>(),
            (Floats{100, 210, 321, 432, 43}));
  EXPECT_EQ(reshape(conv(x, w, {.strides = {2}, .padding = "SAME"}), {-1}).to_vector<float>(),
            (Floats{100, 321, 43}));
  EXPECT_EQ(reshape(conv(x, w, {.kernel_dilation = {2}}), {-1}).to_vector<float>(), (Floats{420}));
  const ConvOptions spread{.padding = {{{1, 0}}}, .input_dilation = {2}};
  EXPECT_EQ(reshape(conv(x, w, spread), {-1}).to_vector<float>(),
            (Floats{0, 100, 10, 201, 20, 302, 30, 403}));
}

TEST(Conv, GroupsAreConvolutionsOfTheirChannels) {
  const Array x = ramp({2, 4, 4, 6});
  const Array w = ramp({3, 3, 2, 9});
  const Array grouped = conv(x, w, {.padding = "SAME", .feature_group_count = 3});
  std::vector<Array> parts;
  for (std::int64_t group = 0; group < 3; ++group) {
    parts.push_back(conv(slice(x, 3, 2 * group, 2 * group + 2),
                         slice(w, 3, 3 * group, 3 * group + 3), {.padding = "SAME"}));
  }
  EXPECT_TRUE(array_equal(grouped, concatenate(parts, 3)));
}

// With this many channels, the gradients of kernels gather the elements that they read.
TEST(Conv, GradientsHaveTheBitsOfTheReferenceEngine) {
  const std::vector<ConvOptions> forms = {
      {.padding = {{{1, 1}, {1, 1}}}},
      {.strides = {2, 1}, .padding = {{{1, 1}, {0, 2}}}},
      {.padding = {{{2, 2}, {2, 1}}}, .kernel_dilation = {2, 1}},
      {.padding = {{{2, 1}, {2, 1}}}, .input_dilation = {2, 2}},
      {.padding = "VALID"}};
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  std::uint32_t seed = 0;
  for (const std::int64_t channels : {32, 40}) {
    if (kIsSanitized && channels != 32) continue;
    for (const ConvOptions& form : forms) {
      SCOPED_TRACE(channels);
      const Array x = random::normal(random::fold_in(Key(1), ++seed), {2, 4, 5, channels});
      const Array w = random::normal(random::fold_in(Key(2), seed), {3, 3, channels, 16});
      const auto gradients = jit([&](const Array& a, const Array& b) {
        return grad<0, 1>(
            [&](const Array& c, const Array& d) { return sum(square(conv(c, d, form))); })(a, b);
      });
      const auto [of_x, of_w] = gradients(x, w);
      const auto [split_of_x, split_of_w] =
          gradients(device_put(x, NamedSharding(mesh, P{"data"})),
                    device_put(w, NamedSharding(mesh, P{none, none, none, "model"})));
      testing::expect_same_bits(split_of_x, of_x);
      testing::expect_same_bits(split_of_w, of_w);
      set_engine("reference");
      const auto [wanted_of_x, wanted_of_w] = gradients(x, w);
      set_engine("host");
      testing::expect_same_bits(of_x, wanted_of_x);
      testing::expect_same_bits(of_w, wanted_of_w);
    }
  }
}

TEST(Conv, SaysWhatDoesNotFit) {
  const Array x = ramp({1, 5, 4});
  EXPECT_EQ(mistake_of([&] {
              conv(x, ones({3, 3, 2}));
            }).wanted,
            "a kernel for 4 / 1 channels, and a number of features that 1 divides");
  EXPECT_EQ(mistake_of([&] {
              conv(x, ones({6, 4, 2}));
            }).cure,
            "use a smaller kernel, or pad the array first");
  EXPECT_EQ(mistake_of([&] { conv(x, ones({2, 4, 2}), {.padding = "FULL"}); }).found, "\"FULL\"");
  EXPECT_EQ(mistake_of([&] {
              conv(x, ones({2, 4, 2}), {.strides = {1, 1}});
            }).what,
            "conv: the strides do not match the window");
}

TEST(Pool, ReducesWindows) {
  const Array x = ramp({1, 4, 4, 1});
  EXPECT_EQ(reshape(max_pool(x, {2, 2}, {2, 2}), {-1}).to_vector<float>(), (Floats{5, 7, 13, 15}));
  EXPECT_EQ(reshape(min_pool(x, {2, 2}, {2, 2}), {-1}).to_vector<float>(), (Floats{0, 2, 8, 10}));
  EXPECT_EQ(reshape(avg_pool(x, {2, 2}, {2, 2}), {-1}).to_vector<float>(),
            (Floats{2.5, 4.5, 10.5, 12.5}));
  EXPECT_EQ(reshape(max_pool(-x, {3, 3}, {2, 2}, "SAME"), {-1}).to_vector<float>(),
            (Floats{0, -2, -8, -10}));
  const Array slope = grad([](const Array& v) { return sum(max_pool(v, {2, 2}, {2, 2})); })(x);
  EXPECT_EQ(slope.to_vector<float>(), (Floats{0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1}));
}

// The gradient leaves out the padding, whose number is stored because it is a result, too.
TEST(Pool, PaddingMayBeAResult) {
  const Array x = ramp({1, 5, 5, 1}) - 12;
  const auto slope = grad([](const Array& v) { return sum(max_pool(v, {3, 3}, {2, 2}, "SAME")); });
  const auto both = jit([&](Array v) { return std::pair(slope(v), full({}, -INFINITY)); });
  const auto [found, padding] = both(x);
  EXPECT_TRUE(array_equal(found, slope(x)));
  EXPECT_EQ(padding.item<float>(), -INFINITY);
}

TEST(Pool, TakesAnEmptyBatch) {
  const Array x = zeros({0, 4, 4, 2});
  for (const auto& pool : {max_pool, min_pool, avg_pool}) {
    const auto of = [&](const Array& v) { return pool(v, {2, 2}, {2, 2}, "SAME"); };
    EXPECT_EQ(of(x).to_vector<float>(), Floats{});
    EXPECT_EQ(of(x).shape(), (Shape{0, 2, 2, 2}));
    EXPECT_EQ(grad([&](const Array& v) { return sum(of(v)); })(x).shape(), x.shape());
  }
}

TEST(Lines, CumulateAndSelect) {
  const Array x = array({3.F, 1.F, 2.F, 5.F, 4.F, 6.F}, {2, 3});
  EXPECT_EQ(cumsum(x).to_vector<float>(), (Floats{3, 4, 6, 5, 9, 15}));
  EXPECT_EQ(cummin(x, 0, true).to_vector<float>(), (Floats{3, 1, 2, 5, 4, 6}));
  EXPECT_EQ(prod(x, 1).to_vector<float>(), (Floats{6, 120}));
  EXPECT_EQ(argmin(x).to_vector<std::int32_t>(), (Ints{1, 1}));
  const auto [values, positions] = top_k(x, 2);
  EXPECT_EQ(values.to_vector<float>(), (Floats{3, 2, 6, 5}));
  EXPECT_EQ(positions.to_vector<std::int32_t>(), (Ints{0, 2, 2, 0}));
  EXPECT_TRUE(array_equal(take_along_axis(x, positions), values));
  EXPECT_EQ(mistake_of([&] { top_k(x, 4); }).wanted, "0 <= k <= 3");
}

/// Expects `f` of a large array, which is computed in parts, to equal `f` applied to each row.
template <typename F>
void expect_rows(const F& f, const Array& x) {
  std::vector<Array> rows;
  for (std::int64_t i = 0; i < x.dim(0); ++i) rows.push_back(f(slice(x, 0, i, i + 1)));
  EXPECT_TRUE(array_equal(f(x), concatenate(rows)));
}

TEST(Lines, OfLargeArraysFallIntoParts) {
  const Array x = random::normal(random::Key(3), {21, 80, 50});
  expect_rows([](const Array& v) { return cumsum(v, 1); }, x);
  expect_rows([](const Array& v) { return cummax(v, -1, true); }, x);
  expect_rows([](const Array& v) { return top_k(v, 7, 1).first; }, x);
  expect_rows([](const Array& v) { return top_k(v, 7, 2).second; }, x);
  expect_rows([](const Array& v) { return reduce_window_max(v, {1, 3, 2}, {1, 2, 1}); }, x);
  auto taken = [](const Array& v) { return take_along_axis(v, top_k(v, 40, 1).second, 1); };
  auto slope = grad([&](const Array& v) { return sum(square(taken(v))); });
  expect_rows(taken, x);
  expect_rows([&](const Array& v) { return slope(v); }, x);
}

TEST(Gelu, HasAnExactForm) {
  const Array x = array({-1.F, 0.F, 1.F, 2.F});
  const Floats exact = gelu(x, false).to_vector<float>();
  const Floats wanted = {-0.15865525F, 0.F, 0.84134475F, 1.9544997F};
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(exact[i], wanted[i], 2e-7);
  EXPECT_NEAR(gelu(x).to_vector<float>()[2], 0.84119199F, 2e-7);
}

TEST(Places, AreReadAndWritten) {
  const Array x = ramp({3, 3});
  EXPECT_EQ(dynamic_slice(x, {1, 7}, {2, 1}).to_vector<float>(), (Floats{5, 8}));
  EXPECT_EQ(
      dynamic_update_slice(x, full({1, 2}, 9.0), {-1, array(std::vector{1})[0]}).to_vector<float>(),
      (Floats{0, 9, 9, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(
      scatter(x, array({2, 2}), array({1.F, 2.F, 3.F, 4.F, 5.F, 6.F}, {2, 3})).to_vector<float>(),
      (Floats{0, 1, 2, 3, 4, 5, 4, 5, 6}));
  EXPECT_TRUE(std::isnan(take(array({1.F, 2.F}), array({2})).to_vector<float>()[0]));
  EXPECT_EQ(mistake_of([&] { dynamic_slice(x, {1}, {2, 1}); }).wanted, "2 starts");
}

}  // namespace
}  // namespace tessera
