// debug::print and debug::callback: what they print, how often and in which order.
#include <functional>
#include <gtest/gtest.h>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::mistake_of;
using testing::numbers;

/// The text that `f(stream)` prints.
template <typename F>
std::string printed(F f) {
  std::ostringstream stream;
  f(stream);
  return stream.str();
}

/// A function that prints its argument, and returns it.
auto printing(std::ostream& stream, const char* format = "{}") {
  return [&stream, format](const Array& x) {
    debug::print(stream, format, {x});
    return x;
  };
}

TEST(DebugPrint, WritesNumbersAndNestedLists) {
  const auto text = [](const char* format, const Array& x) {
    const std::string eager = printed([&](std::ostream& s) { printing(s, format)(x); });
    const std::string jitted = printed([&](std::ostream& s) { jit(printing(s, format))(x); });
    EXPECT_EQ(eager, jitted);
    return eager;
  };
  EXPECT_EQ(text("loss = {}", full({}, 1.5)), "loss = 1.5\n");
  EXPECT_EQ(text("{{{:.2f}}}", array({1.0F, 2.5F})), "{[1.00, 2.50]}\n");
  EXPECT_EQ(text("{}", array<std::int32_t>({1, 2, 3, 4}, {2, 2})), "[[1, 2],\n [3, 4]]\n");
  EXPECT_EQ(text("{:+d}", array<std::int8_t>({-3})), "[-3]\n");
  EXPECT_EQ(text("{}", array<bfloat16>({bfloat16(0.5F)})), "[0.5]\n");
  EXPECT_EQ(text("{}", less(array({1.0F, 3.0F}), 2)), "[true, false]\n");
  EXPECT_EQ(text("{}", zeros({2, 0})), "[[],\n []]\n");
  EXPECT_EQ(text("{}", arange(2000)), "[0, 1, 2, ..., 1997, 1998, 1999]\n");
  EXPECT_EQ(text("{:>4}", full({}, 7, DType::i64)), "   7\n");
}

TEST(DebugPrint, GoesToStandardOutputByItself) {
  std::ostringstream stream;
  std::streambuf* const before = std::cout.rdbuf(stream.rdbuf());
  debug::print("a {} b {}", 3, full({}, true, DType::boolean));
  jit([](Array x) {
    debug::print("in jit: {}", x);
    debug::print("without arrays");
    return x + 1;
  })(full({}, 2.0));
  std::cout.rdbuf(before);
  EXPECT_EQ(stream.str(), "a 3 b true\nin jit: 2\nwithout arrays\n");
}

TEST(DebugPrint, RunsAlthoughNothingIsComputed) {
  EXPECT_EQ(printed([](std::ostream& s) { jit(printing(s))(full({}, 4)); }), "4\n");
  const auto twice = [](std::ostream& s) {
    const auto f = jit(printing(s));
    f(full({}, 4));
    f(full({}, 5));
  };
  EXPECT_EQ(printed(twice), "4\n5\n");
}

TEST(DebugPrint, WrongFormats) {
  const Array x = ones({2});
  const auto what = [&](const char* format, const std::vector<Operand>& operands) {
    return mistake_of([&] { debug::print(format, operands); }).what;
  };
  EXPECT_EQ(what("{} {}", {x}), "debug: the format string does not have one placeholder per array");
  EXPECT_EQ(what("{", {x}),
            "debug: the format string has a brace that is not part of a placeholder");
  EXPECT_EQ(what("{0}", {x}),
            "debug: the format string has a brace that is not part of a placeholder");
  EXPECT_EQ(what("}", {}),
            "debug: the format string has a brace that is not part of a placeholder");
  EXPECT_EQ(what("{:d}", {x}), "debug: {:d} is not a valid format for f32");
}

TEST(DebugPrint, ChangesNoBitsAndKeepsTheOrderOnAnyMesh) {
  const Array w = numbers({16, 12}, 1);
  const Array x = numbers({24, 16}, 2);
  const auto step = [](std::ostream* stream) {
    return [stream](const Array& weights, const Array& batch) {
      return value_and_grad([&](const Array& p) {
        Array y = tanh(dot(batch, p));
        for (int i = 0; i < 20 && stream != nullptr; ++i) {
          debug::print(*stream, std::to_string(i) + ": {:.9g}", {slice(y, 1, 0, 2)});
        }
        y = y * y;
        if (stream != nullptr) debug::print(*stream, "{}", {sum(y)});
        return mean(y);
      })(weights);
    };
  };
  const auto [loss, grads] = jit(step(nullptr))(w, x);
  const std::string alone = printed([&](std::ostream& s) { jit(step(&s))(w, x); });
  EXPECT_EQ(std::count(alone.begin(), alone.end(), '\n'), 20 * 24 + 1);
  EXPECT_LT(alone.find("18: "), alone.find("19: "));
  for (const auto& [data, model] : {std::pair(2, 1), std::pair(2, 2), std::pair(1, 4)}) {
    const use_mesh mesh(make_mesh({{"data", data}, {"model", model}}));
    std::ostringstream stream;
    const auto [loss_here, grads_here] =
        jit(step(&stream))(device_put(w, P{none, "model"}), device_put(x, P{"data"}));
    expect_same_bits(loss_here, loss);
    expect_same_bits(grads_here, grads);
    EXPECT_EQ(stream.str(), alone);
  }
}

TEST(DebugPrint, InLoopsAndBranches) {
  const auto f = [](std::ostream& s) {
    return [&s](const Array& x) {
      const auto [sum, ys] = scan(
          [&](const Array& carry, const Array& slice) {
            debug::print(s, "scan {}", {slice});
            cond(greater(slice, 1), printing(s, "large {}"), printing(s, "small {}"), slice);
            return std::pair(carry + slice, slice);
          },
          full({}, 0.0), x);
      debug::print(s, "sum {}", {sum});
      return while_loop([](const Array& n) { return less(n, 2); },
                        [&](const Array& n) {
                          debug::print(s, "while {}", {n});
                          return n + 1;
                        },
                        full({}, 0, DType::i32));
    };
  };
  const std::string wanted =
      "scan 0\nsmall 0\nscan 1\nsmall 1\nscan 2\nlarge 2\nsum 3\nwhile 0\nwhile 1\n";
  const Array x = array({0.0F, 1.0F, 2.0F});
  EXPECT_EQ(printed([&](std::ostream& s) { jit(f(s))(x); }), wanted);
  EXPECT_EQ(printed([&](std::ostream& s) { f(s)(x); }), wanted);
  set_engine("reference");
  EXPECT_EQ(printed([&](std::ostream& s) { jit(f(s))(x); }), wanted);
  set_engine("host");
}

TEST(DebugPrint, InTheConditionOfALoop) {
  const auto f = [](std::ostream& s) {
    return [&s](const Array& limit) {
      return while_loop(
          [&](const Array& n) { return less(printing(s, "outer {}")(n), limit); },
          [&](const Array& n) {
            return while_loop(
                [&](const Array& m) { return less(printing(s, "inner {}")(m), n + 2); },
                [](const Array& m) { return m + 1; }, n);
          },
          full({}, 0, DType::i32));
    };
  };
  const std::string wanted =
      "outer 0\ninner 0\ninner 1\ninner 2\nouter 2\ninner 2\ninner 3\ninner 4\nouter 4\n";
  const Array limit = full({}, 3, DType::i32);
  EXPECT_EQ(printed([&](std::ostream& s) { f(s)(limit); }), wanted);
  EXPECT_EQ(printed([&](std::ostream& s) { jit(f(s))(limit); }), wanted);
  const use_mesh mesh(make_mesh({{"data", 2}}));
  EXPECT_EQ(printed([&](std::ostream& s) { jit(f(s))(limit); }), wanted);
}

TEST(DebugPrint, OfABatchElementByElement) {
  const Array x = array({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2});
  const auto rows = [&](std::ostream& s) {
    jit(vmap([&](const Array& row) {
      debug::print(s, "row {} {}", {row, full({}, 9)});
      return row * 2;
    }))(x);
  };
  EXPECT_EQ(printed(rows), "row [1, 2] 9\nrow [3, 4] 9\n");
  const auto elements = [&](std::ostream& s) { vmap(vmap(printing(s)), {.in_axes = {1}})(x); };
  EXPECT_EQ(printed(elements), "1\n3\n2\n4\n");
  const auto loop = [&](std::ostream& s) {
    jit(vmap([&](const Array& row) {
      return scan([&](const Array& c, const Array& e) { return std::pair(printing(s)(c + e), e); },
                  full({}, 0.0), row)
          .first;
    }))(x);
  };
  EXPECT_EQ(printed(loop), "1\n3\n3\n7\n");
}

TEST(DebugPrint, OfShards) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const use_mesh scope(mesh);
  const Array x = arange(8, DType::f32);
  const auto shards = [&](std::ostream& s) {
    jit([&](const Array& all) {
      return shard_map(printing(s), {.mesh = mesh,
                                     .in_specs = {P{{"data", "model"}}},
                                     .out_specs = P{{"data", "model"}}})(all);
    })(x);
  };
  EXPECT_EQ(printed(shards), "[0, 1]\n[2, 3]\n[4, 5]\n[6, 7]\n");
}

TEST(DebugPrint, OnceUnderDerivatives) {
  const Array x = array({1.0F, 2.0F});
  const auto loss = [](std::ostream& s, bool is_remat) {
    return [&s, is_remat](const Array& p) {
      const auto layer = [&s](const Array& v) { return tanh(printing(s, "layer {:.1f}")(sin(v))); };
      const auto twice = [&](const Array& v, const Array&) {
        return std::pair(is_remat ? remat(layer)(v) : layer(v), std::tuple<>());
      };
      return sum(scan(twice, p, zeros({2})).first);
    };
  };
  for (const bool is_remat : {false, true}) {
    const std::string wanted = printed([&](std::ostream& s) { loss(s, is_remat)(x); });
    EXPECT_EQ(wanted, "layer [0.8, 0.9]\nlayer [0.6, 0.7]\n");
    EXPECT_EQ(printed([&](std::ostream& s) { jit(grad(loss(s, is_remat)))(x); }), wanted);
    EXPECT_EQ(printed([&](std::ostream& s) { grad(loss(s, is_remat))(x); }), wanted);
  }
}

TEST(DebugPrint, OfCotangents) {
  const auto loss = [](std::ostream& s, bool is_scan) {
    const auto seen = custom_vjp([](const Array& x) { return x * 1.0F; },
                                 [](const Array& x) { return std::pair(x * 1.0F, x); },
                                 [&s](const Array& x, const Array& ct) {
                                   debug::print(s, "x {} ct {}", {x, ct});
                                   return ct;
                                 });
    return [seen, is_scan](const Array& x) {
      if (!is_scan) return square(seen(x)) * 3;
      const auto step = [&](const Array& c, const Array& e) {
        return std::pair(seen(c) * e, std::tuple<>());
      };
      return scan(step, x, array({2.0F, 3.0F})).first;
    };
  };
  const Array x = full({}, 5.0);
  EXPECT_EQ(printed([&](std::ostream& s) { jit(grad(loss(s, false)))(x); }), "x 5 ct 30\n");
  EXPECT_EQ(printed([&](std::ostream& s) { jit(grad(loss(s, true)))(x); }),
            "x 10 ct 3\nx 5 ct 6\n");
  EXPECT_EQ(printed([&](std::ostream& s) { jit(loss(s, true))(x); }), "");
  const auto both = [&](std::ostream& s) {
    jit(grad([&](const Array& v) { return remat(loss(s, true))(v); }))(x);
  };
  EXPECT_EQ(printed(both), "x 10 ct 3\nx 5 ct 6\n");
}

TEST(DebugCallback, GetsWholeArrays) {
  const use_mesh mesh(make_mesh({{"data", 2}}));
  const Array x = device_put(numbers({6, 2}), P{"data"});
  std::vector<Array> seen;
  const auto keep = [&](const std::vector<Array>& arrays) { seen = arrays; };
  const Array y = jit([&](const Array& v) {
    debug::callback(keep, {v, v * 2});
    return v * 2;
  })(x);
  ASSERT_EQ(seen.size(), 2U);
  expect_same_bits(seen[0], x);
  expect_same_bits(seen[1], y);
}

TEST(DebugCallback, WhatItThrowsEndsTheRun) {
  const auto f = jit([](const Array& v) {
    debug::callback(
        [](const std::vector<Array>& arrays) {
          if (arrays[0].item<float>() < 0) throw std::domain_error("negative");
        },
        {v});
    return v + 1;
  });
  EXPECT_EQ(f(full({}, 1.0)).item<float>(), 2);
  EXPECT_THROW(f(full({}, -1.0)), std::domain_error);
  EXPECT_EQ(f(full({}, 1.0)).item<float>(), 2);
}

TEST(DebugCheck, EndsTheRunWhereItDoesNotHold) {
  const use_mesh mesh(make_mesh({{"data", 2}}));
  std::uint32_t line = 0;
  const auto f = [&](const Array& v) {
    line = std::source_location::current().line() + 1;
    debug::check(v > 0, "v is not positive: {}", v);
    return log(v);
  };
  const auto mean_of = [&](const Array& v) { return mean(f(v)); };
  const Array good = device_put(array({1.0F, 2.0F}), P{"data"});
  const Array bad = device_put(array({1.0F, -2.0F}), P{"data"});
  expect_same_bits(jit(f)(good), log(good));
  for (const auto& run : std::vector<std::function<void()>>{[&] { f(bad); }, [&] { jit(f)(bad); },
                                                            [&] { jit(grad(mean_of))(bad); }}) {
    const Mistake mistake = mistake_of(run);
    EXPECT_EQ(mistake.what, "v is not positive: [1, -2]");
    EXPECT_EQ(mistake.found, "1 of 2 elements of the condition are false");
    EXPECT_EQ(mistake.where.line, line);
  }
}

TEST(DebugCallback, IsNotRepeatedToFindNaNs) {
  std::ostringstream stream;
  const auto f =
      jit([&](const Array& v) { return log(printing(stream)(v)); }, {.check_finite = true});
  EXPECT_EQ(mistake_of([&] { f(full({}, -1.0)); }).what, "jit: a result is not finite");
  EXPECT_EQ(stream.str(), "-1\n");
}

TEST(DebugCallback, InAPipelineIsAnError) {
  const MpmdMesh mesh(make_mesh({{"mpmd", 2}}), "mpmd");
  std::ostringstream stream;
  const auto f = mpmd_jit_with_loop(
      [&](const Array& w, const Array& xs) {
        const auto one = [&](const Array& x) {
          const Array y = mark_stage_end(printing(stream)(x) * w);
          return sum(mark_stage_end(y * w));
        };
        return treduce(one, xs, GPipe{2});
      },
      mesh);
  const Mistake mistake = mistake_of([&] { f(ones({3}), ones({2, 3})); });
  EXPECT_EQ(mistake.what, "debug: a pipeline cannot have callbacks");
  EXPECT_EQ(stream.str(), "");
}

}  // namespace
}  // namespace tessera
