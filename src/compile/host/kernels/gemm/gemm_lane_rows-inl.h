// How micro-tiles read an operand A that has an element for each column, compiled once per
// instruction set.
#if defined(TESSERA_KERNELS_GEMM_LANE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_GEMM_LANE_ROWS_INL_H_
#undef TESSERA_KERNELS_GEMM_LANE_ROWS_INL_H_
#else
#define TESSERA_KERNELS_GEMM_LANE_ROWS_INL_H_
#endif

#include <cstdint>
#include <hwy/highway.h>

#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::gemm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads vectors of A whose lanes are elements of one place, as a LaneTable says.
template <class Width>
class LaneLoads {
 public:
  HWY_INLINE explicit LaneLoads(const LaneTable& table) : table_(table) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    for (std::size_t j = 0; j < kVecs; ++j) {
      masks_[j] = hn::FirstN(DTile(), static_cast<std::size_t>(table.span[j]));
      indices_[j] = hn::SetTableIndices(DTile(), table.index[j].data());
    }
#endif
  }
  /// Vector `j`, for the row that begins at `row`.
  HWY_INLINE typename Width::V load(const float* row, std::size_t j) const {
    const DTile d;
    const float* from = row + table_.base[j];
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
    // On these targets masked loads do not touch memory beyond the elements.
    return hn::TableLookupLanes(hn::MaskedLoad(masks_[j], d, from), indices_[j]);
#else
    HWY_ALIGN float some[count(Width::kLanes)];
    for (std::size_t i = 0; i < count(Width::kLanes); ++i) some[i] = from[table_.index[j][i]];
    return hn::Load(d, some);
#endif
  }

 private:
  using DTile = typename Width::D;
  static constexpr std::size_t kVecs = count(Width::kVecs);

  const LaneTable& table_;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  using Indices = decltype(hn::SetTableIndices(DTile(), static_cast<std::int32_t*>(nullptr)));
  hn::Mask<DTile> masks_[kVecs];
  Indices indices_[kVecs];
#endif
};

// A in place by table, with its own element for each column. One pointer serves three rows: vectors
// of a row begin at different elements, so addresses have no room for more multiples of the stride.
template <int kRows, class Width>
struct LaneRows {
  static constexpr bool kHasVectors = true;
  static constexpr int kBases = (kRows + 2) / 3;
  const float* base[count(kBases)];
  std::int64_t stride;
  const std::int32_t* offsets;
  LaneLoads<Width> loads;

  HWY_INLINE LaneRows(const TileArgs& args, const Place& at)
      : stride(args.a_stride), offsets(args.a_k), loads(*args.lanes) {
    for (int i = 0; i < kBases; ++i) {
      base[i] = at.a + at.a_row + 3 * i * stride;
      launder(base[i]);
    }
  }
  HWY_INLINE void advance(int k) { offsets += k; }

  struct Column {
    const float* base[count(kBases)];
    std::int64_t stride;
    const LaneLoads<Width>& loads;
    HWY_INLINE typename Width::V vector(int r, int j) const {
      return loads.load(base[r / 3] + r % 3 * stride, count(j));
    }
  };
  template <int k>
  HWY_INLINE Column column() const {
    const std::int64_t offset = offsets[k];
    Column column{.base = {}, .stride = stride, .loads = loads};
    for (int i = 0; i < kBases; ++i) column.base[i] = base[i] + offset;
    return column;
  }
};

}  // namespace tessera::kernels::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_GEMM_LANE_ROWS_INL_H_
