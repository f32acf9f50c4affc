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

// The type of `none` repeats for each vector of a stage.
template <class... X>
void run_stages(const Stage* stages, std::size_t first, std::size_t blocks, X... none) {
  const auto run = reinterpret_cast<StageOf<X...>>(stages->function);
  constexpr std::size_t kElements = sizeof...(X) * F32::kLanes;
  for (std::size_t i = first; blocks > 0; i += kElements, --blocks) run(stages, i, none...);
}

void run_chain(const Stage* stages, std::size_t first, std::size_t blocks) {
  const VF none = hn::Zero(DF());
  run_stages(stages, first, blocks, none, none, none, none, none, none, none, none);
}

void run_short_chain(const Stage* stages, std::size_t first, std::size_t blocks) {
  run_stages(stages, first, blocks, hn::Zero(DF()));
}

template <std::size_t kElements, class T>
void repeat_as(const std::byte* element, std::byte* block) {
  T value;
  std::memcpy(&value, element, sizeof(value));
  const hn::CappedTag<T, kElements> d;
  auto* to = reinterpret_cast<T*>(block);
  for (std::size_t i = 0; i < kElements; i += hn::Lanes(d))
    hn::StoreU(hn::Set(d, value), d, to + i);
}

template <std::size_t kElements>
void repeat(DType dtype, const std::byte* element, std::byte* block) {
  switch (size_bytes(dtype)) {
    case 1:
      return repeat_as<kElements, std::uint8_t>(element, block);
    case 2:
      return repeat_as<kElements, std::uint16_t>(element, block);
    default:
      return repeat_as<kElements, std::uint32_t>(element, block);
  }
}

void add_copies(ChainKernels& kernels) {
  const auto add = [&kernels](DType dtype, const TileKernel& kernel) {
    kernels.copies[static_cast<std::size_t>(dtype)] = kernels.stage(kernel, 0);
  };
  add(DType::boolean, kernel<Copy, Byte, Byte>());
  add(DType::i32, kernel<Copy, I32, I32>());
  add(DType::u32, kernel<Copy, U32, U32>());
  add(DType::f16, kernel<Copy, F16, F16>());
  add(DType::bf16, kernel<Copy, BF16, BF16>());
  add(DType::f32, kernel<Copy, F32, F32>());
}

const ChainKernels& make_chain_kernels() {
  static const ChainKernels kKernels = [] {
    const StageFunction end = &end_stage;
    ChainKernels kernels{.block = kBlock,
                         .run = &run_chain,
                         .end = any(end),
                         .repeat = &repeat<kBlock>,
                         .copies = {},
                         .is_short = false};
    add_copies(kernels);
    return kernels;
  }();
  return kKernels;
}

const ChainKernels& make_short_chain_kernels() {
  static const ChainKernels kKernels = [] {
    const ShortStageFunction end = &end_stage;
    ChainKernels kernels{.block = F32::kLanes,
                         .run = &run_short_chain,
                         .end = any_short(end),
                         .repeat = &repeat<F32::kLanes>,
                         .copies = {},
                         .is_short = true};
    add_copies(kernels);
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
HWY_EXPORT(make_short_chain_kernels);

const ChainKernels& chain_kernels_here() { return HWY_DYNAMIC_DISPATCH(make_chain_kernels)(); }
const ChainKernels& short_chain_kernels_here() {
  return HWY_DYNAMIC_DISPATCH(make_short_chain_kernels)();
}

}  // namespace elementwise

const ChainKernels& chain_kernels() { return elementwise::chain_kernels_here(); }
const ChainKernels& short_chain_kernels() { return elementwise::short_chain_kernels_here(); }

}  // namespace tessera::kernels
#endif  // HWY_ONCE
