// Compiled once per instruction set.

#if defined(TESSERA_ANY_ORDER_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ANY_ORDER_LOOPS_INL_H_
#undef TESSERA_ANY_ORDER_LOOPS_INL_H_
#else
#define TESSERA_ANY_ORDER_LOOPS_INL_H_
#endif

#include <algorithm>
#include <hwy/highway.h>
#include <limits>
#include <type_traits>

#include "compile/host/kernels/any_order/loops.h"
#include "compile/host/kernels/pairwise.h"
#include "compile/host/kernels/transpose.h"
#include "compile/host/kernels/with_type.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Terms that are joined as they are in memory.
struct OfTerms {
  template <class D>
  static HWY_INLINE hn::Vec<D> Key(D /*d*/, hn::Vec<D> x) {
    return x;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Term(D /*d*/, hn::Vec<D> key) {
    return key;
  }
};

struct Sum : OfTerms {
  template <typename T>
  static T One(T a, T b) {
    return static_cast<T>(a + b);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Vector(D /*d*/, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
};

/// NaN wins, and -0 is below +0.
template <bool kIsMin>
struct Extreme : OfTerms {
  static constexpr bool kIsMinimum = kIsMin;
  template <typename T>
  static T One(T a, T b) {
    const T best = better(kIsMin ? ReduceKind::min : ReduceKind::max, a, b);
    return best == best ? best : std::numeric_limits<T>::quiet_NaN();
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Vector(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const auto best = kIsMin ? hn::Min(a, b) : hn::Max(a, b);
    using T = hn::TFromD<D>;
    if constexpr (std::is_floating_point_v<T>) {
      // Equal numbers differ at most in their signs.
      const auto equal = kIsMin ? hn::Or(a, b) : hn::And(a, b);
      const auto are_numbers = hn::And(hn::Eq(a, a), hn::Eq(b, b));
      const auto number = hn::IfThenElse(hn::Eq(a, b), equal, best);
      return hn::IfThenElse(are_numbers, number, hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
    } else {
      return best;
    }
  }
};

/// Compares f16 or bf16 numbers by their bits. The keys are integers in the same order as the
/// numbers, and the key of NaN is the most extreme.
template <bool kIsMin, typename Half>
struct HalfExtreme {
  static constexpr std::uint16_t kInfinity = std::is_same_v<Half, float16> ? 0x7C00 : 0x7F80;
  static constexpr std::uint16_t kNan = std::is_same_v<Half, float16> ? 0x7E00 : 0x7FC0;
  static constexpr std::uint16_t kKeyOfNan = kIsMin ? 0x8000 : 0x7FFF;

  static std::uint16_t One(std::uint16_t a, std::uint16_t b) {
    const ReduceKind kind = kIsMin ? ReduceKind::min : ReduceKind::max;
    const Half best = better(kind, Half::from_bits(a), Half::from_bits(b));
    return std::isnan(static_cast<float>(best)) ? kNan : best.bits();
  }
  /// Inverts the bits below the sign of negative numbers. Applied twice, it gives the same bits
  /// again.
  template <class D>
  static HWY_INLINE hn::Vec<D> Ordered(D d, hn::Vec<D> x) {
    const hn::RebindToSigned<D> of_signed;
    const auto sign = hn::BitCast(d, hn::ShiftRight<15>(hn::BitCast(of_signed, x)));
    return hn::Xor(x, hn::And(sign, hn::Set(d, 0x7FFF)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Key(D d, hn::Vec<D> x) {
    const auto is_nan = hn::Gt(hn::And(x, hn::Set(d, 0x7FFF)), hn::Set(d, kInfinity));
    return hn::IfThenElse(is_nan, hn::Set(d, kKeyOfNan), Ordered(d, x));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Term(D d, hn::Vec<D> key) {
    const auto is_nan = hn::Eq(key, hn::Set(d, kKeyOfNan));
    return hn::IfThenElse(is_nan, hn::Set(d, kNan), Ordered(d, key));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Vector(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const hn::RebindToSigned<D> of_signed;
    const auto x = hn::BitCast(of_signed, a), y = hn::BitCast(of_signed, b);
    return hn::BitCast(d, kIsMin ? hn::Min(x, y) : hn::Max(x, y));
  }
};

/// Joins `kRows` rows in one pass over the results.
template <class Join, std::int64_t kRows, typename T>
HWY_INLINE void JoinSomeRows(const T* from, std::int64_t stride, std::int64_t columns, T* to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + lanes <= columns; c += lanes) {
    auto x = Join::Key(d, hn::LoadU(d, to + c));
    for (std::int64_t r = 0; r < kRows; ++r) {
      x = Join::Vector(d, x, Join::Key(d, hn::LoadU(d, from + r * stride + c)));
    }
    hn::StoreU(Join::Term(d, x), d, to + c);
  }
  for (; c < columns; ++c) {
    for (std::int64_t r = 0; r < kRows; ++r) to[c] = Join::One(to[c], from[r * stride + c]);
  }
}

template <class Join, typename T>
void JoinColumnsOf(const TermGroups& rows, T* to) {
  constexpr std::int64_t kRows = 4;
  const T* from = static_cast<const T*>(rows.from);
  std::int64_t row = 0;
  for (; row + kRows <= rows.count; row += kRows) {
    JoinSomeRows<Join, kRows>(from + row * rows.stride, rows.stride, rows.length, to);
  }
  for (; row < rows.count; ++row) {
    JoinSomeRows<Join, 1>(from + row * rows.stride, 0, rows.length, to);
  }
}

/// The extreme of floats that fill at least one vector, by instructions that may lose NaN and the
/// sign of zeros. Returns false if there is a NaN, or if the extreme is zero.
template <bool kIsMin, typename T>
HWY_INLINE bool FindNumber(const T* from, std::int64_t length, T& found) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<hn::ScalableTag<T>>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto join = [](V a, V b) HWY_ATTR { return kIsMin ? hn::Min(a, b) : hn::Max(a, b); };
  V best[4];
  for (V& vector : best) vector = hn::LoadU(d, from);
  auto are_numbers = hn::Eq(best[0], best[0]);
  const auto add = [&](V& to, std::int64_t at) HWY_ATTR {
    const V x = hn::LoadU(d, from + at);
    are_numbers = hn::And(are_numbers, hn::Eq(x, x));
    to = join(to, x);
  };
  std::int64_t i = lanes;
  for (; i + 4 * lanes <= length; i += 4 * lanes) {
    for (std::int64_t v = 0; v < 4; ++v) add(best[v], i + v * lanes);
  }
  for (; i + lanes <= length; i += lanes) add(best[0], i);
  if (i < length) add(best[1], length - lanes);
  if (!hn::AllTrue(d, are_numbers)) return false;
  const V all = join(join(best[0], best[1]), join(best[2], best[3]));
  found = hn::GetLane(kIsMin ? hn::MinOfLanes(d, all) : hn::MaxOfLanes(d, all));
  return found != 0;
}

/// Joins terms into four vectors in turn, so that no join has to wait for the one before it.
template <class Join, typename T>
HWY_INLINE T JoinRun(const T* from, std::int64_t length, T start) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if constexpr (std::is_floating_point_v<T>) {
    T number;
    if (length >= lanes && FindNumber<Join::kIsMinimum>(from, length, number))
      return Join::One(start, number);
  }
  constexpr std::int64_t kVectors = 4;
  std::int64_t i = 0;
  if (length >= kVectors * lanes) {
    hn::Vec<hn::ScalableTag<T>> best[kVectors];
    const auto load = [&](std::int64_t at)
                          HWY_ATTR { return Join::Key(d, hn::LoadU(d, from + at)); };
    for (std::int64_t v = 0; v < kVectors; ++v) best[v] = load(v * lanes);
    for (i = kVectors * lanes; i + kVectors * lanes <= length; i += kVectors * lanes) {
      for (std::int64_t v = 0; v < kVectors; ++v) {
        best[v] = Join::Vector(d, best[v], load(i + v * lanes));
      }
    }
    for (; i + lanes <= length; i += lanes) best[0] = Join::Vector(d, best[0], load(i));
    const auto all =
        Join::Vector(d, Join::Vector(d, best[0], best[1]), Join::Vector(d, best[2], best[3]));
    HWY_ALIGN T rest[hn::MaxLanes(hn::ScalableTag<T>())];
    hn::Store(Join::Term(d, all), d, rest);
    for (std::int64_t lane = 0; lane < lanes; ++lane) start = Join::One(start, rest[lane]);
  }
  for (; i < length; ++i) start = Join::One(start, from[i]);
  return start;
}

constexpr std::int64_t kMostTermsOfShort = 32;

/// For rows that are too short for vectors: joins the same term of several rows at once.
template <class Join, typename T>
void JoinShortRows(const TermGroups& rows, T* to) {
  using Bits = hwy::UnsignedFromSize<sizeof(T)>;
  constexpr std::int64_t kRows = sizeof(T) == 8 ? 32 : 64;
  constexpr std::int64_t kTransposed = 8;  // rows of fewer terms are transposed without vectors
  HWY_ALIGN T terms[static_cast<std::size_t>(kMostTermsOfShort * kRows)];
  for (std::int64_t first = 0; first < rows.count; first += kRows) {
    const std::int64_t count = std::min(kRows, rows.count - first);
    const T* const from = static_cast<const T*>(rows.from) + first * rows.stride;
    if (rows.length >= kTransposed) {
      transpose({rows.length, count, rows.stride, kRows}, reinterpret_cast<const Bits*>(from),
                reinterpret_cast<Bits*>(terms));
    } else {
      for (std::int64_t i = 0; i < rows.length; ++i) {
        for (std::int64_t r = 0; r < count; ++r) terms[i * kRows + r] = from[r * rows.stride + i];
      }
    }
    JoinColumnsOf<Join>({.from = terms, .count = rows.length, .stride = kRows, .length = count},
                        to + first);
  }
}

template <class Join, typename T>
void JoinRowsOf(const TermGroups& rows, T* to) {
  if (rows.length <= kMostTermsOfShort && rows.count > 1) return JoinShortRows<Join>(rows, to);
  const T* from = static_cast<const T*>(rows.from);
  for (std::int64_t g = 0; g < rows.count; ++g) {
    to[g] = JoinRun<Join>(from + g * rows.stride, rows.length, to[g]);
  }
}

/// Calls `visit` with the join and a zero of the terms.
template <typename Visit>
void WithJoin(JoinKind kind, Visit visit) {
  with_element(kind.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool is_min = kind.kind == ReduceKind::min || kind.kind == ReduceKind::all;
    if constexpr (detail::kIsHalf<T>) {
      return is_min ? visit(HalfExtreme<true, T>(), std::uint16_t())
                    : visit(HalfExtreme<false, T>(), std::uint16_t());
    } else {
      if (kind.kind != ReduceKind::sum) {
        return is_min ? visit(Extreme<true>(), zero) : visit(Extreme<false>(), zero);
      }
      if constexpr (std::is_integral_v<T>) visit(Sum(), std::make_unsigned_t<T>());
    }
  });
}

void JoinColumns(JoinKind kind, const TermGroups& rows, void* to) {
  WithJoin(kind, [&](auto join, auto zero) {
    JoinColumnsOf<decltype(join)>(rows, static_cast<decltype(zero)*>(to));
  });
}

void JoinRows(JoinKind kind, const TermGroups& rows, void* to) {
  WithJoin(kind, [&](auto join, auto zero) {
    JoinRowsOf<decltype(join)>(rows, static_cast<decltype(zero)*>(to));
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
