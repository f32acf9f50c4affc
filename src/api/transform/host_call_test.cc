// pure_callback and io_callback: their results and numbers of calls, on meshes and in loops.
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <stdexcept>

#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::mistake_of;
using testing::numbers;

/// Computes x + 1 in a loop over the elements, and counts its calls.
struct Increment {
  int* calls;
  std::vector<Array> operator()(const std::vector<Array>& arguments) const {
    ++*calls;
    std::vector<float> elements = arguments[0].to_vector<float>();
    for (float& element : elements) element += 1;
    return {array<float>(elements, arguments[0].shape())};
  }
};

Array incremented(int& calls, const Array& x) {
  return pure_callback(Increment{&calls}, {x.type()}, {x})[0];
}

TEST(PureCallback, GivesWhatTheFunctionGives) {
  int calls = 0;
  const Array x = numbers({6, 4});
  const auto f = [&](const Array& v) { return incremented(calls, v * 2) * 3; };
  const Array wanted = (x * 2 + 1) * 3;
  expect_same_bits(f(x), wanted);
  expect_same_bits(jit(f)(x), wanted);
  EXPECT_EQ(calls, 2);
  set_engine("reference");
  expect_same_bits(jit(f)(x), wanted);
  set_engine("host");
  for (const auto& [data, model] : {std::pair(2, 1), std::pair(2, 2), std::pair(1, 4)}) {
    const use_mesh mesh(make_mesh({{"data", data}, {"model", model}}));
    calls = 0;
    expect_same_bits(jit(f)(device_put(x, P{"data", "model"})), wanted);
    EXPECT_EQ(calls, 1);
  }
}

TEST(PureCallback, OfSeveralTypes) {
  const auto f = [](Array x, Array n) {
    return pure_callback(
        [](const std::vector<Array>& arguments) {
          const auto count = static_cast<double>(arguments[1].item<std::int32_t>());
          const double sum = arguments[0].item<float>() + count;
          const bool is_large = sum > arguments[2].item<std::int32_t>();
          std::vector<Array> results = {array(std::vector<double>{sum, 2})};
          results.push_back(array(std::vector<bool>{is_large}, Shape{}));
          results.push_back(array(std::vector<float>(), {0, 3}));
          return results;
        },
        {{DType::f64, {2}}, {DType::boolean, {}}, {DType::f32, {0, 3}}}, {x, n, 5});
  };
  const std::vector<Array> found = jit(f)(full({}, 1.5), full({}, 4, DType::i32));
  EXPECT_EQ(found[0].to_vector<double>(), (std::vector<double>{5.5, 2}));
  EXPECT_EQ(found[1].item<bool>(), true);
  EXPECT_EQ(found[2].shape(), (Shape{0, 3}));
}

TEST(PureCallback, WithoutArguments) {
  const auto f = jit([](Array x) {
    const std::vector<Array> found = pure_callback(
        [](const std::vector<Array>& arguments) {
          EXPECT_TRUE(arguments.empty());
          return std::vector<Array>{array({1.0F, 2.0F}), array({3.0F})};
        },
        {{DType::f32, {2}}, {DType::f32, {1}}}, {});
    return (found[0] + found[1]) * x;
  });
  expect_same_bits(f(full({}, 2.0)), array({8.0F, 10.0F}));
}

TEST(PureCallback, InLoopsBranchesBatchesAndShards) {
  int calls = 0;
  const auto f = [&](const Array& v) { return incremented(calls, v); };
  const Array x = numbers({4, 3});
  const auto loop = [&](const Array& xs) {
    return scan([&](const Array& c, const Array& row) { return std::pair(f(c) + row, f(row)); },
                zeros({3}), xs);
  };
  const auto plain =
      scan([](const Array& c, const Array& row) { return std::pair(c + 1 + row, row + 1); },
           zeros({3}), x);
  const auto found = jit(loop)(x);
  expect_same_bits(found.first, plain.first);
  expect_same_bits(found.second, plain.second);
  EXPECT_EQ(calls, 8);
  const auto count = while_loop([&](const Array& n) { return less(f(n), 5); },
                                [](const Array& n) { return n * 2; }, full({}, 1.0));
  EXPECT_EQ(count.item<float>(), 4);
  const auto one_branch = [&](const Array& v) {
    return cond(
        less(v, 0), f, [](const Array& u) { return -u; }, v);
  };
  EXPECT_EQ(jit(one_branch)(full({}, -3.0)).item<float>(), -2);
  EXPECT_EQ(jit(one_branch)(full({}, 3.0)).item<float>(), -3);
  calls = 0;
  expect_same_bits(jit(vmap(f))(x), x + 1);
  EXPECT_EQ(calls, 4);
  expect_same_bits(vmap(vmap(f), {.in_axes = {1}})(x), transpose(x) + 1);

  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const use_mesh scope(mesh);
  calls = 0;
  const auto tiles = shard_map(
      f, {.mesh = mesh, .in_specs = {P{{"data", "model"}}}, .out_specs = P{{"data", "model"}}});
  expect_same_bits(jit(tiles)(x), x + 1);
  EXPECT_EQ(calls, 4);
}

TEST(PureCallback, HasTheDerivativeThatItIsGiven) {
  int calls = 0;
  const auto f = custom_vjp([&](const Array& v) { return incremented(calls, v * v); },
                            [&](const Array& v) { return std::pair(incremented(calls, v * v), v); },
                            [](const Array& v, const Array& ct) { return ct * v * 2; });
  const Array x = numbers({5});
  const auto plain = [](const Array& v) { return sum(sin(v * v + 1)); };
  expect_same_bits(jit(grad([&](const Array& v) { return sum(sin(f(v))); }))(x), grad(plain)(x));
  EXPECT_EQ(calls, 1);
  const auto again = [&](const Array& v) {
    return sum(remat([&](const Array& u) { return sin(f(u)); })(v));
  };
  expect_same_bits(jit(grad(again))(x), grad(plain)(x));
  const Mistake mistake =
      mistake_of([&] { grad([&](const Array& v) { return sum(incremented(calls, v)); })(x); });
  EXPECT_NE(mistake.what.find("pure_callback"), std::string::npos) << mistake.what;
}

TEST(PureCallback, InAPipeline) {
  int calls = 0;
  const auto step = [&](const Array& w, const Array& xs) {
    const auto one = [&](const Array& x) {
      const Array y = mark_stage_end(incremented(calls, x) * w);
      return sum(mark_stage_end(incremented(calls, y) * w));
    };
    return treduce(one, xs, GPipe{2});
  };
  const MpmdMesh mesh(make_mesh({{"mpmd", 2}}), "mpmd");
  const Array w = numbers({3}, 1);
  const Array xs = numbers({4, 3}, 2);
  const Array wanted = jit(step)(w, xs);
  EXPECT_EQ(calls, 8);
  const Array found = mpmd_jit_with_loop(step, mesh)(w, xs);
  EXPECT_EQ(calls, 16);
  EXPECT_EQ(found.item<float>(), wanted.item<float>());
}

TEST(PureCallback, IsLeftOutIfNothingNeedsIt) {
  int calls = 0;
  jit([&](const Array& v) {
    incremented(calls, v);
    return v + 1;
  })(ones({2}));
  EXPECT_EQ(calls, 0);
}

TEST(PureCallback, OtherResultsThanStated) {
  const auto f = [](const Array& v) {
    return pure_callback([](const std::vector<Array>& arguments) { return arguments; },
                         {{DType::f32, {3}}}, {v})[0];
  };
  for (const auto& run :
       std::vector<std::function<void()>>{[&] { f(ones({2})); }, [&] { jit(f)(ones({2})); }}) {
    const Mistake mistake = mistake_of(run);
    EXPECT_EQ(mistake.what,
              "pure_callback: the function does not return arrays of the declared types");
    EXPECT_EQ(mistake.found, "f32[2]");
    EXPECT_EQ(mistake.wanted, "f32[3]");
  }
  const auto g = jit([](const Array& v) {
    return pure_callback(
        [](const std::vector<Array>&) -> std::vector<Array> { throw std::domain_error("no"); },
        {v.type()}, {v})[0];
  });
  EXPECT_THROW(g(ones({2})), std::domain_error);
  EXPECT_THROW(g(ones({2})), std::domain_error);
}

/// Returns 1, 2, 3, ... in the order of its calls, and writes its argument to the stream.
struct Counter {
  std::ostream* stream;
  int* count;
  std::vector<Array> operator()(const std::vector<Array>& arguments) const {
    *stream << arguments[0].item<float>() << ' ';
    return {array(std::vector<float>{static_cast<float>(++*count)}, Shape{})};
  }
};

TEST(IoCallback, IsCalledOnceEachTimeInTheOrderOfTheProgram) {
  const Array x = array({5.0F, 6.0F, 7.0F});
  const auto program = [](Counter counter) {
    return [counter](const Array& xs) {
      const auto number = [&](const Array& v) {
        return io_callback(counter, {{DType::f32, {}}}, {v})[0];
      };
      const Array first = number(full({}, 1.0));
      const Array second = number(full({}, 1.0));
      number(full({}, 2.0));  // nothing needs its result
      const auto looped = scan(
          [&](const Array& c, const Array& v) {
            const Array up = number(v);
            return std::pair(c + up, number(-v));
          },
          first - second, xs);
      const Array last = while_loop([&](const Array& n) { return less(number(n), 14); },
                                    [](const Array& n) { return n * 2; }, full({}, 1.0));
      return std::tuple(first, second, looped.first, looped.second, last);
    };
  };
  const auto run = [&](bool is_jitted) {
    std::ostringstream stream;
    int count = 0;
    const auto f = program({&stream, &count});
    const auto [first, second, sum, numbers, last] = is_jitted ? jit(f)(x) : f(x);
    EXPECT_EQ(first.item<float>(), 1);
    EXPECT_EQ(second.item<float>(), 2);
    EXPECT_EQ(sum.item<float>(), -1 + 4 + 6 + 8);
    EXPECT_EQ(numbers.to_vector<float>(), (std::vector<float>{5, 7, 9}));
    EXPECT_EQ(last.item<float>(), 16);
    EXPECT_EQ(stream.str(), "1 1 2 5 -5 6 -6 7 -7 1 2 4 8 16 ");
  };
  run(false);
  run(true);
  set_engine("reference");
  run(true);
  set_engine("host");
  const use_mesh mesh(make_mesh({{"data", 2}}));
  run(true);
}

TEST(IoCallback, IsNotRepeatedByDerivatives) {
  std::ostringstream stream;
  int count = 0;
  const Counter counter{&stream, &count};
  const auto scaled = [&](const Array& v) {
    const Array scale = io_callback(counter, {{DType::f32, {}}}, {full({}, 7.0)})[0];
    return sin(v * scale);
  };
  const auto loss = [&](const Array& v) {
    return sum(scan([&](const Array& c,
                        const Array&) { return std::pair(remat(scaled)(c), std::tuple<>()); },
                    v, zeros({2}))
                   .first);
  };
  const auto plain = [](const Array& v) { return sum(sin(sin(v * 1) * 2)); };
  const Array x = numbers({3});
  const auto [value, gradient] = jit(value_and_grad(loss))(x);
  EXPECT_EQ(count, 2);
  const auto [wanted, wanted_gradient] = jit(value_and_grad(plain))(x);
  expect_same_bits(value, wanted);
  expect_same_bits(gradient, wanted_gradient);
}

TEST(IoCallback, WithCheckFiniteIsAnError) {
  std::ostringstream stream;
  int count = 0;
  const auto f = jit(
      [&](const Array& v) {
        return io_callback(Counter{&stream, &count}, {{DType::f32, {}}}, {v})[0];
      },
      {.check_finite = true});
  EXPECT_EQ(mistake_of([&] { f(full({}, 1.0)); }).what,
            "jit: check_finite cannot be used with io_callback");
  EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace tessera
