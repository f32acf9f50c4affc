// Measures a training step of ResNet-20 on images of 32x32: batch 128, batch normalisation,
// Nesterov momentum, weight decay. The same step as peers/torch_resnet.py.
//
//   resnet_bench [STEPS [THREADS]]
//
// Prints the least CPU time and the least wall time of a step in ms, the peak resident memory in
// MiB, and the first and last loss.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sys/resource.h>
#include <vector>

#include <tessera/functions.h>
#include <tessera/tessera.h>

namespace tessera::bench {
namespace {

using Arrays = std::vector<Array>;

constexpr std::int64_t kBatch = 128, kSide = 32, kWidth = 16, kBlocks = 3, kClasses = 10;

/// Hands out the parameters in the order in which the network uses them.
class Parameters {
 public:
  explicit Parameters(const Arrays& all) : all_(all) {}
  const Array& next() { return all_[used_++]; }

 private:
  const Arrays& all_;
  std::size_t used_ = 0;
};

/// Makes parameters for the same walk.
struct Shapes {
  Arrays made;

  void add(const Shape& shape, double deviation) {
    const Key key = random::fold_in(Key(0), static_cast<std::uint32_t>(made.size()));
    made.push_back(random::normal(key, shape) * deviation);
  }
  void add_conv(std::int64_t from, std::int64_t to) {
    add({3, 3, from, to}, std::sqrt(2.0 / (9.0 * static_cast<double>(from))));
    made.push_back(ones({to}));
    made.push_back(zeros({to}));
  }
};

Arrays initial() {
  Shapes shapes;
  shapes.add_conv(3, kWidth);
  std::int64_t from = kWidth;
  for (std::int64_t stage = 0; stage < 3; ++stage) {
    for (std::int64_t block = 0; block < kBlocks; ++block) {
      const std::int64_t to = kWidth << stage;
      shapes.add_conv(from, to);
      shapes.add_conv(to, to);
      from = to;
    }
  }
  shapes.add({from, kClasses}, 1.0 / std::sqrt(static_cast<double>(from)));
  shapes.made.push_back(zeros({kClasses}));
  return shapes.made;
}

Array conv_norm(const Array& x, Parameters& parameters, std::int64_t stride) {
  const Array kernel = parameters.next();
  const Array y = conv(x, kernel, {.strides = {stride, stride}, .padding = {{{1, 1}, {1, 1}}}});
  const Array mean_of = mean(y, {0, 1, 2}, keepdims);
  const Array variance = mean(square(y - mean_of), {0, 1, 2}, keepdims);
  const Array scale = parameters.next();
  const Array offset = parameters.next();
  return (y - mean_of) * rsqrt(variance + 1e-5) * scale + offset;
}

Array network(const Arrays& all, const Array& images) {
  Parameters parameters(all);
  Array x = relu(conv_norm(images, parameters, 1));
  for (std::int64_t stage = 0; stage < 3; ++stage) {
    for (std::int64_t block = 0; block < kBlocks; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const Array y = relu(conv_norm(x, parameters, stride));
      const Array z = conv_norm(y, parameters, 1);
      if (stride == 2) {
        const std::int64_t more = z.shape()[3] - x.shape()[3];
        x = slice(slice(x, 1, 0, to_end, 2), 2, 0, to_end, 2);
        x = pad(x, {0, 0, 0, more / 2}, {0, 0, 0, more - more / 2});
      }
      x = relu(z + x);
    }
  }
  const Array weights = parameters.next();
  return dot(mean(x, {1, 2}), weights) + parameters.next();
}

struct State {
  Arrays parameters, momenta;
  TESSERA_TREE(parameters, momenta)
};

std::pair<State, Array> step(State state, const Array& images, const Array& labels) {
  const auto loss = [&](const Arrays& all) {
    return -mean(sum(log_softmax(network(all, images)) * one_hot(labels, kClasses), {-1}));
  };
  const auto [value, gradients] = value_and_grad(loss)(state.parameters);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Array gradient = gradients[i] + state.parameters[i] * 5e-4;
    state.momenta[i] = state.momenta[i] * 0.9 + gradient;
    state.parameters[i] = state.parameters[i] - (gradient + state.momenta[i] * 0.9) * 0.1;
  }
  return {state, value};
}

double cpu_ms() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

void measure(int steps) {
  using Clock = std::chrono::steady_clock;
  State state{initial(), {}};
  for (const Array& parameter : state.parameters) state.momenta.push_back(zeros(parameter.shape()));
  const Array images = random::normal(Key(1), {kBatch, kSide, kSide, 3});
  const Array labels = random::randint(Key(2), {kBatch}, 0, kClasses);
  const auto train = jit(step, {.donate_argnums = {0}});
  double cpu = 1e9, wall = 1e9;
  float first = 0, last = 0;
  for (int i = 0; i < steps; ++i) {
    const double start_cpu = cpu_ms();
    const Clock::time_point start = Clock::now();
    auto [next, loss] = train(std::move(state), images, labels);
    state = std::move(next);
    last = loss.item<float>();
    if (i == 0) first = last;
    if (i == 0) continue;  // compiles
    cpu = std::min(cpu, cpu_ms() - start_cpu);
    wall = std::min(wall, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("resnet20 cpu %.1f wall %.1f rss %ld loss %.6g %.6g\n", cpu, wall,
              usage.ru_maxrss / 1024, static_cast<double>(first), static_cast<double>(last));
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  tessera::set_num_threads(argc > 2 ? std::atoi(argv[2]) : 1);
  tessera::bench::measure(argc > 1 ? std::max(std::atoi(argv[1]), 2) : 10);
  return 0;
}
