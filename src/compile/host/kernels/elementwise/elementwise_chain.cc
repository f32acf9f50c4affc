// What chains need besides ops: the end of a chain, and stages that only load or store.
#include "compile/host/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/host/kernels/elementwise/elementwise_chain.cc"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <cstring>
#include <hwy/highway.h>

#include "compile/host/kernels/elementwise/elementwise_chain-inl.h"
#include "compile/host/kernels/elementwise/elementwise_internal.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::elementwise::HWY_NAMESPACE {
namespace {

template <class... X>
void end_stage(const Stage*, std::size_t, X...) {}

void run_chain(const Stage* stages, std::size_t first, std::size_t blocks) {
  const VF none = hn::Zero(DF());
  const auto run = reinterpret_cast<StageFunction>(stages->function);
  for (std::size_t i = first; blocks > 0; i += kBlock, --blocks) {
    run(stages, i, none, none, none, none, none, none, none, none);
  }
}

template <class E>
void repeat_as(const std::byte* element, std::byte* block) {
  typename E::Memory value;
  std::memcpy(&value, element, sizeof(value));
  const hn::ScalableTag<typename E::Memory> d;
  auto* to = reinterpret_cast<typename E::Memory*>(block);
  for (std::size_t i = 0; i < kBlock; i += hn::Lanes(d)) hn::StoreU(hn::Set(d, value), d, to + i);
}

void repeat(DType dtype, const std::byte* element, std::byte* block) {
  switch (size_bytes(dtype)) {
    case 1:
      return repeat_as<Byte>(element, block);
    case 2:
      return repeat_as<BF16>(element, block);
    default:
      return repeat_as<U32>(element, block);
  }
}

const ChainKernels& make_chain_kernels() {
  static const ChainKernels kKernels = [] {
    ChainKernels kernels{.block = kBlock,
                         .run = &run_chain,
                         .end = any(&end_stage),
                         .repeat = &repeat,
                         .copies = {}};
    const auto copy = [&kernels](DType dtype, const TileKernel& kernel) {
      kernels.copies[static_cast<std::size_t>(dtype)] = kernel.stages[0];
    };
    copy(DType::boolean, kernel<Copy, Byte, Byte>());
    copy(DType::i32, kernel<Copy, I32, I32>());
    copy(DType::u32, kernel<Copy, U32, U32>());
    copy(DType::f16, kernel<Copy, F16, F16>());
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
