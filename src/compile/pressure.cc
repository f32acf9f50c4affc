#include "compile/pressure.h"

#include <algorithm>
#include <numeric>

namespace tessera::compile {

using ir::Equation;
using ir::Function;
using ir::ValueId;

namespace {

constexpr std::size_t kNever = ~std::size_t{0};

/// When values with memory are made and read last: places of nodes in their order.
struct Lives {
  std::vector<std::size_t> begin;
  std::vector<std::size_t> end;
};

Lives lives_of(const Function& function, const host::Fusion& fusion) {
  const std::size_t count = function.values.size();
  Lives lives{.begin = std::vector<std::size_t>(count, kNever),
              .end = std::vector<std::size_t>(count, 0)};
  for (std::size_t now = 0; now < fusion.nodes.size(); ++now) {
    for (const std::size_t index : fusion.nodes[now].equations) {
      const Equation& equation = function.equations[index];
      for (const ValueId id : equation.operands) lives.end[fusion.readings[id].base] = now;
      for (const ValueId id : equation.results) {
        if (fusion.needs_buffer[id]) lives.begin[id] = lives.end[id] = now;
      }
    }
  }
  // These have memory of the caller.
  for (const auto* ports : {&function.inputs, &function.outputs}) {
    for (const ValueId id : *ports) lives.begin[id] = kNever;
  }
  return lives;
}

/// How many equations come before the end of a node: nodes run when they are needed, which for
/// those that have equations of late nodes as well is long before their last equation.
std::size_t equations_until(const host::Fusion& fusion, std::size_t node) {
  std::size_t last = kNever;
  for (std::size_t i = node; i < fusion.nodes.size(); ++i) {
    last = std::min(last, fusion.nodes[i].equations.back());
  }
  return last + 1;
}

}  // namespace

Pressure pressure_of(const Phased& program) {
  const Function& function = program.function;
  Pressure result{.fusion = host::fuse(function, program.phases)};
  const Lives lives = lives_of(function, result.fusion);
  const std::size_t count = result.fusion.nodes.size();
  if (count == 0) return result;
  std::vector<std::int64_t> behind(count, 0);
  std::vector<std::int64_t> at(count + 1, 0);
  for (ValueId id = 0; id < function.values.size(); ++id) {
    const std::size_t begin = lives.begin[id];
    if (begin == kNever) continue;
    const std::int64_t bytes = bytes_of(function, id);
    behind[begin] += bytes;
    behind[lives.end[id]] -= bytes;
    at[begin] += bytes;
    at[lives.end[id] + 1] -= bytes;
  }
  std::partial_sum(behind.begin(), behind.end(), behind.begin());
  std::partial_sum(at.begin(), at.end(), at.begin());
  result.peak = *std::max_element(at.begin(), at.end());
  const auto most = std::max_element(behind.begin(), behind.end());
  result.across = *most;
  result.place = equations_until(result.fusion, static_cast<std::size_t>(most - behind.begin()));
  return result;
}

std::int64_t bytes_of(const Function& function, ValueId value) {
  const Layout layout(function.mesh, function.sharding(value), function.type(value).shape);
  return layout.num_tiles() * size_bytes(Type{function.type(value).dtype, layout.max_tile_shape()});
}

}  // namespace tessera::compile
