// QR factors. The columns of a panel are reflected one by one; products update what is to its
// right.
#include "compile/host/kernels/linalg/qr.h"

#include <algorithm>

#include "compile/host/kernels/linalg/finite.h"
#include "compile/host/kernels/linalg/linalg.h"

namespace tessera::kernels {

namespace {

/// Makes the reflection of column k and applies it to the columns after it in the strips up to
/// column `end`. The vector goes to `v` and below the diagonal. Returns its tau.
template <typename T>
T reflect_columns(const Strips<T>& m, std::int64_t k, std::int64_t end, T* v) {
  const std::int64_t rows = m.rows - k;
  T* column = m.at(k, k);
  for (std::int64_t i = 0; i < rows; ++i) v[i] = column[i * kStripWidth<T>];
  const Reflection<T> reflection = make_reflection(rows, v);
  const std::int64_t first_strip = k / kStripWidth<T>;
  const std::int64_t strips = Strips<T>::count_for(end) - first_strip;
  alignas(64) T products[kReflections] = {};
  subtract_product(StripProduct<T>{.a = v,
                                   .a_stride = rows,
                                   .b = m.strip(first_strip, k),
                                   .b_stride = m.stride(),
                                   .c = products,
                                   .c_stride = kStripWidth<T>,
                                   .rows = 1,
                                   .terms = rows,
                                   .strips = strips});
  for (T& product : products) product *= -reflection.tau;
  std::fill_n(products, k % kStripWidth<T> + 1, T{0});  // columns up to k are done
  subtract_product(StripProduct<T>{.a = v,
                                   .a_stride = 1,
                                   .b = products,
                                   .b_stride = kStripWidth<T>,
                                   .c = m.strip(first_strip, k),
                                   .c_stride = m.stride(),
                                   .rows = rows,
                                   .terms = 1,
                                   .strips = strips});
  column[0] = reflection.length;
  for (std::int64_t i = 1; i < rows; ++i) column[i * kStripWidth<T>] = v[i];
  return reflection.tau;
}

/// The block of reflections whose vectors are below the diagonal in columns [first, end).
template <typename T>
ReflectionBlock<T> block_of(MatrixMemory& memory, const Strips<T>& packed, std::int64_t first,
                            std::int64_t end, const T* taus) {
  const std::int64_t rows = packed.rows - first;
  T* v = memory.take_zeros<T>(rows * kReflections);
  for (std::int64_t j = 0; j < end - first; ++j) {
    v[j * kReflections + j] = T{1};
    const T* column = packed.at(first, first + j);
    for (std::int64_t i = j + 1; i < rows; ++i)
      v[i * kReflections + j] = column[i * kStripWidth<T>];
  }
  return make_block(memory, first, rows, end - first, v, taus + first);
}

}  // namespace

template <typename T>
std::vector<ReflectionBlock<T>> blocks_of(MatrixMemory& memory, const Strips<T>& packed,
                                          std::int64_t num_taus, const T* taus) {
  std::vector<ReflectionBlock<T>> blocks;
  for (std::int64_t first = 0; first < num_taus; first += kReflections) {
    const std::int64_t end = std::min(first + kReflections, num_taus);
    blocks.push_back(block_of(memory, packed, first, end, taus));
  }
  return blocks;
}

template <typename T>
void factor(const Strips<T>& m, T* taus) {
  MatrixMemory memory;
  T* v = memory.take<T>(m.rows);
  const std::int64_t least = std::min(m.rows, m.cols);
  for (std::int64_t first = 0; first < least; first += kReflections) {
    const std::int64_t end = std::min(first + kReflections, least);
    for (std::int64_t k = first; k < end; ++k) taus[k] = reflect_columns(m, k, end, v);
    const std::int64_t strip = Strips<T>::count_for(end);
    if (strip == m.count()) break;
    MatrixMemory of_block;
    apply(block_of(of_block, m, first, end, taus), true, m, strip);
  }
}

template <typename T>
void geqrf(MatrixSize size, const T* a, T* packed, T* taus) {
  const std::int64_t count = size.rows * size.cols;
  if (!is_finite(a, count)) {
    fill_with_nan(packed, count);
    return fill_with_nan(taus, size.least());
  }
  MatrixMemory memory;
  const Strips<T> m = load_strips(memory, size.rows, size.cols, a, size.cols);
  factor(m, taus);
  store_strips(m, packed, size.cols);
}

template <typename T>
void householder_product(MatrixSize size, std::int64_t num_taus, const T* packed, const T* taus,
                         T* q) {
  const std::int64_t count = size.rows * size.cols;
  if (!is_finite(packed, count) || !is_finite(taus, num_taus)) return fill_with_nan(q, count);
  MatrixMemory memory;
  const Strips<T> vectors = load_strips(memory, size.rows, num_taus, packed, size.cols);
  const auto blocks = blocks_of(memory, vectors, num_taus, taus);
  store_strips(product_of(memory, blocks, size.rows, size.cols), q, size.cols);
}

template <typename T>
void qr(MatrixSize size, bool is_full, const T* a, T* q, T* r) {
  const std::int64_t k = is_full ? size.rows : size.least();
  if (!is_finite(a, size.rows * size.cols)) {
    fill_with_nan(q, size.rows * k);
    return fill_with_nan(r, k * size.cols);
  }
  MatrixMemory memory;
  const Strips<T> m = load_strips(memory, size.rows, size.cols, a, size.cols);
  T* taus = memory.take<T>(size.least());
  factor(m, taus);
  const auto blocks = blocks_of(memory, m, size.least(), taus);
  store_strips(product_of(memory, blocks, size.rows, k), q, k);
  for (std::int64_t i = 0; i < k; ++i) {
    const std::int64_t zeros = std::min(i, size.cols);
    std::fill_n(r + i * size.cols, zeros, T{0});
    for (std::int64_t j = zeros; j < size.cols; ++j) r[i * size.cols + j] = m.at(i, j)[0];
  }
}

template void factor(const Strips<float>&, float*);
template void factor(const Strips<double>&, double*);
template std::vector<ReflectionBlock<float>> blocks_of(MatrixMemory&, const Strips<float>&,
                                                       std::int64_t, const float*);
template std::vector<ReflectionBlock<double>> blocks_of(MatrixMemory&, const Strips<double>&,
                                                        std::int64_t, const double*);
template void geqrf(MatrixSize, const float*, float*, float*);
template void geqrf(MatrixSize, const double*, double*, double*);
template void householder_product(MatrixSize, std::int64_t, const float*, const float*, float*);
template void householder_product(MatrixSize, std::int64_t, const double*, const double*, double*);
template void qr(MatrixSize, bool, const float*, float*, float*);
template void qr(MatrixSize, bool, const double*, double*, double*);

}  // namespace tessera::kernels
