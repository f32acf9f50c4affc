// host_callback: one task, which calls the function of the program.
#include "compile/host/dense_tasks.h"
#include "ops/control/control.h"

namespace tessera::compile::host {

namespace {

std::vector<TileTask> lower_callback(const LowerContext& context, const Equation& equation) {
  std::vector<Type> types;
  for (std::size_t i = 1; i < equation.operands.size(); ++i) {
    types.push_back(context.function().type(equation.operands[i]));
  }
  return task_per_tile(context, equation, [&](const AtomDigits& /*digits*/) {
    return make_kernel(
        [types, attributes = equation.attributes](std::span<std::byte* const> buffers) {
          std::memcpy(buffers.back(), buffers.front(), sizeof(std::uint32_t));
          ops::call_host(attributes, types,
                         {buffers.begin() + 1, buffers.begin() + 1 + std::ssize(types)});
        });
  });
}

}  // namespace

Lowerings callback_lowerings() { return {{"host_callback", lower_callback, true}}; }

}  // namespace tessera::compile::host
