// Contexts in several processes. In a context that is alone, a process can compute what the others
// do not.
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "tests/isolated/reports.h"

namespace tessera {
namespace {

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

using Floats = std::vector<float>;

/// Trains on the mesh: the loss of each step, and the weights.
Floats train(const Mesh& mesh, std::int64_t seed, int steps) {
  const use_mesh scope(mesh);
  const auto step = jit([](const Array& w, const Array& x) {
    auto [loss, grad] = value_and_grad(
        [&](const Array& weights) { return mean(square(tanh(dot(x, weights)))); })(w);
    return std::pair(w - grad * 0.1, loss);
  });
  Array w = device_put(random::normal(Key(seed), {16, 8}), P{none, "a"});
  const Array x = device_put(random::normal(Key(seed + 1), {32, 16}), P{"a"});
  Floats values;
  for (int i = 0; i < steps; ++i) {
    Array loss;
    std::tie(w, loss) = step(w, x);
    values.push_back(loss.item<float>());
  }
  const Floats weights = w.to_vector<float>();
  values.insert(values.end(), weights.begin(), weights.end());
  return values;
}

std::string what_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// Each process trains another model for another number of steps. If any call waited for the other
/// processes, the processes would disagree on the number of calls.
void check_alone(const Mesh& mesh) {
  const Floats shared = train(mesh, 5, 3);
  const int rank = process_index();
  {
    const use_context scope{Context({.is_alone = true})};
    expect(process_count() == 1 && process_index() == 0, "alone, it is the only process");
    expect(train(mesh, 5, 3) == shared, "the bits differ from those of the shared devices");
    const Floats own = train(mesh, 100 * rank, 2 + rank);
    expect(own != shared, "another model has other numbers");
    const Context inner;
    const use_context inner_scope(inner);
    expect(process_count() == 1, "a new context takes over that it is alone");
  }
  expect(process_index() == rank, "after the scope, the processes share the devices again");
  expect(train(mesh, 5, 3) == shared, "the shared devices compute something else afterwards");
}

TEST(IsolatedContext, AloneAProcessComputesWhatTheOthersDoNot) {
  const Mesh mesh = make_mesh({{"a", 4}});
  for (const int processes : {1, 2, 4}) {
    testing::ReportingProgram program([&] { check_alone(mesh); });
    EXPECT_EQ(run_isolated(program, {.num_processes = processes}), 0) << processes;
  }
}

void check_arrays(const Mesh& mesh) {
  const Array split = device_put(arange(12), NamedSharding(mesh, P{"a"}));
  const Array whole = device_put(arange(12), NamedSharding(mesh, P()));
  auto twice = jit([](const Array& v) { return v * 2; });
  expect(array_equal(twice(split), arange(12) * 2), "split values differ");
  const Context alone({.is_alone = true});
  Array made, made_whole;
  {
    const use_context scope(alone);
    expect(array_equal(whole, arange(12)), "a replicated array is held by each process");
    expect(array_equal(twice(whole), arange(12) * 2), "values differ");
    for (const auto& use : std::vector<std::function<void()>>{
             [&] { split.to_vector<std::int32_t>(); }, [&] { twice(split); }, [&] { split + 1; }}) {
      expect(what_of(use).find("does not hold all the tiles") != std::string::npos,
             "an array of the shared devices is used alone");
    }
    made = device_put(arange(12) * 3, NamedSharding(mesh, P{"a"}));
    made_whole = device_put(made, NamedSharding(mesh, P()));
    expect(array_equal(twice(made), arange(12) * 6), "values of its own differ");
  }
  const std::string text = what_of([&] { twice(made); });
  expect(text.starts_with("this process does not hold all the tiles of the array") &&
             text.find("i32[12] as P('a',), made in a context in which this process computes "
                       "alone") != std::string::npos,
         "an array that was made alone is used on the shared devices: " + text);
  expect(array_equal(twice(made_whole), arange(12) * 6), "a replicated array comes out");
}

TEST(IsolatedContext, ArraysPassIfEachProcessHoldsAllTiles) {
  const Mesh mesh = make_mesh({{"a", 4}});
  testing::ReportingProgram program([&] { check_arrays(mesh); });
  EXPECT_EQ(run_isolated(program, {.num_processes = 2}), 0);
}

}  // namespace
}  // namespace tessera
