#include "machine.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <thread>
#include <vector>

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/machine.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChains = 12;

// Independent chains with different factors, so that the compiler can merge none of them.
template <int i, class V>
HWY_INLINE void step(V* sums, const V* factors, V term) {
  if constexpr (i < kChains) {
    sums[i] = hn::MulAdd(sums[i], factors[i], term);
    step<i + 1>(sums, factors, term);
  }
}

// Returns the floating point operations done; the sums go to `out` to keep them alive.
double fma_chains(long rounds, float* out) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<long>(hn::Lanes(d));
  V sums[kChains];
  V factors[kChains];
  for (int i = 0; i < kChains; ++i) {
    sums[i] = hn::Set(d, out[i]);
    factors[i] = hn::Set(d, out[0] + 0.01f * static_cast<float>(i % 2));
  }
  const V term = hn::Set(d, out[1]);
  for (long i = 0; i < rounds; ++i) step<0>(sums, factors, term);
  for (int i = 0; i < kChains; ++i) out[i] = hn::GetLane(sums[i]);
  return 2.0 * static_cast<double>(rounds * kChains * lanes);
}

// c = a + b
void add_arrays(const float* a, const float* b, float* c, std::size_t count) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i + hn::Lanes(d) <= count; i += hn::Lanes(d))
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, c + i);
}

}  // namespace tessera::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::bench {

HWY_EXPORT(fma_chains);
HWY_EXPORT(add_arrays);

namespace {

double seconds(int threads) {
  timespec time = {};
  // The clock of a thread stands still while other programs run.
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The best rate of several rounds of body(thread), which returns how much it did.
double best_rate(int threads, const std::function<double(int)>& body) {
  double best = 0;
  for (int round = 0; round < 10; ++round) {
    std::atomic<double> done = 0;
    const double start = seconds(threads);
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back([&, i] { done += body(i); });
    done += body(0);
    for (std::thread& thread : others) thread.join();
    best = std::max(best, done / (seconds(threads) - start));
  }
  return best * 1e-9;
}

}  // namespace

double fma_peak(int threads) {
  constexpr long kRounds = 5'000'000;
  return best_rate(threads, [](int) {
    float out[64];
    for (float& x : out) x = 0.5f + static_cast<float>(std::rand()) * 1e-12f;
    const double flops = HWY_DYNAMIC_DISPATCH(fma_chains)(kRounds, out);
    static std::atomic<float> sink;
    for (float x : out) sink = x;
    return flops;
  });
}

double memory_bandwidth(int threads) {
  constexpr std::size_t kCount = std::size_t{1} << 24;
  const auto all = static_cast<std::size_t>(threads) * kCount;
  const std::vector<float> a(all, 1.0f), b(all, 2.0f);
  std::vector<float> c(all);
  return best_rate(threads, [&](int thread) {
    const std::size_t begin = static_cast<std::size_t>(thread) * kCount;
    HWY_DYNAMIC_DISPATCH(add_arrays)(&a[begin], &b[begin], &c[begin], kCount);
    return 3.0 * sizeof(float) * kCount;
  });
}

}  // namespace tessera::bench
#endif  // HWY_ONCE
