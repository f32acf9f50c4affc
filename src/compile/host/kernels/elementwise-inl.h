// Loops that make a tile kernel of an op on vectors or on single elements.
#if defined(TESSERA_KERNELS_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ELEMENTWISE_INL_H_
#undef TESSERA_KERNELS_ELEMENTWISE_INL_H_
#else
#define TESSERA_KERNELS_ELEMENTWISE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <hwy/highway.h>
#include <type_traits>
#include <utility>

#include "compile/host/kernels/elementwise_families.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Vectors of an operand; the last, shorter one is padded with zeros.
template <typename T, bool kIsScalar>
class VectorReader {
 public:
  using D = hn::ScalableTag<T>;
  explicit VectorReader(const TileInput& input)
      : data_(static_cast<const T*>(input.data)), value_(hn::Set(D(), *data_)) {}

  HWY_INLINE hn::Vec<D> at(std::size_t i) const {
    if constexpr (kIsScalar) return value_;
    return hn::LoadU(D(), data_ + i);
  }
  HWY_INLINE hn::Vec<D> tail(std::size_t i, std::size_t n) const {
    if constexpr (kIsScalar) return value_;
    HWY_ALIGN T buffer[hn::MaxLanes(D())] = {};
    std::memcpy(buffer, data_ + i, n * sizeof(T));
    return hn::Load(D(), buffer);
  }

 private:
  const T* data_;
  hn::Vec<D> value_;
};

/// A predicate, as masks for vectors of the 32-bit type T.
template <typename T, bool kIsScalar>
class MaskReader {
 public:
  using D = hn::ScalableTag<T>;
  using Int = hn::ScalableTag<std::int32_t>;
  using Bytes = hn::Rebind<std::uint8_t, Int>;
  explicit MaskReader(const TileInput& input)
      : data_(static_cast<const std::uint8_t*>(input.data)),
        value_(mask_of(hn::Set(Bytes(), *data_))) {}

  HWY_INLINE hn::Mask<D> at(std::size_t i) const {
    if constexpr (kIsScalar) return value_;
    return mask_of(hn::LoadU(Bytes(), data_ + i));
  }
  HWY_INLINE hn::Mask<D> tail(std::size_t i, std::size_t n) const {
    if constexpr (kIsScalar) return value_;
    HWY_ALIGN std::uint8_t buffer[hn::MaxLanes(D())] = {};
    std::memcpy(buffer, data_ + i, n);
    return mask_of(hn::Load(Bytes(), buffer));
  }

 private:
  static HWY_INLINE hn::Mask<D> mask_of(hn::Vec<Bytes> bytes) {
    return hn::RebindMask(D(), hn::Ne(hn::PromoteTo(Int(), bytes), hn::Zero(Int())));
  }

  const std::uint8_t* data_;
  hn::Mask<D> value_;
};

template <typename T>
HWY_INLINE void store_result(hn::ScalableTag<T> d, hn::Vec<hn::ScalableTag<T>> v, void* out,
                             std::size_t i) {
  hn::StoreU(v, d, static_cast<T*>(out) + i);
}

template <typename T>
HWY_INLINE void store_result(hn::ScalableTag<T>, hn::Mask<hn::ScalableTag<T>> mask, void* out,
                             std::size_t i) {
  const hn::ScalableTag<std::int32_t> int32;
  const hn::Rebind<std::uint8_t, decltype(int32)> bytes;
  const auto ones = hn::IfThenElseZero(hn::RebindMask(int32, mask), hn::Set(int32, 1));
  hn::StoreU(hn::DemoteTo(bytes, ones), bytes, static_cast<std::uint8_t*>(out) + i);
}

/// out[i] = Op(readers[i]...) for vectors of T; the result is a vector or a mask.
template <typename Op, typename T, typename... Readers>
HWY_INLINE void vector_loop(void* out, std::size_t n, const Readers&... readers) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_result<T>(d, Op::apply(readers.at(i)...), out, i);
  if (i == n) return;
  const auto last = Op::apply(readers.tail(i, n - i)...);
  constexpr bool kIsMask = !std::is_same_v<decltype(last), const hn::Vec<decltype(d)>>;
  constexpr std::size_t kBytes = kIsMask ? 1 : sizeof(T);
  HWY_ALIGN std::byte buffer[kLanes * sizeof(T)];
  store_result<T>(d, last, buffer, 0);
  std::memcpy(static_cast<std::byte*>(out) + i * kBytes, buffer, (n - i) * kBytes);
}

/// The kernel of an op on vectors, with one loop for each combination of scalar operands.
template <typename Op, typename T, template <typename, bool> typename... Reader>
class VectorKernel {
 public:
  template <bool... kIsScalar>
  static void run(const TileInput* inputs, void* out, std::size_t n) {
    constexpr std::size_t kDecided = sizeof...(kIsScalar);
    if constexpr (kDecided == sizeof...(Reader)) {
      if (n > 0) loop<kIsScalar...>(inputs, out, n, std::make_index_sequence<kDecided>());
    } else {
      if (inputs[kDecided].is_scalar) {
        run<kIsScalar..., true>(inputs, out, n);
      } else {
        run<kIsScalar..., false>(inputs, out, n);
      }
    }
  }

 private:
  template <bool... kIsScalar, std::size_t... k>
  static HWY_INLINE void loop(const TileInput* inputs, void* out, std::size_t n,
                              std::index_sequence<k...>) {
    vector_loop<Op, T>(out, n, Reader<T, kIsScalar>(inputs[k])...);
  }
};

/// Elements of an operand, for loops that are left to the compiler.
template <typename T, bool kIsScalar>
class ElementReader {
 public:
  explicit ElementReader(const TileInput& input)
      : data_(static_cast<const T*>(input.data)), value_(*data_) {}
  HWY_INLINE T at(std::size_t i) const { return kIsScalar ? value_ : data_[i]; }

 private:
  const T* data_;
  T value_;
};

template <typename Op, typename Result, typename... Readers>
HWY_INLINE void element_loop(Result* out, std::size_t n, const Readers&... readers) {
#if HWY_COMPILER_GCC_ACTUAL
// The output may be the memory of an operand, element for element, which hinders no vector.
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < n; ++i) out[i] = Op::apply(readers.at(i)...);
}

/// The kernel of an op on elements of types T.
template <typename Op, typename Result, typename... T>
class ElementKernel {
 public:
  template <bool... kIsScalar>
  static void run(const TileInput* inputs, void* out, std::size_t n) {
    constexpr std::size_t kDecided = sizeof...(kIsScalar);
    if constexpr (kDecided == sizeof...(T)) {
      if (n > 0) loop<kIsScalar...>(inputs, out, n, std::make_index_sequence<kDecided>());
    } else {
      if (inputs[kDecided].is_scalar) {
        run<kIsScalar..., true>(inputs, out, n);
      } else {
        run<kIsScalar..., false>(inputs, out, n);
      }
    }
  }

 private:
  template <bool... kIsScalar, std::size_t... k>
  static HWY_INLINE void loop(const TileInput* inputs, void* out, std::size_t n,
                              std::index_sequence<k...>) {
    element_loop<Op>(static_cast<Result*>(out), n, ElementReader<T, kIsScalar>(inputs[k])...);
  }
};

template <typename Op, typename T>
inline constexpr TileKernel kUnary = &VectorKernel<Op, T, VectorReader>::template run<>;
template <typename Op, typename T>
inline constexpr TileKernel kBinary =
    &VectorKernel<Op, T, VectorReader, VectorReader>::template run<>;
template <typename Op, typename T>
inline constexpr TileKernel kTernary =
    &VectorKernel<Op, T, VectorReader, VectorReader, VectorReader>::template run<>;
template <typename Op, typename T>
inline constexpr TileKernel kSelect =
    &VectorKernel<Op, T, MaskReader, VectorReader, VectorReader>::template run<>;
/// An op on elements of T whose result is a T.
template <typename Op, typename T, typename... More>
inline constexpr TileKernel kElements = &ElementKernel<Op, T, T, More...>::template run<>;
/// An op on elements of T whose result is another type.
template <typename Op, typename Result, typename... T>
inline constexpr TileKernel kElementsTo = &ElementKernel<Op, Result, T...>::template run<>;

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_KERNELS_ELEMENTWISE_INL_H_
