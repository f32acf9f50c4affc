// Kernels of ops that are written for one element, for dtypes without code of their own for
// vectors: loops over blocks, which compilers vectorise for each instruction set.
#if defined(TESSERA_KERNELS_ELEMENTWISE_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_BLOCKS_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_BLOCKS_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <hwy/highway.h>
#include <tuple>
#include <utility>

#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

constexpr std::size_t kRunBlock = 64;

/// A block of an operand, in memory of its own: the result may be written over the operand.
template <class T>
struct InputBlock {
  T elements[kRunBlock] = {};

  void begin(const TileInput& input) {
    if (input.is_scalar) std::fill_n(elements, kRunBlock, *static_cast<const T*>(input.data));
  }
  void read(const TileInput& input, std::size_t first, std::size_t count) {
    if (!input.is_scalar)
      std::memcpy(elements, static_cast<const T*>(input.data) + first, count * sizeof(T));
  }
};

template <class Op, class Out, class... In, std::size_t... kInput>
void run_blocks(const TileInput* inputs, void* output, std::size_t n,
                std::index_sequence<kInput...>) {
  std::tuple<InputBlock<In>...> blocks;
  (std::get<kInput>(blocks).begin(inputs[kInput]), ...);
  Out results[kRunBlock] = {};
  const auto compute = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      results[i] = Op::run(std::get<kInput>(blocks).elements[i]...);
  };
  for (std::size_t first = 0; first < n; first += kRunBlock) {
    const std::size_t count = std::min(kRunBlock, n - first);
    (std::get<kInput>(blocks).read(inputs[kInput], first, count), ...);
    // A loop of known length is vectorised without a rest.
    count == kRunBlock ? compute(kRunBlock) : compute(count);
    std::memcpy(static_cast<Out*>(output) + first, results, count * sizeof(Out));
  }
}

/// Op::run of elements of the types `In` gives an `Out`; booleans are bytes. It is no stage.
template <class Op, class Out, class... In>
TileKernel block_kernel() {
  return {.run =
              [](const TileInput* inputs, void* output, std::size_t n) {
                run_blocks<Op, Out, In...>(inputs, output, n, std::index_sequence_for<In...>());
              },
          .stages = {}};
}

// --- ops of every number

struct BlockCopy {
  template <class T>
  static T run(T x) {
    return x;
  }
};
struct BlockSelect {
  template <class T>
  static T run(std::uint8_t which, T x, T y) {
    return which != 0 ? x : y;
  }
};
struct BlockEq {
  template <class T>
  static std::uint8_t run(T x, T y) {
    return x == y;
  }
};
struct BlockNe {
  template <class T>
  static std::uint8_t run(T x, T y) {
    return x != y;
  }
};
struct BlockLt {
  template <class T>
  static std::uint8_t run(T x, T y) {
    return x < y;
  }
};
struct BlockLe {
  template <class T>
  static std::uint8_t run(T x, T y) {
    return x <= y;
  }
};

// The operands of a comparison, exchanged.
template <class Op>
struct BlockSwapped {
  template <class T>
  static std::uint8_t run(T x, T y) {
    return Op::run(y, x);
  }
};

}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
