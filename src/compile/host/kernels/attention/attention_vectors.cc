#include "compile/host/kernels/attention/attention_vectors.h"

#include <algorithm>

#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/attention/attention_vectors.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cstring>
#include <hwy/highway.h>

#include "compile/host/kernels/elementwise/elementwise_loops-inl.h"
#include "compile/host/kernels/elementwise/elementwise_math-inl.h"
#include "compile/host/kernels/tile/threefry-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::attention::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace math = elementwise::HWY_NAMESPACE;

using D = math::DF;
using I = math::DI;
using V = math::VF;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));

constexpr std::size_t count(int n) { return static_cast<std::size_t>(n); }

HWY_INLINE V infinity() { return math::set(std::numeric_limits<float>::infinity()); }

// Returns x, or 0 in place of a maximum or an lse of -inf.
HWY_INLINE V finite_base(V x) {
  return hn::IfThenElse(hn::Eq(x, hn::Neg(infinity())), hn::Zero(D()), x);
}

// The rows that each lane sees.
template <int kVecs>
struct Seen {
  math::VI first[count(kVecs)], last[count(kVecs)];

  // If there are no ranges, nothing asks for the rows.
  HWY_INLINE explicit Seen(const LaneRanges* ranges) {
    for (int v = 0; v < kVecs; ++v) {
      first[v] = last[v] = hn::Zero(I());
      if (ranges == nullptr) continue;
      first[v] = hn::LoadU(I(), ranges->first + v * kLanes);
      last[v] = hn::LoadU(I(), ranges->last + v * kLanes);
    }
  }
  HWY_INLINE math::MF at(int v, std::int64_t row) const {
    const auto r = hn::Set(I(), static_cast<std::int32_t>(row));
    return hn::RebindMask(D(), hn::AndNot(hn::Lt(r, first[v]), hn::Lt(r, last[v])));
  }
};

// Calls visit(row) for rows that all lanes see, and masked(row) for the others.
template <class Visit, class Masked>
HWY_INLINE void for_rows(std::int64_t rows, const LaneRanges* ranges, const Visit& visit,
                         const Masked& masked) {
  const std::int64_t begin = ranges == nullptr ? 0 : ranges->begin;
  const std::int64_t end = ranges == nullptr ? rows : ranges->end;
  for (std::int64_t row = 0; row < begin; ++row) masked(row);
  for (std::int64_t row = begin; row < end; ++row) visit(row);
  for (std::int64_t row = end; row < rows; ++row) masked(row);
}

template <int kVecs>
HWY_INLINE void find_maximum(const Block& s, const LaneRanges* ranges, V* m) {
  const V lowest = hn::Neg(infinity());
  for (int v = 0; v < kVecs; ++v) m[v] = lowest;
  const auto look_at = [&](V x, int v) { m[v] = hn::IfThenElse(hn::Gt(x, m[v]), x, m[v]); };
  const Seen<kVecs> seen(ranges);
  for_rows(
      s.rows, ranges,
      [&](std::int64_t row) {
        for (int v = 0; v < kVecs; ++v)
          look_at(hn::Load(D(), s.data + row * s.stride + v * kLanes), v);
      },
      [&](std::int64_t row) {
        for (int v = 0; v < kVecs; ++v) {
          float* at = s.data + row * s.stride + v * kLanes;
          const V x = hn::IfThenElse(seen.at(v, row), hn::Load(D(), at), lowest);
          hn::Store(x, D(), at);
          look_at(x, v);
        }
      });
}

template <int kVecs>
void SoftmaxLeafOf(const Block& s, const LaneRanges* ranges, float* m, float* l) {
  V maximum[count(kVecs)], base[count(kVecs)], sum[count(kVecs)];
  find_maximum<kVecs>(s, ranges, maximum);
  for (int v = 0; v < kVecs; ++v) {
    base[v] = finite_base(maximum[v]);
    sum[v] = hn::Zero(D());
    hn::Store(maximum[v], D(), m + v * kLanes);
  }
  // Scores of rows that a lane does not see are -inf.
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (int v = 0; v < kVecs; ++v) {
      float* at = s.data + row * s.stride + v * kLanes;
      const V p = math::exp(hn::Sub(hn::Load(D(), at), base[v]));
      hn::Store(p, D(), at);
      sum[v] = hn::Add(sum[v], p);
    }
  }
  for (int v = 0; v < kVecs; ++v) hn::Store(sum[v], D(), l + v * kLanes);
}

void SoftmaxLeaf(const Block& s, const LaneRanges* ranges, float* m, float* l) {
  s.cols > kLanes ? SoftmaxLeafOf<2>(s, ranges, m, l) : SoftmaxLeafOf<1>(s, ranges, m, l);
}

template <int kVecs>
void GradScoresOf(const Block& s, float* dp, const LaneRanges* ranges, const float* lse,
                  const float* delta) {
  V base[count(kVecs)], less[count(kVecs)];
  for (int v = 0; v < kVecs; ++v) {
    base[v] = finite_base(hn::LoadU(D(), lse + v * kLanes));
    less[v] = hn::LoadU(D(), delta + v * kLanes);
  }
  const Seen<kVecs> seen(ranges);
  const auto p_of = [&](const float* at, int v) {
    return math::exp(hn::Sub(hn::Load(D(), at), base[v]));
  };
  const auto ds_of = [&](V p, const float* at, int v) {
    return hn::Mul(p, hn::Sub(hn::Load(D(), at), less[v]));
  };
  for_rows(
      s.rows, ranges,
      [&](std::int64_t row) {
        for (int v = 0; v < kVecs; ++v) {
          const std::int64_t at = row * s.stride + v * kLanes;
          const V p = p_of(s.data + at, v);
          hn::Store(p, D(), s.data + at);
          hn::Store(ds_of(p, dp + at, v), D(), dp + at);
        }
      },
      [&](std::int64_t row) {
        for (int v = 0; v < kVecs; ++v) {
          const std::int64_t at = row * s.stride + v * kLanes;
          const auto mask = seen.at(v, row);
          const V p = hn::IfThenElseZero(mask, p_of(s.data + at, v));
          hn::Store(p, D(), s.data + at);
          hn::Store(hn::IfThenElseZero(mask, ds_of(p, dp + at, v)), D(), dp + at);
        }
      });
}

void GradScores(const Block& s, float* dp, const LaneRanges* ranges, const float* lse,
                const float* delta) {
  s.cols > kLanes ? GradScoresOf<2>(s, dp, ranges, lse, delta)
                  : GradScoresOf<1>(s, dp, ranges, lse, delta);
}

using U = hn::RebindToUnsigned<D>;
constexpr std::int64_t kMaskBytes = kLanes > 8 ? kLanes / 8 : 1;

template <int kVecs, int kRows>
HWY_INLINE void draw_rows(const BlockCounters& counters, const std::uint32_t* schedule,
                          std::uint32_t below, std::int64_t row, std::uint8_t* bits) {
  threefry::HWY_NAMESPACE::Counters<U, kVecs * kRows> drawn;
  for (int i = 0; i < kVecs * kRows; ++i) {
    const std::int64_t lane = i % kVecs * kLanes;
    const auto low = hn::LoadU(U(), counters.low + lane);
    drawn.x1[i] = hn::Add(low, hn::Set(U(), static_cast<std::uint32_t>(row + i / kVecs)));
    const auto carry = hn::Lt(drawn.x1[i], low);
    drawn.x0[i] =
        hn::Add(hn::LoadU(U(), counters.high + lane), hn::IfThenElseZero(carry, hn::Set(U(), 1)));
  }
  drawn.encrypt(schedule);
  for (int i = 0; i < kVecs * kRows; ++i) {
    const auto is_kept = hn::Lt(hn::ShiftRight<9>(drawn.bits(i)), hn::Set(U(), below));
    hn::StoreMaskBits(U(), is_kept,
                      bits + (row + i / kVecs) * KeptBits::kRowBytes + i % kVecs * kMaskBytes);
  }
}

template <int kVecs>
void DrawKeptOf(const BlockCounters& counters, std::uint32_t below, std::int64_t rows,
                std::uint8_t* bits) {
  constexpr int kTogether = 4 / kVecs;
  const auto schedule = threefry_schedule(counters.key);
  std::int64_t row = 0;
  for (; row + kTogether <= rows; row += kTogether) {
    draw_rows<kVecs, kTogether>(counters, schedule.data(), below, row, bits);
  }
  for (; row < rows; ++row) draw_rows<kVecs, 1>(counters, schedule.data(), below, row, bits);
}

void DrawKept(const BlockCounters& counters, std::uint32_t below, std::int64_t rows,
              std::int64_t cols, std::uint8_t* bits) {
  cols > kLanes ? DrawKeptOf<2>(counters, below, rows, bits)
                : DrawKeptOf<1>(counters, below, rows, bits);
}

void Drop(const Block& s, const std::uint8_t* bits, float scale) {
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t lane = 0; lane < s.cols; lane += kLanes) {
      float* at = s.data + row * s.stride + lane;
      const auto is_kept =
          hn::LoadMaskBits(D(), bits + row * KeptBits::kRowBytes + lane / kLanes * kMaskBytes);
      const V kept = hn::Mul(hn::Load(D(), at), math::set(scale));
      hn::Store(hn::IfThenElseZero(is_kept, kept), D(), at);
    }
  }
}

// Turns -0 into +0.
HWY_INLINE V settled(V sum) { return hn::Add(sum, hn::Zero(D())); }

void Merge(const Node& left, const Node& right, std::int64_t rows, std::int64_t cols) {
  const D d;
  for (std::int64_t at = 0; at < cols; at += kLanes) {
    const V m1 = hn::Load(d, left.m + at);
    const V m2 = hn::Load(d, right.m + at);
    const V m = hn::IfThenElse(hn::Lt(m1, m2), m2, m1);
    const V base = finite_base(m);
    const V of_left = math::exp(hn::Sub(m1, base));
    const V of_right = math::exp(hn::Sub(m2, base));
    hn::Store(m, d, left.m + at);
    hn::Store(hn::Add(hn::Mul(hn::Load(d, left.l + at), of_left),
                      hn::Mul(hn::Load(d, right.l + at), of_right)),
              d, left.l + at);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* o = left.o + row * cols + at;
      const V more = hn::Load(d, right.o + row * cols + at);
      hn::Store(
          hn::Add(hn::Mul(settled(hn::Load(d, o)), of_left), hn::Mul(settled(more), of_right)), d,
          o);
    }
  }
}

void Finish(const Node& node, std::int64_t rows, std::int64_t cols) {
  const D d;
  for (std::int64_t at = 0; at < cols; at += kLanes) {
    const V l = hn::Load(d, node.l + at);
    const V one = math::set(1.0f);
    const V factor = hn::Div(one, hn::IfThenElse(hn::Eq(l, hn::Zero(d)), one, l));
    for (std::int64_t row = 0; row < rows; ++row) {
      float* o = node.o + row * cols + at;
      hn::Store(hn::Mul(settled(hn::Load(d, o)), factor), d, o);
    }
    hn::Store(hn::Add(finite_base(hn::Load(d, node.m + at)), math::log(l)), d, node.l + at);
  }
}

bool HasNan(const float* x, std::int64_t length) {
  const D d;
  auto is_number = hn::Eq(hn::Zero(d), hn::Zero(d));
  std::int64_t i = 0;
  for (; i + kLanes <= length; i += kLanes) {
    const V v = hn::LoadU(d, x + i);
    is_number = hn::And(is_number, hn::Eq(v, v));
  }
  bool is_found = !hn::AllTrue(d, is_number);
  for (; i < length; ++i) is_found = is_found || x[i] != x[i];
  return is_found;
}

struct Scaled {
  V factor;
  HWY_INLINE V operator()(V x) const { return hn::Mul(x, factor); }
};
struct Stored {
  V factor;
  HWY_INLINE V operator()(V x) const { return hn::Mul(settled(x), factor); }
};

template <class From, class To, class Change>
HWY_INLINE void convert_rows(const typename From::Memory* from, std::int64_t from_stride,
                             std::int64_t rows, std::int64_t length, const Change& change,
                             typename To::Memory* to, std::int64_t to_stride) {
  for (std::int64_t row = 0; row < rows; ++row, from += from_stride, to += to_stride) {
    std::int64_t i = 0;
    for (; i + kLanes <= length; i += kLanes) To::store(change(From::load(from + i)), to + i);
    if (i == length) continue;
    const auto rest = static_cast<std::size_t>(length - i);
    HWY_ALIGN typename From::Memory lanes[From::kLanes] = {};
    std::memcpy(lanes, from + i, rest * sizeof(*lanes));
    math::store_rest<To>(change(From::load(lanes)), to + i, rest);
  }
}

void ScaleRows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t length,
               float scale, float* to, std::int64_t to_stride) {
  convert_rows<math::F32, math::F32>(from, from_stride, rows, length, Scaled{math::set(scale)}, to,
                                     to_stride);
}
void WidenRows(const std::uint16_t* from, std::int64_t from_stride, std::int64_t rows,
               std::int64_t length, float scale, float* to, std::int64_t to_stride) {
  convert_rows<math::BF16, math::F32>(from, from_stride, rows, length, Scaled{math::set(scale)}, to,
                                      to_stride);
}
void StoreRows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t length,
               float scale, float* to, std::int64_t to_stride) {
  convert_rows<math::F32, math::F32>(from, from_stride, rows, length, Stored{math::set(scale)}, to,
                                     to_stride);
}
void NarrowRows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t length,
                float scale, std::uint16_t* to, std::int64_t to_stride) {
  convert_rows<math::F32, math::BF16>(from, from_stride, rows, length, Stored{math::set(scale)}, to,
                                      to_stride);
}

float ExpOf(float x) { return hn::GetLane(math::exp(math::set(x))); }

}  // namespace tessera::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::attention {

HWY_EXPORT(SoftmaxLeaf);
HWY_EXPORT(GradScores);
HWY_EXPORT(DrawKept);
HWY_EXPORT(Drop);
HWY_EXPORT(Merge);
HWY_EXPORT(Finish);
HWY_EXPORT(HasNan);
HWY_EXPORT(ScaleRows);
HWY_EXPORT(WidenRows);
HWY_EXPORT(StoreRows);
HWY_EXPORT(NarrowRows);
HWY_EXPORT(ExpOf);

void softmax_leaf(const Block& s, const LaneRanges* ranges, float* m, float* l) {
  HWY_DYNAMIC_DISPATCH(SoftmaxLeaf)(s, ranges, m, l);
}
void grad_scores(const Block& s, float* dp, const LaneRanges* ranges, const float* lse,
                 const float* delta) {
  HWY_DYNAMIC_DISPATCH(GradScores)(s, dp, ranges, lse, delta);
}
void draw_kept(const BlockCounters& counters, std::uint32_t below, std::int64_t rows,
               std::int64_t cols, KeptBits& kept) {
  HWY_DYNAMIC_DISPATCH(DrawKept)(counters, below, rows, cols, kept.bytes.data());
}
void drop(const Block& s, const KeptBits& kept, float scale) {
  HWY_DYNAMIC_DISPATCH(Drop)(s, kept.bytes.data(), scale);
}
void merge(const Node& left, const Node& right, std::int64_t rows, std::int64_t cols) {
  HWY_DYNAMIC_DISPATCH(Merge)(left, right, rows, cols);
}
void finish(const Node& node, std::int64_t rows, std::int64_t cols) {
  HWY_DYNAMIC_DISPATCH(Finish)(node, rows, cols);
}
bool has_nan(const float* x, std::int64_t length) {
  return HWY_DYNAMIC_DISPATCH(HasNan)(x, length);
}
void scale_rows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t length,
                float scale, float* to, std::int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(ScaleRows)(from, from_stride, rows, length, scale, to, to_stride);
}
void widen_rows(const std::uint16_t* from, std::int64_t from_stride, std::int64_t rows,
                std::int64_t length, float scale, float* to, std::int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(WidenRows)(from, from_stride, rows, length, scale, to, to_stride);
}
void store_rows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t length,
                float scale, float* to, std::int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(StoreRows)(from, from_stride, rows, length, scale, to, to_stride);
}
void store_rows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t length,
                float scale, std::uint16_t* to, std::int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(NarrowRows)(from, from_stride, rows, length, scale, to, to_stride);
}
float exp_of(float x) { return HWY_DYNAMIC_DISPATCH(ExpOf)(x); }

}  // namespace tessera::kernels::attention
#endif  // HWY_ONCE
