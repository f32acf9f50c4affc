// What chains need besides ops: their ends and their transfers from and to memory.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/tile/elementwise_chain.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first.
#include <hwy/highway.h>

#include "compile/host/kernels/tile/elementwise_chain-inl.h"
#include "compile/host/kernels/tile/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

constexpr std::size_t kBlock = kChainVectors * F32::kLanes;

template <class... X>
void end_stage(const Stage*, std::size_t, X...) {}

// Blocks go through many streams at once, more than processors tell apart by themselves. Elements
// that are a tile away are asked for before any instruction reads them.
HWY_INLINE void prefetch(const StageStream& stream, std::size_t i) {
  constexpr std::size_t kAhead = 2048;
  const std::byte* at = stream.base + (i + kAhead) * stream.element_bytes;
  const std::size_t bytes = kBlock * stream.element_bytes;
  for (std::size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line);
}

void run_chain(const Stage* stages, std::span<const StageStream> streams, std::size_t first,
               std::size_t blocks) {
  const VF none = hn::Zero(DF());
  const auto run = reinterpret_cast<StageFunction>(stages->function);
  for (std::size_t i = first; blocks > 0; i += kBlock, --blocks) {
    for (const StageStream& stream : streams) prefetch(stream, i);
    run(stages, i, none, none, none, none, none, none, none, none);
  }
}

const ChainKernels& make_chain_kernels() {
  static const ChainKernels kKernels = [] {
    ChainKernels kernels{
        .block = kBlock, .run = &run_chain, .end = any(&end_stage), .copies = {}};
    const auto copy = [&kernels](DType dtype, const TileKernel& kernel) {
      kernels.copies[static_cast<std::size_t>(dtype)] = kernel.stages[0];
    };
    copy(DType::boolean, kernel<Copy, Byte, Byte>());
    copy(DType::i32, kernel<Copy, I32, I32>());
    copy(DType::u32, kernel<Copy, U32, U32>());
    copy(DType::bf16, kernel<Copy, BF16, BF16>());
    copy(DType::f32, kernel<Copy, F32, F32>());
    return kernels;
  }();
  return kKernels;
}

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace elementwise {

HWY_EXPORT(make_chain_kernels);

const ChainKernels& chain_kernels_here() { return HWY_DYNAMIC_DISPATCH(make_chain_kernels)(); }

}  // namespace elementwise

const ChainKernels& chain_kernels() { return elementwise::chain_kernels_here(); }

}  // namespace tessera::kernels
#endif  // HWY_ONCE
