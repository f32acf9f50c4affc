#include <cmath>
#include <gtest/gtest.h>

#include <tessera/control.h>
#include <tessera/error.h>
#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/transform.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::mistake_of;

using Floats = std::vector<float>;

/// Compares grad(f) with central differences in f32.
template <typename F>
void expect_gradient(F f, const Floats& at) {
  const Array x = array(at);
  const Floats gradient = grad(f)(x).template to_vector<float>();
  for (std::size_t i = 0; i < at.size(); ++i) {
    const float h = 1e-2F;
    Floats low = at, high = at;
    low[i] -= h;
    high[i] += h;
    const float difference =
        (f(array(high)).template item<float>() - f(array(low)).template item<float>()) / (2 * h);
    EXPECT_NEAR(gradient[i], difference, 2e-3F * (1 + std::abs(difference))) << i;
  }
}

TEST(Grad, PassesByLoopsThatReadStoppedValues) {
  const auto doubled = [](const Array& start) {
    return while_loop([](const Array& c) { return sum(c) < 10; },
                      [](const Array& c) { return c * 2; }, start);
  };
  const Array x = array({1.0F, 2.0F});  // the loop doubles it to 4, 8
  const auto loss = [&](const Array& y) { return sum(y * doubled(stop_gradient(y))); };
  EXPECT_TRUE(array_equal(grad(loss)(x), array({4.0F, 8.0F})));
  EXPECT_TRUE(
      array_equal(jit([&](const Array& y) { return grad(loss)(y); })(x), array({4.0F, 8.0F})));
  // The loop is in the body of a scan, which is nested in another function.
  const auto scanned = [&](const Array& y) {
    const auto step = [&](const Array& c, const Array& row) {
      const Array next = c * row + sum(doubled(stop_gradient(stack({row, row}))));
      return std::pair(next, next);
    };
    return sum(remat([&](const Array& z) { return scan(step, z[0], z).second; })(y));
  };
  // c1 = x0 x0 + a, c2 = c1 x1 + b with constants a and b.
  const auto found = grad(scanned)(x).to_vector<float>();
  const float a = 16;  // 1 + 1, doubled until it is 10 or more
  EXPECT_EQ(found, (std::vector<float>{2 + 2 * 2, 1 + a}));
  EXPECT_THROW(grad([&](const Array& y) { return sum(doubled(y)); })(x), UserError);
}

TEST(Grad, AgreesWithDifferences) {
  const Floats at = {0.3F, -0.7F, 1.1F, 0.2F};
  expect_gradient([](Array x) { return sum(x * x * x); }, at);
  expect_gradient([](Array x) { return mean(tanh(x) / (2.0 + x)); }, at);
  expect_gradient([](Array x) { return sum(softmax(x) * x); }, at);
  expect_gradient([](Array x) { return -log_softmax(x).slice(0, 1, 2).slice(0, 0)[0]; }, at);
  expect_gradient([](Array x) { return sum(gelu(x)); }, at);
  expect_gradient(
      [](Array x) {
        return sum(square(dot(reshape(x, {2, 2}), reshape(x, {2, 2}))));
      },
      at);
  expect_gradient(
      [](Array x) {
        return sum(einsum("ij,kj->ik", reshape(x, {2, 2}), reshape(x * x, {2, 2})));
      },
      at);
  expect_gradient(
      [](Array x) {
        return sum(concatenate({x, x * 2.0, reverse(x)}) * astype(arange(12), DType::f32));
      },
      at);
  expect_gradient([](Array x) { return sum(where(x > 0.25, x * x, exp(x))); }, at);
  expect_gradient([](Array x) { return logsumexp(x); }, at);
  expect_gradient(
      [](Array x) {
        return sum(take(x, array({1, 1, 3})) * take(x, array({0, 1, 2})));
      },
      at);
}

struct Model {
  Param w, b;
  TESSERA_MODULE(w, b)
};

TEST(Grad, ReturnsLossAuxAndATree) {
  const Model model{Param(array({2.F, 3.F}), "w"), Param(scalar(1.F), "b")};
  const Array x = array({1.F, 10.F});
  auto f = [&](const Model& m, Array y) {
    const Array out = m.w * y + m.b;
    return std::tuple(sum(out), out, std::pair(m.w, 3));
  };
  const auto [loss, out, extra, grads] = value_and_grad(f)(model, x);
  EXPECT_EQ(loss.item<float>(), 34.0F);
  EXPECT_EQ(out.to_vector<float>(), (Floats{3, 31}));
  EXPECT_EQ(extra.second, 3);
  EXPECT_EQ(grads.w.to_vector<float>(), (Floats{1, 10}));
  EXPECT_EQ(grads.w.path(), "w");
  EXPECT_EQ(grads.b.item<float>(), 2.0F);
}

TEST(Grad, SeveralArguments) {
  auto f = [](Array x, Array y) { return sum(x * y); };
  const auto [loss, grads] = value_and_grad<0, 1>(f)(array({2.F}), array({5.F}));
  EXPECT_EQ(loss.item<float>(), 10.0F);
  EXPECT_EQ(std::get<0>(grads).item<float>(), 5.0F);
  EXPECT_EQ(std::get<1>(grads).item<float>(), 2.0F);
  EXPECT_EQ(grad<1>(f)(array({2.F}), array({5.F})).item<float>(), 2.0F);
}

TEST(Grad, WorksInsideJit) {
  auto step = jit([](Array w, Array x) {
    auto [loss, g] = value_and_grad([&](Array v) { return sum(square(v * x)); })(w);
    return std::tuple(w - 0.1 * g, loss);
  });
  const auto [w, loss] = step(array({1.F}), array({2.F}));
  EXPECT_EQ(loss.item<float>(), 4.0F);
  EXPECT_NEAR(w.item<float>(), 0.2F, 1e-6F);
}

TEST(Grad, OfAGradient) {
  auto f = [](Array x) { return sum(x * x * x); };
  auto second = grad([&](Array x) { return sum(grad(f)(x)); });
  EXPECT_NEAR(second(array({2.F})).item<float>(), 12.0F, 1e-5F);
  EXPECT_NEAR(jit(second)(array({2.F})).item<float>(), 12.0F, 1e-5F);
}

TEST(Grad, StopsWhereAsked) {
  auto f = [](Array x) { return sum(stop_gradient(x) * x); };
  EXPECT_EQ(grad(f)(array({3.F})).item<float>(), 3.0F);
}

TEST(Grad, ErrorsNameTheMistake) {
  const Mistake shape = mistake_of([] { grad([](Array x) { return x * x; })(array({1.F, 2.F})); });
  EXPECT_EQ(shape.what, "grad: the loss is not a float scalar");
  EXPECT_EQ(shape.found, "f32[2]");
  EXPECT_NE(to_string(shape.where).find("grad_test.cc:"), std::string::npos);
  const Mistake dtype = mistake_of([] { grad([](Array x) { return sum(x); })(array({1, 2})); });
  EXPECT_EQ(dtype.found, "leaf 0: i32[2]");
}

TEST(EvalShape, AllocatesNothing) {
  auto f = [](Model m, Array x) {
    return std::tuple(m, dot(x, reshape(m.w, {2, 1})), zeros({1LL << 40, 1LL << 10}));
  };
  const Model model{Param(array({2.F, 3.F}), "w"), Param(scalar(1.F), "b")};
  const auto [m, y, big] = eval_shape(f, model, ones({7, 2}));
  EXPECT_EQ(m.w.path(), "w");
  EXPECT_EQ(to_string(y.type()), "f32[7,1]");
  EXPECT_EQ(big.size(), 1LL << 50);
  EXPECT_FALSE(y.is_concrete());
}

}  // namespace
}  // namespace tessera
