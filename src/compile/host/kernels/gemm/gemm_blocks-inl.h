// Micro-tiles of the matrix product in tile registers, compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_BLOCKS_INL_H_
#undef TESSERA_KERNELS_GEMM_BLOCKS_INL_H_
#else
#define TESSERA_KERNELS_GEMM_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_ahead.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_tile_registers.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A node of a micro-tile: four registers of sums, row by row, each stored as a whole.
inline constexpr std::int64_t kBlockNode = 4 * kRegisterSize;
inline constexpr int kOwnNodes = 4;  // of a quad, before they are added
inline constexpr int kBlockColumns = 2 * kRegisterRows;

// Computes micro-tiles of kHigh by kWide registers of sums, one after the other. Storing the
// registers takes as long as multiplying; it waits for the products, and the additions wait for it.
// So sums are stored when the next grain needs their registers, and added up while its products are
// computed.
template <class Registers, int kHigh, int kWide>
class BlockTiles {
 public:
  explicit BlockTiles(const TileArgs& args) : args_(args), registers_(args.block) {
    const Chunk& chunk = *args.chunk;
    const std::int64_t blocks = (chunk.k_end - chunk.k_begin) / args.block;
    rows_per_block_ = chunk.finishes ? static_cast<int>(ceil_div(args.rows, blocks)) : 0;
  }

  HWY_INLINE void run(const Place& at) {
    const Chunk& chunk = *args_.chunk;
    at_ = at;
    asked_ = 0;
    ask_for_nodes();
    const Segment* end = args_.segments + chunk.segment_end;
    bool resumes = chunk.resumes;
    for (const Segment* segment = args_.segments + chunk.segment_begin; segment != end; ++segment) {
      for (int i = 0; i < (segment->is_quad ? 4 : 1); ++i) {
        grain(segment->lengths[static_cast<std::size_t>(i)], resumes);
        resumes = false;
        if (waiting_ != nullptr) add_up();
        unstored_ = args_.stack + i * kBlockNode;
      }
      waiting_ = segment;
      waiting_is_last_ = segment + 1 == end;
      waiting_at_ = at;
    }
  }
  /// Adds up what is left.
  HWY_INLINE void finish() {
    store_all();
    add_up();
  }

 private:
  template <int i>
  HWY_INLINE void store() {
    if (unstored_ != nullptr) registers_.template store_sums<i>(unstored_ + i * kRegisterSize);
  }
  template <int i, bool kIsFirst>
  HWY_INLINE void start() {
    if constexpr (kIsFirst) {
      store<i>();
      registers_.template zero<i>();
    }
  }
  template <int i = 0>
  HWY_INLINE void store_all() {
    if constexpr (i < kHigh * 2) {
      if constexpr (i % 2 < kWide) store<i>();
      store_all<i + 1>();
    }
  }
  template <int i = 0>
  HWY_INLINE void load_all(const float* node) {
    if constexpr (i < kHigh * 2) {
      if constexpr (i % 2 < kWide) registers_.template load_sums<i>(node + i * kRegisterSize);
      load_all<i + 1>(node);
    }
  }

  // Multiplies one block. The first one of a grain begins with zeros.
  template <bool kIsFirst>
  HWY_INLINE void block() {
    args_.ahead_a->ask();
    args_.ahead_b->ask();
    ask_for_rows();
    registers_.template load_a<0>(at_.a);
    registers_.template load_b<0>(at_.b, kBlockColumns);
    start<0, kIsFirst>();
    registers_.template multiply<0, 0, 0>();
    if constexpr (kWide == 2) {
      registers_.template load_b<1>(at_.b + kRegisterRows, kBlockColumns);
      start<1, kIsFirst>();
      registers_.template multiply<1, 0, 1>();
    }
    if constexpr (kHigh == 2) {
      registers_.template load_a<1>(at_.a + kRegisterRows * args_.block);
      start<2, kIsFirst>();
      registers_.template multiply<2, 1, 0>();
    }
    if constexpr (kHigh == 2 && kWide == 2) {
      start<3, kIsFirst>();
      registers_.template multiply<3, 1, 1>();
    }
    at_.a += kMaxBlockRows * args_.block;
    at_.b += kBlockColumns * args_.block;
  }

  HWY_INLINE void grain(std::int64_t length, bool resumes) {
    std::int64_t done = 0;
    if (resumes) {
      store_all();
      load_all(slot_top_of(at_));
    } else if (length == 0) {
      clear<0>();
    } else {
      block<true>();
      done = args_.block;
    }
    for (; done < length; done += args_.block) block<false>();
  }
  template <int i>
  HWY_INLINE void clear() {
    if constexpr (i < kHigh * 2) {
      if constexpr (i % 2 < kWide) start<i, true>();
      clear<i + 1>();
    }
  }

  // Prefetches rows of C, a few per block. Rows of C often compete for the same lines of L1, which
  // operands and nodes need, so they are prefetched only to L2.
  HWY_INLINE void ask_for_rows() {
    for (const int end = std::min(asked_ + rows_per_block_, args_.rows); asked_ < end; ++asked_) {
      const float* row = at_.c + at_.c_rows[asked_];
      prefetch_to_l2(row);
      if (kWide == 2) prefetch_to_l2(row + kRegisterRows);
    }
  }

  // The top of the nodes that wait between chunks.
  HWY_INLINE float* slot_top_of(const Place& at) const {
    return at.slots + args_.chunk->slot * kBlockNode;
  }
  HWY_INLINE void ask_for_nodes() const {
    for (std::int64_t i = 0; i < args_.chunk->after.merges * kBlockNode; i += kLineFloats)
      hwy::Prefetch(slot_top_of(at_) - kLineFloats - i);
  }

  // Adds up the grains of the waiting segment, and what comes after the segment.
  HWY_INLINE void add_up() {
    const Chunk& chunk = *args_.chunk;
    const Segment& segment = *waiting_;
    waiting_ = nullptr;
    Merges merges;
    merges.append(segment.after, top_, kBlockNode);
    float* to = top_ - segment.after.merges * kBlockNode;
    top_ = to + kBlockNode;
    if (waiting_is_last_) {
      merges.append(chunk.after, slot_top_of(waiting_at_), kBlockNode);
      to = chunk.finishes ? nullptr : slot_top_of(waiting_at_) - chunk.after.merges * kBlockNode;
      top_ = args_.stack + kOwnNodes * kBlockNode;
    }
    if (!segment.is_quad) return add_grains<1>(merges, to);
    add_grains<4>(merges, to);
  }

  template <int kGrains>
  HWY_INLINE void add_grains(const Merges& merges, float* to) {
    if (merges.has_zeros || merges.count > 2) return add_rows<kGrains, -1>(merges, to);
    if (merges.count == 0) return add_rows<kGrains, 0>(merges, to);
    if (merges.count == 1) return add_rows<kGrains, 1>(merges, to);
    add_rows<kGrains, 2>(merges, to);
  }

  // Adds kGrains nodes and the nodes of `merges`: kMerges of them or, if it is -1, any number.
  // Stores the sum to the node `to` or, if that is null, to C.
  template <int kGrains, int kMerges>
  HWY_INLINE void add_rows(const Merges& merges, float* to) {
    for (int i = 0; i < kHigh * 2; ++i) {
      if (i % 2 >= kWide) continue;
      const int row = i / 2 * kRegisterRows, column = i % 2 * kRegisterRows;
      const int rows = std::min(args_.rows - row, kRegisterRows);
      const int cols = waiting_at_.cols - column;
      for (int r = 0; r < rows; ++r) {
        const std::int64_t first = i * kRegisterSize + r * kRegisterRows;
        for (int lane = 0; lane < kRegisterRows; lane += kLanes) {
          const V sum = added<kGrains, kMerges>(merges, first + lane);
          if (to != nullptr) {
            hn::Store(sum, D(), to + first + lane);
          } else {
            store_result(sum, waiting_at_.c + waiting_at_.c_rows[row + r] + column + lane,
                         cols - lane);
          }
        }
      }
    }
  }

  template <int kGrains, int kMerges>
  HWY_INLINE V added(const Merges& merges, std::int64_t at) const {
    const auto grain = [&](int i) { return hn::Load(D(), args_.stack + i * kBlockNode + at); };
    V sum = grain(0);
    if (kGrains == 4) sum = hn::Add(hn::Add(sum, grain(1)), hn::Add(grain(2), grain(3)));
    const int count = kMerges < 0 ? merges.count : kMerges;
    for (int i = 0; i < count; ++i) {
      if (kMerges < 0 && merges.zeros[i]) sum = hn::Add(sum, hn::Zero(D()));
      sum = hn::Add(sum, hn::Load(D(), merges.nodes[i] + at));
    }
    if (kMerges < 0 && merges.zeros[count]) sum = hn::Add(sum, hn::Zero(D()));
    return sum;
  }

  static HWY_INLINE void store_result(V sum, float* c, int cols) {
    if (cols >= kLanes) return hn::StoreU(sum, D(), c);
    if (cols <= 0) return;
#if HWY_TARGET == HWY_AVX3
    hn::BlendedStore(sum, hn::FirstN(D(), static_cast<std::size_t>(cols)), D(), c);
#else
    HWY_ALIGN float some[count(kLanes)];
    hn::Store(sum, D(), some);
    std::copy(some, some + cols, c);
#endif
  }

  const TileArgs& args_;
  Registers registers_;
  Place at_ = {};              // of the tile that is multiplied; moves along k
  float* unstored_ = nullptr;  // where the sums in the registers belong
  int rows_per_block_;         // of C, to prefetch
  int asked_ = 0;
  const Segment* waiting_ = nullptr;  // its grains are computed, but not added up
  bool waiting_is_last_ = false;      // of its tile
  Place waiting_at_ = {};
  float* top_ = args_.stack + kOwnNodes * kBlockNode;  // of the stack
};

template <class Registers, int kHigh, int kWide>
void block_tiles(const TileKernel&, const TileArgs& args) {
  BlockTiles<Registers, kHigh, kWide> tiles(args);
  for (std::int64_t t = 0; t < args.tiles; ++t) {
    for (std::int64_t panel = 0; panel < args.panels; ++panel) {
      const Place at = {
          .a = args.a + t * args.a_step,
          .a_row = 0,
          .b = args.b + panel * args.b_step,
          .c = args.c + panel * kBlockColumns,
          .c_rows = args.c_rows + t * args.rows,
          .cols = panel + 1 == args.panels ? args.last_cols : kBlockColumns,
          .slots = args.slots + t * args.slots_stride + panel * args.slots_step,
      };
      tiles.run(at);
    }
  }
  tiles.finish();
}

// The table of a unit with tile registers.
template <class Registers>
Kernels kernels_of_blocks() {
  Kernels out = {};
  out.target = hwy::TargetName(HWY_TARGET);
  out.mr = out.narrow_mr = out.quad_mr = out.quad_narrow_mr = kMaxBlockRows;
  out.lda = kMaxBlockRows;
  out.nr = kBlockColumns;
  out.lanes = kRegisterRows;
  out.own_nodes = kOwnNodes;
  constexpr auto kPacked = static_cast<int>(Operands::packed);
  for (int rows = 0; rows < kMaxBlockRows; ++rows) {
    const bool is_high = rows >= kRegisterRows;
    for (int width = 0; width < kNumWidths; ++width) {
      const bool is_wide = width == kWholePanel;
      auto* run = is_high && is_wide ? &block_tiles<Registers, 2, 2>
                  : is_high          ? &block_tiles<Registers, 2, 1>
                  : is_wide          ? &block_tiles<Registers, 1, 2>
                                     : &block_tiles<Registers, 1, 1>;
      out.tiles[kPacked][width][rows] = out.quad_tiles[kPacked][width][rows] = {
          .run = run, .tile = nullptr, .cols = kBlockColumns};
    }
  }
  return out;
}

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_BLOCKS_INL_H_
