// Functions for exchange_dlpack.py. They take tensors and return tensors.
#include <tessera/dlpack.h>
#include <tessera/ops.h>
#include <tessera/shardings.h>

using namespace tessera;

/// The number of elements whose memory the array shares with the tensor at `data`; -1: it is a
/// copy.
extern "C" [[gnu::visibility("default")]] std::int64_t shared_elements(
    DLManagedTensorVersioned* tensor, const void* data) {
  const Array x = from_dlpack(tensor);
  const std::vector<Shard> shards = x.addressable_shards();
  return shards[0].bytes().data() == data ? x.size() : -1;
}

/// A tensor with twice the elements, transposed.
extern "C" [[gnu::visibility("default")]] DLManagedTensorVersioned* twice_transposed(
    DLManagedTensorVersioned* tensor) {
  const Array x = from_dlpack(tensor);
  return to_dlpack_versioned(transpose(x + x));
}

/// The same with the older struct.
extern "C" [[gnu::visibility("default")]] DLManagedTensor* twice_transposed_old(
    DLManagedTensor* tensor) {
  const Array x = from_dlpack(tensor);
  return to_dlpack(transpose(x + x));
}
