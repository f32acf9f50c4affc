#include "profile/machine.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "compile/host/kernels/targets.h"
#include "run/machine/cores.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "profile/machine.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come before highway.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::profile::HWY_NAMESPACE {
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

void add_arrays(const float* a, const float* b, float* c, std::size_t count) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i + hn::Lanes(d) <= count; i += hn::Lanes(d))
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, c + i);
}

}  // namespace tessera::profile::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::profile {

HWY_EXPORT(fma_chains);
HWY_EXPORT(add_arrays);

double fma_chains(long rounds, float* out) { return HWY_DYNAMIC_DISPATCH(fma_chains)(rounds, out); }

void add_arrays(const float* a, const float* b, float* c, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(add_arrays)(a, b, c, count);
}

namespace {

double thread_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Runs body(thread) on all threads for several rounds and returns the best total rate, in 1e9
/// units per second. `body` returns the units of work done. Time is the CPU time of each thread, so
/// the time that other programs take does not count.
double best_rate(int threads, int rounds, const std::function<double(int)>& body) {
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    std::atomic<double> rate = 0;
    const auto run = [&](int thread) {
      const double start = thread_seconds();
      const double done = body(thread);
      rate += done / (thread_seconds() - start);
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) {
      try {
        others.emplace_back(run, i);
      } catch (const std::exception&) {
        break;  // no more threads can be created: measure with those that run
      }
    }
    run(0);
    for (std::thread& thread : others) thread.join();
    best = std::max(best, rate.load());
  }
  return best * 1e-9;
}

double measured_gflops(int threads) {
  constexpr long kRounds = 400'000;
  constexpr int kTries = 5;
  std::atomic<float> sink = 0;
  return best_rate(threads, kTries, [&](int) {
    float out[64];
    for (float& x : out) x = 0.5f;
    const double flops = fma_chains(kRounds, out);
    for (const float x : out) sink = x;
    return flops;
  });
}

double measured_gbytes(int threads) {
  constexpr std::size_t kCount = std::size_t{3} << 21;  // three arrays of 24 MiB
  constexpr int kTries = 3;
  const auto make = [] {
    auto array = std::make_unique_for_overwrite<float[]>(kCount);
    std::fill_n(array.get(), kCount, 1.0f);
    return array;
  };
  const auto a = make(), b = make(), c = make();
  const std::size_t share = kCount / static_cast<std::size_t>(threads);
  return best_rate(threads, kTries, [&](int thread) {
    const std::size_t begin = static_cast<std::size_t>(thread) * share;
    add_arrays(&a[begin], &b[begin], &c[begin], share);
    return 3.0 * sizeof(float) * static_cast<double>(share);
  });
}

}  // namespace

Peaks machine_peaks(int threads) {
  static std::mutex mutex;
  static std::map<int, Peaks> measured;
  threads = std::min(threads, run::usable_cores());
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [place, is_new] = measured.try_emplace(threads);
  if (is_new) place->second = {measured_gflops(threads), measured_gbytes(threads)};
  return place->second;
}

}  // namespace tessera::profile
#endif  // HWY_ONCE
