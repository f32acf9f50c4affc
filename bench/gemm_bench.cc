// Measures the matrix products: GFLOP/s on one and two threads, the share of the machine's f32 FMA
// peak (of its peak in tile registers for amx_bf16), the cost of the summation tree over the
// grains, and oneDNN's speed on the same operands if it is installed.
//
//   gemm_bench [substring of the shapes to run] [f32, portable, avx512_bf16 or amx_bf16] [avx2]
//
// With avx2, neither Tessera nor oneDNN uses newer instruction sets.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <hwy/targets.h>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/dot_unit.h"
#include "compile/host/kernels/gemm/gemm.h"
#include "compile/host/kernels/gemm/gemm_tile_registers.h"
#include "machine.h"
#include "run/machine/caches.h"

#ifdef TESSERA_BENCH_DNNL
#include <dnnl.hpp>
#include <omp.h>
#endif

namespace tessera::bench {
namespace {

using Offsets = std::vector<std::int64_t>;

double clock_seconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A single thread is measured in CPU time, which does not advance while other programs run.
clockid_t clock_of(int threads) { return threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC; }

// The seconds of a call of `body` in the best of several rounds. A round has enough calls for the
// resolution of the clock.
double best_seconds(int threads, const std::function<void()>& body) {
  const clockid_t clock = clock_of(threads);
  body();
  double start = clock_seconds(clock);
  body();
  const double once = clock_seconds(clock) - start;
  const int calls = std::max(1, static_cast<int>(0.01 / std::max(once, 1e-7)));
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    start = clock_seconds(clock);
    for (int i = 0; i < calls; ++i) body();
    best = std::min(best, (clock_seconds(clock) - start) / calls);
  }
  return best;
}

// Threads that spin between runs, like those of an engine during a program.
class Team {
 public:
  explicit Team(int threads) : threads_(threads) {
    for (int i = 1; i < threads; ++i) others_.emplace_back([this] { serve(); });
  }
  ~Team() {
    stop_ = true;
    for (std::thread& thread : others_) thread.join();
  }
  int threads() const { return threads_; }
  void run(const kernels::GemmPlan& plan, const std::function<void(int)>& part) {
    part_ = &part;
    num_parts_ = plan.num_parts();
    busy_ = threads_ - 1;
    next_ = 0;
    ++generation_;
    work();
    while (busy_ != 0) {
    }
  }

 private:
  void work() {
    for (int i = next_++; i < num_parts_; i = next_++) (*part_)(i);
  }
  void serve() {
    for (int seen = 0;;) {
      while (generation_ == seen && !stop_) {
      }
      if (stop_) return;
      ++seen;
      work();
      --busy_;
    }
  }

  int threads_;
  std::vector<std::thread> others_;
  const std::function<void(int)>* part_ = nullptr;
  int num_parts_ = 0;
  std::atomic<int> next_{0}, busy_{0}, generation_{0};
  std::atomic<bool> stop_{false};
};

struct Shape {
  const char* layout;  // of A and B in memory: N or T (transposed) for each
  std::int64_t batches, m, n, k, leaves;
};

Offsets steps(std::int64_t count, std::int64_t stride) {
  Offsets out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(i * stride);
  return out;
}

kernels::GemmProblem make_problem(const Shape& s, std::int64_t leaves) {
  kernels::GemmProblem p;
  p.a.batch = steps(s.batches, s.m * s.k);
  p.b.batch = steps(s.batches, s.n * s.k);
  p.c_batch = steps(s.batches, s.m * s.n);
  p.c_rows = steps(s.m, s.n);
  const bool a_transposed = s.layout[0] == 'T', b_transposed = s.layout[1] == 'T';
  p.a.outer = steps(s.m, a_transposed ? 1 : s.k);
  p.a.k = steps(s.k, a_transposed ? s.m : 1);
  p.b.outer = steps(s.n, b_transposed ? s.k : 1);
  p.b.k = steps(s.k, b_transposed ? 1 : s.n);
  for (std::int64_t i = 1; i <= leaves; ++i) p.leaf_ends.push_back(s.k * i / leaves);
  return p;
}

// The operands in f32 and in bf16, whose elements are the upper halves of f32.
struct Data {
  std::vector<float> a, b, c;
  std::vector<std::uint16_t> narrow_a, narrow_b;
  explicit Data(const Shape& s)
      : a(static_cast<std::size_t>(s.batches * s.m * s.k)),
        b(static_cast<std::size_t>(s.batches * s.n * s.k)),
        c(static_cast<std::size_t>(s.batches * s.m * s.n)) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 13) - 6.0f;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 5 % 11) - 5.0f;
    const auto upper_half = [](float x) {
      return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    };
    for (float x : a) narrow_a.push_back(upper_half(x));
    for (float x : b) narrow_b.push_back(upper_half(x));
  }
};

// The unit that multiplies bf16; nullopt for f32 products.
using Unit = std::optional<DotUnit>;
std::string_view unit_name(Unit unit) { return unit ? name(*unit) : "f32"; }

double ours(const Shape& s, std::int64_t leaves, Team& team, Data& data, Unit unit) {
  kernels::GemmProblem problem = make_problem(s, leaves);
  const CacheSizes caches = run::machine_caches();
  const kernels::GemmPlan plan =
      unit ? kernels::GemmPlan(std::move(problem), *unit, team.threads(), caches)
           : kernels::GemmPlan(std::move(problem), team.threads(), caches);
  const void* a = unit ? static_cast<const void*>(data.narrow_a.data()) : data.a.data();
  const void* b = unit ? static_cast<const void*>(data.narrow_b.data()) : data.b.data();
  const std::function<void(int)> part = [&](int i) { plan.run(a, b, data.c.data(), i); };
  return static_cast<double>(plan.flops()) * 1e-9 /
         best_seconds(team.threads(), [&] { team.run(plan, part); });
}

#ifdef TESSERA_BENCH_DNNL
double dnnl_gflops(const Shape& s, int threads, Data& data, Unit unit) {
  omp_set_num_threads(threads);
  using dnnl::memory;
  static const dnnl::engine kEngine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(kEngine);
  const auto type = unit ? memory::data_type::bf16 : memory::data_type::f32;
  const auto desc = [](memory::data_type of, std::int64_t batches, std::int64_t rows,
                       std::int64_t cols, bool swapped) {
    const memory::dims strides =
        swapped ? memory::dims{rows * cols, 1, rows} : memory::dims{rows * cols, cols, 1};
    return memory::desc({batches, rows, cols}, of, strides);
  };
  const memory::desc a = desc(type, s.batches, s.m, s.k, s.layout[0] == 'T');
  const memory::desc b = desc(type, s.batches, s.k, s.n, s.layout[1] == 'T');
  const memory::desc c = desc(memory::data_type::f32, s.batches, s.m, s.n, false);
  const dnnl::matmul matmul({{a, b, c}, kEngine});
  memory ma(a, kEngine, unit ? static_cast<void*>(data.narrow_a.data()) : data.a.data());
  memory mb(b, kEngine, unit ? static_cast<void*>(data.narrow_b.data()) : data.b.data());
  memory mc(c, kEngine, data.c.data());
  const std::unordered_map<int, memory> args{
      {DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}};
  const double flops = 2.0 * static_cast<double>(s.batches * s.m * s.n * s.k);
  return flops * 1e-9 / best_seconds(threads, [&] {
           matmul.execute(stream, args);
           stream.wait();
         });
}

// oneDNN's BLAS interface, which is sometimes faster than its primitive.
double dnnl_sgemm_gflops(const Shape& s, int threads, Data& data) {
  omp_set_num_threads(threads);
  const bool ta = s.layout[0] == 'T', tb = s.layout[1] == 'T';
  const double flops = 2.0 * static_cast<double>(s.batches * s.m * s.n * s.k);
  return flops * 1e-9 / best_seconds(threads, [&] {
           for (std::int64_t i = 0; i < s.batches; ++i) {
             dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', s.m, s.n, s.k, 1.0f,
                        data.a.data() + i * s.m * s.k, ta ? s.m : s.k,
                        data.b.data() + i * s.n * s.k, tb ? s.k : s.n, 0.0f,
                        data.c.data() + i * s.m * s.n, s.n);
           }
         });
}
double best_dnnl_gflops(const Shape& s, int threads, Data& data, Unit unit) {
  const double matmul = dnnl_gflops(s, threads, data, unit);
  return unit ? matmul : std::max(matmul, dnnl_sgemm_gflops(s, threads, data));
}
#endif

// The GFLOP/s of one thread that only multiplies in tile registers. The values matter: zeros need
// less power, and processors then run faster.
double tile_peak() {
#ifdef TESSERA_HAS_TILE_REGISTERS
  if (!kernels::has_dot_unit(DotUnit::amx_bf16)) return 0;
  using kernels::gemm::kMaxBlockSteps;
  constexpr int kTimes = 1000, kProducts = 4;
  const Data data({"NN", 1, 64, 64, 64, 1});
  const auto words = [](const std::vector<std::uint16_t>& from) {
    std::vector<float> out(from.size() / 2);
    std::memcpy(out.data(), from.data(), out.size() * sizeof(float));
    return out;
  };
  const std::vector<float> a = words(data.narrow_a), b = words(data.narrow_b);
  kernels::gemm::TileRegisters::begin(kMaxBlockSteps);
  kernels::gemm::TileRegisters registers(kMaxBlockSteps);
  registers.load_a<0>(a.data());
  registers.load_a<1>(a.data() + kernels::gemm::kRegisterSize);
  registers.load_b<0>(b.data(), kMaxBlockSteps);
  registers.load_b<1>(b.data() + kernels::gemm::kRegisterSize, kMaxBlockSteps);
  const double seconds = best_seconds(1, [&] {
    for (int i = 0; i < kTimes; ++i) {
      registers.multiply<0, 0, 0>();
      registers.multiply<1, 0, 1>();
      registers.multiply<2, 1, 0>();
      registers.multiply<3, 1, 1>();
    }
  });
  kernels::gemm::TileRegisters::end();
  const double flops = 2.0 * kernels::gemm::kRegisterSize * kBlockTerms;
  return kTimes * kProducts * flops * 1e-9 / seconds;
#else
  return 0;
#endif
}

void run_shape(const Shape& s, double peak, const std::string& filter, Unit unit) {
  const std::string name = (s.batches > 1 ? std::to_string(s.batches) + " x " : std::string()) +
                           std::to_string(s.m) + "x" + std::to_string(s.n) + "x" +
                           std::to_string(s.k) + " " + s.layout;
  if (name.find(filter) == std::string::npos) return;
  Data data(s);
  Team one(1);
  const double tree = ours(s, s.leaves, one, data, unit);
  const double flat = ours(s, 1, one, data, unit);
  double two = 0;
  {
    Team team(2);
    two = ours(s, s.leaves, team, data, unit);
  }
  std::printf("%-28s %-11s %6lld %8.1f %6.0f%% %8.1f %8.3f", name.c_str(),
              std::string(unit_name(unit)).c_str(), static_cast<long long>(s.leaves), tree,
              100 * tree / peak, two, flat / tree);
#ifdef TESSERA_BENCH_DNNL
  const double theirs = best_dnnl_gflops(s, 1, data, unit);
  const double theirs2 = best_dnnl_gflops(s, 2, data, unit);
  std::printf(" %8.1f %8.1f %7.2f", theirs, theirs2, tree / theirs);
#endif
  std::printf("\n");
  std::fflush(stdout);
}

int run(const std::string& filter, const std::string& unit_filter) {
  const double peak = fma_peak(1);
  const kernels::GemmPlan any(make_problem({"NN", 1, 1, 1, 1, 1}, 1), 1);
  std::printf("%s, FMA peak %.1f GFLOP/s on 1 thread, %.1f on 2\n", any.target(), peak,
              fma_peak(2));
  const double in_tiles = tile_peak();
  if (in_tiles > 0) std::printf("in tile registers %.1f GFLOP/s on 1 thread\n", in_tiles);
  std::printf("%-28s %-11s %6s %8s %7s %8s %8s %8s %8s %7s\n", "M x N x K", "unit", "grains",
              "1 thr", "peak", "2 thr", "tree", "oneDNN", "2 thr", "ratio");
  constexpr Shape kShapes[] = {{"NN", 1, 2048, 1024, 256, 8},  {"NT", 1, 2048, 256, 1024, 8},
                               {"TN", 1, 256, 1024, 2048, 64}, {"NN", 1, 8320, 1536, 384, 8},
                               {"NT", 1, 8320, 1536, 384, 8},  {"NN", 1, 8320, 384, 1536, 8},
                               {"TN", 1, 384, 1536, 8320, 64}, {"TN", 1, 1536, 384, 8320, 64},
                               {"TN", 1, 384, 384, 8320, 64},  {"NN", 1, 2048, 256, 256, 8},
                               {"NN", 1, 256, 1024, 256, 8},   {"NT", 256, 64, 64, 32, 8},
                               {"NN", 256, 64, 64, 32, 8},     {"NN", 256, 64, 32, 64, 8},
                               {"TN", 256, 64, 32, 64, 8},     {"NT", 1024, 64, 64, 48, 8},
                               {"NT", 1024, 65, 65, 48, 8},    {"NN", 1024, 65, 48, 65, 8},
                               {"TN", 1024, 65, 48, 65, 8},    {"NN", 1, 8, 1024, 256, 8},
                               {"NN", 1, 1, 1024, 1024, 8},    {"NT", 1, 1, 1024, 1024, 8},
                               {"NN", 1, 2, 1024, 1024, 8},    {"NT", 1, 2, 1024, 1024, 8},
                               {"NN", 1, 4, 1024, 1024, 8},    {"NT", 1, 4, 1024, 1024, 8},
                               {"NN", 1, 1, 768, 50257, 64},   {"NT", 1, 1, 50257, 768, 8},
                               {"NN", 256, 1, 64, 128, 8},     {"NT", 256, 1, 128, 64, 8},
                               {"NN", 1, 1024, 1024, 1024, 8}, {"NN", 1, 2048, 2048, 2048, 8},
                               {"NN", 1, 4096, 4096, 4096, 8}};
  std::vector<Unit> units = {std::nullopt};
  std::copy_if(std::begin(kDotUnits), std::end(kDotUnits), std::back_inserter(units),
               kernels::has_dot_unit);
  for (const Shape& shape : kShapes) {
    for (const Unit unit : units) {
      if (unit_filter.empty() || unit_filter == unit_name(unit))
        run_shape(shape, unit == DotUnit::amx_bf16 ? in_tiles : peak, filter, unit);
    }
  }
  return 0;
}

void use_avx2_at_most() {
  hwy::SetSupportedTargetsForTest(HWY_AVX2);
#ifdef TESSERA_BENCH_DNNL
  dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
#endif
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  if (argc > 3 && std::string_view(argv[3]) == "avx2") tessera::bench::use_avx2_at_most();
  return tessera::bench::run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
}
