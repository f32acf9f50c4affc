// The sums of VectorProducts: grains side by side, then their tree. Included once per instruction
// set.
#if defined(TESSERA_VECTOR_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_VECTOR_PRODUCTS_INL_H_
#undef TESSERA_VECTOR_PRODUCTS_INL_H_
#else
#define TESSERA_VECTOR_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>
#include <span>

#include "compile/host/kernels/dot/vector_products.h"
#include "compile/host/kernels/gemm/gemm_accumulators-inl.h"
#include "compile/host/kernels/gemm/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::vector_products::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace tiles = gemm::HWY_NAMESPACE;

using Group = VectorProducts::Group;
using Run = VectorProducts::Run;
// Four terms of this many grains are transposed at once.
template <class T>
using Lanes = hn::CappedTag<T, sizeof(T) == 8 ? 4 : VectorProducts::kGroup>;
template <class T>
constexpr std::size_t kLanes = hn::MaxLanes(Lanes<T>());

// The sum of all grains by the tree: two nodes are added as soon as they are the halves of a
// subtree. `sum_group` fills the totals of the grains of a group.
template <class T, class SumGroup>
HWY_INLINE T sum_tree_of(std::span<const Group> groups, const SumGroup& sum_group) {
  T nodes[64];
  std::size_t waiting = 0, done = 0;
  for (const Group& group : groups) {
    HWY_ALIGN T totals[VectorProducts::kGroup] = {};
    sum_group(group, totals);
    for (std::size_t i = 0; i < group.grains; ++i) {
      nodes[waiting++] = totals[i];
      for (std::size_t left = ++done; left % 2 == 0; left /= 2, --waiting)
        nodes[waiting - 2] += nodes[waiting - 1];
    }
  }
  for (; waiting > 1; --waiting) nodes[waiting - 2] += nodes[waiting - 1];
  return nodes[0];
}

}  // namespace tessera::kernels::vector_products::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_VECTOR_PRODUCTS_INL_H_
