// Measures what a call costs beyond the work of its kernels: single ops outside of any jitted
// function, and calls of jitted functions so small that the kernels take next to nothing.
//
//   eager_bench [options of Google Benchmark]
//
// bench/peers/eager.py measures the same calls with PyTorch and MLX.
#include <benchmark/benchmark.h>
#include <functional>
#include <vector>

#include <tessera/optim.h>
#include <tessera/tessera.h>

namespace tessera::bench {
namespace {

Array values(std::int64_t size) { return full({size}, 1.5); }

/// Measures a call of `op` with arrays of state.range(0) elements.
void measure(benchmark::State& state, const std::function<Array(const Array&, const Array&)>& op) {
  const Array a = values(state.range(0));
  const Array b = values(state.range(0));
  benchmark::DoNotOptimize(op(a, b));
  for (auto _ : state) benchmark::DoNotOptimize(op(a, b));
}

void add_arrays(benchmark::State& state) {
  measure(state, [](const Array& a, const Array& b) { return a + b; });
}
void multiply_by_number(benchmark::State& state) {
  measure(state, [](const Array& a, const Array&) { return a * 0.5; });
}
/// A number that is new in each call, as a learning rate that changes at each step.
void multiply_by_new_number(benchmark::State& state) {
  double rate = 0;
  measure(state, [&](const Array& a, const Array&) { return a * (rate += 1e-6); });
}
void tanh_of_array(benchmark::State& state) {
  measure(state, [](const Array& a, const Array&) { return tanh(a); });
}
void less_than(benchmark::State& state) {
  measure(state, [](const Array& a, const Array& b) { return a < b; });
}
void choose(benchmark::State& state) {
  measure(state, [](const Array& a, const Array& b) { return where(a < 0.0, a, b); });
}
void sum_of_array(benchmark::State& state) {
  measure(state, [](const Array& a, const Array&) { return sum(a); });
}
void add_row(benchmark::State& state) {
  const std::int64_t width = state.range(0);
  const Array a = full({4, width}, 1.5);
  const Array b = values(width);
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
void product(benchmark::State& state) {
  const std::int64_t width = state.range(0);
  const Array a = full({width, width}, 1.5);
  for (auto _ : state) benchmark::DoNotOptimize(matmul(a, a));
}

/// A step of gradient descent on a chain of `layers` products with 8x8 matrices.
void jitted_step(benchmark::State& state) {
  const auto layers = static_cast<std::size_t>(state.range(0));
  using Weights = std::vector<Array>;
  const auto step = jit(
      [](const Weights& weights, const Array& x) {
        const auto loss = [&](const Weights& w) {
          Array y = x;
          for (const Array& weight : w) y = tanh(matmul(y, weight));
          return mean(square(y));
        };
        const auto gradients = grad(loss)(weights);
        Weights next;
        for (std::size_t i = 0; i < weights.size(); ++i) {
          next.push_back(weights[i] - 0.01 * gradients[i]);
        }
        return next;
      },
      {.donate_argnums = {0}});
  Weights weights(layers, Array());
  for (Array& weight : weights) weight = full({8, 8}, 0.1);
  const Array x = full({4, 8}, 0.5);
  for (auto _ : state) weights = step(weights, x);
  // Per layer: three products, of which the first layer has two, and two regions.
  state.counters["layers"] = static_cast<double>(layers);
}

/// A jitted function of one op.
void jitted_add(benchmark::State& state) {
  const auto add_one = jit([](const Array& x) { return x + 1.0; });
  const Array x = values(state.range(0));
  benchmark::DoNotOptimize(add_one(x));
  for (auto _ : state) benchmark::DoNotOptimize(add_one(x));
}

BENCHMARK(add_arrays)->Arg(1)->Arg(1024)->Arg(65536)->UseRealTime();
BENCHMARK(multiply_by_number)->Arg(1024)->UseRealTime();
BENCHMARK(multiply_by_new_number)->Arg(1024)->UseRealTime();
BENCHMARK(tanh_of_array)->Arg(1024)->UseRealTime();
BENCHMARK(less_than)->Arg(1024)->UseRealTime();
BENCHMARK(choose)->Arg(1024)->UseRealTime();
BENCHMARK(add_row)->Arg(256)->UseRealTime();
BENCHMARK(sum_of_array)->Arg(1024)->UseRealTime();
BENCHMARK(product)->Arg(16)->UseRealTime();
BENCHMARK(jitted_add)->Arg(1)->UseRealTime();
BENCHMARK(jitted_step)->Arg(1)->Arg(4)->Arg(16)->UseRealTime();

}  // namespace
}  // namespace tessera::bench

BENCHMARK_MAIN();
