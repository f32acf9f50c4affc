// Measures compiled programs on all threads, relative to the roofline of the machine: attention,
// collectives between virtual devices, and the time to compile a training step.
//
//   program_bench [options of Google Benchmark]
//
// GFLOP/s and GB/s are those of the fastest run. `roof` is the least possible time divided by the
// measured time. The least possible time is the time for the operations at the FMA peak or for the
// bytes at the memory bandwidth, whichever is longer. A program whose operands stay in the caches
// can take less.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include <tessera/optim.h>

#include "machine.h"
#include "vit/model.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Roof {
  double gflops = fma_peak(num_threads());
  double gbps = memory_bandwidth(num_threads());
};
const Roof& roof() {
  static const Roof kRoof;
  return kRoof;
}

/// Seconds of the fastest run.
double best_seconds(benchmark::State& state, const std::function<void()>& run) {
  run();
  double best = 1e9;
  for (auto _ : state) {
    const Clock::time_point start = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

void report(benchmark::State& state, double seconds, double flops, double bytes) {
  const double least = std::max(flops / roof().gflops, bytes / roof().gbps) * 1e-9;
  if (flops > 0) state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  state.counters["roof"] = least / seconds;
}

// --- attention

struct Attention {
  const char* name;
  std::int64_t batch, positions, heads, depth;
  bool is_causal;
};
constexpr Attention kAttention[] = {
    {"vit", 128, 65, 8, 48, false},
    {"lm", 32, 64, 8, 32, true},
    {"long", 4, 512, 8, 64, false},
    {"longer", 1, 4096, 8, 64, true},
};

void attention(benchmark::State& state, const Attention& a, bool has_gradient) {
  const Key key(0);
  const Shape shape = {a.batch, a.positions, a.heads, a.depth};
  const Array q = random::normal(random::fold_in(key, 0), shape);
  const Array k = random::normal(random::fold_in(key, 1), shape);
  const Array v = random::normal(random::fold_in(key, 2), shape);
  const auto forward = jit(
      [&](Array x, Array y, Array z) { return nn::dot_product_attention(x, y, z, a.is_causal); });
  const auto loss = [&](const Array& x, const Array& y, const Array& z) {
    return sum(nn::dot_product_attention(x, y, z, a.is_causal));
  };
  const auto backward =
      jit([&](Array x, Array y, Array z) { return value_and_grad<0, 1, 2>(loss)(x, y, z); });
  const double seconds = best_seconds(state, [&] {
    if (has_gradient) {
      benchmark::DoNotOptimize(backward(q, k, v));
    } else {
      benchmark::DoNotOptimize(forward(q, k, v));
    }
  });
  // The forward pass has two products, the backward pass four more. Counts operands and results as
  // moved once.
  const auto elements = static_cast<double>(a.batch * a.positions * a.heads * a.depth);
  const double product = 2 * elements * static_cast<double>(a.positions);
  report(state, seconds, product * (has_gradient ? 6 : 2), 4 * elements * (has_gradient ? 6 : 4));
}

// --- collectives

constexpr std::int64_t kDevices = 8;

struct Collective {
  const char* name;
  Array (*body)(const Array& tile);
  P out;
  // How many tiles, of the size of one device's operand, all devices together read and write. A
  // result that devices share counts once.
  double tiles;
};

const std::vector<Collective>& collectives() {
  static const std::vector<Collective> kCollectives = {
      {"all_gather", [](const Array& x) { return all_gather(x, "d", {.tiled = true}); }, P(),
       2.0 * kDevices},
      {"all_reduce", [](const Array& x) { return psum(x, "d"); }, P(), 1.0 + kDevices},
      {"reduce_scatter", [](const Array& x) { return psum_scatter(x, "d", {.tiled = true}); },
       P{"d"}, 1.0 + kDevices},
      {"all_to_all", [](const Array& x) { return all_to_all(x, "d", 1, 0, true); }, P{none, "d"},
       2.0 * kDevices},
  };
  return kCollectives;
}

void collective(benchmark::State& state, const Collective& c) {
  const Mesh mesh = make_mesh({{"d", kDevices}});
  const use_mesh scope(mesh);
  const std::int64_t rows = state.range(0), columns = 1024;
  const Array x = device_put(ones({kDevices * rows, columns}), P{"d"});
  const auto mapped = shard_map([&](const Array& tile) { return c.body(tile); },
                                {.in_specs = {P{"d"}}, .out_specs = c.out, .check_vma = false});
  const auto program = jit([&](Array whole) { return mapped(whole); });
  const double seconds = best_seconds(state, [&] { benchmark::DoNotOptimize(program(x)); });
  report(state, seconds, 0, 4.0 * static_cast<double>(rows * columns) * c.tiles);
}

// --- the compiler

void compile_vit(benchmark::State& state) {
  const Mesh mesh = make_mesh({{"batch", 4}, {"model", 2}});
  const use_mesh scope(mesh);
  const vit::Config config{.layers = state.range(0)};
  const auto init = [&](Key key) {
    return TrainState(vit::VisionTransformer(nn::Scope::nnx(key), config),
                      optim::adam({.learning_rate = 1e-3}));
  };
  using State = decltype(init(Key(0)));
  const auto train_state = eval_shape(init, Key(0));
  const auto images = eval_shape([&] { return zeros({128, config.image, config.image, 3}); });
  const auto labels = eval_shape([] { return zeros({128}, DType::i32); });
  const Shardings of_state = logical_to_mesh(get_partition_spec(train_state));
  const Shardings of_batch = NamedSharding(mesh, P{"batch"});
  const double seconds = best_seconds(state, [&] {
    const auto step = jit(
        [&](State old, Array x, Array y) {
          const nn::Mode mode = nn::Mode::train(random::fold_in(Key(1), old.step));
          auto [loss, grads] = value_and_grad([&](const vit::VisionTransformer& model) {
            return vit::cross_entropy(model(x, mode), y);
          })(old.params);
          return std::tuple(old.apply_gradients(grads), loss);
        },
        {.in_shardings = {of_state, of_batch, of_batch}, .donate_argnums = {0}});
    benchmark::DoNotOptimize(step.lower(train_state, images, labels).compile());
  });
  state.counters["ms"] = seconds * 1e3;
  state.counters["ms/layer"] = seconds * 1e3 / static_cast<double>(config.layers);
}

// --- all of them

void add_benchmarks() {
  for (const Attention& a : kAttention) {
    for (const bool has_gradient : {false, true}) {
      const std::string name =
          std::string("attention/") + a.name + (has_gradient ? "/with_gradient" : "/forward");
      benchmark::RegisterBenchmark(name.c_str(), [a, has_gradient](benchmark::State& state) {
        attention(state, a, has_gradient);
      })->UseRealTime();
    }
  }
  // Tiles of 256 KiB and of 8 MiB.
  for (const Collective& c : collectives()) {
    benchmark::RegisterBenchmark(c.name, [&c](benchmark::State& state) { collective(state, c); })
        ->Arg(64)
        ->Arg(2048)
        ->UseRealTime();
  }
  benchmark::RegisterBenchmark("compile_vit", &compile_vit)
      ->Arg(6)
      ->Arg(24)
      ->Arg(96)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tessera::bench::add_benchmarks();
  const tessera::bench::Roof& roof = tessera::bench::roof();
  std::printf("%d threads: FMA peak %.1f GFLOP/s, memory %.1f GB/s\n", tessera::num_threads(),
              roof.gflops, roof.gbps);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
