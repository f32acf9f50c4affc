// threefry2x32 on vectors of counters; compiled once per instruction set.
#if defined(TESSERA_KERNELS_THREEFRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_THREEFRY_INL_H_
#undef TESSERA_KERNELS_THREEFRY_INL_H_
#else
#define TESSERA_KERNELS_THREEFRY_INL_H_
#endif

#include <hwy/highway.h>

#include "base/threefry.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::threefry::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Several vectors are in flight at once, because a round is a sequence of three dependent
// instructions.
template <class D, int kVectors>
struct Counters {
  using V = hn::Vec<D>;
  V x0[std::size_t{kVectors}];
  V x1[std::size_t{kVectors}];

  // `schedule` is a threefry_schedule().
  HWY_INLINE void encrypt(const std::uint32_t* schedule) {
    add(schedule[0], schedule[1]);
    group<0>(schedule);
    group<1>(schedule);
    group<2>(schedule);
    group<3>(schedule);
    group<4>(schedule);
  }
  // The random bits of counter vector i, after encrypt().
  HWY_INLINE V bits(int i) const { return hn::Xor(x0[i], x1[i]); }

 private:
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

}  // namespace tessera::kernels::threefry::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
