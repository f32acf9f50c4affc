// QR factors in strips.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/host/kernels/linalg/reflections.h"

namespace tessera::kernels {

/// `m` becomes R and, below the diagonal, the vectors of the reflections. taus: [least]
template <typename T>
void factor(const Strips<T>& m, T* taus);

/// The reflections whose vectors are below the diagonal of `packed`.
template <typename T>
std::vector<ReflectionBlock<T>> blocks_of(MatrixMemory& memory, const Strips<T>& packed,
                                          std::int64_t num_taus, const T* taus);

}  // namespace tessera::kernels
