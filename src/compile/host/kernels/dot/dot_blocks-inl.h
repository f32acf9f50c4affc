// Blocks of a product of f64 or of integers, compiled once per instruction set.
#if defined(TESSERA_KERNELS_DOT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_DOT_BLOCKS_INL_H_
#undef TESSERA_KERNELS_DOT_BLOCKS_INL_H_
#else
#define TESSERA_KERNELS_DOT_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <hwy/highway.h>
#include <type_traits>

#include "compile/host/kernels/dot/dot_internal.h"
#include "compile/host/kernels/dot/dot_pack-inl.h"
#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::dot::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace tiles = gemm::HWY_NAMESPACE;

struct WrappingProduct {
  template <class V>
  static HWY_INLINE V add(V a, V b, V c) {
    return hn::Add(hn::Mul(a, b), c);
  }
};

template <class T>
using ProductOf =
    std::conditional_t<std::is_floating_point_v<T>, tiles::FusedProduct, WrappingProduct>;
template <class T, int kVecs>
using Width = tiles::TileWidth<hn::ScalableTag<T>, kVecs>;

// Tiles of one or two rows have more columns, so that as many sums are in flight.
inline constexpr int kRowsOfWide = 2;
template <class T>
inline constexpr int kVecsOfWide =
    std::clamp(kMaxColumns / static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>())), 1, 8);

// AVX2 multiplies integers of 64 bits in eight steps, whose intermediate values take registers.
template <class T>
inline constexpr int kRowsOf =
    HWY_TARGET == HWY_AVX2&& std::is_same_v<T, std::uint64_t> ? 2 : tiles::kTileRows;

// The elements of A for one term: one per row.
template <class T>
struct PackedColumn {
  const T* a;
  HWY_INLINE const T* at(int row) const { return a + row; }
};

template <class T>
struct Tile {
  const T* a;               // [terms, rows]
  const T* b;               // [terms, columns], or the columns in B if it is not packed
  const std::int64_t* b_k;  // if B is not packed: the offsets of the terms from `b`
  T* stack;
  T* slots;
  T* c;
  const std::int64_t* c_rows;
  int rows;  // of the result, at most those of the tile
  int columns;
};

template <class T, int kRows, int kVecs>
HWY_INLINE void store_part(const tiles::Accumulators<kRows, Width<T, kVecs>>& acc,
                           const Tile<T>& tile) {
  constexpr int kColumns = Width<T, kVecs>::kCols;
  HWY_ALIGN T node[tiles::count(kRows * kColumns)];
  acc.store(node);
  for (int i = 0; i < tile.rows; ++i)
    std::copy_n(node + i * kColumns, tile.columns, tile.c + tile.c_rows[i]);
}

// Adds the terms of a chunk.
template <class T, int kRows, int kVecs, bool kIsPacked>
HWY_NOINLINE void run_tile(const gemm::TreeProgram& tree, const gemm::Chunk& chunk,
                           const Tile<T>& tile) {
  using Width = HWY_NAMESPACE::Width<T, kVecs>;
  const typename Width::D d;
  tiles::Accumulators<kRows, Width> acc;
  T* slot_top = tile.slots + chunk.slot * acc.kSize;
  if (chunk.resumes) {
    acc.load(slot_top);
  } else {
    acc.zero();
  }
  const T* a = tile.a;
  const T* b = tile.b;
  const std::int64_t* b_k = tile.b_k;
  T* top = tile.stack;
  const gemm::Segment* segment = tree.segments.data() + chunk.segment_begin;
  const gemm::Segment* last = tree.segments.data() + chunk.segment_end - 1;
  for (;; ++segment) {
    for (std::int64_t k = segment->lengths[0]; k > 0; --k) {
      if constexpr (!kIsPacked) b = tile.b + *b_k++;
      typename Width::V of_b[tiles::count(kVecs)];
      for (int j = 0; j < kVecs; ++j) of_b[j] = hn::LoadU(d, b + j * Width::kLanes);
      acc.template step<ProductOf<T>>(PackedColumn<T>{a}, of_b);
      a += kRows;
      if constexpr (kIsPacked) b += Width::kCols;
    }
    top = tiles::apply(segment->after, top, acc);
    if (segment == last) break;
    acc.store(top);
    top += acc.kSize;
    acc.zero();
  }
  slot_top = tiles::apply(chunk.after, slot_top, acc);
  if (!chunk.finishes) return acc.store(slot_top);
  if (tile.rows == kRows && tile.columns == Width::kCols)
    return acc.store_rows(tile.c, tile.c_rows);
  store_part<T, kRows, kVecs>(acc, tile);
}

// Calls body with the smallest tile height that has room for `rows`, as a constant.
template <int kMost, class Body>
HWY_INLINE void with_height(std::int64_t rows, const Body& body) {
  if (rows == 1) return body(std::integral_constant<int, 1>());
  if constexpr (kMost > 2) {
    if (rows == 2) return body(std::integral_constant<int, 2>());
  }
  if constexpr (kMost > 4) {
    if (rows <= 4) return body(std::integral_constant<int, 4>());
  }
  if constexpr (kMost > 8) {
    if (rows <= 8) return body(std::integral_constant<int, 8>());
  }
  body(std::integral_constant<int, kMost>());
}

template <class T, int kRows, int kVecs>
class Blocks {
 public:
  explicit Blocks(const BlockArgs& args) : args_(args), p_(*args.problem), tree_(*args.tree) {
    const ScratchSizes sizes(tree_, args.rows.size(), args.columns.size(), args.terms);
    packed_a_ = static_cast<T*>(args.scratch);
    packed_b_ = packed_a_ + sizes.a;
    stack_ = packed_b_ + sizes.b;
    slots_ = stack_ + sizes.stack;
  }

  void run() const {
    for (std::int64_t row = args_.rows.begin; row < args_.rows.end; row += kBlockRows) {
      const Range rows = {row, std::min(row + kBlockRows, args_.rows.end)};
      for (std::int64_t j = args_.columns.begin; j < args_.columns.end; j += kBlockColumns) {
        const Range columns = {j, std::min(j + kBlockColumns, args_.columns.end)};
        for (const gemm::Chunk& chunk : tree_.chunks) run_chunk(chunk, rows, columns);
        if (tree_.chunks.empty()) clear(rows, columns);
      }
    }
  }

 private:
  static constexpr int kColumns = Width<T, kVecs>::kCols;

  void run_chunk(const gemm::Chunk& chunk, const Range& rows, const Range& columns) const {
    const std::int64_t terms = chunk.k_end - chunk.k_begin;
    pack_a(chunk, rows);
    const std::int64_t packed_from = pack_b(chunk, columns, rows.size() <= kRows);
    T* slots = slots_;
    for (std::int64_t j = columns.begin; j < columns.end; j += kColumns) {
      for (std::int64_t i = rows.begin; i < rows.end; i += kRows) {
        const Tile<T> tile = {
            .a = packed_a_ + (i - rows.begin) * terms,
            .b = j < packed_from ? b_of(chunk) + p_.b.outer[static_cast<std::size_t>(j)]
                                 : packed_b_ + (j - columns.begin) * terms,
            .b_k = args_.steps->b_k.data() + chunk.table,
            .stack = stack_,
            .slots = slots,
            .c = static_cast<T*>(args_.c) + j,
            .c_rows = p_.c_rows.data() + i,
            .rows = static_cast<int>(std::min<std::int64_t>(kRows, rows.end - i)),
            .columns = static_cast<int>(std::min<std::int64_t>(kColumns, columns.end - j))};
        with_height<kRows>(tile.rows, [&](auto height) {
          if (j < packed_from) {
            run_tile<T, height.value, kVecs, false>(tree_, chunk, tile);
          } else {
            run_tile<T, height.value, kVecs, true>(tree_, chunk, tile);
          }
        });
        slots += std::int64_t{tree_.num_slots} * kRows * kColumns;
      }
    }
  }

  const T* a_of(const gemm::Chunk& chunk) const {
    return static_cast<const T*>(args_.a) + chunk.a_from;
  }
  const T* b_of(const gemm::Chunk& chunk) const {
    return static_cast<const T*>(args_.b) + chunk.b_from;
  }
  // The rows of A or the columns of B, for one chunk.
  static PackArgs<T> pack_args(const gemm::Chunk& chunk, const T* from,
                               const std::vector<std::int64_t>& outer,
                               const std::vector<std::int64_t>& k, const Range& lanes, T* to) {
    return {.from = from,
            .outer = outer.data() + lanes.begin,
            .lanes = lanes.size(),
            .k = k.data() + chunk.table,
            .terms = chunk.k_end - chunk.k_begin,
            .to = to};
  }

  void pack_a(const gemm::Chunk& chunk, const Range& rows) const {
    const PackArgs<T> args =
        pack_args(chunk, a_of(chunk), p_.a.outer, args_.steps->a_k, rows, packed_a_);
    pack_whole_tiles<T, kRows>(args);
    const PackArgs<T> rest = args.from_lane(args.lanes / kRows * kRows);
    if (rest.lanes == 0) return;
    with_height<kRows>(rest.lanes, [&](auto height) { pack_tile<T, height.value>(rest); });
  }

  // Returns the first column that is packed. If only one tile reads the columns and they are
  // adjacent, whole tiles are not packed but read in place.
  std::int64_t pack_b(const gemm::Chunk& chunk, const Range& columns, bool is_read_once) const {
    const PackArgs<T> args =
        pack_args(chunk, b_of(chunk), p_.b.outer, args_.steps->b_k, columns, packed_b_);
    const std::int64_t whole = args.lanes / kColumns * kColumns;
    const bool is_in_place = is_read_once && are_adjacent(args.outer, whole);
    if (!is_in_place) pack_whole_tiles<T, kColumns>(args);
    const PackArgs<T> rest = args.from_lane(whole);
    if (rest.lanes > 0) pack_tile<T, kColumns>(rest);
    return is_in_place ? columns.begin + whole : columns.begin;
  }

  void clear(const Range& rows, const Range& columns) const {
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      T* row = static_cast<T*>(args_.c) + p_.c_rows[static_cast<std::size_t>(i)];
      std::fill(row + columns.begin, row + columns.end, T{});
    }
  }

  const BlockArgs& args_;
  const GemmProblem& p_;
  const gemm::TreeProgram& tree_;
  T* packed_a_;
  T* packed_b_;
  T* stack_;
  T* slots_;
};

template <class T>
void run_blocks(const BlockArgs& args) {
  if (args.rows.size() <= kRowsOfWide && args.columns.size() > Width<T, 2>::kCols) {
    Blocks<T, kRowsOfWide, kVecsOfWide<T>>(args).run();
  } else {
    Blocks<T, kRowsOf<T>, 2>(args).run();
  }
}

}  // namespace tessera::kernels::dot::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_DOT_BLOCKS_INL_H_
