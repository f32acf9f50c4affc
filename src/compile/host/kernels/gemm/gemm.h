// Matrix products of f32 or bf16 with f32 sums, whose bits depend only on the operands and the
// leaves of k.
//
// C(b,m,n) is a balanced binary tree over leaves of k; a leaf is one chain of fused multiply adds
// in the order of k that starts at +0.0. Tiles, threads, instruction sets and shards of k (whose
// partial results are summed by the same tree) never change a bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dot_unit.h"

namespace tessera::kernels {

/// Where an operand's elements lie: element (batch b, row or column o, index k of the sum) is
/// `data[batch[b] + outer[o] + k[k]]`. Tables allow any layout; runs of consecutive offsets are
/// found when the plan is built and take the fast paths.
struct GemmOperand {
  std::vector<std::int64_t> batch;  ///< one offset per batch
  std::vector<std::int64_t> outer;  ///< M offsets for A, N for B
  std::vector<std::int64_t> k;      ///< K offsets, in the order of the sum
};

struct GemmProblem {
  GemmOperand a, b;
  std::vector<std::int64_t> c_batch;  ///< C(b,m,n) = c[c_batch[b] + c_rows[m] + n]
  std::vector<std::int64_t> c_rows;
  /// Leaf i is [leaf_ends[i-1], leaf_ends[i]); ends never decrease, the last one is K. An empty
  /// leaf is +0.0. The tree over leaves [i,j) splits at i + the largest power of two below j-i.
  std::vector<std::int64_t> leaf_ends;
  /// The operands lie in so many buffers each, and every buffer has equally many leaves. Offsets
  /// are those within the buffer of their k; `batch` and `outer` hold for all buffers.
  std::int64_t pieces = 1;
  /// So many products with these tables read the same B, which is packed once for all of them. Each
  /// has an A and a C in buffers of its own.
  std::int64_t products = 1;
  /// Where the rows and columns of C are cut into sections, each a dense array [batch, rows,
  /// columns] in a buffer of its own; ends never decrease, the last ones are M and N. Empty: C is
  /// one buffer, and `c_batch` and `c_rows` say where its rows lie.
  std::vector<std::int64_t> row_ends = {}, column_ends = {};
};

/// Whether this machine can multiply bf16 this way.
bool has_dot_unit(DotUnit unit);

/// How to run one problem: built once, run many times, by several threads at once.
class GemmPlan {
 public:
  /// Chooses the instruction set of this machine; throws std::invalid_argument when tables and
  /// leaves contradict each other. `threads` says how many will share the parts (0: one per core);
  /// it guides the cut, never a bit.
  explicit GemmPlan(GemmProblem problem, int threads = 0);
  /// Operands are bf16. Throws std::invalid_argument for a unit that this machine does not have.
  GemmPlan(GemmProblem problem, DotUnit unit, int threads = 0);
  ~GemmPlan();
  GemmPlan(GemmPlan&&) noexcept;
  GemmPlan& operator=(GemmPlan&&) noexcept;

  /// Useful floating point operations of all parts, without those of the tree.
  std::int64_t flops() const;
  /// The product falls into this many independent parts of about equal work, at least 1 and at
  /// most 64. Each writes its own block of C.
  int num_parts() const;
  /// The most bytes that a thread keeps for packed operands and sums of a part.
  std::int64_t scratch_bytes() const;
  /// Computes one part. Allocates only when this thread has never run a plan that large.
  void run(const void* a, const void* b, float* c, int part) const;
  /// With the buffers of all pieces, those of A product by product; of C those of all sections, row
  /// by row, product by product.
  void run(std::span<const void* const> a, std::span<const void* const> b,
           std::span<float* const> c, int part) const;

  /// Name of the instruction set, for reports.
  const char* target() const;

  struct State;

 private:
  std::unique_ptr<const State> state_;
};

}  // namespace tessera::kernels
