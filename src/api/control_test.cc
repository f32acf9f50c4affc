// The public interface of control flow and function transformations.
#include <cmath>
#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/tessera.h>

namespace tessera {
namespace {

Array iota_array(std::int64_t count) { return arange(count, DType::f32); }

std::vector<float> floats(const Array& array) { return array.to_vector<float>(); }

TEST(Scan, CarriesAndStacks) {
  const Array xs = reshape(iota_array(6), {3, 2});
  const auto step = [](Array sum, Array x) {
    sum = sum + x;
    return std::pair(sum, sum * 2);
  };
  const auto [last, sums] = scan(step, zeros({2}), xs);
  EXPECT_EQ(floats(last), (std::vector<float>{6, 9}));
  EXPECT_EQ(floats(sums), (std::vector<float>{0, 2, 4, 8, 12, 18}));
  const auto [first, backward] = scan(step, zeros({2}), xs, {.reverse = true});
  EXPECT_EQ(floats(first), (std::vector<float>{6, 9}));
  EXPECT_EQ(floats(backward), (std::vector<float>{12, 18, 12, 16, 8, 10}));
}

TEST(Scan, CapturesArraysAndHasAGradient) {
  const Array w = full({2}, 3.0F);
  const Array xs = reshape(iota_array(6), {3, 2});
  const auto loss = [&](Array scale) {
    const auto [last, ys] =
        scan([&](Array carry, Array x) { return std::pair(carry * scale + x * w, sum(carry)); },
             ones({2}), xs);
    return sum(last) + sum(ys);
  };
  // The expected value, computed in double.
  const auto value = [&](double s) {
    double c[2] = {1, 1};
    double total = 0;
    for (int t = 0; t < 3; ++t) {
      total += c[0] + c[1];
      for (int i = 0; i < 2; ++i) c[i] = c[i] * s + (2 * t + i) * 3.0;
    }
    return total + c[0] + c[1];
  };
  const auto [eager, gradient] = value_and_grad(loss)(full({}, 0.5F));
  EXPECT_FLOAT_EQ(eager.item<float>(), static_cast<float>(value(0.5)));
  const double difference = (value(0.5 + 1e-6) - value(0.5 - 1e-6)) / 2e-6;
  EXPECT_NEAR(gradient.item<float>(), difference, 1e-4);
  const auto [jitted, same] = jit([&](Array s) { return value_and_grad(loss)(s); })(full({}, 0.5F));
  EXPECT_TRUE(array_equal(jitted, eager));
  EXPECT_TRUE(array_equal(same, gradient));
}

/// Each round adds only to those parts of the gradient that belong to the rows it reads.
TEST(Scan, GradientsOfReadsChangeParts) {
  const Array table = reshape(sin(iota_array(16 * 1024)), {16, 1024});
  const auto loss = [](Array x) {
    const auto round = [&](Array i, Array total) {
      const Array rows = take(x, stack({i, i * 2, i}));
      const Array part = dynamic_slice(x, {i, i + 3}, {2, 7});
      return total + sum(sin(rows)) + sum(x[3] * x[4]) * sum(part);
    };
    return fori_loop(0, 5, round, full({}, 0.0F));
  };
  const auto step = [&](Array x) { return grad(loss)(x); };
  const auto gradient = jit(step);
  const std::string text = gradient.lower(table).partitioned_ir();
  EXPECT_EQ(text.find("f32[16,1024]<{},{}> = add "), std::string::npos) << text;
  const auto whole = jit(step, {.passes = {.disabled = {"add_updates_in_place"}}});
  EXPECT_NE(whole.lower(table).partitioned_ir().find("f32[16,1024]<{},{}> = add "),
            std::string::npos);
  const Array wanted = whole(table);
  EXPECT_TRUE(array_equal(gradient(table), wanted));
  for (const P& spec : {P{"x"}, P{none, "x"}}) {
    const Array split = device_put(table, NamedSharding(make_mesh({{"x", 4}}), spec));
    EXPECT_TRUE(array_equal(device_put(gradient(split), wanted.sharding()), wanted));
  }
}

/// h = tanh(h w + x_t v) with few rows, so that each round reads w and v.
Array recurrent_loss(Array w, Array v, Array xs, bool is_unrolled) {
  const auto round = [&](Array h, Array x) {
    return tanh(dot(h, w) + dot(x, v)) - dot(h, w) * 0.1;
  };
  Array h = ones({xs.dim(1), w.dim(0)});
  if (is_unrolled) {
    for (std::int64_t t = 0; t < xs.dim(0); ++t) h = round(h, xs[t]);
    return sum(square(h));
  }
  const auto step = [&](Array carry, Array x) {
    return std::pair(round(carry, x), std::tuple<>());
  };
  return sum(square(scan(step, h, xs).first));
}

/// The contributions of all rounds to the gradient of a matrix are one product after the loop.
TEST(Scan, GradientsOfMatricesAreProductsOverAllRounds) {
  const auto gradients = [](bool is_unrolled) {
    return [=](Array w, Array v, Array xs) {
      return grad([&](std::pair<Array, Array> weights) {
        return recurrent_loss(weights.first, weights.second, xs, is_unrolled);
      })(std::pair(w, v));
    };
  };
  for (const std::int64_t batch : {1, 2, 4, 24}) {
    SCOPED_TRACE(batch);
    const Array w = sin(reshape(iota_array(24 * 24), {24, 24})) * 0.3F;
    const Array v = sin(reshape(iota_array(16 * 24), {16, 24}) + 1.0F);
    const Array xs = sin(reshape(iota_array(5 * batch * 16), {5, batch, 16}) * 3.0F);
    const auto looped = jit(gradients(false));
    const auto wanted = jit(gradients(true))(w, v, xs);
    const auto found = looped(w, v, xs);
    EXPECT_LT(max(abs(found.first - wanted.first)).item<float>(), 1e-4F);
    EXPECT_LT(max(abs(found.second - wanted.second)).item<float>(), 1e-4F);
    const std::string text = looped.lower(w, v, xs).partitioned_ir();
    const std::size_t last = text.rfind("dot_general"), loop = text.rfind("}}, length=5");
    EXPECT_EQ(last > loop, batch <= 4) << text;
    for (const P& spec : {P{none, "x"}, P{"x"}, P{none, none, "x"}}) {
      const NamedSharding split(make_mesh({{"x", 4}}), spec);
      const auto same = looped(w, v, device_put(xs, split));
      EXPECT_TRUE(array_equal(device_put(same.first, w.sharding()), found.first));
      EXPECT_TRUE(array_equal(device_put(same.second, v.sharding()), found.second));
    }
  }
}

/// The inputs of all rounds and the cotangents of their results are available at once.
TEST(Scan, GradientsOfWhatRoundsGiveAreOneProduct) {
  const Array w = sin(reshape(iota_array(12), {3, 4}));
  const Array xs = sin(reshape(iota_array(5 * 50 * 3), {5, 50, 3}));
  const auto loss = [&](Array weights) {
    const auto step = [&](Array count, Array x) { return std::pair(count + 1, dot(x, weights)); };
    return sum(sin(scan(step, zeros({}), xs).second));
  };
  const auto gradient = jit([&](Array weights) { return grad(loss)(weights); });
  const Array wanted = grad([&](Array weights) {
    return sum(sin(dot(reshape(xs, {250, 3}), weights)));
  })(w);
  EXPECT_LT(max(abs(gradient(w) - wanted)).item<float>(), 1e-4F);
  const std::string text = gradient.lower(w).partitioned_ir();
  EXPECT_GT(text.rfind("dot_general"), text.rfind("}}, length=5")) << text;
}

TEST(Scan, GradientOfAGradient) {
  const auto cube = [](Array x) {
    return scan([&](Array c, std::tuple<>) { return std::pair(c * x, std::tuple<>()); },
                full({}, 1.0F), std::tuple<>(), {.length = 3})
        .first;
  };
  const auto second = grad([&](Array x) { return grad(cube)(x); });
  EXPECT_FLOAT_EQ(second(full({}, 2.0F)).item<float>(), 12.0F);
  // A Hessian-vector product.
  const auto f = [&](Array x) { return sum(x * x * x); };
  const Array v = iota_array(3);
  const Array hvp = grad([&](Array x) { return sum(grad(f)(x) * v); })(full({3}, 2.0F));
  EXPECT_EQ(floats(hvp), (std::vector<float>{0, 12, 24}));
}

TEST(ForiLoop, CountsFromLowerToUpper) {
  const auto body = [](Array i, Array x) { return x * 2 + astype(i, DType::f32); };
  EXPECT_EQ(fori_loop(2, 5, body, full({}, 1.0F)).item<float>(), ((1 * 2 + 2) * 2 + 3) * 2 + 4);
  EXPECT_EQ(fori_loop(5, 5, body, full({}, 7.0F)).item<float>(), 7.0F);
}

TEST(WhileLoop, RunsAsLongAsItHolds) {
  const Array limit = full({}, 100.0F);
  const auto doubled = [&](Array start) {
    return while_loop([&](Array x) { return x < limit; }, [](Array x) { return x * 2; }, start);
  };
  EXPECT_EQ(doubled(full({}, 3.0F)).item<float>(), 192.0F);
  EXPECT_EQ(jit(doubled)(full({}, 300.0F)).item<float>(), 300.0F);
}

TEST(WhileLoop, HasNoReverseMode) {
  const auto loss = [](Array x) {
    return while_loop([](Array y) { return y < 10; }, [](Array y) { return y * 2; }, x);
  };
  try {
    grad(loss)(full({}, 1.0F));
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("fori_loop"), std::string::npos) << error.what();
  }
}

TEST(Cond, RunsOneBranch) {
  const auto f = [](Array pred, Array x) {
    return cond(
        pred > 0, [](Array y) { return y * 2; }, [](Array y) { return y - 1; }, x);
  };
  EXPECT_EQ(f(full({}, 1.0F), full({}, 5.0F)).item<float>(), 10.0F);
  EXPECT_EQ(jit(f)(full({}, -1.0F), full({}, 5.0F)).item<float>(), 4.0F);
  const auto g = grad([&](Array x) { return f(x, x * x); });
  EXPECT_EQ(g(full({}, 3.0F)).item<float>(), 12.0F);
  EXPECT_EQ(g(full({}, -3.0F)).item<float>(), -6.0F);
}

TEST(Cond, TakesNumbersOfTheProgram) {
  const auto same = [](const Array& x) { return x; };
  const auto twice = [](const Array& x) { return x * 2; };
  const Array x = full({}, 3.0F);
  const auto f = [&](const Array& y) {
    return stack({cond(true, twice, same, y), cond(false, twice, same, y),
                  switch_case(1, std::tuple(same, twice), y),
                  switch_case(7, std::tuple(same, twice, same), y)});
  };
  const std::vector<float> wanted = {6, 3, 6, 3};
  EXPECT_EQ(floats(f(x)), wanted);
  EXPECT_EQ(floats(jit(f)(x)), wanted);
  const disable_jit op_by_op;
  EXPECT_EQ(floats(f(x)), wanted);
}

TEST(Cond, SwitchTakesTheNearestBranch) {
  const auto f = [](std::int32_t index) {
    const std::tuple branches([](Array x) { return x; }, [](Array x) { return x * x; },
                              [](Array x) { return -x; });
    return switch_case(full({}, index, DType::i32), branches, full({}, 3.0F)).item<float>();
  };
  EXPECT_EQ(f(-7), 3.0F);
  EXPECT_EQ(f(1), 9.0F);
  EXPECT_EQ(f(99), -3.0F);
}

TEST(Remat, KeepsValuesAndComputesAgain) {
  const Array w = reshape(iota_array(9), {3, 3}) * 0.1F;
  const auto layer = [&](Array x) { return tanh(dot(tanh(dot(x, w)), w)); };
  const auto plain = [&](Array x) { return sum(layer(layer(x))); };
  const auto saved = [&](Array x) { return sum(remat(layer)(remat(layer)(x))); };
  const Array x = reshape(iota_array(6), {2, 3}) * 0.1F;
  const auto [a, da] = value_and_grad(plain)(x);
  const auto [b, db] = value_and_grad(saved)(x);
  EXPECT_TRUE(array_equal(a, b));
  EXPECT_TRUE(array_equal(da, db));
  const auto count = [&](const auto& f, const char* op) {
    const std::string text = jit([&](Array y) { return value_and_grad(f)(y); }).lower(x).ir();
    int number = 0;
    for (std::size_t at = text.find(op); at != std::string::npos; at = text.find(op, at + 1)) {
      ++number;
    }
    return number;
  };
  EXPECT_EQ(count(plain, " = tanh"), 4);
  EXPECT_EQ(count(saved, " = tanh"), 8);
  const auto dots_saved = [&](Array y) { return sum(remat(layer, RematPolicy::dots_saveable)(y)); };
  EXPECT_EQ(count(dots_saved, " = dot_general"), 4);  // the same number as without remat
  EXPECT_EQ(count(dots_saved, " = tanh"), 4);
}

TEST(CustomVjp, UsesTheGivenDerivative) {
  const auto f =
      custom_vjp([](Array x) { return x * x; }, [](Array x) { return std::pair(x * x, x); },
                 [](Array x, Array ct) { return ct * x * 100; });
  EXPECT_EQ(f(full({}, 3.0F)).item<float>(), 9.0F);
  const auto [value, gradient] = value_and_grad([&](Array x) { return f(x) * 2; })(full({}, 3.0F));
  EXPECT_EQ(value.item<float>(), 18.0F);
  EXPECT_EQ(gradient.item<float>(), 600.0F);
  // The second derivative differentiates the user's backward function.
  EXPECT_EQ(grad([&](Array x) { return grad(f)(x); })(full({}, 3.0F)).item<float>(), 100.0F);
}

TEST(Jit, WithinJitIsACall) {
  const auto inner = jit([](Array x) { return x * 2; }, {.name = "twice"});
  const auto outer = jit([&](Array x) { return inner(inner(x)) + 1; });
  EXPECT_EQ(outer(full({}, 3.0F)).item<float>(), 13.0F);
  EXPECT_EQ(grad([&](Array x) { return outer(x); })(full({}, 3.0F)).item<float>(), 4.0F);
}

TEST(Control, NestsOnAMesh) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const auto model = [](Array w, Array x) {
    const auto layer = remat([](Array h, Array weights) { return tanh(dot(h, weights)); });
    const auto [last, norms] = scan(
        [&](Array h, Array weights) {
          h = cond(
              sum(h) > 0, [&](Array y) { return layer(y, weights); },
              [](Array y) { return y * 0.5F; }, h);
          return std::pair(h, mean(h * h));
        },
        x, w);
    return mean(last * last) + sum(norms);
  };
  const Array w = reshape(iota_array(48), {3, 4, 4}) * 0.01F;
  const Array x = reshape(iota_array(20), {5, 4}) * 0.1F;
  const auto step = jit([&](Array weights, Array batch) {
    return value_and_grad([&](Array v) { return model(v, batch); })(weights);
  });
  const auto [loss, gradient] = step(w, x);
  const auto [sharded_loss, sharded_gradient] =
      step(device_put(w, NamedSharding(mesh, P{none, "data"})),
           device_put(x, NamedSharding(mesh, P{"data"})));
  EXPECT_TRUE(array_equal(loss, sharded_loss));
  EXPECT_TRUE(array_equal(gradient, device_put(sharded_gradient, gradient.sharding())));
}

}  // namespace
}  // namespace tessera
