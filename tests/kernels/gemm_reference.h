// The definition of a matrix product, written as plainly as possible.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dot_unit.h"
#include "compile/host/kernels/gemm/gemm.h"
#include "tests/kernels/gemm_problems.h"

namespace tessera::kernels::problems {

struct Reference {
  const GemmProblem& p;
  const float* a;
  const float* b;
  DotUnit unit = DotUnit::portable;

  float leaf(std::size_t batch, std::size_t m, std::size_t n, std::int64_t begin,
             std::int64_t end) const {
    DotSum sum(unit);
    for (std::int64_t k = begin; k < end; ++k) {
      sum.add(a[p.a.batch[batch] + p.a.outer[m] + p.a.k[at(k)]],
              b[p.b.batch[batch] + p.b.outer[n] + p.b.k[at(k)]]);
    }
    return sum.value();
  }

  float tree(std::size_t batch, std::size_t m, std::size_t n, std::size_t begin,
             std::size_t end) const {
    if (end - begin == 1)
      return leaf(batch, m, n, begin == 0 ? 0 : p.leaf_ends[begin - 1], p.leaf_ends[begin]);
    std::size_t half = 1;
    while (2 * half < end - begin) half *= 2;
    return tree(batch, m, n, begin, begin + half) + tree(batch, m, n, begin + half, end);
  }

  void run(float* c) const {
    for (std::size_t batch = 0; batch < p.a.batch.size(); ++batch) {
      for (std::size_t m = 0; m < p.a.outer.size(); ++m) {
        for (std::size_t n = 0; n < p.b.outer.size(); ++n)
          c[p.c_batch[batch] + p.c_rows[m] + static_cast<std::int64_t>(n)] =
              tree(batch, m, n, 0, p.leaf_ends.size());
      }
    }
  }
};

}  // namespace tessera::kernels::problems
