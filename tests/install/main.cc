// A program outside the tree: gradient descent that fits y = 3 x, on a mesh of two devices.
#include <cstdio>

#include <tessera/optim.h>
#include <tessera/tessera.h>

using namespace tessera;

int main() {
  const use_mesh scope(make_mesh({{"data", 2}}));
  const Array x = device_put(array({1.f, 2.f, 3.f, 4.f}), P{"data"});
  const optim::Optimizer tx = optim::sgd({.learning_rate = 0.05});
  auto step = jit([&](Array w, Array inputs) {
    auto loss = [&](const Array& weight) { return mean(square(inputs * (weight - 3))); };
    optim::State state = tx.init({Param(w, "w")});
    return tx.update({Param(w, "w")}, {grad(loss)(w)}, state).front();
  });
  Array w = zeros({});
  for (int i = 0; i < 40; ++i) w = step(w, x);
  std::printf("w = %.3f\n", w.item<double>());
}
