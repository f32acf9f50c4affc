// The kernels of every instruction set, the best ones for this machine, and the loop over tiles.
#include <algorithm>

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/gemm/gemm_kernels.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_ahead.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_pack-inl.h"
#include "compile/host/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {

const Kernels& table() {
  static const Kernels kTable = [] {
    Kernels out = kernels_without_tiles();
    out.pack = &pack;
    fill_tiles<Operands::packed, FusedProduct>(out);
    fill_tiles<Operands::a_in_place, FusedProduct>(out);
    fill_tiles<Operands::b_in_place, FusedProduct>(out);
    fill_tiles<Operands::in_place, FusedProduct>(out);
    fill_tiles<Operands::a_by_table, FusedProduct>(out);
    fill_tiles<Operands::by_tables, FusedProduct>(out);
    fill_lanes(out);
    return out;
  }();
  return kTable;
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::gemm {

HWY_EXPORT(table);

namespace {

// How often the tiles of these arguments prefetch.
std::int64_t times_of(const TileArgs& args) {
  const Chunk& chunk = *args.chunk;
  const std::int64_t segments = chunk.segment_end - chunk.segment_begin;
  if (args.segments[chunk.segment_begin].is_quad) return segments;
  return std::max((chunk.k_end - chunk.k_begin) / LinesAhead::kStepsBetween, segments);
}

constexpr std::int64_t kMostMerged = 64 * kLineFloats;  // floats
static_assert(2 * kMaxTileRows + kMostMerged / kLineFloats + 2 * Ahead::kMostLinesOfCall <=
              LinesAhead::kMost);

// Calls add(line) for what is needed after the sum: the result and the nodes to merge with.
template <class Add>
HWY_INLINE void add_results(const TileKernel& kernel, const TileArgs& args, const Place& at,
                            const Add& add) {
  const Chunk& chunk = *args.chunk;
  const bool has_two_lines = kernel.cols > kLineFloats;
  for (int row = 0; chunk.finishes && row < args.rows; ++row) {
    const float* c = at.c + at.c_rows[row];
    add(c);
    if (has_two_lines) add(c + kLineFloats);
  }
  const std::int64_t node = args.rows * kernel.cols;
  const float* top = at.slots + chunk.slot * node;
  const std::int64_t merged = std::min(chunk.after.merges * node, kMostMerged);
  for (std::int64_t i = 0; i < merged; i += kLineFloats) add(top - kLineFloats - i);
}

}  // namespace

// The loop is not a part of each kernel because there are a thousand kernels to compile.
void run_each(const TileKernel& kernel, const TileArgs& args) {
  LinesAhead ahead;
  const std::int64_t times = times_of(args);
  Place at = {};
  at.ahead = &ahead;
  at.a = args.a;
  at.c_rows = args.c_rows;
  for (std::int64_t t = 0; t < args.tiles; ++t) {
    if (args.a_outer != nullptr) at.a_row = args.a_outer[t * args.rows];
    at.b = args.b;
    at.c = args.c;
    at.slots = args.slots + t * args.slots_stride;
    for (std::int64_t left = args.panels; left > 0; --left) {
      at.cols = left == 1 ? args.last_cols : kernel.cols;
      ahead.replace(times, [&](const auto& add) {
        add_results(kernel, args, at, add);
        args.ahead_a->next(add);
        args.ahead_b->next(add);
      });
      kernel.tile(args, at);
      at.b += args.b_step;
      at.c += kernel.cols;
      at.slots += args.slots_step;
    }
    at.a += args.a_step;
    at.c_rows += args.rows;
  }
}

const Kernels& kernels() { return HWY_DYNAMIC_DISPATCH(table)(); }

Unit unit_of_f32() {
  return {.kernels = &kernels(),
          .pack = kernels().pack,
          .reads_in_place = true,
          .reads_adjacent_k = true,
          .rows_in_place = rows_kernels_of_f32(),
          .rows_of_adjacent_terms = term_kernels_of_f32(),
          .rows_packed = rows_kernels_of_f32()};
}

}  // namespace tessera::kernels::gemm
#endif  // HWY_ONCE
