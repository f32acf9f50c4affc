// Sums over the devices of partial values, where one process computes for all of them.

#include "compile/host/lower.h"
#include "ops/record.h"

namespace tessera::compile::host {

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

void LowerContext::find_sums() {
  const std::vector<int> uses = ir::count_uses(function_);
  for (const Equation& equation : function_.equations) {
    if (equation.op->host.name != "combine" ||
        equation.attributes.get<std::string>("reduction") != "sum")
      continue;
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const ValueId partial = equation.operands[i];
      const bool is_whole = function_.sharding(equation.results[i]).partial.empty();
      if (is_whole && uses[partial] == 1) sums_[partial] = equation.results[i];
    }
  }
}

void LowerContext::set_computed(const HostInstruction& instruction) {
  for (const TileTask& task : instruction.tasks) {
    for (const TileRef& write : task.writes) tiles_written_[write.value] += 1;
  }
}

}  // namespace tessera::compile::host
