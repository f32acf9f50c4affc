// Measures a training step of ResNet-20 on images of 32x32: batch 128, batch normalisation,
// Nesterov momentum, weight decay. The same step as peers/torch_resnet.py.
//
//   resnet_bench [STEPS [THREADS [json]]]
//
// Prints the least CPU time and the least wall time of a step in ms, the peak resident memory in
// MiB, and the first and last loss. With json, prints an object as compare.py reads it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <tessera/nn.h>
#include <tessera/optim.h>
#include <tessera/tessera.h>

namespace tessera::bench {
namespace {

constexpr std::int64_t kBatch = 128, kSide = 32, kWidth = 16, kBlocks = 3, kClasses = 10;

struct ConvNorm {
  nn::Conv conv;
  nn::BatchNorm norm;

  ConvNorm(const nn::Scope& scope, std::int64_t channels, std::int64_t features,
           std::int64_t stride = 1)
      : conv(scope / "conv", channels, features,
             {.kernel_size = {3, 3},
              .strides = {stride, stride},
              .padding = {{{1, 1}, {1, 1}}},
              .use_bias = false,
              .kernel_init = nn::init::he_normal()}),
        norm(scope / "norm", features, {.momentum = 0.9}) {}
  Array operator()(const Array& x, const nn::Mode& mode) { return norm(conv(x), mode); }
  TESSERA_MODULE(conv, norm)
};

struct Block {
  ConvNorm first, second;
  std::int64_t stride, more;

  Block(const nn::Scope& scope, std::int64_t channels, std::int64_t features, std::int64_t step)
      : first(scope / "first", channels, features, step),
        second(scope / "second", features, features),
        stride(step),
        more(features - channels) {}
  Array operator()(Array x, const nn::Mode& mode) {
    const Array y = second(relu(first(x, mode)), mode);
    if (stride == 2) {
      x = slice(slice(x, 1, 0, to_end, 2), 2, 0, to_end, 2);
      x = pad(x, {0, 0, 0, more / 2}, {0, 0, 0, more - more / 2});
    }
    return relu(y + x);
  }
  TESSERA_MODULE(first, second, stride, more)
};

struct ResNet {
  ConvNorm stem;
  std::vector<Block> blocks;
  nn::Dense head;

  explicit ResNet(const nn::Scope& scope)
      : stem(scope / "stem", 3, kWidth), head(scope / "head", kWidth * 4, kClasses) {
    std::int64_t channels = kWidth;
    for (std::int64_t i = 0; i < 3 * kBlocks; ++i) {
      const std::int64_t features = kWidth << (i / kBlocks);
      blocks.emplace_back(scope / ("block_" + std::to_string(i)), channels, features,
                          features / channels);
      channels = features;
    }
  }
  Array operator()(const Array& images, const nn::Mode& mode) {
    Array x = relu(stem(images, mode));
    for (Block& block : blocks) x = block(x, mode);
    return head(mean(x, {1, 2}));
  }
  TESSERA_MODULE(stem, blocks, head)
};

using State = TrainState<ResNet>;

State initial() {
  return State(
      ResNet(nn::Scope(Key(0))),
      optim::chain({optim::add_decayed_weights(5e-4),
                    optim::sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true})}));
}

std::pair<State, Array> step(const State& state, const Array& images, const Array& labels) {
  const auto loss_of = [&](ResNet net) {
    const Array logits = net(images, nn::Mode::train());
    return std::tuple(mean(cross_entropy(logits, labels)), net);
  };
  auto [loss, net, gradients] = value_and_grad(loss_of)(state.params);
  return {state.apply_gradients(gradients, net), loss};
}

double cpu_ms() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

struct Times {
  double compile_ms = 0;  // the first step
  std::vector<double> cpu, wall;
  std::vector<float> losses;
};

Times times_of(int steps) {
  using Clock = std::chrono::steady_clock;
  State state = initial();
  const Array images = random::normal(Key(1), {kBatch, kSide, kSide, 3});
  const Array labels = random::randint(Key(2), {kBatch}, 0, kClasses);
  const auto train = jit(step, {.donate_argnums = {0}});
  Times times;
  for (int i = 0; i < steps; ++i) {
    const double start_cpu = cpu_ms();
    const Clock::time_point start = Clock::now();
    auto [next, loss] = train(std::move(state), images, labels);
    state = std::move(next);
    times.losses.push_back(loss.item<float>());
    const double wall = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (i == 0) times.compile_ms = wall;
    if (i == 0) continue;
    times.cpu.push_back(cpu_ms() - start_cpu);
    times.wall.push_back(wall);
  }
  std::sort(times.cpu.begin(), times.cpu.end());
  std::sort(times.wall.begin(), times.wall.end());
  return times;
}

void measure(int steps, bool as_json) {
  const Times times = times_of(steps);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const double cpu = times.cpu.front(), wall = times.wall.front();
  if (!as_json) {
    std::printf("resnet20 cpu %.1f wall %.1f rss %ld loss %.6g %.6g\n", cpu, wall,
                usage.ru_maxrss / 1024, static_cast<double>(times.losses.front()),
                static_cast<double>(times.losses.back()));
    return;
  }
  std::printf(
      "{\"name\": \"resnet20\", \"compile_s\": %.3f, \"step_ms_min\": %.2f, "
      "\"step_ms_median\": %.2f, \"step_cpu_ms_min\": %.2f, \"peak_rss_mib\": %ld, "
      "\"losses\": [",
      times.compile_ms * 1e-3, wall, times.wall[times.wall.size() / 2], cpu,
      usage.ru_maxrss / 1024);
  for (std::size_t i = 0; i < times.losses.size(); ++i) {
    std::printf("%s%.6f", i == 0 ? "" : ", ", static_cast<double>(times.losses[i]));
  }
  std::printf("]}\n");
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  tessera::set_num_threads(argc > 2 ? std::atoi(argv[2]) : 1);
  tessera::bench::measure(argc > 1 ? std::max(std::atoi(argv[1]), 2) : 10, argc > 3);
  return 0;
}
