#include "compile/host/kernels/window.h"

#include <algorithm>

#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/with_type.h"

namespace tessera::kernels {

namespace {

using Ints = std::vector<std::int64_t>;

/// Calls `visit(offset)` for all indices of `sizes`, row-major.
template <typename Visit>
void for_each_offset(const Ints& sizes, const Ints& strides, Visit visit) {
  if (num_elements(sizes) == 0) return;
  Ints index(sizes.size(), 0);
  std::int64_t offset = 0;
  while (true) {
    visit(offset);
    std::size_t dim = sizes.size();
    while (dim > 0) {
      --dim;
      offset += strides[dim];
      if (++index[dim] < sizes[dim]) break;
      offset -= sizes[dim] * strides[dim];
      index[dim] = 0;
      if (dim == 0) return;
    }
    if (sizes.empty()) return;
  }
}

/// The last dimensions, along which the window has one element, are worked on as one row.
struct Rows {
  explicit Rows(const WindowProblem& p) : dims(p.window.size()) {
    while (dims > 0 && p.window[dims - 1] == 1 && p.stride[dims - 1] == 1) {
      length *= p.result[--dims];
    }
  }
  std::size_t dims;
  std::int64_t length = 1;
};

template <typename T>
void combine(ReduceKind kind, T* to, const T* from, std::int64_t count) {
  if (kind == ReduceKind::sum) return add_run(to, from, count);
  for (std::int64_t i = 0; i < count; ++i) to[i] = better(kind, to[i], from[i]);
}

template <typename T>
void reduce_rows(const WindowProblem& p, const T* operand, T* result) {
  const Rows rows(p);
  const Ints strides = row_major_strides(p.operand);
  Ints sizes;
  Ints moves;
  Ints window;
  Ints steps;
  for (std::size_t i = 0; i < rows.dims; ++i) {
    sizes.push_back(p.result[i]);
    moves.push_back(strides[i] * p.stride[i]);
    window.push_back(p.window[i]);
    steps.push_back(strides[i]);
  }
  T* to = result;
  for_each_offset(sizes, moves, [&](std::int64_t base) {
    bool is_first = true;
    for_each_offset(window, steps, [&](std::int64_t offset) {
      if (is_first) {
        std::copy_n(operand + base + offset, rows.length, to);
      } else {
        combine(p.kind, to, operand + base + offset, rows.length);
      }
      is_first = false;
    });
    to += rows.length;
  });
}

}  // namespace

void reduce_window(const WindowProblem& problem, const std::byte* operand, std::byte* result) {
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    reduce_rows(problem, reinterpret_cast<const T*>(operand), reinterpret_cast<T*>(result));
  });
}

}  // namespace tessera::kernels
