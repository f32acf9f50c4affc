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

// `none` has an argument for each vector of a stage, all of one type.
template <class... X>
void run_stages(const Stage* stages, std::size_t first, std::size_t blocks, X... none) {
  const auto run = reinterpret_cast<StageOf<X...>>(stages->function);
  for (std::size_t i = first; blocks > 0; i += kBlockOf<X...>, --blocks) run(stages, i, none...);
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
    case 4:
      return repeat_as<kElements, std::uint32_t>(element, block);
    default:
      return repeat_as<kElements, std::uint64_t>(element, block);
  }
}

template <class E>
void add_copy(DType dtype, ChainKernels& kernels) {
  kernels.copies[static_cast<std::size_t>(dtype)] =
      kernel<Copy, E, E>().stages[kernels.form.index()][0];
}

void add_narrow_copies(ChainKernels& kernels) {
  add_copy<Byte>(DType::boolean, kernels);
  add_copy<I32>(DType::i32, kernels);
  add_copy<U32>(DType::u32, kernels);
  add_copy<F16>(DType::f16, kernels);
  add_copy<BF16>(DType::bf16, kernels);
  add_copy<F32>(DType::f32, kernels);
}

template <bool is_short>
void add_wide_copies(ChainKernels& kernels) {
  add_copy<Byte>(DType::boolean, kernels);
  add_copy<I64>(DType::i64, kernels);
  add_copy<U64>(DType::u64, kernels);
  add_copy<F64>(DType::f64, kernels);
  // A copy of elements of 4 bytes alone is a stage of narrow chains; here they are widened.
  using Form = std::conditional_t<is_short, Forms<true>::Short, Forms<true>::Long>;
  for (const DType dtype : {DType::i32, DType::u32, DType::f32}) {
    AnyFunction stages[3];
    Form::template add<Copy, Widened<std::uint32_t>, Widened<std::uint32_t>>(stages);
    kernels.copies[static_cast<std::size_t>(dtype)] = stages[0];
  }
}

// Without this, SSE code that follows waits for the vectors before it. Compilers emit it at the end
// of functions with vectors, but not of functions that take vectors as arguments, such as stages.
HWY_INLINE void clear_upper_halves() {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  _mm256_zeroupper();
#endif
}

template <class... X>
ChainKernels make_kernels(ChainForm form, Stages<X...> /*of vectors*/) {
  constexpr std::size_t kBlock = kBlockOf<X...>;
  return {.form = form,
          .block = kBlock,
          .run =
              [](const Stage* stages, std::size_t first, std::size_t blocks) {
                run_stages(stages, first, blocks, hn::Zero(hn::DFromV<X>())...);
                clear_upper_halves();
              },
          .end = Stages<X...>::any(&end_stage),
          .repeat = &repeat<kBlock>,
          .copies = {}};
}

template <bool wide, bool is_short>
ChainKernels make_form() {
  using Form =
      std::conditional_t<is_short, typename Forms<wide>::Short, typename Forms<wide>::Long>;
  ChainKernels kernels = make_kernels({.is_wide = wide, .is_short = is_short}, Form());
  if constexpr (wide) {
    add_wide_copies<is_short>(kernels);
  } else {
    add_narrow_copies(kernels);
  }
  return kernels;
}

const ChainKernels& make_chain_kernels(ChainForm form) {
  static const ChainKernels kKernels[] = {make_form<false, false>(), make_form<false, true>(),
                                          make_form<true, false>(), make_form<true, true>()};
  return kKernels[form.index()];
}

}  // namespace
}  // namespace tessera::kernels::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace elementwise {

HWY_EXPORT(make_chain_kernels);

const ChainKernels& chain_kernels_here(ChainForm form) {
  return HWY_DYNAMIC_DISPATCH(make_chain_kernels)(form);
}

}  // namespace elementwise

const ChainKernels& chain_kernels(ChainForm form) { return elementwise::chain_kernels_here(form); }

}  // namespace tessera::kernels
#endif  // HWY_ONCE
