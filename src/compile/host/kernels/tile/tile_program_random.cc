// Random bits of threefry2x32 for ranges of counters.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/tile/tile_program_random.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cstring>
#include <hwy/highway.h>

#include "compile/host/kernels/tile/threefry-inl.h"
#include "compile/host/kernels/tile/tile_program_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::tiles::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<std::uint32_t>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = hn::MaxLanes(D());
constexpr int kVectors = 4;
constexpr std::size_t kBlock = kVectors * kLanes;

// Computes a block for the counters (high, low), (high, low + stride), ...; none of the additions
// may overflow into `high`.
HWY_INLINE void block(const std::uint32_t* schedule, std::uint32_t high, std::uint32_t low,
                      std::uint32_t stride, std::uint32_t* to) {
  threefry::HWY_NAMESPACE::Counters<D, kVectors> counters;
  const V steps = hn::Mul(hn::Iota(D(), 0), hn::Set(D(), stride));
  for (int i = 0; i < kVectors; ++i) {
    const auto first = static_cast<std::uint32_t>(static_cast<std::size_t>(i) * kLanes);
    counters.x0[i] = hn::Set(D(), high);
    counters.x1[i] = hn::Add(steps, hn::Set(D(), low + first * stride));
  }
  counters.encrypt(schedule);
  for (int i = 0; i < kVectors; ++i)
    hn::StoreU(counters.bits(i), D(), to + static_cast<std::size_t>(i) * kLanes);
}

void random_run(const std::uint32_t* key, std::uint32_t high, std::uint32_t low,
                std::uint32_t stride, std::uint32_t* to, std::size_t n) {
  const auto schedule = threefry_schedule({key[0], key[1]});
  for (; n >= kBlock; n -= kBlock) {
    block(schedule.data(), high, low, stride, to);
    low += static_cast<std::uint32_t>(kBlock) * stride;
    to += kBlock;
  }
  if (n == 0) return;
  std::uint32_t rest[kBlock];
  block(schedule.data(), high, low, stride, rest);
  std::memcpy(to, rest, n * sizeof(std::uint32_t));
}

}  // namespace
}  // namespace tessera::kernels::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::tiles {

HWY_EXPORT(random_run);

void fill_random(const std::uint32_t* key, std::int64_t start, std::int64_t stride,
                 std::uint32_t* to, std::int64_t n) {
  const auto high = static_cast<std::uint32_t>(start >> 32);
  if ((start + (n - 1) * stride) >> 32 == start >> 32) {
    HWY_DYNAMIC_DISPATCH(random_run)
    (key, high, static_cast<std::uint32_t>(start), static_cast<std::uint32_t>(stride), to,
     static_cast<std::size_t>(n));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i)
    to[i] = random_bits({key[0], key[1]}, static_cast<std::uint64_t>(start + i * stride));
}

}  // namespace tessera::kernels::tiles
#endif  // HWY_ONCE
