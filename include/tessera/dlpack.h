// Exchanging the elements of arrays with the host program and with other libraries.
//
//   Array x = from_dlpack(tensor);                        // reads the tensor's memory, no copy
//   DLManagedTensorVersioned* y = to_dlpack_versioned(x * 2);  // for torch, jax or numpy; no copy
//   copy_to_host(x, std::span<float>(buffer));
//
// The structs are those of DLPack 1.0; <dlpack/dlpack.h> defines them. Python passes them in
// capsules named "dltensor" and "dltensor_versioned".
#pragma once

#include <source_location>
#include <span>

#include <tessera/array.h>

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace TESSERA_EXPORT tessera {

/// An array that takes over a tensor in host memory and reads its elements there. It calls the
/// tensor's deleter when the last array that reads the memory is gone. If the tensor is not
/// row-major without gaps, or does not begin at a multiple of 64 bytes, it copies the elements and
/// calls the deleter at once. Nobody may write to the memory while the array is in use. Throws
/// UserError for a tensor on another device, of an element type that arrays do not have, or of a
/// later version of DLPack; the caller then still owns the tensor.
Array from_dlpack(DLManagedTensor* tensor,
                  std::source_location where = std::source_location::current());
Array from_dlpack(DLManagedTensorVersioned* tensor,
                  std::source_location where = std::source_location::current());

/// A tensor for another library, which must call its deleter. If the array is whole on one device,
/// the tensor shares its memory and is marked read-only. An array that is split over a mesh is
/// gathered. Throws UserError for an array without values.
DLManagedTensorVersioned* to_dlpack_versioned(
    const Array& array, std::source_location where = std::source_location::current());
/// The older struct, which has no read-only flag, so the tensor holds a copy of the elements.
DLManagedTensor* to_dlpack(const Array& array,
                           std::source_location where = std::source_location::current());

namespace detail {
void copy_to_host(const Array& array, DType dtype, std::span<std::byte> target,
                  const std::source_location& where);
}  // namespace detail

/// Writes all elements in row-major order to `target`. Throws UserError if `target` has a different
/// number of elements or T is not the element type. The reverse is tessera::array(span, shape).
template <Element T>
void copy_to_host(const Array& array, std::span<T> target,
                  std::source_location where = std::source_location::current()) {
  detail::copy_to_host(array, dtype_of<T>, std::as_writable_bytes(target), where);
}

}  // namespace tessera
