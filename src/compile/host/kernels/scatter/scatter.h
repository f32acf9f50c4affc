// Updates that are joined into the rows which their indices name, on dense row-major arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/types.h>

#include "compile/host/kernels/index.h"
#include "compile/host/kernels/reduce.h"

namespace tessera::kernels {

/// updates [batch, outer, count, inner], indices [batch, count] -> [batch, outer, rows.count,
/// inner]. Row r is the sum, the maximum or the minimum of the updates whose index is
/// rows.first + r; updates with other indices are dropped.
struct ScatterProblem {
  ReduceKind kind = ReduceKind::sum;  // or max, min
  DType dtype = DType::f32;
  std::int64_t batch = 1;
  std::int64_t outer = 1;
  HeldRows rows = {};
  std::int64_t inner = 1;
  std::int64_t count = 0;
  std::vector<std::int64_t> order = {};  // the updates in the order of the sum; empty: as they are
  /// Where the grains end in that order. Terms are added within the grains, and the grains by the
  /// tree. Empty: the order does not change the bits, so the plan may choose the grains.
  std::vector<std::int64_t> leaf_ends = {};
};

class SortedHits;
struct GrainTables;
struct LinePlace;

class ScatterPlan {
 public:
  ScatterPlan(ScatterProblem problem, int num_workers);
  int num_parts() const { return num_parts_; }
  /// The size of the memory in which the parts leave partial results; join() combines them after
  /// the last part. 0: the parts write the results themselves and join() has nothing to do.
  std::int64_t scratch_bytes() const;
  /// The size of the memory of its own that a thread needs to run a part.
  std::int64_t thread_bytes() const;
  void run(const std::int32_t* indices, const std::byte* updates, std::byte* result,
           std::byte* scratch, int part) const;
  void join(std::byte* scratch, std::byte* result) const;

 private:
  /// How the updates are visited.
  enum class Way : std::uint8_t {
    rows,    // sorted by rows, each of which is joined in its place
    blocks,  // sorted by blocks of rows; each grain has a table of the block
    tables,  // as they are; each grain has a table of all rows
    parts,   // as they are, in one grain; each part has a table of its rows
  };

  void write_part(GrainTables grains, std::byte* result) const;
  void write_rows(const SortedHits& hits, LinePlace first, LinePlace end, const std::byte* updates,
                  std::byte* result) const;
  void write_blocks(const SortedHits& hits, std::int64_t rows, const std::byte* updates,
                    std::byte* result) const;
  void run_tables(const std::int32_t* indices, const std::byte* updates, std::byte* result,
                  std::byte* scratch, int part) const;
  std::int64_t row_bytes() const;
  std::int64_t bytes_of(std::int64_t rows) const { return rows * row_bytes(); }
  /// The size of the tables of all grains.
  std::int64_t tables_bytes(std::int64_t rows) const;

  ScatterProblem problem_;
  Way way_ = Way::rows;
  int shift_ = 0;          // blocks have 2^shift rows
  std::int64_t cuts_ = 1;  // into how many parts the grains of a table are cut
  int num_parts_ = 1;
};

}  // namespace tessera::kernels
