#include "machine.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <thread>
#include <vector>

#include "profile/machine.h"

namespace tessera::bench {

namespace {

double seconds(int threads) {
  timespec time = {};
  // The CPU time of a thread does not advance while other programs run.
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The best rate of several rounds of body(thread), which returns how many operations or bytes it
// did; in 10^9 per second.
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
    const double flops = profile::fma_chains(kRounds, out);
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
    profile::add_arrays(&a[begin], &b[begin], &c[begin], kCount);
    return 3.0 * sizeof(float) * kCount;
  });
}

}  // namespace tessera::bench
