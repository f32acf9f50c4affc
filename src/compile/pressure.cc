#include "compile/pressure.h"

#include <algorithm>
#include <numeric>

namespace tessera::compile {

using ir::Equation;
using ir::Function;
using ir::ValueId;

namespace {

constexpr std::size_t kNever = ~std::size_t{0};

/// When stored values are made and last read, as positions in the order of nodes.
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
  // The caller holds their memory.
  for (const auto* ports : {&function.inputs, &function.outputs}) {
    for (const ValueId id : *ports) lives.begin[id] = kNever;
  }
  return lives;
}

/// Bytes per node.
struct Held {
  std::vector<std::int64_t> during;  // operands and results included
  std::vector<std::int64_t> behind;  // values made by then and read later
};

Held held_by(const Function& function, const host::Fusion& fusion) {
  const Lives lives = lives_of(function, fusion);
  const std::vector<Atom> atoms = atoms_of(function.mesh);
  Held held{.during = std::vector<std::int64_t>(fusion.nodes.size() + 1, 0), .behind = {}};
  held.behind = held.during;
  for (ValueId id = 0; id < function.values.size(); ++id) {
    const std::size_t begin = lives.begin[id];
    if (begin == kNever) continue;
    const std::int64_t bytes = bytes_of(function, atoms, id);
    held.during[begin] += bytes;
    held.during[lives.end[id] + 1] -= bytes;
    held.behind[begin] += bytes;
    held.behind[lives.end[id]] -= bytes;
  }
  std::partial_sum(held.during.begin(), held.during.end(), held.during.begin());
  std::partial_sum(held.behind.begin(), held.behind.end(), held.behind.begin());
  return held;
}

/// The maxima of a list that are at least `least`. A maximum is skipped if it is less than
/// `least_drop` above the minimum between it and the next one.
std::vector<std::size_t> maxima(const std::vector<std::int64_t>& list, std::int64_t least,
                                std::int64_t least_drop) {
  std::vector<std::size_t> places;
  std::size_t highest = 0;
  std::int64_t lowest = 0;
  bool is_rising = true;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (is_rising && list[i] > list[highest]) highest = i;
    if (is_rising && list[i] < list[highest] - least_drop) {
      if (list[highest] >= least) places.push_back(highest);
      is_rising = false;
      lowest = list[i];
    }
    if (!is_rising) lowest = std::min(lowest, list[i]);
    if (!is_rising && list[i] > lowest + least_drop) {
      is_rising = true;
      highest = i;
    }
  }
  if (is_rising && !list.empty() && list[highest] >= least) places.push_back(highest);
  return places;
}

/// Per node: how many equations come before its end. A node runs when it is needed, which may be
/// long before its last equation.
std::vector<std::size_t> equations_until(const host::Fusion& fusion) {
  std::vector<std::size_t> counts(fusion.nodes.size());
  std::size_t last = kNever;
  for (std::size_t i = counts.size(); i-- > 0;) {
    last = std::min(last, fusion.nodes[i].equations.back());
    counts[i] = last + 1;
  }
  return counts;
}

}  // namespace

Pressure pressure_of(const Phased& program) {
  Pressure result{.fusion = host::fuse(program.function, program.phases), .humps = {}};
  const Held held = held_by(program.function, result.fusion);
  result.peak = *std::max_element(held.during.begin(), held.during.end());
  const std::vector<std::size_t> counts = equations_until(result.fusion);
  for (const std::size_t node : maxima(held.behind, result.peak / 2, result.peak / 8)) {
    if (node == counts.size()) continue;
    const Hump hump{.place = counts[node], .across = held.behind[node]};
    if (!result.humps.empty() && result.humps.back().place == hump.place) result.humps.pop_back();
    result.humps.push_back(hump);
  }
  return result;
}

std::int64_t bytes_of(const Function& function, const std::vector<Atom>& atoms, ValueId value) {
  const Shape& shape = function.type(value).shape;
  const Sharding& sharding = function.sharding(value);
  std::int64_t elements = num_shards(atoms, sharding.partial);
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const std::int64_t shards = num_shards(atoms, sharding.dims[dim]);
    elements *= (shape[dim] + shards - 1) / shards * shards;
  }
  return elements * size_bytes(Type{function.type(value).dtype, {}});
}

}  // namespace tessera::compile
