// Matrices whose elements are scaled to about 1, so that nothing overflows on the way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "compile/host/kernels/linalg/strips.h"

namespace tessera::kernels {

/// A power of two by which the largest element becomes about 1.
template <typename T>
T scale_for(T largest) {
  constexpr int kMost = std::numeric_limits<T>::max_exponent - 2;
  if (largest == T{0}) return T{1};
  return std::scalbn(T{1}, -std::clamp(std::ilogb(largest), -kMost, kMost));
}

template <typename T>
T largest_of(std::int64_t count, const T* data) {
  T largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(data[i]));
  return largest;
}

/// -1 if the first element in row i that is larger than half of the largest one is negative, else
/// 1. The largest one itself would not do: if two have the same size, rounding decides which it is.
template <typename T>
T sign_of_row(const Strips<T>& x, std::int64_t i) {
  T largest = 0;
  for (std::int64_t j = 0; j < x.cols; ++j) largest = std::max(largest, std::abs(x.at(i, j)[0]));
  for (std::int64_t j = 0; j < x.cols; ++j) {
    const T element = x.at(i, j)[0];
    if (std::abs(element) > largest / 2) return element < T{0} ? T{-1} : T{1};
  }
  return T{1};
}

/// Changes the signs of columns as sign_of_row() says for rows.
template <typename T>
void make_signs_unique(const Strips<T>& x) {
  for (std::int64_t s = 0; s < x.count(); ++s) {
    T largest[kStripWidth<T>] = {};
    T signs[kStripWidth<T>] = {};
    for (std::int64_t i = 0; i < x.rows; ++i) {
      for (std::int64_t j = 0; j < kStripWidth<T>; ++j)
        largest[j] = std::max(largest[j], std::abs(x.strip(s, i)[j]));
    }
    for (std::int64_t i = x.rows - 1; i >= 0; --i) {
      for (std::int64_t j = 0; j < kStripWidth<T>; ++j) {
        const T element = x.strip(s, i)[j];
        if (std::abs(element) > largest[j] / 2) signs[j] = element < T{0} ? T{-1} : T{1};
      }
    }
    for (std::int64_t i = 0; i < x.rows; ++i) {
      for (std::int64_t j = 0; j < kStripWidth<T>; ++j) x.strip(s, i)[j] *= signs[j];
    }
  }
}

/// The positions of the values in ascending order.
inline void sort_positions(std::int64_t count, const double* values, std::int64_t* positions) {
  std::iota(positions, positions + count, std::int64_t{0});
  std::sort(positions, positions + count, [&](std::int64_t i, std::int64_t j) {
    return values[i] != values[j] ? values[i] < values[j] : i < j;
  });
}

template <typename T>
void transpose(const Strips<T>& from, const Strips<T>& to) {
  for (std::int64_t j = 0; j < from.cols; ++j) {
    for (std::int64_t i = 0; i < from.rows; ++i) to.at(j, i)[0] = from.at(i, j)[0];
  }
}

}  // namespace tessera::kernels
