#include "partition/candidates.h"

#include <gtest/gtest.h>

#include "partition/test_programs.h"

namespace tessera::partition {
namespace {

using testing::Program;

TEST(Legalise, SumsAreCutOutermostOnly) {
  Program p(make_mesh({{"a", 2}, {"b", 16}}));
  const std::vector<Atom> atoms = atoms_of(p.function.mesh);
  const ir::ValueId x = p.input({64, 64});
  p.sum(x, {1, 0});
  p.largest(x, {1, 0});
  const EquationFactors sum = factors_of(p.function, p.function.equations[0]);
  const EquationFactors largest = factors_of(p.function, p.function.equations[1]);
  const Assignment asked{{0}, {1, 2, 3, 4}};
  Assignment cut = asked;
  legalise(sum, atoms, 8, cut);
  EXPECT_EQ(cut, (Assignment{{}, {1, 2, 3}}));
  EXPECT_EQ(partial_atoms(sum, cut), (AtomList{1, 2, 3}));
  cut = asked;
  legalise(largest, atoms, 8, cut);
  EXPECT_EQ(cut, asked);
}

TEST(Legalise, CutsMustBeSubtrees) {
  EXPECT_TRUE(is_exact_cut(8, 8));
  EXPECT_TRUE(is_exact_cut(3, 24));
  EXPECT_TRUE(is_exact_cut(6, 24));
  EXPECT_FALSE(is_exact_cut(3, 8));
  EXPECT_FALSE(is_exact_cut(2, 24));  // the tree over 24 grains splits at 16
  EXPECT_FALSE(is_exact_cut(16, 8));
}

TEST(Legalise, NoAtomOnTwoFactorsAndNoEmptyShards) {
  Program p(make_mesh({{"a", 8}}));
  const std::vector<Atom> atoms = atoms_of(p.function.mesh);
  const ir::ValueId x = p.input({3, 64});
  p.add(x, x);
  const EquationFactors factors = factors_of(p.function, p.function.equations[0]);
  Assignment cut{{0, 1}, {0, 2}};
  legalise(factors, atoms, 8, cut);
  EXPECT_EQ(cut, (Assignment{{0}, {}}));
}

TEST(Candidates, OfferTheOutermostSum) {
  Program p(make_mesh({{"a", 2}}));
  const std::vector<Atom> atoms = atoms_of(p.function.mesh);
  const ir::ValueId x = p.input({64, 64});
  p.sum(x, {0, 1});
  const EquationFactors factors = factors_of(p.function, p.function.equations[0]);
  const Sharding columns{.dims = {{}, {0}}, .partial = {}};
  const std::vector<Assignment> found = make_candidates(
      {factors, atoms, 8},
      {{&factors.rule.operands[0], &columns, num_elements(p.function.type(x).shape), false}});
  EXPECT_NE(std::find(found.begin(), found.end(), Assignment{{0}, {}}), found.end());
}

}  // namespace
}  // namespace tessera::partition
