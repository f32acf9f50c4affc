// Several threads of a program use jitted functions, eager ops and settings at the same time.
#include <atomic>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>

#include <tessera/tessera.h>

#include "api/array_node.h"
#include "api/test_support.h"
#include "run/engine.h"

namespace tessera {
namespace {

using testing::numbers;
using Floats = std::vector<float>;

struct Model {
  Array up, down;
  TESSERA_TREE(up, down)
};

Model model_of(std::int64_t seed) { return {numbers({12, 20}, seed), numbers({20, 12}, seed + 1)}; }

std::tuple<Model, Array> step(const Model& model, const Array& x) {
  auto [loss, grads] = value_and_grad(
      [&](const Model& m) { return mean(square(dot(tanh(dot(x, m.up)), m.down) - x)); })(model);
  return {tree_map([](const Array& p, const Array& g) { return p - 0.1 * g; }, model, grads), loss};
}

/// Trains a model and returns its losses and its last weights.
template <typename Step>
Floats train(Step& step, std::int64_t seed, const Array& x) {
  Model model = model_of(seed);
  Floats values;
  for (int i = 0; i < 5; ++i) {
    Array loss;
    std::tie(model, loss) = step(std::move(model), x);
    values.push_back(loss.item<float>());
  }
  const Floats weights = model.up.to_vector<float>();
  values.insert(values.end(), weights.begin(), weights.end());
  return values;
}

/// Calls `body` with the numbers from 0 to `count` - 1, each in its own thread.
template <typename Body>
void in_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, EightTrainTheirOwnModels) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const auto batch = [&](int i) {
    const Array x = numbers({16, 12}, 100 + i);
    // Some of the threads use a mesh, which requires other programs.
    return i % 2 == 0 ? x : device_put(x, NamedSharding(mesh, P{"data"}));
  };
  auto shared = jit(step, {.donate_argnums = {0}});
  std::vector<Floats> wanted(8), found(8), found_alone(8);
  for (int i = 0; i < 8; ++i) {
    auto alone = jit(step);
    wanted[static_cast<std::size_t>(i)] = train(alone, i, batch(i));
  }
  in_threads(8, [&](int i) {
    const Array x = batch(i);
    found[static_cast<std::size_t>(i)] = train(shared, i, x);
    auto alone = jit(step, {.donate_argnums = {0}});
    found_alone[static_cast<std::size_t>(i)] = train(alone, i, x);
  });
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(found_alone, wanted);
}

TEST(Threads, EachWithItsOwnSettings) {
  const Array x = numbers({3000}, 1);
  auto total = jit([](const Array& values) { return sum(exp(values)); });
  const std::vector<std::int64_t> grains_of = {1, 2, 3, 4, 8, 16, 32, 64};
  const auto value = [&](int i) {
    set_grains(grains_of[static_cast<std::size_t>(i)]);
    Floats values;
    for (int times = 0; times < 20; ++times) {
      values.push_back(total(x).item<float>());
      values.push_back(sum(tanh(x)).item<float>());
    }
    return values;
  };
  std::vector<Floats> wanted(8), found(8);
  const std::int64_t before = grains();
  for (int i = 0; i < 8; ++i) wanted[static_cast<std::size_t>(i)] = value(i);
  set_grains(before);
  EXPECT_NE(wanted[0], wanted[7]);
  in_threads(8, [&](int i) {
    const Context context;
    const use_context scope(context);
    found[static_cast<std::size_t>(i)] = value(i);
  });
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(grains(), before);
}

TEST(Context, ScopesNest) {
  const std::int64_t before = grains();
  const Context outer;
  {
    const use_context outer_scope(outer);
    set_grains(before + 1);
    const Context inner;
    {
      const use_context inner_scope(inner);
      EXPECT_EQ(grains(), before + 1);
      set_grains(before + 2);
      set_engine("reference");
    }
    EXPECT_EQ(grains(), before + 1);
    EXPECT_EQ(engine(), "host");
  }
  EXPECT_EQ(grains(), before);
  const use_context again(outer);
  EXPECT_EQ(grains(), before + 1);
}

TEST(Context, ItsProgramsAndTheirPlacementsAreFreed) {
  std::weak_ptr<const detail::Placement> of_array, of_program;
  {
    auto twice = jit([](const Array& values) { return values * 2.0; });
    auto context = std::make_unique<Context>();
    {
      const use_context scope(*context);
      const Array x = numbers({7, 11, 13}, 1);
      of_array = x.node()->placement;
      const Array y = twice(x) + sum(x);
      of_program = sum(y, 1).node()->placement;
    }
    EXPECT_FALSE(of_array.expired());
    EXPECT_FALSE(of_program.expired());
    context.reset();
    EXPECT_FALSE(of_array.expired());  // the cache of the jitted function still holds it
    EXPECT_TRUE(of_program.expired());
  }
  EXPECT_TRUE(of_array.expired());
}

/// The largest number of parts of any task of an execution.
std::size_t most_parts(const run::EngineTrace& trace) {
  std::size_t most = 0;
  for (const run::ExecutionTrace& execution : trace.executions) {
    std::map<std::uint32_t, std::size_t> of_task;
    for (const run::PartTime& part : execution.parts) {
      most = std::max(most, ++of_task[part.task]);
    }
  }
  return most;
}

TEST(Context, ItsProgramsAreCutForItsThreads) {
  const Array x = numbers({256, 256}, 1);
  auto product = jit([](const Array& values) { return dot(values, values); });
  const Floats wanted = product(x).to_vector<float>();
  for (const auto& [threads, is_cut] : {std::pair(1, false), {8, true}}) {
    const use_context scope{Context({.num_threads = threads})};
    EXPECT_EQ(num_threads(), threads);
    const Context inner;
    const use_context inner_scope(inner);
    EXPECT_EQ(num_threads(), threads) << "a new context takes over the number";
    ASSERT_TRUE(run::Engine::instance().start_trace());
    const Floats found = product(x).to_vector<float>();
    EXPECT_EQ(most_parts(run::Engine::instance().stop_trace()) > 1, is_cut) << threads;
    EXPECT_EQ(found, wanted);
  }
  EXPECT_EQ(product.num_traces(), 3);
  EXPECT_EQ(num_threads(), run::Engine::instance().num_threads());
  EXPECT_EQ(testing::mistake_of([] { Context({.num_threads = -1}); }).what,
            "Context: the number of threads is out of range");
}

/// A random function of a 16x16 matrix, made of products, elementwise ops, reductions and a loop.
Array random_function(std::uint32_t seed, Array x) {
  std::minstd_rand random(seed);
  std::vector<Array> made = {x};
  const auto any = [&] { return made[random() % made.size()]; };
  const auto num_ops = static_cast<int>(3 + random() % 20);
  for (int i = 0; i < num_ops; ++i) {
    switch (random() % 7) {
      case 0:
        made.push_back(tanh(dot(any(), any()) * 0.1));
        break;
      case 1:
        made.push_back(any() + any());
        break;
      case 2:
        made.push_back(sin(any()) * any());
        break;
      case 3:
        made.push_back(any() - mean(any(), {0}, keepdims));
        break;
      case 4:
        made.push_back(transpose(any()));
        break;
      case 5:
        made.push_back(any() / (1.0 + sum(square(any()), {1}, keepdims)));
        break;
      default:
        made.push_back(fori_loop(
            0, 3, [&](const Array&, const Array& a) { return cos(a) + x; }, any()));
    }
  }
  Array all = made[0];
  for (std::size_t i = 1; i < made.size(); ++i) all = all * 0.5 + made[i];
  return all;
}

/// Functions and arguments that the threads share.
struct RandomCases {
  static constexpr std::uint32_t kCount = 24;
  std::vector<Array> arguments;
  std::vector<Floats> wanted;

  RandomCases() {
    const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
    for (std::uint32_t i = 0; i < kCount; ++i) {
      Array x = numbers({16, 16}, 200 + i);
      if (i % 3 == 1) x = device_put(x, NamedSharding(mesh, P{"data"}));
      if (i % 3 == 2) x = device_put(x, NamedSharding(mesh, P{"model", "data"}));
      arguments.push_back(x);
      wanted.push_back(random_function(i, x).to_vector<float>());
    }
  }
};

TEST(Threads, EightRunRandomPrograms) {
  const int before = num_threads();
  for (const int threads : {1, 2, 4}) {
    set_num_threads(threads);
    const RandomCases cases;
    const auto make = [](std::uint32_t i, JitOptions options) {
      return jit([i](const Array& x) { return random_function(i, x); }, std::move(options));
    };
    std::vector<decltype(make(0, {}))> keeping, donating;
    for (std::uint32_t i = 0; i < RandomCases::kCount; ++i) {
      keeping.push_back(make(i, {}));
      donating.push_back(make(i, {.donate_argnums = {0}}));
    }
    auto forward = jit([](const Array& x) { return x; });
    std::atomic<int> num_wrong = 0;
    in_threads(8, [&](int thread) {
      std::minstd_rand random(static_cast<std::uint32_t>(100 * threads + thread + 1));
      for (int repeat = 0; repeat < 20; ++repeat) {
        const auto i = static_cast<std::uint32_t>(random() % RandomCases::kCount);
        const Array& x = cases.arguments[i];
        Array found;
        switch (random() % 4) {
          case 0:
            found = random_function(i, x);  // op by op
            break;
          case 1:
            found = donating[i](x * 1.0);
            break;
          case 2:
            // Another array holds the buffers that are donated.
            found = donating[i](forward(x));
            break;
          default:
            found = keeping[i](x);
        }
        if (found.to_vector<float>() != cases.wanted[i]) num_wrong += 1;
      }
    });
    EXPECT_EQ(num_wrong, 0) << threads << " threads";
  }
  set_num_threads(before);
}

TEST(Threads, ACallReadsItsSettingsOnce) {
  const Array x = numbers({1000});
  const auto sum_with = [&](std::int64_t grains) {
    set_grains(grains);
    return jit([](const Array& a) { return sum(a); })(x).item<float>();
  };
  const float few = sum_with(1), many = sum_with(8);
  ASSERT_NE(few, many) << "the grains must show in the bits";
  std::atomic<bool> is_over = false;
  std::thread changer([&] {
    while (!is_over) {
      set_grains(1);
      set_grains(8);
    }
  });
  const auto make = [] { return jit([](const Array& a) { return sum(a); }); };
  std::vector<decltype(make())> functions;
  for (int i = 0; i < 200; ++i) {
    functions.push_back(make());
    for (int k = 0; k < 4; ++k) functions.back()(x);
  }
  is_over = true;
  changer.join();
  // A program cached for a number of grains must have been traced with that number.
  for (const auto& [grains, wanted] : {std::pair(1, few), std::pair(8, many)}) {
    set_grains(grains);
    for (auto& f : functions) ASSERT_EQ(f(x).item<float>(), wanted) << "grains " << grains;
  }
}

}  // namespace
}  // namespace tessera
