// Copies and reductions of boxes of strided arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <tessera/types.h>

#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// How to copy a box of elements, each `element_bytes` bytes long; strides are in elements.
class BoxCopy {
 public:
  BoxCopy(const std::vector<std::int64_t>& from_strides,
          const std::vector<std::int64_t>& to_strides, const Shape& extents,
          std::size_t element_bytes);
  /// `from` and `to` are the first elements.
  void run(const std::byte* from, std::byte* to) const;

 private:
  struct Dim {
    std::int64_t extent;
    std::int64_t from;  // strides
    std::int64_t to;
  };
  static std::vector<Dim> dims_of(const Shape& extents, const std::vector<std::int64_t>& from,
                                  const std::vector<std::int64_t>& to);
  template <typename T>
  void run_as(const T* from, T* to) const;

  bool is_empty_;
  std::size_t element_bytes_;
  std::vector<Dim> outer_;   // outermost first
  std::optional<Dim> line_;  // if present, line_ and last_ form a matrix that is transposed
  Dim last_;
};

/// Copies a box once.
void copy_box(const std::byte* from, const std::vector<std::int64_t>& from_strides, std::byte* to,
              const std::vector<std::int64_t>& to_strides, const Shape& extents,
              std::size_t element_bytes);

/// The reduction that the IR calls sum, max, min, and, or, bit_or.
ReduceKind combine_kind(std::string_view reduction);

/// Reduces several sources elementwise, in order, by the tree of leaf_tree.h.
struct CombineProblem {
  struct Source {
    std::int64_t offset;  // in elements
    std::vector<std::int64_t> strides;
    /// The number of leaves of the tree that this source is the reduction of. They must be all
    /// leaves of a subtree.
    std::int64_t num_leaves = 1;
  };
  ReduceKind kind;
  DType dtype;
  Shape extents;
  std::vector<Source> sources;
};

class CombinePlan {
 public:
  CombinePlan(CombineProblem problem, int num_workers);
  int num_parts() const { return num_parts_; }
  /// The result is dense: row-major over the extents.
  void run(std::span<std::byte* const> sources, std::byte* result, int part) const;

 private:
  CombineProblem problem_;
  std::vector<int> joins_;  // per source: how many nodes of the tree it completes
  int num_parts_;
};

}  // namespace tessera::kernels
