// Linear algebra of complex matrices, computed with real matrices of twice their size.
#pragma once

#include "stablehlo/complex/pair_maker.h"

namespace tessera::stablehlo {

struct TriangularForm {
  bool left_side = true;
  bool lower = true;
  bool transpose_a = false;
  bool unit_diagonal = false;
};

/// Each element a + i b becomes the block [[a, -b], [b, a]]. Sums, products and factors of such
/// matrices have the same form.
class ComplexMatrices {
 public:
  explicit ComplexMatrices(PairMaker& make) : make_(make) {}

  /// A factor with a real diagonal is unique, so the factor of the larger matrix consists of the
  /// blocks of the smaller matrix's factor.
  Pair cholesky(Pair x, bool lower);
  Pair triangular_solve(const TriangularForm& form, Pair a, Pair b);

 private:
  using Value = PairMaker::Value;
  std::size_t last(Value x) const { return make_.type(x).shape.size() - 1; }
  Pair transpose(Pair x);
  Value blocks(Pair x);
  Value diagonal(Value x);
  Value without_diagonal(Value x);

  PairMaker& make_;
};

}  // namespace tessera::stablehlo
