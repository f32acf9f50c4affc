// Lowering of host_callback and pure_callback: one task, which calls the function of the program.
#include "compile/host/dense_tasks.h"
#include "ops/control/control.h"

namespace tessera::compile::host {

namespace {

/// The first `tokens` operands and results are tokens.
std::vector<TileTask> lower_call(const LowerContext& context, const Equation& equation,
                                 std::size_t tokens) {
  std::vector<Type> types;
  for (std::size_t i = tokens; i < equation.operands.size(); ++i) {
    types.push_back(context.function().type(equation.operands[i]));
  }
  return task_per_tile(context, equation, [&](const AtomDigits& /*digits*/) {
    return make_kernel(
        [types, tokens, attributes = equation.attributes](std::span<std::byte* const> buffers) {
          const std::span operands = buffers.first(tokens + types.size());
          const std::span results = buffers.subspan(operands.size());
          if (tokens > 0) std::memcpy(results[0], operands[0], sizeof(std::uint32_t));
          const std::span arrays = operands.subspan(tokens);
          const std::span places = results.subspan(tokens);
          ops::call_host(attributes, types, {arrays.begin(), arrays.end()},
                         {places.begin(), places.end()});
        });
  });
}

std::vector<TileTask> lower_effect(const LowerContext& context, const Equation& equation) {
  return lower_call(context, equation, 1);
}

std::vector<TileTask> lower_pure(const LowerContext& context, const Equation& equation) {
  return lower_call(context, equation, 0);
}

}  // namespace

Lowerings callback_lowerings() {
  return {{"host_callback", lower_effect, true}, {"pure_callback", lower_pure, true}};
}

}  // namespace tessera::compile::host
