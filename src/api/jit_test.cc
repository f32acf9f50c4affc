#include <gtest/gtest.h>
#include <thread>

#include <tessera/error.h>
#include <tessera/grad.h>
#include <tessera/jit.h>
#include <tessera/ops.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::mistake_of;

using Floats = std::vector<float>;

struct State {
  Array weights, step;
  double rate = 0.5;
  TESSERA_TREE(weights, step, rate)
};

TEST(Jit, ComputesAndTracesOncePerKind) {
  auto f = jit([](Array x, Array y) { return x * 2 + y; });
  EXPECT_EQ(f(array({1.F, 2.F}), array({3.F, 4.F})).to_vector<float>(), (Floats{5, 8}));
  EXPECT_EQ(f(array({0.F, 0.F}), array({3.F, 4.F})).to_vector<float>(), (Floats{3, 4}));
  EXPECT_EQ(f.num_traces(), 1);
  f(array({1.F}), array({3.F}));
  EXPECT_EQ(f.num_traces(), 2);
}

TEST(Jit, StaticFieldsAreConstants) {
  auto f = jit([](State s) { return s.weights * s.rate; });
  State state{array({2.F}), scalar(0)};
  EXPECT_EQ(f(state).item<float>(), 1.0F);
  state.rate = 2.0;
  EXPECT_EQ(f(state).item<float>(), 4.0F);
  EXPECT_EQ(f.num_traces(), 2);
}

TEST(Jit, ReturnsTrees) {
  auto f = jit([](State s) {
    s.step += 1;
    return std::tuple(s, s.weights + s.weights);
  });
  const auto [state, twice] = f(State{array({2.F}), scalar(4)});
  EXPECT_EQ(state.step.item<int>(), 5);
  EXPECT_EQ(state.rate, 0.5);
  EXPECT_EQ(twice.item<float>(), 4.0F);
}

TEST(Jit, CapturedArraysAreInputs) {
  Array captured = array({10.F});
  auto f = jit([&](Array x) { return x + captured; });
  EXPECT_EQ(f(array({1.F})).item<float>(), 11.0F);
  captured = array({20.F});  // f keeps using the array that it captured when traced
  EXPECT_EQ(f(array({1.F})).item<float>(), 11.0F);
}

TEST(Jit, GenericFunctionsAndPointers) {
  auto f = jit([](auto x, auto y) { return x + y; });
  EXPECT_EQ(f(array({1.F}), array({2.F})).template item<float>(), 3.0F);
  auto g = jit(+[](Array x) { return -x; });
  EXPECT_EQ(g(array({1.F})).item<float>(), -1.0F);
}

TEST(Jit, NestedFunctionsAreInlined) {
  auto inner = jit([](Array x) { return x * x; });
  auto outer = jit([&](Array x) { return inner(x) + inner(x + 1); });
  EXPECT_EQ(outer(array({2.F})).item<float>(), 13.0F);
  EXPECT_EQ(inner.num_traces(), 0);
}

TEST(Jit, DonatedArraysAreGone) {
  auto f = jit(
      [](State s, Array x) {
        return State{s.weights + x, s.step, s.rate};
      },
      {.donate_argnums = {0}});
  const State state{array({2.F}), scalar(4)};
  const State next = f(state, array({1.F}));
  EXPECT_EQ(next.weights.item<float>(), 3.0F);
  EXPECT_TRUE(state.weights.is_deleted());
  const Mistake mistake = mistake_of([&] { state.weights.to_vector<float>(); });
  EXPECT_NE(mistake.found.find("argument 0/weights f32[1], donated at"), std::string::npos);
  EXPECT_NE(mistake.found.find("jit_test.cc:"), std::string::npos);
  EXPECT_EQ(mistake_of([&] { state.weights + 1; }).what, mistake.what);
  EXPECT_EQ(mistake_of([&] { f(state, array({1.F})); }).what, mistake.what);
}

TEST(Jit, DonatingOneArrayTwiceIsAnError) {
  auto f = jit([](Array x, Array y) { return x + y; }, {.donate_argnums = {0, 1}});
  const Array x = array({2.F});
  EXPECT_EQ(mistake_of([&] { f(x, x); }).what, "an array was donated twice in one call");
}

TEST(Jit, LowersWithoutValues) {
  auto f = jit([](Array x) { return exp(x); }, {.name = "f"});
  const Array abstract = eval_shape([](Array x) { return x; }, array({1.F, 2.F}));
  auto lowered = f.lower(abstract);
  EXPECT_NE(lowered.ir().find("exp %0"), std::string::npos);
  EXPECT_NE(lowered.ir().find("jit_test.cc:"), std::string::npos);
  auto compiled = lowered.compile();
  EXPECT_EQ(compiled(array({0.F, 0.F})).to_vector<float>(), (Floats{1, 1}));
  EXPECT_GT(compiled.compile_seconds(), 0.0);
  EXPECT_NE(mistake_of([&] { compiled(array({0.F})); }).what.find("the type of argument 0"),
            std::string::npos);
  EXPECT_EQ(mistake_of([&] { f(abstract); }).what, "an abstract array has no values");
}

TEST(Jit, TracersMayNotEscape) {
  Array escaped;
  auto f = jit([&](Array x) {
    escaped = x + 1;
    return x;
  });
  f(array({1.F}));
  EXPECT_EQ(mistake_of([&] { escaped + 1; }).what,
            "a traced array was used after its function had been traced");
  EXPECT_EQ(mistake_of([&] { escaped.item<float>(); }).what,
            "the values of a traced array are not known");
}

TEST(Jit, ThreadsShareOneTrace) {
  auto f = jit([](Array x) { return x * x; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto value = static_cast<float>(i);
      for (int k = 0; k < 10; ++k) {
        EXPECT_EQ(f(array({value})).item<float>(), value * value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(f.num_traces(), 1);
}

TEST(Jit, ShardingsGoInAndOut) {
  const Mesh mesh = make_mesh({{"data", 2}});
  auto make = jit([](Array x) { return std::tuple(x + 1, x * 2); },
                  {.out_shardings = {NamedSharding(mesh, P{"data"}), NamedSharding(mesh, P{})}});
  const auto [split, whole] = make(array({1.F, 2.F, 3.F}));
  EXPECT_EQ(split.sharding(), NamedSharding(mesh, P{"data"}));
  EXPECT_EQ(split.to_vector<float>(), (Floats{2, 3, 4}));
  EXPECT_EQ(split.local_data(0).to_vector<float>(), (Floats{2}));
  EXPECT_EQ(split.local_data(1).to_vector<float>(), (Floats{3, 4}));
  EXPECT_EQ(whole.local_data(1).to_vector<float>(), (Floats{2, 4, 6}));
}

TEST(Jit, OtherMeshesAreAnError) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array x = device_put(array({1.F, 2.F}), NamedSharding(mesh, P{"data"}));
  auto f = jit([](Array y) { return y + 1; });
  const use_mesh scope(make_mesh({{"data", 4}}));
  const Mistake mistake = mistake_of([&] { f(x); });
  EXPECT_EQ(mistake.what, "the arrays of a call are on different meshes");
  EXPECT_EQ(mistake.found, "argument 0 on data=2");
  EXPECT_EQ(mistake.wanted, "data=4, the mesh of the use_mesh scope");
}

TEST(Jit, ShardingsMustFitTheTree) {
  const Mesh mesh = make_mesh({{"data", 2}});
  Shardings wrong;
  wrong.set("weight", NamedSharding(mesh, P{}));
  auto f = jit([](State s) { return s; }, {.in_shardings = {wrong}});
  const State state{array({2.F}), scalar(4)};
  EXPECT_EQ(mistake_of([&] { f(state); }).found, "a sharding for weight");
  auto g = jit([](State s) { return s; }, {.out_shardings = NamedSharding(mesh, P{"data", none})});
  const std::string what = mistake_of([&] { g(state); }).what;
  EXPECT_NE(what.find("out_shardings of weights"), std::string::npos) << what;
  EXPECT_NE(mistake_of([] {
              jit([](Array x) { return x; }, {.donate_argnums = {1}})(scalar(1));
            }).what.find("donate_argnums"),
            std::string::npos);
}

TEST(Jit, ConstraintsNeedAMesh) {
  auto f = jit([](Array x) { return with_sharding_constraint(x, P{"data"}); });
  EXPECT_EQ(f(array({1.F, 2.F})).to_vector<float>(), (Floats{1, 2}));
  const use_mesh scope(make_mesh({{"model", 2}}));
  EXPECT_NE(mistake_of([&] { f(array({1.F, 2.F})); }).what.find("data"), std::string::npos);
}

struct Settings {
  Array x;
  double rate;
  TESSERA_TREE(x, rate)
};

TEST(Jit, SaysWhyItWasTracedAnew) {
  const auto f = jit([](Settings s, Array y) { return s.x * s.rate + sum(y); });
  f({zeros({2}), 0.5}, zeros({3}));
  EXPECT_EQ(f.why_recompiled(), "");
  f({zeros({2}), 0.5}, zeros({4}));
  EXPECT_EQ(f.why_recompiled(), "argument 1: f32[3] before, f32[4] now\n");
  f({zeros({2}), 0.25}, zeros({4}));
  EXPECT_EQ(f.why_recompiled(),
            "static value 0/rate: 0.5 before, 0.25 now; each value has its own program: make it a "
            "Scalar or an Array if it changes from call to call\n");
  const Mesh mesh = make_mesh({{"data", 2}});
  f({zeros({2}), 0.25}, device_put(zeros({4}), NamedSharding(mesh, P{"data"})));
  EXPECT_EQ(f.why_recompiled(),
            "argument 1: f32[4] before, f32[4] split as P('data',) on data=2 now\n");
  EXPECT_EQ(f.num_traces(), 4);
}

TEST(Jit, NamesBothValuesOfANumber) {
  const auto f = jit([](const Array& x, double rate, int count) { return x * rate + count; });
  f(zeros({2}), 0.5, 3);
  f(zeros({2}), 0.25, 3);
  EXPECT_EQ(f.why_recompiled(),
            "static value 1: 0.5 before, 0.25 now; each value has its own program: make it a "
            "Scalar or an Array if it changes from call to call\n");
  f(zeros({2}), 0.25, -4);
  EXPECT_EQ(f.why_recompiled(),
            "static value 2: 3 before, -4 now; each value has its own program: make it a Scalar or "
            "an Array if it changes from call to call\n");
}

TEST(Jit, HasOneProgramForAllScalars) {
  const auto f = jit([](const Array& x, const Scalar& rate,
                        const Scalar& count) { return x * rate + astype(count, DType::f32); },
                     {.max_traces = 1});
  for (int i = -3; i < 3; ++i) {
    const double rate = 0.5 * i;
    EXPECT_EQ(f(ones({2}), rate, i).to_vector<float>(),
              std::vector<float>(2, static_cast<float>(rate + i)));
  }
  EXPECT_EQ(f.num_traces(), 1);
}

TEST(Jit, MakesScalarsOfNumbers) {
  EXPECT_EQ(Scalar(0.5).type(), (Type{DType::f32, {}}));
  EXPECT_EQ(Scalar(7).type(), (Type{DType::i32, {}}));
  EXPECT_EQ(Scalar(true).type(), (Type{DType::boolean, {}}));
  EXPECT_EQ(Scalar(-7).item<int>(), -7);
  EXPECT_NE(mistake_of([] { Scalar(1LL << 40); }).what.find("out of range"), std::string::npos);
  const auto f = jit([](const Array& x) { return x * Scalar(0.5) + Scalar(Operand(sum(x))); });
  EXPECT_EQ(f(ones({2})).to_vector<float>(), (std::vector<float>{2.5F, 2.5F}));
}

TEST(Jit, ForgetsWhatWasNotCalledForTheLongestTime) {
  constexpr int kMost = 4096;
  const auto f = jit([](const Array& x) { return x; });
  const auto lower = [&](std::int64_t size) { f.lower(zeros({size})); };
  for (std::int64_t size = 1; size <= kMost; ++size) lower(size);
  EXPECT_EQ(f.num_traces(), kMost);
  lower(1);
  EXPECT_EQ(f.num_traces(), kMost);
  lower(kMost + 1);  // evicts the program of size 2
  lower(1);
  EXPECT_EQ(f.num_traces(), kMost + 1);
  lower(2);
  EXPECT_EQ(f.num_traces(), kMost + 2);
}

}  // namespace
}  // namespace tessera
