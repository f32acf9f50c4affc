// Arrays in memory that others own: DLPack and spans.
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>

#include <tessera/tessera.h>

#include "api/memory/dlpack_structs.h"
#include "api/test_support.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::mistake_of;
using testing::numbers;

// The layout that C compilers for 64-bit machines give to the structs of DLPack's header.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, dtype) == 20);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80);
static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

/// A tensor as another library would make it, with aligned memory and a count of its deletions.
template <typename Managed>
struct Foreign {
  Managed managed{};
  std::vector<std::int64_t> shape, strides;
  float* data;
  int num_deleted = 0;

  explicit Foreign(std::vector<std::int64_t> sizes, std::size_t num_floats = 0)
      : shape(std::move(sizes)) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    num_floats = std::max({num_floats, count, std::size_t{1}});
    data = static_cast<float*>(std::aligned_alloc(64, (num_floats * 4 + 63) / 64 * 64));
    for (std::size_t i = 0; i < num_floats; ++i) data[i] = static_cast<float>(i);
    managed.dl_tensor = {.data = data,
                         .device = {1, 0},
                         .ndim = static_cast<std::int32_t>(shape.size()),
                         .dtype = {2, 32, 1},
                         .shape = shape.data(),
                         .strides = nullptr,
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) {
      static_cast<Foreign*>(self->manager_ctx)->num_deleted++;
    };
    if constexpr (requires { managed.version; }) managed.version = {1, 0};
  }
  ~Foreign() { std::free(data); }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  void set_strides(std::vector<std::int64_t> steps) {
    strides = std::move(steps);
    managed.dl_tensor.strides = strides.data();
  }
};

std::vector<float> floats(const Array& x) { return x.to_vector<float>(); }

template <typename Managed>
class FromDlpack : public ::testing::Test {};
using Structs = ::testing::Types<DLManagedTensor, DLManagedTensorVersioned>;
TYPED_TEST_SUITE(FromDlpack, Structs);

TYPED_TEST(FromDlpack, SharesTheMemoryAsLongAsAnArrayReadsIt) {
  Foreign<TypeParam> tensor({2, 3});
  {
    Array x = from_dlpack(&tensor.managed);
    EXPECT_EQ(x.shape(), (Shape{2, 3}));
    EXPECT_EQ(floats(x), (std::vector<float>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(x.addressable_shards()[0].bytes().data(),
              reinterpret_cast<const std::byte*>(tensor.data));
    const Array kept = x;
    x = x * 2;
    EXPECT_EQ(floats(x), (std::vector<float>{0, 2, 4, 6, 8, 10}));
    EXPECT_EQ(tensor.num_deleted, 0);
  }
  EXPECT_EQ(tensor.num_deleted, 1);
}

TYPED_TEST(FromDlpack, DonatedMemoryIsNotOverwritten) {
  Foreign<TypeParam> tensor({4});
  const auto step = jit([](Array x) { return x * 2 + 1; }, {.donate_argnums = {0}});
  Array x = from_dlpack(&tensor.managed);
  x = step(std::move(x));
  EXPECT_EQ(floats(x), (std::vector<float>{1, 3, 5, 7}));
  EXPECT_EQ(tensor.num_deleted, 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(tensor.data[i], static_cast<float>(i));
}

TYPED_TEST(FromDlpack, CopiesWhatIsNotRowMajorOrAligned) {
  Foreign<TypeParam> transposed({2, 3});
  transposed.set_strides({1, 2});
  const Array x = from_dlpack(&transposed.managed);
  EXPECT_EQ(transposed.num_deleted, 1);
  EXPECT_EQ(floats(x), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  Foreign<TypeParam> shifted({3}, 8);
  shifted.managed.dl_tensor.byte_offset = 4;
  EXPECT_EQ(floats(from_dlpack(&shifted.managed)), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(shifted.num_deleted, 1);
  Foreign<TypeParam> reversed({3}, 8);
  reversed.managed.dl_tensor.byte_offset = 28;
  reversed.set_strides({-2});
  EXPECT_EQ(floats(from_dlpack(&reversed.managed)), (std::vector<float>{7, 5, 3}));
  Foreign<TypeParam> repeated({2, 2});
  repeated.set_strides({0, 1});
  EXPECT_EQ(floats(from_dlpack(&repeated.managed)), (std::vector<float>{0, 1, 0, 1}));
}

TYPED_TEST(FromDlpack, TakesScalarsEmptyTensorsAndDimensionsOfOne) {
  Foreign<TypeParam> scalar({});
  EXPECT_EQ(floats(from_dlpack(&scalar.managed))[0], 0);
  Foreign<TypeParam> empty({0, 3});
  empty.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(from_dlpack(&empty.managed).shape(), (Shape{0, 3}));
  EXPECT_EQ(empty.num_deleted, 1);
  Foreign<TypeParam> one({3, 1, 2});
  one.set_strides({2, 77, 1});
  const Array x = from_dlpack(&one.managed);
  EXPECT_EQ(one.num_deleted, 0);
  EXPECT_EQ(floats(x), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TYPED_TEST(FromDlpack, RefusedTensorsStayWithTheCaller) {
  Foreign<TypeParam> tensor({3});
  tensor.managed.dl_tensor.device = {2, 1};
  EXPECT_EQ(mistake_of([&] { from_dlpack(&tensor.managed); }).found, "device type 2, number 1");
  tensor.managed.dl_tensor.device = {1, 0};
  tensor.managed.dl_tensor.dtype = {5, 64, 1};
  EXPECT_EQ(mistake_of([&] { from_dlpack(&tensor.managed); }).found, "complex64");
  tensor.managed.dl_tensor.dtype = {2, 32, 4};
  EXPECT_EQ(mistake_of([&] { from_dlpack(&tensor.managed); }).found, "float32 x 4");
  if constexpr (std::same_as<TypeParam, DLManagedTensorVersioned>) {
    tensor.managed.version = {2, 3};
    EXPECT_EQ(mistake_of([&] { from_dlpack(&tensor.managed); }).found, "version 2.3");
  }
  EXPECT_EQ(tensor.num_deleted, 0);
}

TEST(ToDlpack, SharesTheMemoryOfAWholeArray) {
  Array x = numbers({2, 3}, 1);
  const std::vector<float> values = x.to_vector<float>();
  const std::byte* const memory = x.addressable_shards()[0].bytes().data();
  DLManagedTensorVersioned* const tensor = to_dlpack_versioned(x);
  const DLTensor& t = tensor->dl_tensor;
  EXPECT_EQ(static_cast<const std::byte*>(t.data), memory);
  EXPECT_EQ(tensor->version.major, 1U);
  EXPECT_EQ(tensor->flags, 1U);  // read-only
  EXPECT_EQ(t.ndim, 2);
  EXPECT_EQ(t.shape[0], 2);
  EXPECT_EQ(t.shape[1], 3);
  EXPECT_EQ(t.strides[0], 3);
  EXPECT_EQ(t.strides[1], 1);
  EXPECT_EQ(t.device.device_type, 1);
  // Neither destroying the array nor donating it changes the tensor.
  x = jit([](Array a) { return a + 1; }, {.donate_argnums = {0}})(std::move(x));
  const float* const data = static_cast<const float*>(t.data);
  EXPECT_EQ(std::vector<float>(data, data + 6), values);
  tensor->deleter(tensor);
}

TEST(ToDlpack, TheOlderStructHasACopy) {
  const Array x = numbers({5}, 2);
  DLManagedTensor* const tensor = to_dlpack(x);
  float* const data = static_cast<float*>(tensor->dl_tensor.data);
  EXPECT_EQ(std::vector<float>(data, data + 5), x.to_vector<float>());
  data[0] = 77;
  EXPECT_NE(x.to_vector<float>()[0], 77);
  tensor->deleter(tensor);
}

TEST(ToDlpack, SplitArraysAreGathered) {
  const use_mesh mesh(make_mesh({{"data", 4}}));
  const Array x = device_put(numbers({8, 2}, 3), P{"data"});
  DLManagedTensorVersioned* const tensor = to_dlpack_versioned(x);
  EXPECT_EQ(tensor->flags, 2U);  // the flag for a copy
  const float* const data = static_cast<const float*>(tensor->dl_tensor.data);
  EXPECT_EQ(std::vector<float>(data, data + 16), x.to_vector<float>());
  tensor->deleter(tensor);
  // The array that comes back is whole, on the mesh of the scope.
  expect_same_bits(from_dlpack(to_dlpack_versioned(x)) + x, x + x);
}

TEST(ToDlpack, EveryElementTypeComesBack) {
  for (const DType dtype : kAllDTypes) {
    const Array x = astype(array({0.0F, 1.0F, 3.0F}), dtype);
    DLManagedTensorVersioned* const tensor = to_dlpack_versioned(x);
    const DLDataType type = tensor->dl_tensor.dtype;
    const Array back = from_dlpack(tensor);
    EXPECT_EQ(to_string(back.type()), to_string(x.type()));
    EXPECT_TRUE(array_equal(back, x)) << name(dtype) << ' ' << int{type.code};
    EXPECT_EQ(type.bits, size_bytes(dtype) * 8);
  }
}

TEST(ToDlpack, ArraysWithoutValuesAreRefused) {
  EXPECT_EQ(mistake_of([] {
              jit([](Array x) {
                to_dlpack(x);
                return x;
              })(ones({2}));
            }).what.find("traced") != std::string::npos,
            true);
}

TEST(Spans, CopyInAndOut) {
  std::vector<float> memory(6);
  const Array x = numbers({2, 3}, 4);
  copy_to_host(x, std::span(memory));
  EXPECT_EQ(memory, x.to_vector<float>());
  expect_same_bits(array(std::span<const float>(memory), {2, 3}), x);
  EXPECT_EQ(mistake_of([&] { copy_to_host(x, std::span(memory).first(5)); }).wanted,
            "5 elements of f32, as the span has");
  std::vector<std::int32_t> integers(6);
  EXPECT_EQ(mistake_of([&] { copy_to_host(x, std::span(integers)); }).wanted,
            "6 elements of i32, as the span has");
}

}  // namespace
}  // namespace tessera
