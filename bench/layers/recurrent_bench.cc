// Measures recurrent layers as peers/torch_recurrent.py does: the forward pass, and the loss with
// the gradients of all parameters. Prints the least milliseconds of ten calls.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include <tessera/recurrent.h>
#include <tessera/tessera.h>

namespace tessera::bench {
namespace {

constexpr int kCalls = 10;

struct Sizes {
  std::int64_t batch, time, features;
};

template <typename F>
double least_ms(F f) {
  double least = 1e9;
  for (int i = 0; i <= kCalls; ++i) {  // the first call compiles
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    least = std::min(least, taken.count());
  }
  return least;
}

template <typename Tree>
void wait(const Tree& tree) {
  for (const Array& leaf : tree_leaves(tree)) leaf.block_until_ready();
}

template <typename Cell>
void measure(const char* name, const Sizes& sizes) {
  const Array x = random::normal(Key(1), {sizes.batch, sizes.time, sizes.features});
  const auto make = [&](Key key) { return Cell(nn::Scope(key), sizes.features, sizes.features); };
  const auto loss = [](const Cell& cell, const Array& input) {
    return mean(square(nn::rnn(cell, cell.initial_carry(input.dim(0)), input).second));
  };
  const Cell cell = jit(make)(Key(3));
  const auto forward = jit(loss);
  const auto step = jit([&](const Cell& all, const Array& input) {
    return value_and_grad([&](const Cell& c) { return loss(c, input); })(all);
  });
  std::printf("%-6s %3ld x %3ld, %3ld features: forward %7.2f ms, with gradients %7.2f ms\n", name,
              static_cast<long>(sizes.batch), static_cast<long>(sizes.time),
              static_cast<long>(sizes.features), least_ms([&] { wait(forward(cell, x)); }),
              least_ms([&] { wait(step(cell, x)); }));
}

void run() {
  for (const Sizes& sizes : {Sizes{32, 128, 256}, Sizes{64, 64, 512}, Sizes{1, 256, 128}}) {
    measure<nn::LSTMCell>("LSTM", sizes);
    measure<nn::GRUCell>("GRU", sizes);
    measure<nn::SimpleCell>("simple", sizes);
  }
}

}  // namespace
}  // namespace tessera::bench

int main() { tessera::bench::run(); }
