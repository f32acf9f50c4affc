// Discrete Fourier transforms.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>

#include "stablehlo/complex/pair_maker.h"

namespace tessera::stablehlo {

/// Transforms along one dimension, as products with matrices of roots of unity: a length that is
/// the product of two numbers takes two shorter transforms. Real numbers of an even length take one
/// of half as many complex ones. The order of the sums depends on the
/// length only.
class FourierTransform {
 public:
  explicit FourierTransform(PairMaker& make) : make_(make) {}

  /// Whether the length and its largest prime factor, whose matrix is made, are small enough.
  static bool has_length(std::int64_t length);
  /// What other lengths are.
  static constexpr const char* kLengths = "a length above 2^24, or with a prime factor above 2048";
  Pair forward(Pair x, std::size_t dim) { return along(x, dim, -1); }
  /// Divided by the length.
  Pair inverse(Pair x, std::size_t dim);
  /// The first length / 2 + 1 elements that real numbers give.
  Pair forward_real(bytecode::ValueNumber x, std::size_t dim);
  /// The real numbers of which forward_real() gives x.
  bytecode::ValueNumber inverse_real(Pair x, std::size_t dim, std::int64_t length);

 private:
  Pair along(Pair x, std::size_t dim, int sign);
  Pair along_last(Pair x, int sign);
  Pair with_matrix(Pair x, std::size_t dim, int sign);
  /// Of odd lengths, and of none.
  bytecode::ValueNumber inverse_odd(Pair x, std::size_t dim, std::int64_t length);
  Pair mixed(Pair x, Pair y, Pair factors);
  bytecode::ValueNumber swapped(bytecode::ValueNumber x, std::size_t dim);
  Pair moved_back(Pair x, std::size_t dim);
  Pair without_rows(Pair x);
  using Entry = std::function<std::complex<double>(std::int64_t row, std::int64_t column)>;
  Pair constants(std::int64_t rows, std::int64_t columns, const bytecode::Type& like,
                 const Entry& entry);
  /// exp(sign 2 pi i row column / length).
  Pair roots(std::int64_t rows, std::int64_t columns, std::int64_t length, int sign,
             const bytecode::Type& like);

  PairMaker& make_;
};

}  // namespace tessera::stablehlo
