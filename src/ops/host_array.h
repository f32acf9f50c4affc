// A whole array in host memory, row-major. The reference engine computes on these.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <tessera/types.h>

namespace tessera::ops {

class HostArray {
 public:
  HostArray() = default;
  explicit HostArray(Type type)
      : type_(std::move(type)), bytes_(static_cast<std::size_t>(size_bytes(type_))) {}

  const Type& type() const { return type_; }
  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Elements in row-major order; T must be the C++ type of the dtype (bool, int32_t, ...).
  template <typename T>
  std::span<T> data() {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <typename T>
  std::span<const T> data() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  Type type_;
  std::vector<std::byte> bytes_;
};

/// Calls `visit(T{})` with the C++ type of `dtype`.
template <typename Visit>
decltype(auto) dispatch(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::boolean:
      return visit(bool{});
    case DType::i8:
      return visit(std::int8_t{});
    case DType::i16:
      return visit(std::int16_t{});
    case DType::i32:
      return visit(std::int32_t{});
    case DType::i64:
      return visit(std::int64_t{});
    case DType::u8:
      return visit(std::uint8_t{});
    case DType::u16:
      return visit(std::uint16_t{});
    case DType::u32:
      return visit(std::uint32_t{});
    case DType::u64:
      return visit(std::uint64_t{});
    case DType::f16:
      return visit(float16{});
    case DType::bf16:
      return visit(bfloat16{});
    case DType::f32:
      return visit(float{});
    case DType::f64:
      break;
  }
  return visit(double{});
}

}  // namespace tessera::ops
