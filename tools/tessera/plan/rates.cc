#include "rates.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include <tessera/tessera.h>

namespace tessera::cli {

namespace {

/// The seconds of the fastest run.
double fastest(const std::function<void()>& run) {
  constexpr int kRuns = 7;
  double best = 1e300;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    best = std::min(best, passed.count());
  }
  return best;
}

}  // namespace

Rates measured_rates(DType dtype) {
  const use_mesh one_device{Mesh()};
  Rates rates;
  constexpr std::int64_t kSize = 512;
  const auto product = jit([](Array a, Array b) { return dot(a, b); });
  const Array matrix = ones({kSize, kSize}, dtype);
  const double product_seconds = fastest([&] { product(matrix, matrix); });
  rates.flops = 2.0 * kSize * kSize * kSize / product_seconds;
  // Far larger than the caches.
  constexpr std::int64_t kCount = std::int64_t{1} << 23;
  const auto sum = jit([](Array a, Array b) { return a + b; });
  const Array terms = ones({kCount});
  const double sum_seconds = fastest([&] { sum(terms, terms); });
  rates.memory_bandwidth = 3.0 * sizeof(float) * kCount / sum_seconds;
  return rates;
}

}  // namespace tessera::cli
