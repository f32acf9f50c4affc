// Mistakes with memory that arrays share with other libraries, and with memory that they are copied
// to.
#include <gtest/gtest.h>
#include <vector>

#include <tessera/dlpack.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

// The struct as a program without <dlpack/dlpack.h> would declare it.
struct DLManagedTensorVersioned {
  std::uint32_t major = 1, minor = 0;
  void* manager_ctx = nullptr;
  void (*deleter)(DLManagedTensorVersioned*) = nullptr;
  std::uint64_t flags = 0;
  void* data = nullptr;
  std::int32_t device_type = 1, device_id = 0, ndim = 1;
  std::uint8_t code = 2, bits = 32;
  std::uint16_t lanes = 1;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;
  std::uint64_t byte_offset = 0;
};

namespace tessera {
namespace {

TEST(MemoryErrors, TensorOnAnotherDevice) {
  DLManagedTensorVersioned tensor{.device_type = 2, .device_id = 3};
  const Caught error = caught([&] { from_dlpack(&tensor); });
  EXPECT_EQ(error.text,
            "from_dlpack: the tensor is not in host memory\n"
            "  where:  <this line>\n"
            "  found:  device type 2, number 3\n"
            "  wanted: the CPU, device type 1\n"
            "  cure:   copy it there first, for example with tensor.cpu()");
}

TEST(MemoryErrors, TensorOfComplexNumbers) {
  DLManagedTensorVersioned tensor{.code = 5, .bits = 64};
  const Caught error = caught([&] { from_dlpack(&tensor); });
  EXPECT_EQ(error.text,
            "from_dlpack: the element type is not supported\n"
            "  where:  <this line>\n"
            "  found:  complex64\n"
            "  wanted: bool8, bfloat16, float of 16, 32 or 64 bits, int or uint of 8 to 64 bits\n"
            "  cure:   convert the tensor first, for example with tensor.float()");
}

TEST(MemoryErrors, TensorOfALaterVersion) {
  DLManagedTensorVersioned tensor{.major = 2, .minor = 1};
  const Caught error = caught([&] { from_dlpack(&tensor); });
  EXPECT_EQ(error.text,
            "from_dlpack: the tensor uses a different version of DLPack\n"
            "  where:  <this line>\n"
            "  found:  version 2.1\n"
            "  wanted: version 1\n"
            "  cure:   ask for version 1, in Python with x.__dlpack__(max_version=(1, 0))");
}

TEST(MemoryErrors, SpanOfAnotherSize) {
  const Array x = ones({2, 3});
  std::vector<float> memory(5);
  const Caught error = caught([&] { copy_to_host(x, std::span(memory)); });
  EXPECT_EQ(error.text,
            "copy_to_host: the array does not match the span\n"
            "  where:  <this line>\n"
            "  found:  f32[2,3]\n"
            "  wanted: 5 elements of f32, as the span has\n"
            "  cure:   pass a span of the array's size() and element type, or convert the array "
            "with astype");
}

}  // namespace
}  // namespace tessera
