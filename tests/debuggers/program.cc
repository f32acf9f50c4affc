// The program in which the tests of the debuggers' pretty-printers stop.
#include <tessera/nn.h>
#include <tessera/tessera.h>

using namespace tessera;

[[gnu::noinline]] void stop_here(const Array& x, const Param& param, const Type& type,
                                 const Operand& number, const Operand& operand, const Key& key) {
  asm volatile("" ::"r"(&x), "r"(&param), "r"(&type), "r"(&number), "r"(&operand), "r"(&key));
}

int main() {
  const use_mesh mesh(make_mesh({{"data", 2}}));
  const Array x = device_put(array({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2}), P{"data"});
  const nn::Dense layer(nn::Scope(Key(0)) / "up", 1, 2, true, nn::init::ones());
  stop_here(x, layer.kernel, {DType::boolean, {4, 5}}, 2.5, x * 2, Key(7));
  jit([](Array traced) {
    stop_here(traced, Param(), {DType::f32, {}}, 3, Array(), Key());
    return traced;
  })(x);
  grad([](Array traced) {
    stop_here(traced * 2, Param(), {DType::f32, {}}, 3, Array(), Key());
    return sum(traced);
  })(x);
}
