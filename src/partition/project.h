// How the atoms of a tensor split the factors of an equation, and back.
#pragma once

#include <memory>
#include <vector>

#include "ir/ir.h"
#include "mesh/sharding.h"
#include "ops/record.h"

namespace tessera::partition {

/// Per factor of an equation: the atoms that split it, major first.
using Assignment = std::vector<AtomList>;

/// The factors of an equation together with what restricts splitting them.
struct EquationFactors {
  ops::Factors rule;
  /// Per factor: it shares a dimension with other factors somewhere, so its shards must be equal
  /// or the cuts of the dimension would not be the cuts of the factor.
  std::vector<bool> must_divide;
  int outermost_reduced = -1;  // the first reduced factor whose size is not 1
  /// Results do not depend on the order of the reduction, or, in fast numerics, may.
  bool is_order_free = false;
};

EquationFactors factors_of(const ir::Function& function, const ir::Equation& equation);
/// Those of every equation; equations that differ in their values only, as in identical layers,
/// share theirs.
std::vector<std::shared_ptr<const EquationFactors>> all_factors(const ir::Function& function);

bool uses_atom(const Sharding& sharding, AtomId atom);
bool uses_atom(const Assignment& assignment, AtomId atom);

/// The longest prefix of `list` that may split `factor`: not more shards than elements, and equal
/// shards where the factor must divide.
std::size_t splittable_prefix(const EquationFactors& factors, int factor,
                              const std::vector<Atom>& atoms, const AtomList& list);

/// Adds to `out` (one list per factor) how `sharding` splits the factors of one tensor. Atoms that
/// fit no factor are left out.
void project(const EquationFactors& factors, const ops::Factors::Dims& dims,
             const Sharding& sharding, const std::vector<Atom>& atoms, Assignment& out);

/// The same for an operand of the equation, whose tiles may be windows.
void project_operand(const EquationFactors& factors, std::size_t operand, const Sharding& sharding,
                     const std::vector<Atom>& atoms, Assignment& out);

/// The sharding of a tensor under an assignment that `legalise` accepts, without partial atoms.
Sharding back_project(const ops::Factors::Dims& dims, const Assignment& assignment);

/// What each device needs of an operand: shards, or windows where these differ from the shards.
Sharding needed_of(const EquationFactors& factors, std::size_t operand,
                   const std::vector<Atom>& atoms, const Assignment& assignment);

/// Dimensions that the equation does not split are read whole or as the window that it needs of
/// them; all others as `needed`.
bool may_be_read_as(const Sharding& needed, const Sharding& held);

/// Whether `count` shards of an order-dependent sum are subtrees of the tree over `grains` leaves.
bool is_exact_cut(std::int64_t count, std::int64_t grains);

/// Cuts every list to what is legal: kinds, sizes, dimensions filled major first, exact sums, and
/// no atom on two factors.
void legalise(const EquationFactors& factors, const std::vector<Atom>& atoms, std::int64_t grains,
              Assignment& assignment);

/// The shards between which an equation of a partitioned function permutes slices; 1 for all ops
/// that stay within their shards.
std::int64_t permuted_shards(const ir::Function& function, const ir::Equation& equation);

/// Sets of operands in which the equation is linear together, the others being held: if these are
/// sums over the same atoms, its result is one too, of the same precision.
std::vector<std::vector<std::size_t>> linear_groups(const ir::Function& function,
                                                    const ir::Equation& equation);

/// The atoms that leave results partial: those of reduced factors, outermost first, or sorted where
/// the order does not matter.
AtomList partial_atoms(const EquationFactors& factors, const Assignment& assignment);

}  // namespace tessera::partition
