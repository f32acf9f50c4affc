// Random bits of threefry2x32 for ranges of counters.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/tile/tile_program_random.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cstring>
#include <hwy/highway.h>

#include "base/threefry.h"
#include "compile/host/kernels/tile/tile_program_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::tiles::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<std::uint32_t>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = hn::MaxLanes(D());
// Several vectors are in flight at once, because a round is a sequence of three dependent
// instructions.
constexpr int kVectors = 4;
constexpr std::size_t kBlock = kVectors * kLanes;

struct Counters {
  V x0[kVectors];
  V x1[kVectors];

  HWY_INLINE void add(std::uint32_t a, std::uint32_t b) {
    for (int i = 0; i < kVectors; ++i) {
      x0[i] = hn::Add(x0[i], hn::Set(D(), a));
      x1[i] = hn::Add(x1[i], hn::Set(D(), b));
    }
  }
  template <int kRotation>
  HWY_INLINE void round() {
    for (int i = 0; i < kVectors; ++i) {
      x0[i] = hn::Add(x0[i], x1[i]);
      x1[i] = hn::Xor(hn::RotateRight<32 - kRotation>(x1[i]), x0[i]);
    }
  }
  template <int kGroup>
  HWY_INLINE void group(const std::uint32_t* schedule) {
    constexpr auto kRotations = kThreefryRotations[kGroup % 2];
    round<kRotations[0]>();
    round<kRotations[1]>();
    round<kRotations[2]>();
    round<kRotations[3]>();
    add(schedule[(kGroup + 1) % 3], schedule[(kGroup + 2) % 3] + kGroup + 1);
  }
};

// Computes a block for the counters (high, low), (high, low + stride), ...; none of the additions
// may overflow into `high`.
HWY_INLINE void block(const std::uint32_t* schedule, std::uint32_t high, std::uint32_t low,
                      std::uint32_t stride, std::uint32_t* to) {
  Counters counters;
  const V steps = hn::Mul(hn::Iota(D(), 0), hn::Set(D(), stride));
  for (int i = 0; i < kVectors; ++i) {
    const auto first = static_cast<std::uint32_t>(static_cast<std::size_t>(i) * kLanes);
    counters.x0[i] = hn::Set(D(), high);
    counters.x1[i] = hn::Add(steps, hn::Set(D(), low + first * stride));
  }
  counters.add(schedule[0], schedule[1]);
  counters.group<0>(schedule);
  counters.group<1>(schedule);
  counters.group<2>(schedule);
  counters.group<3>(schedule);
  counters.group<4>(schedule);
  for (std::size_t i = 0; i < kVectors; ++i)
    hn::StoreU(hn::Xor(counters.x0[i], counters.x1[i]), D(), to + i * kLanes);
}

void random_run(const std::uint32_t* key, std::uint32_t high, std::uint32_t low,
                std::uint32_t stride, std::uint32_t* to, std::size_t n) {
  const std::uint32_t schedule[3] = {key[0], key[1], key[0] ^ key[1] ^ kThreefryParity};
  for (; n >= kBlock; n -= kBlock) {
    block(schedule, high, low, stride, to);
    low += static_cast<std::uint32_t>(kBlock) * stride;
    to += kBlock;
  }
  if (n == 0) return;
  std::uint32_t rest[kBlock];
  block(schedule, high, low, stride, rest);
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
