// Reductions whose order does not matter: extremes, all, any, and sums of integers, which wrap.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// Such a reduction, where the terms of a result, or neighbouring results, are adjacent in memory.
/// A part is a range of results or, if there are few results, a range of terms. join() then
/// combines what the parts computed from their terms.
class AnyOrder {
 public:
  static bool takes(const ReduceProblem& problem);
  AnyOrder(const ReduceProblem& problem, int num_workers);

  int num_parts() const { return num_parts_; }
  /// The size of the memory that all parts and join() share; 0: the parts write the results
  /// themselves.
  std::int64_t scratch_bytes() const;
  void run(const std::byte* in, std::byte* out, std::byte* scratch, int part) const;
  void join(const std::byte* scratch, std::byte* out) const;

 private:
  /// From `first` to `end` - 1.
  struct Range {
    std::int64_t first;
    std::int64_t end;
  };
  /// Parts begin at multiples of this many results. For columns, these are whole vectors and cache
  /// lines.
  std::int64_t unit() const { return has_rows_ ? 1 : 64; }
  void fill(std::byte* to, std::int64_t count) const;
  void reduce(const std::byte* in, Range results, Range terms, std::byte* to) const;
  using Box = std::vector<std::int64_t>;  // extents of the reduced dimensions
  void reduce_columns(const std::byte* from, std::int64_t columns, const Box& terms,
                      std::byte* to) const;
  void reduce_rows(const std::byte* from, std::int64_t rows, const Box& terms, std::byte* to) const;

  ReduceProblem problem_;  // with dimensions merged; at least one is reduced
  std::int64_t element_;   // bytes
  std::int64_t num_results_;
  bool has_rows_;  // the terms of a result are adjacent
  bool splits_terms_ = false;
  int num_parts_ = 1;
};

}  // namespace tessera::kernels
