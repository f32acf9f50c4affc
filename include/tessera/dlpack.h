// Elements of arrays in the memory of the program and of other libraries.
//
//   Array x = from_dlpack(tensor);                        // reads the tensor's memory, no copy
//   DLManagedTensor* y = to_dlpack(x * 2);                // for torch, jax or numpy; no copy
//   copy_to_host(x, std::span<float>(buffer));
//
// The structs are those of DLPack 1.0; <dlpack/dlpack.h> defines them. Python passes them on in
// capsules of the names "dltensor" and "dltensor_versioned".
#pragma once

#include <source_location>
#include <span>

#include <tessera/array.h>

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace TESSERA_EXPORT tessera {

/// An array with the elements of a tensor in host memory, which it takes over: its deleter is
/// called when the last array that reads the memory is gone, or at once if the elements are copied:
/// if the tensor is not row-major without gaps, or not aligned to the size of an element. Nobody
/// may write to the memory as long as the array is used. Throws UserError for a tensor on another
/// device, of an element type that arrays do not have, or of a later version of DLPack; then the
/// tensor still belongs to the caller.
Array from_dlpack(DLManagedTensor* tensor,
                  std::source_location where = std::source_location::current());
Array from_dlpack(DLManagedTensorVersioned* tensor,
                  std::source_location where = std::source_location::current());

/// A tensor for another library, which must call its deleter. It shares the memory of an array that
/// is whole on one device and is marked as read-only; an array that is split over a mesh is
/// gathered. Throws UserError for an array without values.
DLManagedTensorVersioned* to_dlpack_versioned(
    const Array& array, std::source_location where = std::source_location::current());
/// The older struct, which cannot say that it is read-only: the tensor has a copy of the elements.
DLManagedTensor* to_dlpack(const Array& array,
                           std::source_location where = std::source_location::current());

namespace detail {
void copy_to_host(const Array& array, DType dtype, std::span<std::byte> target,
                  const std::source_location& where);
}  // namespace detail

/// Writes all elements in row-major order. T is the element type. Throws UserError if `target` has
/// another number of elements or another type. tessera::array(span, shape) is the other way.
template <Element T>
void copy_to_host(const Array& array, std::span<T> target,
                  std::source_location where = std::source_location::current()) {
  detail::copy_to_host(array, dtype_of<T>, std::as_writable_bytes(target), where);
}

}  // namespace tessera
