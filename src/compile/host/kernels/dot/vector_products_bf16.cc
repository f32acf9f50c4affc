// Products of two vectors of bf16. A word of 32 bits has two terms.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/dot/vector_products_bf16.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <algorithm>
#include <cstring>
#include <hwy/highway.h>

#include <tessera/types.h>

#include "compile/host/kernels/dot/vector_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::vector_products::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

using D = Lanes<float>;
using V = hn::Vec<D>;
using D32 = hn::RebindToUnsigned<D>;

constexpr std::int64_t kTerms = kBlockTerms;  // that are added at a time
constexpr std::int64_t kWords = kTerms / 2;
constexpr std::size_t kVectors = VectorProducts::kGroup / kLanes<float>;

HWY_INLINE V bits_of(V words, std::uint32_t mask) {
  return hn::BitCast(D(), hn::And(hn::BitCast(D32(), words), hn::Set(D32(), mask)));
}

// A unit adds words to the sums of grains, one per lane, and ends each block of terms.
struct Portable {
  static HWY_INLINE V first(V words) {
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::BitCast(D32(), words)));
  }
  HWY_INLINE void add(V a, V b) {
    sum = tiles::fused_mul_add(first(a), first(b), sum);
    sum = tiles::fused_mul_add(bits_of(a, 0xFFFF0000U), bits_of(b, 0xFFFF0000U), sum);
  }
  HWY_INLINE void end_block() {}

  V sum;
};

#if HWY_TARGET == HWY_AVX3 && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)

// add_pairs() first adds the term in the high half of a word, so the halves are exchanged.
struct Pairs {
  static HWY_INLINE V exchanged(V words) {
    return hn::BitCast(D(), hn::RotateRight<16>(hn::BitCast(D32(), words)));
  }
  HWY_INLINE void add(V a, V b) { sum = tiles::add_pairs(exchanged(a), exchanged(b), sum); }
  HWY_INLINE void end_block() {}

  V sum;
};

struct Blocks {
  static HWY_INLINE V without_subnormal(V x) {
    const auto is_less = hn::Lt(hn::Abs(x), hn::Set(D(), detail::kLeastNormal));
    return hn::IfThenElse(is_less, hn::CopySign(hn::Zero(D()), x), x);
  }
  // The other term is replaced by -0.0 times 0.0, which leaves every sum as it is.
  static HWY_INLINE V or_minus_zero(V word, std::uint32_t bit) {
    return hn::BitCast(D(), hn::Or(hn::BitCast(D32(), word), hn::Set(D32(), bit)));
  }
  HWY_INLINE void add(V a, V b) {
    const V low = or_minus_zero(bits_of(a, 0xFFFFU), 0x80000000U);
    const V high = or_minus_zero(bits_of(a, 0xFFFF0000U), 0x8000U);
    even = tiles::add_pairs(low, bits_of(b, 0xFFFFU), even);
    odd = tiles::add_pairs(high, bits_of(b, 0xFFFF0000U), odd);
  }
  HWY_INLINE void end_block() {
    sum = without_subnormal(hn::Add(sum, without_subnormal(hn::Add(even, odd))));
    even = odd = hn::Zero(D());
  }

  V sum, even = hn::Zero(D()), odd = hn::Zero(D());
};

#endif

// A block of terms of each grain. The terms after the last one are -0.0 times 0.0.
class PaddedBlock {
 public:
  PaddedBlock(const Group& group, const std::uint16_t* a, const std::uint16_t* b, std::int64_t done)
      : group_(group), a_(a), b_(b) {
    std::fill_n(done_, VectorProducts::kGroup, done);
  }

  // Returns whether a grain has more terms.
  bool next() {
    bool has_any = false;
    for (std::size_t grain = 0; grain < VectorProducts::kGroup; ++grain) {
      has_terms_[grain] = fill(grain) ? 1.0F : 0.0F;
      has_any = has_any || has_terms_[grain] > 0;
    }
    return has_any;
  }
  const std::uint16_t* a(std::size_t grain) const { return of_a_[grain]; }
  const std::uint16_t* b(std::size_t grain) const { return of_b_[grain]; }
  const float* has_terms() const { return has_terms_; }

 private:
  bool fill(std::size_t grain) {
    std::fill_n(of_a_[grain], kTerms, std::uint16_t{0x8000});
    std::fill_n(of_b_[grain], kTerms, std::uint16_t{0});
    std::int64_t count = 0;
    for (; count < kTerms && round_[grain] < group_.rounds.size(); ++round_[grain]) {
      const Run& run = group_.rounds[round_[grain]][grain];
      std::int64_t& done = done_[grain];
      const std::int64_t more = std::min(run.terms - done, kTerms - count);
      const auto bytes = static_cast<std::size_t>(more) * sizeof(std::uint16_t);
      std::memcpy(of_a_[grain] + count, a_ + run.a + done, bytes);
      std::memcpy(of_b_[grain] + count, b_ + run.b + done, bytes);
      count += more;
      done += more;
      if (done < run.terms) break;
      done = 0;
    }
    return count > 0;
  }

  const Group& group_;
  const std::uint16_t *a_, *b_;
  std::size_t round_[VectorProducts::kGroup] = {};
  std::int64_t done_[VectorProducts::kGroup];  // of the run of that round
  HWY_ALIGN std::uint16_t of_a_[VectorProducts::kGroup][kTerms];
  HWY_ALIGN std::uint16_t of_b_[VectorProducts::kGroup][kTerms];
  HWY_ALIGN float has_terms_[VectorProducts::kGroup] = {};
};

HWY_INLINE const float* words(const std::uint16_t* terms) {
  return reinterpret_cast<const float*>(terms);
}

template <class Unit>
HWY_INLINE V add_block(const float* const* a, const float* const* b, V sum) {
  Unit unit{sum};
  for (std::int64_t k = 0; k < kWords; k += 4) {
    V x[4], y[4];
    tiles::load_transposed(D(), tiles::TableRows{a}, k, x);
    tiles::load_transposed(D(), tiles::TableRows{b}, k, y);
    for (int i = 0; i < 4; ++i) unit.add(x[i], y[i]);
  }
  unit.end_block();
  return unit.sum;
}

// Whole blocks are read in place if each grain has only one run.
template <class Unit>
HWY_INLINE void sum_group(const std::uint16_t* a, const std::uint16_t* b, const Group& group,
                          float* totals) {
  constexpr std::size_t kGroup = VectorProducts::kGroup;
  const float *of_a[kGroup], *of_b[kGroup];
  V sums[kVectors];
  for (V& sum : sums) sum = hn::Zero(D());
  std::int64_t done = 0;
  if (group.rounds.size() == 1) {
    const auto& runs = group.rounds[0];
    const auto is_shorter = [](const Run& x, const Run& y) { return x.terms < y.terms; };
    const std::int64_t least = std::min_element(runs.begin(), runs.end(), is_shorter)->terms;
    for (; done + kTerms <= least; done += kTerms) {
      for (std::size_t i = 0; i < kGroup; ++i) {
        of_a[i] = words(a + runs[i].a + done);
        of_b[i] = words(b + runs[i].b + done);
      }
      for (std::size_t v = 0; v < kVectors; ++v)
        sums[v] = add_block<Unit>(of_a + v * kLanes<float>, of_b + v * kLanes<float>, sums[v]);
    }
  }
  PaddedBlock padded(group, a, b, done);
  for (std::size_t i = 0; i < kGroup; ++i) {
    of_a[i] = words(padded.a(i));
    of_b[i] = words(padded.b(i));
  }
  while (padded.next()) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t lane = v * kLanes<float>;
      const V sum = add_block<Unit>(of_a + lane, of_b + lane, sums[v]);
      const auto has = hn::Ne(hn::Load(D(), padded.has_terms() + lane), hn::Zero(D()));
      sums[v] = hn::IfThenElse(has, sum, sums[v]);
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) hn::Store(sums[v], D(), totals + v * kLanes<float>);
}

template <class Unit>
float sum_with(std::span<const Group> groups, const std::uint16_t* a, const std::uint16_t* b) {
  return sum_tree_of<float>(groups, [&](const Group& group, float* totals)
                                        HWY_ATTR { sum_group<Unit>(a, b, group, totals); });
}

float sum_bf16_tree(DotUnit unit, std::span<const Group> groups, const std::uint16_t* a,
                    const std::uint16_t* b) {
#if HWY_TARGET == HWY_AVX3 && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
  if (unit == DotUnit::avx512_bf16) return sum_with<Pairs>(groups, a, b);
  if (unit == DotUnit::amx_bf16) return sum_with<Blocks>(groups, a, b);
#endif
  (void)unit;
  return sum_with<Portable>(groups, a, b);
}

#else

float sum_bf16_tree(DotUnit unit, std::span<const Group> groups, const std::uint16_t* a,
                    const std::uint16_t* b) {
  return sum_tree_of<float>(groups, [&](const Group& group, float* totals) {
    for (std::size_t i = 0; i < group.grains; ++i) {
      DotSum sum(unit);
      for (const auto& runs : group.rounds) {
        for (std::int64_t k = 0; k < runs[i].terms; ++k)
          sum.add(bfloat16::from_bits(a[runs[i].a + k]), bfloat16::from_bits(b[runs[i].b + k]));
      }
      totals[i] = sum.value();
    }
  });
}

#endif

}  // namespace tessera::kernels::vector_products::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

namespace vector_products {
HWY_EXPORT(sum_bf16_tree);
}  // namespace vector_products

using namespace vector_products;

std::optional<VectorProducts> VectorProducts::of_bf16(std::span<const GemmProblem> problems,
                                                      DotUnit unit, int num_workers) {
  // Products for AMX are computed with the instruction of avx512_bf16 too. Processors with AMX have
  // it.
  const bool has_unit = unit == DotUnit::portable || has_dot_unit(DotUnit::avx512_bf16);
  auto products = has_unit && has_dot_unit(unit) ? of(problems, num_workers) : std::nullopt;
  if (!products) return std::nullopt;
  products->unit_ = unit;
  return products;
}

void VectorProducts::run(const std::uint16_t* a, const std::uint16_t* b, float* c, int part) const {
  const auto sum = [this](auto groups, auto of_a, auto of_b) {
    return HWY_DYNAMIC_DISPATCH(sum_bf16_tree)(unit_, groups, of_a, of_b);
  };
  run_with(sum, a, b, c, part);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
