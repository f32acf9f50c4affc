// Converts between the atoms of tensors and the atoms of an equation's factors.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ir/ir.h"
#include "mesh/sharding.h"
#include "ops/record.h"

namespace tessera::partition {

/// Per factor of an equation: the atoms that split it, major first.
using Assignment = std::vector<AtomList>;

/// The factors of an equation, and the restrictions on splitting them.
struct EquationFactors {
  ops::Factors rule;
  /// Per factor: whether it shares a dimension with other factors. Its shards must then have equal
  /// sizes, or the cuts of the dimension would not be cuts of the factor.
  std::vector<bool> must_divide;
  int outermost_reduced = -1;         // the first reduced factor that has several grains
  std::int64_t outermost_grains = 0;  // how many, if the equation sets it
  /// Whether results do not depend on the order of the reduction, or may depend on it in fast
  /// numerics.
  bool is_order_free = false;
};

EquationFactors factors_of(const ir::Function& function, const ir::Equation& equation);
/// The factors of every equation. Equations that differ only in their values, as in identical
/// layers, share them.
std::vector<std::shared_ptr<const EquationFactors>> all_factors(const ir::Function& function);

bool uses_atom(const Sharding& sharding, AtomId atom);
bool uses_atom(const Assignment& assignment, AtomId atom);

/// The longest prefix of `list` that may split `factor`: no more shards than elements, and equal
/// shards where they are required.
std::size_t splittable_prefix(const EquationFactors& factors, int factor,
                              const std::vector<Atom>& atoms, const AtomList& list);

/// Adds to `out`, one list per factor, how `sharding` splits the factors of a tensor. Atoms that
/// fit no factor are ignored.
void project(const EquationFactors& factors, const ops::Factors::Dims& dims,
             const Sharding& sharding, const std::vector<Atom>& atoms, Assignment& out);

/// The same for an operand of the equation, whose tiles may be windows.
void project_operand(const EquationFactors& factors, std::size_t operand, const Sharding& sharding,
                     const std::vector<Atom>& atoms, Assignment& out);

/// The sharding of a tensor under an assignment that `legalise` accepts, without partial atoms.
Sharding back_project(const ops::Factors::Dims& dims, const Assignment& assignment);

/// What each device needs of an operand: shards, or windows if these differ from the shards.
Sharding needed_of(const EquationFactors& factors, std::size_t operand,
                   const std::vector<Atom>& atoms, const Assignment& assignment);

/// What a pad reads of its operand if the tiles of its result are windows that a convolution reads.
/// nullopt if it cannot make such tiles from one window of the operand.
std::optional<Sharding> padded_from(const ir::Function& function, const ir::Equation& pad,
                                    const Sharding& result);

/// Whether an equation that needs `needed` may read an operand held as `held`. Dimensions that the
/// equation does not split must be whole or the window that it reads; all others must be as in
/// `needed`.
bool may_be_read_as(const Sharding& needed, const Sharding& held);

/// Whether `count` shards of an order-dependent sum are subtrees of the summation tree of `grains`
/// grains.
bool is_exact_cut(std::int64_t count, std::int64_t grains);

/// Truncates every list to what is legal with respect to the kinds and sizes of factors, dimensions
/// that are filled major first, and exact sums. No atom is left on two factors.
void legalise(const EquationFactors& factors, const std::vector<Atom>& atoms, std::int64_t grains,
              Assignment& assignment);

/// The number of shards among which an equation of a partitioned function permutes slices; 1 for
/// ops that stay within their shards.
std::int64_t permuted_shards(const ir::Function& function, const ir::Equation& equation);

/// Sets of operands in which the equation is jointly linear, with the others fixed. If the operands
/// of a set are sums over the same atoms, so is the result, with the same precision.
std::vector<std::vector<std::size_t>> linear_groups(const ir::Function& function,
                                                    const ir::Equation& equation);

/// The atoms that make results partial: those of reduced factors, outermost first, or sorted if the
/// order does not matter.
AtomList partial_atoms(const EquationFactors& factors, const Assignment& assignment);

}  // namespace tessera::partition
