// How micro-tiles read rows of A, compiled once per instruction set.
#if defined(TESSERA_KERNELS_GEMM_TILE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_TILE_ROWS_INL_H_
#undef TESSERA_KERNELS_GEMM_TILE_ROWS_INL_H_
#else
#define TESSERA_KERNELS_GEMM_TILE_ROWS_INL_H_
#endif

#include <cstdint>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Hides the origin of a pointer from the compiler. Otherwise the compiler computes each address
// anew, keeps two pointers in a vector register and takes them apart in each step, or adds k to
// each of the distances between rows and runs out of registers.
template <class T>
HWY_INLINE void launder(const T*& pointer) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm("" : "+r"(pointer));
#endif
}

// A with adjacent rows: packed, or in place.
template <int kRows>
struct AdjacentRows {
  const float* a;
  std::int64_t stride;

  HWY_INLINE AdjacentRows(const TileArgs& args, const Place& at) : a(at.a), stride(args.a_stride) {}
  HWY_INLINE void advance(int k) {
    a += k * stride;
    launder(a);
  }

  template <int k>
  struct Column {
    const float* a;
    HWY_INLINE const float* at(int r) const { return a + r; }
  };
  template <int k>
  HWY_INLINE Column<k> column() const {
    return {a + k * stride};
  }
};

// Equally spaced rows after a pointer. An address is a pointer plus a register times 1, 2, 4 or 8,
// so four multiples of the distance reach nine rows.
struct Spacing {
  static constexpr int kRows = 9;
  std::int64_t once, thrice, five_times, seven_times;  // in bytes

  HWY_INLINE explicit Spacing(std::int64_t bytes)
      : once(bytes), thrice(3 * bytes), five_times(5 * bytes), seven_times(7 * bytes) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
    asm("" : "+r"(once), "+r"(thrice), "+r"(five_times), "+r"(seven_times));
#endif
  }
  HWY_INLINE const float* row(const char* first, int r) const {
    const std::int64_t odd[] = {once, thrice, five_times, seven_times};
    const std::int64_t bytes = r % 2 != 0 ? odd[r / 2] : r == 6 ? 2 * thrice : r * once;
    return reinterpret_cast<const float*>(first + bytes);
  }
};

// Rows that are equally spaced, with as few pointers as reach them.
template <int kRows>
struct SpacedRowsOfA {
  static constexpr int kBases = (kRows + Spacing::kRows - 1) / Spacing::kRows;
  const char* base[count(kBases)];
  Spacing spacing;

  HWY_INLINE SpacedRowsOfA(const void* first, std::int64_t bytes) : spacing(bytes) {
    for (int i = 0; i < kBases; ++i) {
      base[i] = static_cast<const char*>(first) + i * Spacing::kRows * bytes;
      launder(base[i]);
    }
  }

  // An element of each row.
  struct Column {
    const char* base[count(kBases)];
    const Spacing& spacing;
    HWY_INLINE const float* at(int r) const {
      return spacing.row(base[r / Spacing::kRows], r % Spacing::kRows);
    }
  };
};

// A in place with adjacent k.
template <int kRows>
struct StridedRows : SpacedRowsOfA<kRows> {
  using Base = SpacedRowsOfA<kRows>;
  static constexpr std::int64_t kBytes = sizeof(float);

  HWY_INLINE StridedRows(const TileArgs& args, const Place& at)
      : Base(at.a, args.a_stride * kBytes) {}
  HWY_INLINE void advance(int k) {
    for (int i = 0; i < Base::kBases; ++i) {
      this->base[i] += k * kBytes;
      launder(this->base[i]);
    }
  }

  template <int k>
  HWY_INLINE typename Base::Column column() const {
    typename Base::Column column{.base = {}, .spacing = this->spacing};
    for (int i = 0; i < Base::kBases; ++i) {
      column.base[i] = this->base[i] + k * kBytes;
      if (k > 0) launder(column.base[i]);
    }
    return column;
  }
};

// A in place with equally spaced rows, and k at the offsets of a table. Offsets count `Element`s.
template <int kRows, class Element = float>
struct TabledRows : SpacedRowsOfA<kRows> {
  using Base = SpacedRowsOfA<kRows>;
  static constexpr std::int64_t kBytes = sizeof(Element);
  const std::int32_t* offsets;

  HWY_INLINE TabledRows(const TileArgs& args, const Place& at)
      : Base(reinterpret_cast<const Element*>(at.a) + at.a_row, args.a_stride * kBytes),
        offsets(args.a_k) {}
  HWY_INLINE void advance(int k) {
    offsets += k;
    launder(offsets);
  }

  template <int k>
  HWY_INLINE typename Base::Column column() const {
    const std::int64_t offset = offsets[k] * kBytes;
    typename Base::Column column{.base = {}, .spacing = this->spacing};
    for (int i = 0; i < Base::kBases; ++i) column.base[i] = this->base[i] + offset;
    return column;
  }
};

// The same with adjacent rows of floats, which need one pointer.
struct AdjacentTabledRows {
  const float* a;
  const std::int32_t* offsets;

  HWY_INLINE AdjacentTabledRows(const TileArgs& args, const Place& at)
      : a(at.a + at.a_row), offsets(args.a_k) {}
  HWY_INLINE void advance(int k) {
    offsets += k;
    launder(offsets);
  }

  struct Column {
    const float* a;
    HWY_INLINE const float* at(int r) const { return a + r; }
  };
  template <int k>
  HWY_INLINE Column column() const {
    const float* from = a + offsets[k];
    launder(from);
    return {from};
  }
};

// Loads vectors of A whose lanes are elements near one place, chosen by a LaneTable.
template <class Width>
class LaneLoads {
 public:
  HWY_INLINE explicit LaneLoads(const LaneTable& table) : table_(table) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    for (std::size_t j = 0; j < kVecs; ++j) {
      base_[j] = table.base[j];
      masks_[j] = hn::FirstN(DTile(), static_cast<std::size_t>(table.span[j]));
      indices_[j] = hn::SetTableIndices(DTile(), table.index[j].data());
    }
#endif
  }
  /// Vector `j`, for the row that begins at `row`.
  HWY_INLINE typename Width::V load(const float* row, std::size_t j) const {
    const DTile d;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    // On these targets masked loads do not touch memory beyond the elements.
    return hn::TableLookupLanes(hn::MaskedLoad(masks_[j], d, row + base_[j]), indices_[j]);
#else
    const float* from = row + table_.base[j];
    HWY_ALIGN float some[count(Width::kLanes)];
    for (std::size_t i = 0; i < count(Width::kLanes); ++i) some[i] = from[table_.index[j][i]];
    return hn::Load(d, some);
#endif
  }

 private:
  using DTile = typename Width::D;
  static constexpr std::size_t kVecs = count(Width::kVecs);

  [[maybe_unused]] const LaneTable& table_;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  using Indices = decltype(hn::SetTableIndices(DTile(), static_cast<std::int32_t*>(nullptr)));
  std::int64_t base_[kVecs];
  hn::Mask<DTile> masks_[kVecs];
  Indices indices_[kVecs];
#endif
};

// A in place by table, with its own element for each column.
template <int kRows, class Width>
struct LaneRows {
  static constexpr bool kHasVectors = true;
  TabledRows<kRows> rows;
  LaneLoads<Width> loads;

  HWY_INLINE LaneRows(const TileArgs& args, const Place& at) : rows(args, at), loads(*args.lanes) {}
  HWY_INLINE void advance(int k) { rows.offsets += k; }

  struct Column {
    typename TabledRows<kRows>::Column rows;
    const LaneLoads<Width>& loads;
    HWY_INLINE typename Width::V vector(int r, int j) const {
      return loads.load(rows.at(r), count(j));
    }
  };
  template <int k>
  HWY_INLINE Column column() const {
    return {rows.template column<k>(), loads};
  }
};

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_TILE_ROWS_INL_H_
