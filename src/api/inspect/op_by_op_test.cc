// disable_jit: functions run op by op on concrete arrays, with the bits of the compiled program.
#include <gtest/gtest.h>
#include <random>

#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::mistake_of;
using testing::numbers;

TEST(DisableJit, JittedFunctionsSeeValues) {
  const disable_jit scope;
  float seen = 0;
  const auto f = jit([&](Array x) {
    EXPECT_TRUE(x.is_concrete());
    const Array y = x * 2;
    seen = y.item<float>();
    return y + 1;
  });
  EXPECT_EQ(f(scalar(3.0F)).item<float>(), 7);
  EXPECT_EQ(seen, 6);
  EXPECT_EQ(f.num_traces(), 0);
}

TEST(DisableJit, EndsWithItsScope) {
  int calls = 0;
  const auto f = jit([&](Array x) {
    ++calls;
    return x + 1;
  });
  {
    const disable_jit outer;
    { const disable_jit inner; }
    for (int i = 0; i < 3; ++i) f(scalar(1.0F));
    EXPECT_EQ(calls, 3);
  }
  for (int i = 0; i < 3; ++i) f(scalar(1.0F));
  EXPECT_EQ(calls, 4);
}

TEST(DisableJit, LoopsCallTheirFunctionsForEachIteration) {
  const disable_jit scope;
  std::vector<float> seen;
  const auto body = [&](Array sum, Array x) {
    seen.push_back(x.item<float>());
    return std::pair(sum + x, sum * x);
  };
  const Array xs = array({1.0F, 2.0F, 3.0F});
  const auto [total, products] = scan(body, scalar(0.0F), xs, {.reverse = true});
  EXPECT_EQ(seen, (std::vector<float>{3, 2, 1}));
  EXPECT_EQ(total.item<float>(), 6);
  EXPECT_EQ(products.to_vector<float>(), (std::vector<float>{5, 6, 0}));
  seen.clear();
  const Array last = while_loop([](Array x) { return x < 10; },
                                [&](Array x) {
                                  seen.push_back(x.item<float>());
                                  return x * 3;
                                },
                                scalar(1.0F));
  EXPECT_EQ(seen, (std::vector<float>{1, 3, 9}));
  EXPECT_EQ(last.item<float>(), 27);
}

TEST(DisableJit, OnlyTheBranchThatIsTakenIsCalled) {
  const disable_jit scope;
  int calls = 0;
  const auto other = [&](Array x) {
    ++calls;
    return -x;
  };
  const auto wanted = [](Array x) { return x * x; };
  EXPECT_EQ(cond(scalar(true), wanted, other, scalar(3.0F)).item<float>(), 9);
  EXPECT_EQ(switch_case(scalar(7), std::tuple(other, wanted), scalar(3.0F)).item<float>(), 9);
  EXPECT_EQ(switch_case(scalar(-7), std::tuple(wanted, other), scalar(3.0F)).item<float>(), 9);
  EXPECT_EQ(calls, 0);
}

TEST(DisableJit, LoopsWithoutIterationsGiveTheCarry) {
  const disable_jit scope;
  const auto [carry, none] =
      scan([](Array c, Array x) { return std::pair(c + sum(x), x); }, scalar(2.0F), zeros({0, 3}));
  EXPECT_EQ(carry.item<float>(), 2);
  EXPECT_EQ(none.shape(), (Shape{0, 3}));
  const auto never = [](Array c) { return c > 5; };
  EXPECT_EQ(while_loop(
                never, [](Array c) { return c + 1; }, scalar(2.0F))
                .item<float>(),
            2);
}

TEST(DisableJit, MistakesHaveTheSameTexts) {
  const auto grows = [](Array c, Array x) { return std::pair(c + x, x); };
  const auto is_number = [](Array c) { return c; };
  const auto same = [](Array c) { return c; };
  const auto texts = [&] {
    return std::pair(mistake_of([&] {
                       scan(grows, scalar(0.0F), ones({3, 2}));
                     }),
                     mistake_of([&] { while_loop(is_number, same, scalar(0.0F)); }));
  };
  const auto [of_scan, of_while] = texts();
  const disable_jit scope;
  const auto [scan_now, while_now] = texts();
  EXPECT_EQ(scan_now.what + scan_now.found + scan_now.wanted,
            of_scan.what + of_scan.found + of_scan.wanted);
  EXPECT_EQ(while_now.what + while_now.found, of_while.what + of_while.found);
}

TEST(DisableJit, ShardingsOfTheFunctionHold) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const auto f =
      jit([](Array x) { return x + 1; }, {.in_shardings = {NamedSharding(mesh, P{"data"})},
                                          .out_shardings = NamedSharding(mesh, P{})});
  const Array x = numbers({8}, 1);
  const Array wanted = f(x);
  const disable_jit scope;
  const Array found = f(x);
  expect_same_bits(found, wanted);
  EXPECT_EQ(to_string(found.sharding().spec), to_string(wanted.sharding().spec));
  EXPECT_EQ(found.sharding().mesh, mesh);
}

TEST(DisableJit, DonatedArgumentsKeepTheirValues) {
  const disable_jit scope;
  const auto f = jit([](Array x) { return x + 1; }, {.donate_argnums = {0}});
  const Array x = scalar(1.0F);
  f(x);
  EXPECT_FALSE(x.is_deleted());
}

// --- the same bits as the compiled program

/// A function made of random parts, each of which maps shape [4,3] to [4,3].
class RandomFunction {
 public:
  RandomFunction(std::uint32_t seed, int num_parts) {
    std::mt19937 random(seed);
    for (int i = 0; i < num_parts; ++i) {
      parts_.push_back(static_cast<std::uint32_t>(random()) % kNumKinds);
    }
    weights_ = numbers({3, 3}, seed);
  }

  Array operator()(Array x) const {
    for (const std::uint32_t part : parts_) x = tanh(apply(part, x));
    return x;
  }

 private:
  static constexpr std::uint32_t kNumKinds = 12;

  Array apply(std::uint32_t part, const Array& x) const {
    const auto dense = [&](const Array& rows) { return dot(rows, weights_); };
    const auto norm_of = [&](const Array& a) { return sum(square(dot(a, weights_))); };
    switch (part) {
      case 0:
        return dense(x) + max(x, 0, keepdims);
      case 1:
        return softmax(x, -1) * cumsum(x, 0);
      case 2:
        return scan([&](Array c, Array row) { return std::pair(tanh(c + dense(row)), c * row); },
                    x[0], x)
            .second;
      case 3:
        return fori_loop(
            0, 3, [&](Array i, Array c) { return dense(c) * astype(i + 1, DType::f32); }, x);
      case 4:
        return cond(
            sum(x) > 0, dense, [](Array a) { return a * 0.5F; }, x);
      case 5:
        return vmap([&](Array row) { return dense(expand_dims(row, 0))[0] - sum(row); })(x);
      case 6:
        return grad(norm_of)(x);
      case 7:
        return remat(dense)(x);
      case 8:
        return jit(dense)(x) + x;
      case 9:
        return take(x, array({3, 1, 0, 2})) + random::normal(Key(7), {4, 3});
      case 10:
        return reshape(vmap(grad(norm_of))(expand_dims(x, 1)), {4, 3});
      default:
        return scan(
                   [&](Array c, Array row) {
                     const auto loss = [&](Array w) { return sum(square(dot(row, w))); };
                     return std::pair(c - 0.1F * grad(loss)(c), dot(row, c));
                   },
                   weights_, x)
            .second;
    }
  }

  std::vector<std::uint32_t> parts_;
  Array weights_;
};

class RandomFunctions : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(RandomFunctions, GiveTheBitsOfTheCompiledProgram) {
  const std::uint32_t seed = GetParam();
  const RandomFunction f(seed, 4);
  const auto loss = [&](const Array& x) { return sum(f(x)); };
  for (const Mesh& mesh : {Mesh(), make_mesh({{"data", 2}})}) {
    const use_mesh scope_of_mesh(mesh);
    Array x = numbers({4, 3}, seed + 100);
    if (!mesh.axes().empty()) x = device_put(x, P{"data"});
    const auto step = jit([&](Array a) {
      const auto [value, gradient] = value_and_grad(loss)(a);
      return std::tuple(f(a), value, gradient);
    });
    const auto [wanted, wanted_loss, wanted_gradient] = step(x);
    const disable_jit scope;
    const auto [found, found_loss, found_gradient] = step(x);
    expect_same_bits(found, wanted);
    expect_same_bits(found_loss, wanted_loss);
    expect_same_bits(found_gradient, wanted_gradient);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomFunctions, ::testing::Range(0U, 24U));

struct State {
  Param up, down;
  Array step;
  TESSERA_TREE(up, down, step)
};

TEST(DisableJit, TrainsWithTheSameBits) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const use_mesh scope_of_mesh(mesh);
  const Array x = device_put(numbers({16, 3}, 4), P{"data"});
  const auto step = jit(
      [](State old, Array batch) {
        const auto loss_of = [&](const State& s) {
          return mean(square(dot(tanh(dot(batch, s.up)), s.down)));
        };
        const auto [loss, grads] = value_and_grad([&](Param up, Param down) {
          return loss_of({std::move(up), std::move(down), old.step});
        })(old.up, old.down);
        const Array rate = 0.1F / (1 + astype(old.step, DType::f32));
        old.up = old.up.with_value(old.up - grads * rate);
        old.step = old.step + 1;
        return std::tuple(old, loss);
      },
      {.donate_argnums = {0}});
  const auto run = [&] {
    State state{Param(numbers({3, 8}, 5), "up"), Param(numbers({8, 1}, 6), "down"), scalar(0)};
    for (int i = 0; i < 3; ++i) state = std::get<0>(step(std::move(state), x));
    return state;
  };
  const State wanted = run();
  const disable_jit scope;
  const State found = run();
  expect_same_bits(found.up, wanted.up);
  EXPECT_EQ(found.step.item<int>(), 3);
  EXPECT_EQ(found.up.path(), "up");
}

// --- values while a function is traced

/// The values that to_string shows, without types and marks.
std::string values_of(const Array& x) {
  std::string text = to_string(x);
  const std::size_t start = text.find(" [");
  if (start == std::string::npos) return text;
  return text.substr(start, text.find(']', start) + 1 - start);
}

/// Calls `f` with a function that records what to_string shows.
template <typename F>
std::vector<std::string> noted(const F& f) {
  std::vector<std::string> texts;
  f([&](const Array& x) { texts.push_back(values_of(x)); });
  return texts;
}

TEST(TracedValues, GradShowsWhatTheFunctionComputes) {
  const Array w = numbers({3, 2}, 1);
  const Array x = numbers({4, 3}, 2);
  const auto of = [&](const auto& note, const Array& a, const Array& weights) {
    const Array y = dot(a, weights);
    note(y);
    const Array z = tanh(y) * weights[0];
    note(z);
    note(a);
    return sum(z);
  };
  const auto wanted = noted([&](const auto& note) { of(note, x, w); });
  const auto found = noted([&](const auto& note) {
    grad([&](const Array& weights) { return of(note, x, weights); })(w);
  });
  EXPECT_EQ(found, wanted);
  const use_mesh mesh(make_mesh({{"data", 2}}));
  EXPECT_EQ(noted([&](const auto& note) {
              grad([&](const Array& a) { return of(note, a, w); })(device_put(x, P{"data"}));
            }),
            wanted);
}

TEST(TracedValues, HaveTheirTypeAndMark) {
  std::string in_grad;
  std::string in_vmap;
  std::string in_jit;
  grad([&](Array x) {
    in_grad = to_string(x * 2);
    return sum(x);
  })(array({1.0F, 2.0F}));
  vmap([&](Array x) {
    in_vmap = to_string(x * 2);
    return x;
  })(array({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2}));
  jit([&](Array x) {
    in_jit = to_string(x * 2);
    return x;
  })(array({1.0F, 2.0F}));
  EXPECT_EQ(in_grad, "f32[2] (traced) [2, 4]");
  EXPECT_EQ(in_vmap, "f32[2] (traced) [2, 4, 6, 8] for 2 elements of vmap");
  EXPECT_EQ(in_jit, "f32[2] (traced)");
}

TEST(TracedValues, VmapShowsAllElements) {
  const Array x = numbers({2, 3, 2}, 3);
  const Array w = numbers({2}, 4);
  const auto f = [&](const auto& note, const Array& a) {
    const Array y = a * w;
    note(y);
    const Array z = vmap([&](Array row) {
      Array s = row * 2 + y[0];
      note(s);
      return s;
    })(a);
    note(w * 2);
    return z + grad([&](Array b) {
             note(b - y);
             return sum(b * b);
           })(a);
  };
  const auto found = noted([&](const auto& note) { vmap([&](Array a) { return f(note, a); })(x); });
  const Array y = x * w;
  const Array s = x * 2 + y.slice(1, 0, 1);
  EXPECT_EQ(found, (std::vector<std::string>{values_of(y), values_of(s), values_of(w * 2),
                                             values_of(x - y)}));
}

TEST(TracedValues, LoopsShowTheFirstIterationOrAll) {
  const Array xs = array({1.0F, 2.0F, 3.0F});
  const auto total = [&](const auto& note, const Array& start) {
    return scan(
               [&](Array c, Array x) {
                 note(c * x);
                 return std::pair(c + x, x);
               },
               start, xs)
        .first;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(noted([&](const auto& note) { total(note, scalar(2.0F)); }), (Texts{" [2]"}));
  const auto of_grad = [&](const auto& note) {
    grad([&](Array start) { return total(note, start); })(scalar(2.0F));
  };
  EXPECT_EQ(noted(of_grad), (Texts{" [2]"}));
  const disable_jit scope;
  EXPECT_EQ(noted(of_grad), (Texts{" [2]", " [6]", " [15]"}));
  EXPECT_EQ(noted([&](const auto& note) {
              vmap([&](Array start) { return total(note, start); })(array({2.0F, 0.0F}));
            }),
            (Texts{" [2, 0]", " [6, 2]", " [15, 9]"}));
}

TEST(TracedValues, OnlyTheBranchThatIsTakenHasValues) {
  const auto f = [](const auto& note, const Array& x) {
    const auto twice = [&](Array a) {
      note(a * 2);
      return sum(a);
    };
    const auto thrice = [&](Array a) {
      note(a * 3);
      return sum(a * a);
    };
    return cond(sum(x) > 0, twice, thrice, x);
  };
  const auto found = noted([&](const auto& note) {
    grad([&](Array x) { return f(note, x); })(array({1.0F, 2.0F}));
  });
  EXPECT_EQ(found, (std::vector<std::string>{"f32[2] (traced)", " [2, 4]"}));
}

TEST(TracedValues, WhatIsNotKnownIsSaid) {
  std::vector<std::string> texts;
  const auto note = [&](const Array& x) { texts.push_back(to_string(x)); };
  const auto f = custom_vjp(
      [&](Array x) {
        note(x);
        return sin(x);
      },
      [&](Array x) {
        note(x);
        return std::pair(sin(x), x);
      },
      [&](Array saved, Array cotangent) {
        note(cotangent);
        return cotangent * cos(saved);
      });
  grad([&](Array x) { return f(x); })(scalar(0.0F));
  eval_shape(
      [&](Array x) {
        note(x);
        return x;
      },
      scalar(0.0F));
  EXPECT_EQ(texts, (std::vector<std::string>{"f32[] (traced) [0]", "f32[] (traced) [0]",
                                             "f32[] (traced)", "f32[] (traced)"}));
}

TEST(TracedValues, LookingAtThemPrintsNothingAndChangesNoBits) {
  const Array x = numbers({5}, 9);
  const auto gradient = [&](bool looks) {
    int calls = 0;
    const Array g = grad([&](Array a) {
      const Array y = exp(a);
      debug::callback([&](const std::vector<Array>& /*values*/) { ++calls; }, {y});
      if (looks) {
        EXPECT_NE(to_string(y).find(" ["), std::string::npos);
      }
      return sum(y * y);
    })(x);
    EXPECT_EQ(calls, 1);
    return g;
  };
  expect_same_bits(gradient(true), gradient(false));
}

}  // namespace
}  // namespace tessera
