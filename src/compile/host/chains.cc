// Collectives in one process: if it computes for all devices, a sequence of collectives becomes one
// copy or one sum. The equation that makes a partial value may write the sum.
#include <algorithm>
#include <bit>

#include "compile/host/lower.h"
#include "ops/record.h"

namespace tessera::compile::host {

bool is_reducing(const Equation& equation) { return *equation.op->host == "combine"; }

AtomList resolved_atoms(const Layout& partial, const Layout& sum) {
  AtomList atoms = partial.sharding().partial;
  for (AtomId kept : sum.sharding().partial) erase(atoms, kept);
  return atoms;
}

std::vector<AtomDigits> digits_along(const std::vector<Atom>& atoms, const AtomList& along,
                                     const AtomDigits& base) {
  std::vector<AtomDigits> all = {base};
  for (AtomId atom : along) {
    std::vector<AtomDigits> next;
    for (const AtomDigits& digits : all) {
      for (std::int32_t digit = 0; digit < atoms[atom].size; ++digit) {
        next.push_back(digits);
        next.back()[atom] = digit;
      }
    }
    all = std::move(next);
  }
  return all;
}

std::vector<AtomDigits> LowerContext::summands(ValueId partial, ValueId sum,
                                               const AtomDigits& digits) const {
  return digits_along(atoms_, resolved_atoms(layouts_[partial], layouts_[sum]), digits);
}

std::vector<AtomDigits> LowerContext::own_summands(ValueId partial, ValueId sum,
                                                   const AtomDigits& digits) const {
  std::vector<AtomDigits> all = summands(partial, sum, digits);
  if (transport() == nullptr) return all;
  const std::vector<std::int64_t> own = tiles(partial);
  std::erase_if(all, [&](const AtomDigits& summand) {
    return !std::binary_search(own.begin(), own.end(), layouts_[partial].tile_at(summand));
  });
  return all;
}

namespace {

const std::string& reduction_of(const Equation& equation) {
  return equation.attributes.get<std::string>("reduction");
}

std::size_t place_in(const std::vector<ValueId>& values, ValueId value) {
  return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

/// Whether every element keeps its index, whether it is moved or summed with those of other
/// devices.
bool keeps_indices(const Equation& equation) {
  return is_reducing(equation) ||
         (*equation.op->host == "move" && !equation.attributes.has("sources"));
}

/// Whether the tiles of `inside` are within the tiles of `around` with the same digits.
bool lies_within(const Sharding& inside, const Sharding& around) {
  return std::equal(around.dims.begin(), around.dims.end(), inside.dims.begin(), is_prefix);
}

/// Whether one summation tree over all atoms adds in the same order as a tree of trees whose inner
/// trees are over the last atoms.
bool is_one_tree(const std::vector<Atom>& atoms, const AtomList& all, const AtomList& inner) {
  if (all == inner) return true;
  std::uint64_t leaves = 1;
  for (const AtomId atom : inner) leaves *= static_cast<std::uint64_t>(atoms[atom].size);
  return std::has_single_bit(leaves) && inner.size() < all.size() &&
         std::equal(inner.rbegin(), inner.rend(), all.rbegin());
}

}  // namespace

/// The origin of a result's elements if a collective without other readers is skipped. `between` is
/// the result of the skipped collective, an operand of `reader`.
std::optional<Origin> LowerContext::origin_past(ValueId between, const Equation& reader,
                                                ValueId result) const {
  const Equation& maker = function_.equations[fusion_.definition[between]];
  const Origin origin = this->origin(maker, place_in(maker.results, between));
  const Sharding& from = function_.sharding(origin.value);
  const Sharding& to = function_.sharding(result);
  for (const ValueId id : {origin.value, between, result}) {
    if (!function_.sharding(id).windows.empty()) return std::nullopt;
  }
  if (origin.sum == nullptr) {
    const bool only_moves = !is_reducing(reader) && from.partial.empty();
    return only_moves ? std::optional(origin) : std::nullopt;
  }
  if (is_reducing(reader) && reduction_of(reader) != reduction_of(*origin.sum)) return std::nullopt;
  const AtomList all = resolved_atoms(layouts_[origin.value], layouts_[result]);
  const AtomList inner = resolved_atoms(layouts_[origin.value], layouts_[between]);
  if (!lies_within(to, from) || !is_one_tree(atoms_, all, inner)) return std::nullopt;
  // The equation that makes the summands may write the sum only if it knows where they go.
  const AtomList known = used_atoms(from);
  const AtomList needed = used_atoms(to);
  const bool is_known =
      std::all_of(needed.begin(), needed.end(), [&](AtomId atom) { return contains(known, atom); });
  return is_known ? std::optional(origin) : std::nullopt;
}

ValueId LowerContext::operand_for(ValueId result) const {
  const Equation& maker = function_.equations[fusion_.definition[result]];
  return maker.operands[place_in(maker.results, result)];
}

bool LowerContext::is_held_for_one(ValueId value) const {
  return uses_[value] == 1 && !fusion_.is_view[value];
}

void LowerContext::join_collectives() {
  std::size_t first = 0;  // of consecutive collectives, so that nothing between them is held longer
  for (std::size_t index = 0; index < function_.equations.size(); ++index) {
    const Equation& equation = function_.equations[index];
    if (!keeps_indices(equation)) {
      first = index + 1;
      continue;
    }
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const ValueId id = equation.operands[i];
      const std::size_t maker = fusion_.definition[id];
      if (maker == kNoEquation || maker < first || uses_[id] != 1) continue;
      if (const auto origin = origin_past(id, equation, equation.results[i]))
        origins_[id] = *origin;
    }
  }
}

void LowerContext::find_sums() {
  for (const Equation& equation : function_.equations) {
    if (!keeps_indices(equation)) continue;
    const bool crosses = transport() != nullptr && crosses_processes(*this, equation);
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const auto [partial, sum] = origin(equation, i);
      const ValueId result = equation.results[i];
      if (sum == nullptr || is_joined(result) || reduction_of(*sum) != "sum") continue;
      const bool is_whole = function_.sharding(result).partial.empty();
      if (!is_whole || uses_[partial] != 1) continue;
      if (crosses && !sends_whole_sums(*this, equation, i)) continue;
      sums_[partial] = result;
      is_sum_shared_[partial] = crosses;
    }
  }
}

Origin LowerContext::origin(const Equation& collective, std::size_t operand) const {
  Origin origin = origins_[collective.operands[operand]];
  if (is_reducing(collective)) origin.sum = &collective;
  return origin;
}

bool LowerContext::joins(const Equation& equation) const {
  const auto is_one = [&](ValueId id) { return is_joined(id); };
  return std::any_of(equation.operands.begin(), equation.operands.end(), is_one) ||
         std::any_of(equation.results.begin(), equation.results.end(), is_one);
}

void LowerContext::set_computed(const HostInstruction& instruction) {
  for (const TileTask& task : instruction.tasks) {
    for (const TileRef& write : task.writes) tiles_written_[write.value] += 1;
  }
}

}  // namespace tessera::compile::host
