// The registers of AMX that hold tiles, and plain loops that do the same.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/dot_unit.h"
#include "compile/host/kernels/gemm/gemm_internal.h"

namespace tessera::kernels::gemm {

/// Rows and columns of a register of sums.
inline constexpr int kRegisterRows = 16;
inline constexpr int kRegisterSize = kRegisterRows * kRegisterRows;

/// Four registers of sums, two of A (rows of steps) and two of B (steps of columns), all with 16
/// rows or columns. A step is a pair of bf16; `block` steps are multiplied at once.
class EmulatedRegisters {
 public:
  explicit EmulatedRegisters(std::int64_t block) : block_(block) {}

  template <int i>
  void zero() {
    sums_[i] = {};
  }
  template <int i>
  void load_sums(const float* from) {
    std::copy(from, from + kRegisterSize, sums_[i].begin());
  }
  template <int i>
  void store_sums(float* to) const {
    std::copy(sums_[i].begin(), sums_[i].end(), to);
  }
  template <int i>
  void load_a(const float* from) {
    for (std::int64_t at = 0; at < kRegisterRows * block_; ++at) a_[i][index(at)] = word(from[at]);
  }
  template <int i>
  void load_b(const float* from, std::int64_t stride) {
    for (std::int64_t step = 0; step < block_; ++step) {
      for (std::int64_t n = 0; n < kRegisterRows; ++n)
        b_[i][index(step * kRegisterRows + n)] = word(from[step * stride + n]);
    }
  }
  template <int to, int a, int b>
  void multiply() {
    for (std::int64_t i = 0; i < kRegisterSize; ++i) {
      const std::int64_t row = i / kRegisterRows, column = i % kRegisterRows;
      DotSum block(DotUnit::amx_bf16);
      for (std::int64_t step = 0; step < block_; ++step) {
        const std::uint32_t x = a_[a][index(row * block_ + step)];
        const std::uint32_t y = b_[b][index(step * kRegisterRows + column)];
        block.add(narrow(x << 16), narrow(y << 16));
        block.add(narrow(x & kUpper), narrow(y & kUpper));
      }
      float& sum = sums_[to][index(i)];
      sum = detail::without_subnormal(sum + block.value());
    }
  }

 private:
  static constexpr std::uint32_t kUpper = 0xffff0000;
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  static std::uint32_t word(float pair) { return std::bit_cast<std::uint32_t>(pair); }
  static float narrow(std::uint32_t bits) { return std::bit_cast<float>(bits); }

  std::int64_t block_;
  std::array<std::array<float, kRegisterSize>, 4> sums_ = {};
  std::array<std::array<std::uint32_t, kRegisterSize>, 2> a_ = {}, b_ = {};
};

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#define TESSERA_HAS_TILE_REGISTERS 1

/// The registers of the processor. The instructions are not intrinsics because no file is compiled
/// for AMX; they are used only where the processor has it.
class TileRegisters {
 public:
  explicit TileRegisters(std::int64_t block) : a_stride_(block * kWordBytes) {}

  /// Sets the sizes of the tile registers, which belong to the calling thread.
  static void begin(std::int64_t block) {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0;
      std::uint8_t reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } sizes;
    const auto steps = static_cast<std::uint8_t>(block);
    for (int i = 0; i < 8; ++i) {
      const bool is_a = i == 4 || i == 5, is_b = i > 5;
      sizes.rows[i] = is_b ? steps : kRegisterRows;
      sizes.row_bytes[i] = static_cast<std::uint16_t>((is_a ? steps : kRegisterRows) * kWordBytes);
    }
    asm volatile("ldtilecfg %0" : : "m"(sizes) : "memory");
  }
  /// Gives the registers up, so that the system need not save them and the core may sleep deeply.
  static void end() { asm volatile("tilerelease" : : : "memory"); }

  template <int i>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(i));
  }
  template <int i>
  void load_sums(const float* from) {
    load<i>(from, kRegisterRows * kWordBytes);
  }
  template <int i>
  void store_sums(float* to) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(to), "r"(kRegisterRows * kWordBytes), "i"(i)
                 : "memory");
  }
  template <int i>
  void load_a(const float* from) {
    load<4 + i>(from, a_stride_);
  }
  template <int i>
  void load_b(const float* from, std::int64_t stride) {
    load<6 + i>(from, stride * kWordBytes);
  }
  template <int to, int a, int b>
  void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(to), "i"(4 + a), "i"(6 + b));
  }

 private:
  static constexpr std::int64_t kWordBytes = 4;

  template <int i>
  static void load(const float* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(i) : "memory");
  }

  std::int64_t a_stride_;
};

#endif

}  // namespace tessera::kernels::gemm
