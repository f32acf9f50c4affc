// Matrix products of f32 or bf16 with f32 sums. The bits of the result depend only on the operands
// and on the grains of k.
//
// C(b,m,n) is a sum over k, computed as a balanced binary tree over the grains of k. A grain of f32
// is a sequence of fused multiply-adds in the order of k that starts at +0.0; one of bf16 is summed
// as its unit defines (DotSum). Tiles, threads, instruction sets and shards of k, whose partial
// results are summed by the same tree, never change a bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/cache_sizes.h"
#include "base/dot_unit.h"

namespace tessera::kernels {

/// Where the elements of an operand lie: element (batch b, row or column o, index k of the sum) is
/// `data[batch[b] + outer[o] + k[k]]`. The tables allow any layout. The plan looks for runs of
/// consecutive offsets, which are read faster.
struct GemmOperand {
  std::vector<std::int64_t> batch;  ///< one offset per batch
  std::vector<std::int64_t> outer;  ///< M offsets for A, N for B
  std::vector<std::int64_t> k;      ///< K offsets, in the order of the sum
};

struct GemmProblem {
  GemmOperand a, b;
  std::vector<std::int64_t> c_batch;  ///< C(b,m,n) = c[c_batch[b] + c_rows[m] + n]
  std::vector<std::int64_t> c_rows;
  /// Grain i is [leaf_ends[i-1], leaf_ends[i]). Ends never decrease, and the last one is K. An
  /// empty grain is +0.0. The tree over grains [i,j) splits at i + the largest power of two below
  /// j-i.
  std::vector<std::int64_t> leaf_ends;
  /// Each operand is cut along k into this many buffers, which all have the same number of grains.
  /// `k` offsets are relative to the buffer that holds the element; `batch` and `outer` apply to
  /// every buffer.
  std::int64_t pieces = 1;
  /// The number of products that have these tables and read the same B, which is packed once for
  /// all of them. Each has its own A and C, in separate buffers.
  std::int64_t products = 1;
  /// The ends of the sections into which the rows and columns of C are cut; each section is a dense
  /// array [batch, rows, columns] in its own buffer. Ends never decrease, and the last ones are M
  /// and N. Empty: C is one buffer, and `c_batch` and `c_rows` give the positions of its rows.
  std::vector<std::int64_t> row_ends = {}, column_ends = {};
};

/// Whether this machine has the unit.
bool has_dot_unit(DotUnit unit);
/// Whether products take longer with the unit than with `portable`.
bool is_slow_dot_unit(DotUnit unit);

/// How to run one problem. Build it once; several threads may run it at the same time.
class GemmPlan {
 public:
  /// Chooses the best instruction set of this machine. Throws std::invalid_argument if the tables
  /// contradict each other or the grains. `num_workers` is the number of threads that share the
  /// parts. It affects the number of parts, and `caches` affects the sizes of blocks; neither
  /// changes a bit of the result.
  GemmPlan(GemmProblem problem, int num_workers, const CacheSizes& caches = {});
  /// For bf16 operands. Throws std::invalid_argument if this machine does not have the unit.
  GemmPlan(GemmProblem problem, DotUnit unit, int num_workers, const CacheSizes& caches = {});
  /// For bf16 operands: DotUnit::amx_bf16 without its instructions, on any machine. It is slow; it
  /// exists to test packing and tiles where the instructions are missing.
  static GemmPlan with_emulated_amx(GemmProblem problem, int num_workers,
                                    const CacheSizes& caches = {});
  /// For operands that are words of two bf16 terms, the first term in the high half. Uses
  /// DotUnit::avx512_bf16. Offsets and grains count words.
  static GemmPlan of_words(GemmProblem problem, int num_workers, const CacheSizes& caches = {});
  ~GemmPlan();
  GemmPlan(GemmPlan&&) noexcept;
  GemmPlan& operator=(GemmPlan&&) noexcept;

  /// Floating point operations of all products, without the additions of the summation tree.
  std::int64_t flops() const;
  std::int64_t flops(int part) const;
  /// The number of independent parts of about equal work, from 1 to 64. Each part writes its own
  /// block of C.
  int num_parts() const;
  /// The most memory that a thread uses for the packed operands and the sums of a part.
  std::int64_t scratch_bytes() const;
  /// Computes one part. Allocates memory only if this thread has not run a plan of this size
  /// before.
  void run(const void* a, const void* b, float* c, int part) const;
  /// The same for several buffers: A has all pieces of the first product, then of the next; B has
  /// all pieces; C has all sections, row by row, of the first product, then of the next.
  void run(std::span<const void* const> a, std::span<const void* const> b,
           std::span<float* const> c, int part) const;

  struct PartOfPlan {
    const GemmPlan* plan;
    int part;
  };
  /// Computes parts of several plans on the same buffers, in step with each other: parts that read
  /// the same operands find them in the caches. Each part needs its own scratch memory. With
  /// `make_piece`, operands are made when they are needed: it is called before a part reads a
  /// piece, and no part reads another piece before the next call. It may be called several times
  /// for a piece.
  static void run_together(std::span<const PartOfPlan> parts, std::span<const void* const> a,
                           std::span<const void* const> b, std::span<float* const> c,
                           const std::function<void(std::int64_t)>& make_piece = nullptr);

  /// Name of the instruction set, for reports.
  const char* target() const;

  struct State;

 private:
  explicit GemmPlan(std::unique_ptr<const State> state);

  std::unique_ptr<const State> state_;
};

}  // namespace tessera::kernels
