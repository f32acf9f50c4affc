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

#endif  // TESSERA_KERNELS_GEMM_LANE_ROWS_INL_H_
