// The sizes of ops that select rows by arrays of indices.
#pragma once

#include "compile/host/dense_tasks.h"

namespace tessera::compile::host {

/// What gather and the scatters do for each index of their batch dimensions.
struct IndexShape {
  std::int64_t batch;
  std::int64_t outer;
  std::int64_t inner;
  std::int64_t num_indices;
};

inline IndexShape index_shape(const Equation& equation, const Shape& table, const Shape& indices) {
  const auto num_batch = equation.attributes.integer("num_batch");
  const auto split = table.begin() + equation.attributes.integer("dim");
  return {.batch = product(table.begin(), table.begin() + num_batch),
          .outer = product(table.begin() + num_batch, split),
          .inner = product(split + 1, table.end()),
          .num_indices = product(indices.begin() + num_batch, indices.end())};
}

}  // namespace tessera::compile::host
