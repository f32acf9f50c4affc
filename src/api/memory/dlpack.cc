// Arrays from and to tensors of other libraries.
#include <cstring>
#include <fmt/format.h>
#include <optional>

#include <tessera/dlpack.h>
#include <tessera/error.h>

#include "api/array_node.h"
#include "api/memory/dlpack_structs.h"
#include "run/lent_memory.h"

namespace tessera {

namespace {

using detail::dlpack::Code;

// --- element types

DLDataType dl_type_of(DType dtype) {
  Code code = Code::real;
  if (dtype == DType::boolean) {
    code = Code::boolean;
  } else if (dtype == DType::bf16) {
    code = Code::bfloat;
  } else if (!is_float(dtype)) {
    code = name(dtype).starts_with('u') ? Code::natural : Code::integer;
  }
  return {.code = static_cast<std::uint8_t>(code),
          .bits = static_cast<std::uint8_t>(size_bytes(dtype) * 8),
          .lanes = 1};
}

std::optional<DType> dtype_of_dl(const DLDataType& type) {
  for (const DType dtype : kAllDTypes) {
    const DLDataType known = dl_type_of(dtype);
    if (type.code == known.code && type.bits == known.bits && type.lanes == 1) return dtype;
  }
  return std::nullopt;
}

std::string text_of(const DLDataType& type) {
  constexpr const char* kNames[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const bool is_known = type.code < std::size(kNames);
  std::string text = is_known ? kNames[type.code] : fmt::format("type code {}, ", type.code);
  text += std::to_string(type.bits);
  return type.lanes == 1 ? text : fmt::format("{} x {}", text, type.lanes);
}

// --- from a tensor

[[noreturn]] void refuse(const std::string& what, const std::string& found,
                         const std::string& wanted, const std::string& cure, const Span& where) {
  throw UserError({.what = "from_dlpack: " + what,
                   .where = where,
                   .found = found,
                   .wanted = wanted,
                   .cure = cure});
}

Type checked_type(const DLTensor& tensor, const Span& where) {
  using namespace detail::dlpack;
  const std::int32_t device = tensor.device.device_type;
  if (device != kCpu && device != kCudaHost && device != kRocmHost) {
    refuse("the tensor is not in host memory",
           fmt::format("device type {}, number {}", device, tensor.device.device_id),
           "the CPU, device type 1", "copy it there first, for example with tensor.cpu()", where);
  }
  const std::optional<DType> dtype = dtype_of_dl(tensor.dtype);
  if (!dtype) {
    refuse("the element type is not supported", text_of(tensor.dtype),
           "bool8, bfloat16, float of 16, 32 or 64 bits, int or uint of 8 to 64 bits",
           "convert the tensor first, for example with tensor.float()", where);
  }
  Type type{*dtype, {}};
  for (std::int32_t i = 0; i < tensor.ndim; ++i) type.shape.push_back(tensor.shape[i]);
  return type;
}

std::vector<std::int64_t> strides_of(const DLTensor& tensor, const Shape& shape) {
  if (tensor.strides == nullptr) return row_major_strides(shape);
  return {tensor.strides, tensor.strides + tensor.ndim};
}

bool is_row_major(const std::vector<std::int64_t>& strides, const Shape& shape) {
  const std::vector<std::int64_t> wanted = row_major_strides(shape);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1 && strides[i] != wanted[i]) return false;
  }
  return true;
}

/// Copies elements that lie anywhere into row-major order.
class StridedCopy {
 public:
  StridedCopy(const Type& type, std::vector<std::int64_t> strides)
      : shape_(type.shape),
        strides_(std::move(strides)),
        element_(static_cast<std::ptrdiff_t>(size_bytes(type.dtype))) {}

  void run(const std::byte* from, std::byte* to) const {
    if (num_elements(shape_) > 0) copy(0, from, to);
  }

 private:
  void copy(std::size_t dim, const std::byte* from, std::byte*& to) const {
    if (dim == shape_.size()) {
      std::memcpy(to, from, static_cast<std::size_t>(element_));
      to += element_;
      return;
    }
    for (std::int64_t i = 0; i < shape_[dim]; ++i) {
      copy(dim + 1, from + i * strides_[dim] * element_, to);
    }
  }
  const Shape& shape_;
  std::vector<std::int64_t> strides_;
  std::ptrdiff_t element_;
};

/// Buffers are aligned to this, and kernels may rely on it.
constexpr std::uintptr_t kAlignment = 64;

template <typename Managed>
Array array_of(Managed* managed, const Span& where) {
  const DLTensor& tensor = managed->dl_tensor;
  const Type type = checked_type(tensor, where);
  const std::int64_t bytes = size_bytes(type);
  std::byte* const data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  const auto give_back = [managed] {
    if (managed->deleter != nullptr) managed->deleter(managed);
  };
  const std::vector<std::int64_t> strides = strides_of(tensor, type.shape);
  run::BufferPtr buffer;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0;
  if (bytes > 0 && is_aligned && is_row_major(strides, type.shape)) {
    auto lent = std::make_shared<const run::LentMemory>(
        std::span(data, static_cast<std::size_t>(bytes)), give_back);
    buffer = std::make_shared<run::Buffer>(bytes, std::move(lent));
  } else {
    buffer = std::make_shared<run::Buffer>(bytes);
    StridedCopy(type, strides).run(data, buffer->data());
    give_back();
  }
  detail::PlacementPtr placement = detail::replicated_placement(type, current_mesh());
  return detail::make_concrete(std::move(placement), {std::move(buffer)});
}

// --- to a tensor

/// A tensor with all that it points to.
template <typename Managed>
struct Exported {
  Managed managed;
  Shape shape;
  std::vector<std::int64_t> strides;
  run::BufferPtr buffer;
};

template <typename Managed>
Managed* exported(const Type& type, const run::BufferPtr& buffer) {
  std::unique_ptr<Exported<Managed>> all(
      new Exported<Managed>{.managed = {},
                            .shape = type.shape,
                            .strides = row_major_strides(type.shape),
                            .buffer = buffer});
  Managed& managed = all->managed;
  managed.dl_tensor = {.data = buffer->data(),
                       .device = {.device_type = detail::dlpack::kCpu, .device_id = 0},
                       .ndim = static_cast<std::int32_t>(type.rank()),
                       .dtype = dl_type_of(type.dtype),
                       .shape = all->shape.data(),
                       .strides = all->strides.data(),
                       .byte_offset = 0};
  managed.manager_ctx = all.release();
  managed.deleter = [](Managed* self) {
    delete static_cast<Exported<Managed>*>(self->manager_ctx);
  };
  return &managed;
}

run::BufferPtr copied(const detail::Tiled& tiles, const Span& where) {
  const std::int64_t bytes = size_bytes(tiles.placement->type);
  auto buffer = std::make_shared<run::Buffer>(bytes);
  const std::span to(buffer->data(), static_cast<std::size_t>(bytes));
  detail::gather(tiles, to, "to_dlpack", where);
  return buffer;
}

}  // namespace

Array from_dlpack(DLManagedTensor* tensor, std::source_location where) {
  return array_of(tensor, trace::call_span(where));
}

Array from_dlpack(DLManagedTensorVersioned* tensor, std::source_location where) {
  const Span span = trace::call_span(where);
  const DLPackVersion& version = tensor->version;
  if (version.major != detail::dlpack::kVersion.major) {
    refuse("the tensor uses a different version of DLPack",
           fmt::format("version {}.{}", version.major, version.minor), "version 1",
           "ask for version 1, in Python with x.__dlpack__(max_version=(1, 0))", span);
  }
  return array_of(tensor, span);
}

DLManagedTensorVersioned* to_dlpack_versioned(const Array& array, std::source_location where) {
  const Span span = trace::call_span(where);
  const detail::Tiled tiles = detail::tiles_of(array, span);
  // Gathering is a collective: if other groups lack the array, its holders take part as well.
  const bool is_whole = tiles.groups == nullptr && tiles.placement->layout.num_tiles() == 1 &&
                        tiles.tiles.size() == 1;
  auto* const tensor = exported<DLManagedTensorVersioned>(
      array.type(), is_whole ? tiles.tiles[0] : copied(tiles, span));
  tensor->version = detail::dlpack::kVersion;
  tensor->flags = is_whole ? detail::dlpack::kReadOnly : detail::dlpack::kIsCopied;
  return tensor;
}

DLManagedTensor* to_dlpack(const Array& array, std::source_location where) {
  const Span span = trace::call_span(where);
  return exported<DLManagedTensor>(array.type(), copied(detail::tiles_of(array, span), span));
}

void detail::copy_to_host(const Array& array, DType dtype, std::span<std::byte> target,
                          const std::source_location& where) {
  const Span span = trace::call_span(where);
  const Tiled tiles = tiles_of(array, span);
  const auto bytes = static_cast<std::size_t>(size_bytes(array.type()));
  if (dtype != array.dtype() || target.size() != bytes) {
    throw UserError({.what = "copy_to_host: the array does not match the span",
                     .where = span,
                     .found = describe(array),
                     .wanted = fmt::format("{} elements of {}, as the span has",
                                           target.size() / size_bytes(dtype), name(dtype)),
                     .cure = "pass a span of the array's size() and element type, or convert the "
                             "array with astype"});
  }
  gather(tiles, target, "copy_to_host", span);
}

}  // namespace tessera
