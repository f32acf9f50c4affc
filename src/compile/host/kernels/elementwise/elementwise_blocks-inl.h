// Kernels for dtypes without vector code of their own. Their ops are written for one element, and
// run in loops over blocks, which compilers vectorise for each instruction set.
#if defined(TESSERA_KERNELS_ELEMENTWISE_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_BLOCKS_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_BLOCKS_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <hwy/highway.h>
#include <tuple>
#include <utility>

#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {

constexpr std::size_t kRunBlock = 64;

/// Where the elements of an operand are, block by block.
template <class T>
class InputBlocks {
 public:
  InputBlocks() {}  // not `= default`, which would fill the copies with zeros
  /// `n` elements are wanted.
  void set(const TileInput& input, std::size_t n) {
    data_ = static_cast<const T*>(input.data);
    is_scalar_ = input.is_scalar;
    if (is_scalar_) std::fill_n(copies_, std::min(n, kRunBlock), *data_);
  }
  const T* at(std::size_t first) const { return is_scalar_ ? copies_ : data_ + first; }

 private:
  const T* data_ = nullptr;
  bool is_scalar_ = false;
  T copies_[kRunBlock];  // of a scalar, as many as are wanted
};

/// The result may be written over an operand, element for element. No iteration reads what another
/// one writes; the pragmas say so, because compilers would not vectorise the loop otherwise.
template <class Op, class Out, class... In>
void run_block(std::size_t count, Out* output, const In*... inputs) {
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i) output[i] = Op::run(inputs[i]...);
}

template <class Op, class Out, class... In, std::size_t... kInput>
void run_blocks(const TileInput* inputs, void* output, std::size_t n,
                std::index_sequence<kInput...>) {
  Out* results = static_cast<Out*>(output);
  if (n == 1) {
    *results = Op::run(*static_cast<const In*>(inputs[kInput].data)...);
    return;
  }
  std::tuple<InputBlocks<In>...> blocks;
  (std::get<kInput>(blocks).set(inputs[kInput], n), ...);
  std::size_t first = 0;
  // A loop of known length is vectorised without a remainder loop.
  for (; first + kRunBlock <= n; first += kRunBlock)
    run_block<Op, Out, In...>(kRunBlock, results + first, std::get<kInput>(blocks).at(first)...);
  run_block<Op, Out, In...>(n - first, results + first, std::get<kInput>(blocks).at(first)...);
}

/// The kernel of Op::run, which takes elements of the types `In` and returns an `Out`; booleans are
/// bytes. The kernel is not a stage.
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

// A comparison with its operands exchanged.
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
