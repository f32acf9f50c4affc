#include "compile/host/control/half_registers.h"

#include <string>

namespace tessera::compile::host {

using Elements = HalfRegisters::Elements;

int HalfRegisters::converted(int reg, std::string_view kernel, DType from, DType to, Steps& steps) {
  const std::int64_t size = program_.registers[static_cast<std::size_t>(reg)].size;
  const auto made = static_cast<int>(program_.registers.size());
  program_.registers.push_back({.dtype = to, .size = size});
  steps.push_back(
      {.kernel = kernels::find_tile_kernel(kernel, from), .inputs = {reg}, .outputs = {made}});
  return made;
}

template <typename Convert>
Elements HalfRegisters::in_each(const Elements& elements, DType dtype, Known& known,
                                const Convert& convert) {
  Elements result = elements;
  for (auto& element : result) {
    const auto [found, is_new] = known.try_emplace({element.reg, dtype}, 0);
    if (is_new) found->second = convert(element.reg);
    element.reg = found->second;
  }
  return result;
}

Elements HalfRegisters::widened(const Elements& stored, DType dtype, Steps& steps) {
  if (!is_half(dtype)) return stored;
  return in_each(stored, dtype, widened_, [&](int reg) {
    const int made = converted(reg, "widen", dtype, DType::f32, steps);
    narrowed_.emplace(std::pair(made, dtype), reg);
    return made;
  });
}

Elements HalfRegisters::rounded(const Elements& numbers, DType dtype, Steps& steps) {
  if (!is_half(dtype)) return numbers;
  return in_each(numbers, dtype, rounded_, [&](int reg) {
    const std::string kernel = "round_to_" + std::string(name(dtype));
    const int made = converted(reg, kernel, DType::f32, DType::f32, steps);
    unrounded_.emplace(std::pair(made, dtype), reg);
    return made;
  });
}

Elements HalfRegisters::narrowed(const Elements& numbers, DType dtype, Steps& steps) {
  if (!is_half(dtype)) return numbers;
  return in_each(numbers, dtype, narrowed_, [&](int reg) {
    const auto unrounded = unrounded_.find({reg, dtype});
    const int from = unrounded == unrounded_.end() ? reg : unrounded->second;
    return converted(from, "narrow_to_" + std::string(name(dtype)), DType::f32, dtype, steps);
  });
}

}  // namespace tessera::compile::host
