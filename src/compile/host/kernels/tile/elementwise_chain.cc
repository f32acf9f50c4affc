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

template <class E, class... X>
void load_stage(const Stage* stage, std::size_t i, X... x) {
  const Stream<E> from(stage->operands[0], i);
  std::size_t k = 0;
  ((x = to_lanes<E>(from[k++])), ...);
  go_on(stage, i, x...);
}

template <class E, class... X>
void store_stage(const Stage* stage, std::size_t i, X... x) {
  const StageOperand& operand = stage->operands[0];
  auto* to = reinterpret_cast<typename E::Memory*>(const_cast<std::byte*>(operand.base)) +
             (i & operand.mask);
  std::size_t k = 0;
  (E::store(from_lanes<E>(x), to + k++ * F32::kLanes), ...);
  go_on(stage, i, x...);
}

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
void set_transfers(ChainKernels& kernels, DType dtype) {
  kernels.loads[static_cast<std::size_t>(dtype)] = any(&load_stage<E>);
  kernels.stores[static_cast<std::size_t>(dtype)] = any(&store_stage<E>);
}

const ChainKernels& make_chain_kernels() {
  static const ChainKernels kKernels = [] {
    ChainKernels kernels{.block = kBlock,
                         .run = &run_chain,
                         .end = any(&end_stage),
                         .loads = {},
                         .stores = {}};
    set_transfers<Flag>(kernels, DType::boolean);
    set_transfers<I32>(kernels, DType::i32);
    set_transfers<U32>(kernels, DType::u32);
    set_transfers<BF16>(kernels, DType::bf16);
    set_transfers<F32>(kernels, DType::f32);
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
