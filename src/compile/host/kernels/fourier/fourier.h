// Discrete Fourier transforms of any length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "compile/host/kernels/fourier/rows.h"

namespace tessera::kernels {

using fourier::Parts;

/// Element k of the transform of a row is the sum over j of element j of the row times exp(-2 pi i
/// j k / length), times `scale`. The operations for an element depend only on the length and the
/// dtype. If the length has a large prime factor, the transform is a convolution with a chirp
/// (Bluestein's method), in f64. Rows with an element that is not finite become NaN.
template <typename T>
class FourierPlan {
 public:
  explicit FourierPlan(std::int64_t length);

  /// `from` and `to` must not overlap.
  void transform(std::int64_t rows, Parts<const T> from, Parts<T> to, T scale) const;
  /// The same with the opposite sign in the exponent.
  void invert(std::int64_t rows, Parts<const T> from, Parts<T> to, T scale) const {
    transform(rows, {from.im, from.re}, to.swapped(), scale);
  }
  /// The same for `count` columns of a matrix whose rows are `stride` elements apart.
  void transform_columns(std::int64_t count, std::int64_t stride, Parts<const T> from, Parts<T> to,
                         T scale) const;
  void invert_columns(std::int64_t count, std::int64_t stride, Parts<const T> from, Parts<T> to,
                      T scale) const {
    transform_columns(count, stride, {from.im, from.re}, to.swapped(), scale);
  }
  /// How many columns to pass to transform_columns(): several strips, unless they are too long for
  /// the cache.
  std::int64_t columns_together() const {
    constexpr std::int64_t kMostRows = 8192;
    return fourier::kWidth<T> * std::clamp<std::int64_t>(kMostRows / (length_ + 1) + 1, 1, 8);
  }
  /// How many rows transform() computes together, at most.
  std::int64_t rows_together() const {
    return is_convolution() || (rows_.is_split() && !rows_.has_blocks()) ? 1 : fourier::kWidth<T>;
  }

 private:
  bool is_convolution() const { return !chirp_.empty(); }
  void transform_gathered(std::int64_t count, std::int64_t stride, Parts<const T> from, Parts<T> to,
                          T scale) const;
  void convolve(Parts<const T> from, Parts<T> to, T scale) const;

  std::int64_t length_;
  fourier::RowPlan<T> rows_;
  fourier::RowPlan<double> convolution_;
  std::vector<double> chirp_;     // [length] cosines, then sines
  std::vector<double> spectrum_;  // of the chirp: [convolution length] real parts, then imaginary
};

/// Transforms of real numbers. An even length takes a transform of half as many complex numbers.
template <typename T>
class RealFourierPlan {
 public:
  explicit RealFourierPlan(std::int64_t length);

  /// The first length / 2 + 1 elements of the transform of each row.
  void transform(std::int64_t rows, const T* from, Parts<T> to, T scale) const;
  /// The real numbers whose transform() is `from`, times `length`. Imaginary parts that are zero in
  /// every such transform are not read.
  void invert(std::int64_t rows, Parts<const T> from, T* to, T scale) const;

 private:
  bool is_halved() const { return length_ % 2 == 0; }
  void transform_halved(std::int64_t rows, const T* from, Parts<T> to, T scale) const;
  void invert_halved(std::int64_t rows, Parts<const T> from, T* to, T scale) const;
  void transform_whole(std::int64_t rows, const T* from, Parts<T> to, T scale) const;
  void invert_whole(std::int64_t rows, Parts<const T> from, T* to, T scale) const;

  std::int64_t length_;
  std::shared_ptr<const FourierPlan<T>> plan_;  // of half the length where it is even
  std::vector<T> turns_;                        // [length / 2 + 1] cosines, then sines
};

/// The plan for a length. Equal plans are shared.
template <typename T>
std::shared_ptr<const FourierPlan<T>> fourier_plan(std::int64_t length);
template <typename T>
std::shared_ptr<const RealFourierPlan<T>> real_fourier_plan(std::int64_t length);

}  // namespace tessera::kernels
