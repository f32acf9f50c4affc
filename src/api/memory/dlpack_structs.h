// The structs of DLPack 1.0, which are its binary interface: https://dmlc.github.io/dlpack/latest.
// The public header declares two of them, so that a program may include <dlpack/dlpack.h>.
#pragma once

#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): names that DLPack has chosen.

struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};

struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; nullptr: row-major without gaps
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

// NOLINTEND(readability-identifier-naming)

namespace tessera::detail::dlpack {

inline constexpr DLPackVersion kVersion{1, 0};
inline constexpr std::uint64_t kReadOnly = 1;
inline constexpr std::uint64_t kIsCopied = 2;

// Devices whose memory the host can read.
inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCudaHost = 3;
inline constexpr std::int32_t kRocmHost = 11;

enum class Code : std::uint8_t { integer = 0, natural = 1, real = 2, bfloat = 4, boolean = 6 };

}  // namespace tessera::detail::dlpack
