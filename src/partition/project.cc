#include "partition/project.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>

#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::partition {

using ops::FactorKind;
using ops::Factors;

namespace {

void mark_compound(const Factors::Dims& dims, std::vector<bool>& must_divide) {
  for (const std::vector<int>& dim : dims) {
    if (dim.size() < 2) continue;
    for (int factor : dim) must_divide[static_cast<std::size_t>(factor)] = true;
  }
}

std::size_t hash_of_types(const ir::Function& function, const ir::Equation& equation) {
  std::size_t hash = std::bit_cast<std::size_t>(equation.op);
  for (const auto* ids : {&equation.operands, &equation.results}) {
    for (ir::ValueId id : *ids) {
      for (std::int64_t size : function.type(id).shape) {
        hash = (hash ^ static_cast<std::size_t>(size)) * 0x9e3779b97f4a7c15ULL;
      }
    }
  }
  return hash;
}

bool has_same_rule(const ir::Function& function, const ir::Equation& a, const ir::Equation& b) {
  const auto are_same = [&](const std::vector<ir::ValueId>& x, const std::vector<ir::ValueId>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [&](ir::ValueId i, ir::ValueId j) {
      return function.type(i) == function.type(j);
    });
  };
  return a.op == b.op && are_same(a.operands, b.operands) && are_same(a.results, b.results) &&
         a.attributes == b.attributes;
}

}  // namespace

EquationFactors factors_of(const ir::Function& function, const ir::Equation& equation) {
  EquationFactors result;
  result.rule = (*equation.op->factors)(equation.attributes, operand_types(function, equation),
                                        result_types(function, equation));
  const Factors& rule = result.rule;
  result.must_divide.assign(rule.factors.size(), false);
  for (const Factors::Dims& dims : rule.operands) mark_compound(dims, result.must_divide);
  for (const Factors::Dims& dims : rule.results) mark_compound(dims, result.must_divide);
  const bool has_grains = equation.attributes.has(ops::kGrains);
  for (std::size_t i = 0; i < rule.reduced.size(); ++i) {
    const std::int64_t count = has_grains
                                   ? equation.attributes.ints(ops::kGrains)[i]
                                   : rule.factors[static_cast<std::size_t>(rule.reduced[i])].size;
    if (count == 1) continue;
    result.outermost_reduced = rule.reduced[i];
    if (has_grains) result.outermost_grains = count;
    break;
  }
  result.is_order_free =
      rule.reduction != ops::Reduction::sum || function.numerics != Numerics::exact;
  if (!equation.results.empty()) {
    result.is_order_free |= !is_float(function.type(equation.results[0]).dtype);
  }
  return result;
}

std::vector<std::shared_ptr<const EquationFactors>> all_factors(const ir::Function& function) {
  std::vector<std::shared_ptr<const EquationFactors>> all;
  std::unordered_multimap<std::size_t, std::size_t> firsts;
  for (const ir::Equation& equation : function.equations) {
    const std::size_t hash = hash_of_types(function, equation);
    const auto [begin, end] = firsts.equal_range(hash);
    const auto same = std::find_if(begin, end, [&](const auto& first) {
      return has_same_rule(function, function.equations[first.second], equation);
    });
    if (same != end) {
      all.push_back(all[same->second]);
      continue;
    }
    firsts.emplace(hash, all.size());
    all.push_back(std::make_shared<const EquationFactors>(factors_of(function, equation)));
  }
  return all;
}

bool uses_atom(const Sharding& sharding, AtomId atom) {
  if (contains(sharding.partial, atom)) return true;
  return uses_atom(sharding.dims, atom);
}

bool uses_atom(const Assignment& assignment, AtomId atom) {
  return std::any_of(assignment.begin(), assignment.end(),
                     [&](const AtomList& list) { return contains(list, atom); });
}

std::size_t splittable_prefix(const EquationFactors& factors, int factor,
                              const std::vector<Atom>& atoms, const AtomList& list) {
  const auto index = static_cast<std::size_t>(factor);
  const std::int64_t size = factors.rule.factors[index].size;
  std::int64_t count = 1;
  for (std::size_t i = 0; i < list.size(); ++i) {
    count *= atoms[list[i]].size;
    if (count > size || (factors.must_divide[index] && size % count != 0)) return i;
  }
  return list.size();
}

void project(const EquationFactors& factors, const Factors::Dims& dims, const Sharding& sharding,
             const std::vector<Atom>& atoms, Assignment& out) {
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    const AtomList& list = sharding.dims[dim];
    if (list.empty()) continue;
    std::size_t next = 0;
    for (int factor : dims[dim]) {
      AtomList& taken = out[static_cast<std::size_t>(factor)];
      taken.clear();
      const std::int64_t size = factors.rule.factors[static_cast<std::size_t>(factor)].size;
      const bool must_divide = factors.must_divide[static_cast<std::size_t>(factor)];
      std::int64_t count = 1;
      while (next < list.size()) {
        const std::int64_t grown = count * atoms[list[next]].size;
        if (grown > size || (must_divide && size % grown != 0)) break;
        count = grown;
        taken.push_back(list[next++]);
      }
      if (count != size) break;  // a minor factor is cut only inside a full major one
    }
  }
}

Sharding back_project(const Factors::Dims& dims, const Assignment& assignment) {
  Sharding sharding;
  sharding.dims.resize(dims.size());
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    for (int factor : dims[dim]) {
      const AtomList& list = assignment[static_cast<std::size_t>(factor)];
      sharding.dims[dim].insert(sharding.dims[dim].end(), list.begin(), list.end());
    }
  }
  return sharding;
}

void project_operand(const EquationFactors& factors, std::size_t operand, const Sharding& sharding,
                     const std::vector<Atom>& atoms, Assignment& out) {
  const Factors::Dims& dims = factors.rule.operands[operand];
  project(factors, dims, sharding, atoms, out);
  for (const ops::OperandWindow& window : factors.rule.windows) {
    if (window.operand != operand) continue;
    const Window* tiles = window_of(sharding, window.dim);
    if (tiles == nullptr || tiles->terms.size() < window.terms.size()) continue;
    auto next = sharding.dims[window.dim].begin();
    for (std::size_t i = 0; i < window.terms.size(); ++i) {
      const auto end = next + static_cast<std::ptrdiff_t>(tiles->terms[i].num_atoms);
      out[static_cast<std::size_t>(window.terms[i].factor)] = AtomList(next, end);
      next = end;
    }
  }
}

namespace {

/// Whether every tile of the window is the shard with the same digits.
bool is_shards(const Window& window, const std::vector<Atom>& atoms, const AtomList& list,
               std::int64_t size) {
  const std::int64_t count = num_shards(atoms, list);
  AtomDigits digits(atoms.size(), 0);
  for (std::int64_t shard = 0; shard < count; ++shard) {
    std::int64_t rest = shard;
    for (auto atom = list.rbegin(); atom != list.rend(); ++atom) {
      digits[*atom] = static_cast<std::int32_t>(rest % atoms[*atom].size);
      rest /= atoms[*atom].size;
    }
    const IndexRange rows{shard_start(shard, count, size), shard_start(shard + 1, count, size)};
    if (window_range(window, atoms, list, digits, size) != rows) return false;
  }
  return true;
}

}  // namespace

Sharding needed_of(const EquationFactors& factors, std::size_t operand,
                   const std::vector<Atom>& atoms, const Assignment& assignment) {
  const Factors::Dims& dims = factors.rule.operands[operand];
  Sharding sharding = back_project(dims, assignment);
  const std::vector<ops::OperandWindow>& windows = factors.rule.windows;
  // Operands with windows of the same positions must have equal tiles.
  const bool is_alone = std::all_of(windows.begin(), windows.end(), [&](const auto& window) {
    return window.operand == windows[0].operand;
  });
  for (const ops::OperandWindow& window : windows) {
    if (window.operand != operand) continue;
    Window tiles{
        .dim = window.dim, .offset = window.offset, .terms = {}, .divisor = window.divisor};
    AtomList all;
    for (const ops::OperandWindow::Term& term : window.terms) {
      const auto factor = static_cast<std::size_t>(term.factor);
      const AtomList& list = assignment[factor];
      all.insert(all.end(), list.begin(), list.end());
      tiles.terms.push_back(
          {.size = factors.rule.factors[factor].size, .step = term.step, .num_atoms = list.size()});
    }
    if (window.extent != 1) {
      tiles.terms.push_back({.size = window.extent, .step = 1, .num_atoms = 0});
    }
    AtomList& own = sharding.dims[window.dim];
    const bool is_main_alone = own == all;
    own = std::move(all);
    // If the factors are not split, each operand may also be read as a whole instead of as a
    // window.
    if (own.empty() && !is_alone) continue;
    if (is_main_alone && is_shards(tiles, atoms, own, window.size)) continue;
    sharding.windows.push_back(std::move(tiles));
  }
  std::sort(sharding.windows.begin(), sharding.windows.end(),
            [](const Window& a, const Window& b) { return a.dim < b.dim; });
  return sharding;
}

std::optional<Sharding> padded_from(const ir::Function& function, const ir::Equation& pad,
                                    const Sharding& result) {
  if (pad.op != &ops::pad_op || !result.partial.empty()) return std::nullopt;
  const ir::Ints& low = pad.attributes.ints("low");
  const Shape& before = function.type(pad.operands[0]).shape;
  const Shape& after = function.type(pad.results[0]).shape;
  Sharding from = result;
  for (std::size_t dim = 0; dim < before.size(); ++dim) {
    if (result.dims[dim].empty() || before[dim] == after[dim]) continue;
    const auto window = std::find_if(from.windows.begin(), from.windows.end(),
                                     [&](const Window& w) { return w.dim == dim; });
    const bool is_shifted = window != from.windows.end() && window->divisor == 1 &&
                            pad.attributes.ints("interior")[dim] == 0;
    if (!is_shifted) return std::nullopt;
    window->offset -= low[dim];
  }
  return from;
}

bool may_be_read_as(const Sharding& needed, const Sharding& held) {
  Sharding relaxed = needed;
  std::erase_if(relaxed.windows, [&](const Window& window) {
    return needed.dims[window.dim].empty() && window_of(held, window.dim) == nullptr;
  });
  return held == relaxed;
}

bool is_exact_cut(std::int64_t count, std::int64_t grains) {
  return grains % count == 0 && std::has_single_bit(static_cast<std::uint64_t>(grains / count));
}

namespace {

/// Truncates the list of a reduced factor of an order-dependent sum to subtrees of the summation
/// tree.
void cut_reduced(const EquationFactors& factors, const std::vector<Atom>& atoms,
                 std::int64_t grains, int factor, AtomList& list) {
  if (factors.is_order_free) return;
  if (factor != factors.outermost_reduced) list.clear();
  if (factors.outermost_grains != 0) grains = factors.outermost_grains;
  while (!list.empty() && !is_exact_cut(num_shards(atoms, list), grains)) list.pop_back();
}

/// Clears the factors that follow, in a dimension of `dims`, a factor that is not cut into single
/// elements.
bool clear_minor(const EquationFactors& factors, const std::vector<Atom>& atoms,
                 const Factors::Dims& dims, Assignment& assignment) {
  bool has_changed = false;
  for (const std::vector<int>& dim : dims) {
    bool is_full = true;
    for (int factor : dim) {
      AtomList& list = assignment[static_cast<std::size_t>(factor)];
      if (!is_full && !list.empty()) {
        list.clear();
        has_changed = true;
      }
      is_full = is_full && num_shards(atoms, list) ==
                               factors.rule.factors[static_cast<std::size_t>(factor)].size;
    }
  }
  return has_changed;
}

}  // namespace

void legalise(const EquationFactors& factors, const std::vector<Atom>& atoms, std::int64_t grains,
              Assignment& assignment) {
  std::vector<bool> is_used(atoms.size(), false);
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    AtomList& list = assignment[i];
    if (list.empty()) continue;
    const FactorKind kind = factors.rule.factors[i].kind;
    if (kind == FactorKind::replicate) list.clear();
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (is_used[list[k]]) list.resize(k);
    }
    list.resize(splittable_prefix(factors, static_cast<int>(i), atoms, list));
    if (kind == FactorKind::reduce) {
      cut_reduced(factors, atoms, grains, static_cast<int>(i), list);
    }
    for (AtomId atom : list) is_used[atom] = true;
  }
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    for (const Factors::Dims& dims : factors.rule.operands) {
      has_changed |= clear_minor(factors, atoms, dims, assignment);
    }
    for (const Factors::Dims& dims : factors.rule.results) {
      has_changed |= clear_minor(factors, atoms, dims, assignment);
    }
  }
}

std::int64_t permuted_shards(const ir::Function& function, const ir::Equation& equation) {
  if (equation.operands.empty()) return 1;
  const std::vector<Atom> atoms = atoms_of(function.mesh);
  const Sharding& sharding = function.sharding(equation.operands[0]);
  std::int64_t count = 1;
  for (std::size_t dim : ops::permuted_dims(factors_of(function, equation).rule)) {
    count *= num_shards(atoms, sharding.dims[dim]);
  }
  return count;
}

namespace {

/// Whether sums of the first dtype may be postponed and taken in the second.
bool keeps_precision(DType before, DType after) {
  return is_float(before) && is_float(after) && size_bytes(before) <= size_bytes(after);
}

}  // namespace

std::vector<std::vector<std::size_t>> linear_groups(const ir::Function& function,
                                                    const ir::Equation& equation) {
  const std::size_t count = equation.operands.size();
  if (equation.results.size() != 1) return {};
  std::vector<std::vector<std::size_t>> groups;
  const ops::Linearity linearity = equation.op->linearity;
  if (linearity == ops::Linearity::each) {
    for (std::size_t i = 0; i < count; ++i) groups.push_back({i});
  } else if (linearity != ops::Linearity::none) {
    const std::size_t first = linearity == ops::Linearity::rest ? 1 : 0;
    const std::size_t end = linearity == ops::Linearity::first ? 1 : count;
    groups.emplace_back(end - first);
    std::iota(groups[0].begin(), groups[0].end(), first);
  }
  const DType result = function.type(equation.results[0]).dtype;
  std::erase_if(groups, [&](const std::vector<std::size_t>& group) {
    return !std::all_of(group.begin(), group.end(), [&](std::size_t i) {
      return keeps_precision(function.type(equation.operands[i]).dtype, result);
    });
  });
  return groups;
}

AtomList partial_atoms(const EquationFactors& factors, const Assignment& assignment) {
  AtomList partial;
  for (int factor : factors.rule.reduced) {
    const AtomList& list = assignment[static_cast<std::size_t>(factor)];
    partial.insert(partial.end(), list.begin(), list.end());
  }
  if (factors.is_order_free) std::sort(partial.begin(), partial.end());
  return partial;
}

}  // namespace tessera::partition
