// vjp, jvp, Jacobians and Hessians. Compared with numbers that JAX printed and with finite
// differences; the bits must be equal on all meshes.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>
#include <string>

#include <tessera/functions.h>
#include <tessera/tessera.h>

#include "api/test_support.h"
#include "tests/peers/golden.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using Function = std::function<Array(Array, Array)>;
using testing::expect_same_bits;
using testing::numbers;

Array array_of(const Json& packed) {
  return array(packed["values"].get<std::vector<float>>(), packed["shape"].get<Shape>());
}

void expect_near(const Array& found, const Json& wanted, const std::string& name) {
  ASSERT_EQ(found.shape(), wanted["shape"].get<Shape>()) << name;
  const auto values = found.to_vector<float>();
  const auto list = wanted["values"].get<std::vector<float>>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], list[i], 1e-5F * std::max(1.0F, std::abs(list[i])))
        << name << ", element " << i;
  }
}

Array weighted(const Array& x) { return sum(reshape(x, {-1}) * cos(arange(x.size(), DType::f32))); }

/// The functions of tests/peers/make_layers_golden.py.
const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> list = {
      {"mixed",
       [](const Array& x, const Array& y) {
         return matmul(sin(x), transpose(exp(y))) / (1 + sum(x * x)) +
                matmul(tanh(y), transpose(x));
       }},
      {"scanned",
       [](const Array& x, const Array& y) {
         const auto step = [&](const Array& c, const Array& a) {
           return std::pair(c * sin(a) + y[0], c);
         };
         return scan(step, y[0] + 1, x).second;
       }},
      {"branched", [](const Array& x, const Array& y) {
         return cond(
             x[0][0] > 0, [](Array a, Array b) { return cumsum(a * b, 1); },
             [](Array a, Array b) { return softmax(a - b); }, x, y);
       }}};
  return list;
}

TEST(Derivatives, AreThoseOfJax) {
  const Json cases = read_golden("layers.json")["derivatives"];
  ASSERT_EQ(cases.size(), 9U);
  for (const Json& c : cases) {
    const std::string name = c["name"];
    const Function& f = functions().at(name);
    const Array x = array_of(c["x"]), y = array_of(c["y"]);
    const auto [out, cotangents] = vjp<0, 1>(f, array_of(c["ct"]))(x, y);
    expect_near(out, c["out"], name + " out");
    expect_near(std::get<0>(cotangents), c["vjp"][0], name + " vjp of x");
    expect_near(std::get<1>(cotangents), c["vjp"][1], name + " vjp of y");
    const auto [same, tangent] =
        jvp<0, 1>(f, std::tuple(array_of(c["dx"]), array_of(c["dy"])))(x, y);
    expect_near(same, c["out"], name + " out of jvp");
    expect_near(tangent, c["jvp"], name + " jvp");
    expect_near(jacrev(f)(x, y), c["jacobian"], name + " jacrev");
    expect_near(jacfwd(f)(x, y), c["jacobian"], name + " jacfwd");
    expect_near(jacobian<1>(f)(x, y), c["jacobian_y"], name + " jacobian of y");
    expect_near(jacfwd<1>(f)(x, y), c["jacobian_y"], name + " jacfwd of y");
    const auto scalar = [&](const Array& a) { return weighted(f(a, y)); };
    expect_near(hessian(scalar)(x), c["hessian"], name + " hessian");
  }
}

TEST(Derivatives, AreDifferencesOfValues) {
  const double step = 1.0 / 64;
  for (const auto& [name, f] : functions()) {
    for (std::int64_t seed = 0; seed < 3; ++seed) {
      const Array x = numbers({2, 3}, seed) * 0.5, y = numbers({2, 3}, seed + 10) * 0.5;
      const Array dx = numbers({2, 3}, seed + 20);
      const auto found = jvp(f, dx)(x, y).second.to_vector<float>();
      const auto wanted =
          ((f(x + dx * step, y) - f(x - dx * step, y)) / (2 * step)).to_vector<float>();
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], wanted[i], 5e-3F * std::max(1.0F, std::abs(wanted[i]))) << name;
      }
    }
  }
}

/// The derivative of the gradient at one point, by differences.
Array differences_of_gradients(const std::function<Array(Array)>& f, const Array& x) {
  const double step = 1e-5;
  std::vector<Array> rows;
  const std::int64_t size = x.dim(0);
  for (std::int64_t i = 0; i < size; ++i) {
    const Array shift = one_hot(astype(scalar(i), DType::i32), size, DType::f64) * step;
    rows.push_back((grad(f)(x + shift) - grad(f)(x - shift)) / (2 * step));
  }
  return stack(rows, 0);
}

TEST(Derivatives, OfSmoothFunctionsAreRightWhereTheirFormulasMeet) {
  const std::map<std::string, std::function<Array(Array)>> smooth = {
      {"softplus", [](const Array& x) { return sum(softplus(x)); }},
      {"log_sigmoid", [](const Array& x) { return sum(log_sigmoid(x)); }},
      {"mish", [](const Array& x) { return sum(mish(x)); }},
      {"logaddexp", [](const Array& x) { return logaddexp(x[0], x[1]); }},
      {"cumlogsumexp", [](const Array& x) { return sum(cumlogsumexp(x, 0)); }},
      {"sigmoid_binary_cross_entropy",
       [](const Array& x) { return sum(sigmoid_binary_cross_entropy(x, 0.3)); }},
      {"huber_loss", [](const Array& x) { return sum(huber_loss(x, 0.0)); }}};
  for (const auto& [name, f] : smooth) {
    for (const std::vector<double>& point : {std::vector{0.0, 0.0}, {0.7, 0.7}, {0.0, -0.4}}) {
      const Array x = array(point);
      const auto found = hessian(f)(x).to_vector<double>();
      const auto wanted = differences_of_gradients(f, x).to_vector<double>();
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-7) << name;
    }
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (const float end : {inf, -inf}) {
    const auto [value, slopes] =
        value_and_grad([](const Array& x) { return logaddexp(x[0], x[1]); })(array({end, end}));
    EXPECT_EQ(value.item<float>(), end);
    EXPECT_EQ(slopes.to_vector<float>(), (std::vector<float>{0.5, 0.5}));
  }
}

/// A function made of random ops on arrays of shape [3, 3].
class RandomFunction {
 public:
  explicit RandomFunction(std::uint32_t seed) : random_(seed) {}

  Array operator()(const Array& x) const {
    std::mt19937 random = random_;
    std::vector<Array> values = {x, cos(x)};
    for (int i = 0; i < 6; ++i) {
      const Array a = values[random() % values.size()], b = values[random() % values.size()];
      values.push_back(apply(static_cast<int>(random() % 10), a, b));
    }
    return values.back() + values[random() % values.size()];
  }

 private:
  static Array apply(int op, const Array& a, const Array& b) {
    switch (op) {
      case 0:
        return sin(a) * b;
      case 1:
        return tanh(matmul(a, b));
      case 2:
        return a / (2 + square(b));
      case 3:
        return softmax(a + transpose(b));
      case 4:
        return cumsum(a, 1) * 0.5 - b;
      case 5:
        return exp(-square(a)) + logistic(b);
      case 6:
        return remat([](Array c, Array d) { return sin(c) * d; })(a, b);
      case 7:
        return scan([](Array c, Array s) { return std::pair(tanh(c + s), c * s); }, a[0], b).second;
      case 8:
        return vmap([](Array c, Array d) { return c * sum(tanh(d)); })(a, b);
      default:
        return cond(
            b[0][0] > 0, [](Array c, Array d) { return c * tanh(d); },
            [](Array c, Array d) { return c - sin(d); }, a, b);
    }
  }

  std::mt19937 random_;
};

TEST(Derivatives, OfRandomFunctionsAgree) {
  const double step = 1.0 / 128;
  for (std::uint32_t seed = 0; seed < 24; ++seed) {
    const RandomFunction f(seed);
    const Array x = numbers({3, 3}, seed), v = numbers({3, 3}, seed + 100);
    const auto all = jit([&](const Array& a, const Array& t) {
      const Array forward = jvp(f, t)(a).second;
      const Array table = reshape(jacrev(f)(a), {9, 9});
      const Array same = reshape(jacfwd(f)(a), {9, 9});
      const Array second =
          reshape(hessian([&](const Array& b) { return weighted(f(b)); })(a), {9, 9});
      return std::tuple(forward, max(abs(table - same)), max(abs(second - transpose(second))),
                        reshape(matmul(table, reshape(t, {9})), {3, 3}), max(abs(second)));
    });
    const auto [forward, differ, skew, product, largest] = all(x, v);
    EXPECT_LT(differ.item<double>(), 1e-4) << seed;
    EXPECT_LT(skew.item<double>(), 1e-4 * (1 + largest.item<double>())) << seed;
    const auto found = forward.to_vector<float>(), by_table = product.to_vector<float>();
    const auto wanted = ((f(x + v * step) - f(x - v * step)) / (2 * step)).to_vector<float>();
    for (std::size_t i = 0; i < 9; ++i) {
      const float scale = std::max(1.0F, std::abs(wanted[i]));
      EXPECT_NEAR(found[i], by_table[i], 1e-4F * scale) << seed;
      EXPECT_NEAR(found[i], wanted[i], 2e-2F * scale) << seed;
    }
  }
}

TEST(Derivatives, OfTreesAndOfSeveralDtypes) {
  struct Pair {
    Array a, b;
    TESSERA_TREE(a, b)
  };
  const auto f = [](const Pair& p) {
    return Pair{.a = p.a * p.a, .b = astype(sum(p.a), DType::bf16) * p.b};
  };
  const Pair at{.a = array({1.F, 2.F}), .b = astype(array({3.F}), DType::bf16)};
  const Pair ones_of = tree_map([](const Array& x) { return ones_like(x); }, at);
  const auto [out, cotangent] = vjp(f, ones_of)(at);
  EXPECT_TRUE(array_equal(out.a, array({1.F, 4.F})));
  EXPECT_TRUE(array_equal(cotangent.a, array({5.F, 7.F})));
  EXPECT_TRUE(array_equal(cotangent.b, astype(array({3.F}), DType::bf16)));
  const auto [same, tangent] = jvp(f, ones_of)(at);
  EXPECT_TRUE(array_equal(same.a, out.a));
  EXPECT_TRUE(array_equal(tangent.a, array({2.F, 4.F})));
  EXPECT_TRUE(array_equal(tangent.b, astype(array({9.F}), DType::bf16)));
}

TEST(Derivatives, OfEachOther) {
  const auto f = [](const Array& x) { return sum(sin(x) * x * x); };
  const Array x = numbers({4}, 1), v = numbers({4}, 2);
  const auto product = jvp(grad(f), v)(x).second.to_vector<float>();
  const auto wanted = matmul(hessian(f)(x), v).to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(product[i], wanted[i], 1e-5);
  // The gradient of a jvp equals the jvp of the gradient.
  const auto third = grad([&](const Array& a) { return jvp(f, v)(a).second; })(x);
  const auto same = jvp(grad(f), v)(x).second;
  const auto a = third.to_vector<float>(), b = same.to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
}

TEST(Derivatives, ThroughRematAndCustomVjp) {
  const auto square_of =
      custom_vjp([](Array x) { return x * x; }, [](Array x) { return std::pair(x * x, x); },
                 [](Array x, Array ct) { return ct * x * 2; });
  const auto f = remat([=](Array x) { return square_of(sin(x)); });
  const Array x = numbers({5}, 3);
  const auto found = jvp(f, ones({5}))(x).second.to_vector<float>();
  const auto wanted = (sin(x) * cos(x) * 2).to_vector<float>();
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(found[i], wanted[i], 1e-6);
}

TEST(Derivatives, ThroughWhileLoops) {
  using State = std::tuple<Array, Array, Array>;  // the round, x, and what x becomes a round later
  const auto turn = [](const State& s) {
    const auto& [i, x, y] = s;
    return State(i + 1, y, sin(x) * y + astype(i, DType::f32));
  };
  const auto in_while = [&](const Array& x, const Array& w) {
    const auto goes_on = [](const State& s) { return std::get<0>(s) < 4; };
    const auto step = [&](const State& s) {
      State next = turn(s);
      std::get<2>(next) = std::get<2>(next) * w;
      return next;
    };
    return std::get<1>(while_loop(goes_on, step, State(zeros({}, DType::i32), x, ones({3}))));
  };
  const auto in_scan = [&](const Array& x, const Array& w) {
    const auto step = [&](const State& s, const Array& row) {
      State next = turn(s);
      std::get<2>(next) = std::get<2>(next) * w;
      return std::pair(next, row);
    };
    return std::get<1>(scan(step, State(zeros({}, DType::i32), x, ones({3})), zeros({4})).first);
  };
  const Array x = numbers({3}, 1), w = numbers({3}, 2), dx = numbers({3}, 3), dw = numbers({3}, 4);
  const auto [y, dy] = jvp<0, 1>(in_while, std::tuple(dx, dw))(x, w);
  const auto [same, wanted] = jvp<0, 1>(in_scan, std::tuple(dx, dw))(x, w);
  expect_same_bits(y, same);
  expect_same_bits(dy, wanted);
  expect_same_bits(jit(jacfwd<1>(in_while))(x, w), jacfwd<1>(in_scan)(x, w));

  const auto root = [](const Array& a) {  // by Newton's method
    const auto is_far = [&](const Array& r) { return max(abs(r * r - a)) > 1e-5; };
    return while_loop(
        is_far, [&](const Array& r) { return (r + a / r) * 0.5; }, ones_like(a));
  };
  const auto slope = jvp(root, ones({2}))(array({2.F, 9.F})).second.to_vector<float>();
  EXPECT_NEAR(slope[0], 0.5 / std::sqrt(2.0), 1e-5);
  EXPECT_NEAR(slope[1], 1.0 / 6, 1e-5);
}

TEST(Derivatives, OfRandomFunctionsAreLinear) {
  for (std::uint32_t seed = 0; seed < 24; ++seed) {
    const RandomFunction f(seed);
    const Array x = numbers({3, 3}, seed), v = numbers({3, 3}, seed + 100);
    const auto [wanted, tangent] = jvp(f, v)(x);
    const auto [y, map] = linearize(f)(x);
    expect_same_bits(y, wanted);
    expect_same_bits(map(v), tangent);
    expect_same_bits(jit(vmap([&](const Array& t) { return map(t); }))(stack({v, v}, 0))[1],
                     tangent);
    const auto in_jit = jit([&](const Array& a, const Array& t) {
      const auto [z, inner] = linearize(f)(a);
      return std::tuple(z, inner(t), inner(inner(t)));
    });
    const auto [z, dz, again] = in_jit(x, v);
    expect_same_bits(z, wanted);
    expect_same_bits(dz, tangent);
    expect_same_bits(again, map(map(v)));
  }
}

TEST(Derivatives, OfWholeNumbersAndBuffersAreZeros) {
  struct State {
    nn::Buffer mean;
    Array x;
    TESSERA_TREE(mean, x)
  };
  const State at{.mean = nn::Buffer(Param(array({1.F, 2.F}), "mean")), .x = array({3.F, 4.F})};
  const auto f = [](const State& s) {
    return std::tuple(s.mean * s.x, argmax(s.x), stop_gradient(s.x));
  };
  const auto [same, tangent] =
      jvp(f, tree_map([](const Array& a) { return ones_like(a); }, at))(at);
  EXPECT_TRUE(array_equal(std::get<0>(same), array({3.F, 8.F})));
  EXPECT_TRUE(array_equal(std::get<0>(tangent), array({1.F, 2.F})));
  EXPECT_TRUE(array_equal(std::get<1>(same), ones({}, DType::i32)));
  EXPECT_TRUE(array_equal(std::get<1>(tangent), zeros({}, DType::i32)));
  EXPECT_TRUE(array_equal(std::get<2>(tangent), array({0.F, 0.F})));
}

TEST(Derivatives, HaveTheSameBitsOnMeshes) {
  const auto f = [](const Array& x, const Array& w) { return tanh(matmul(x, w)); };
  const auto all = jit([&](const Array& x, const Array& w, const Array& dx) {
    const auto [y, dy] = jvp(f, dx)(x, w);
    return std::tuple(y, dy, vjp<1>(f, dy)(x, w).second, jacfwd<1>(f)(x, w), jacrev(f)(x, w));
  });
  const Array x = numbers({8, 4}, 1), w = numbers({4, 3}, 2), dx = numbers({8, 4}, 3);
  const auto wanted = tree_leaves(all(x, w, dx));
  for (const std::int64_t devices : {2, 4}) {
    const Mesh mesh = make_mesh({{"data", devices}});
    const NamedSharding split(mesh, P{"data"});
    const auto found = tree_leaves(all(device_put(x, split), w, device_put(dx, split)));
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_same_bits(found[i], wanted[i]);
  }
}

}  // namespace
}  // namespace tessera
