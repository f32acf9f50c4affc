// Reads arrays from files of other programs. Nothing in a file is ever run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

namespace tessera::foreign {

using Bytes = std::vector<std::uint8_t>;

/// Bytes of a file, which the caller keeps in memory, or bytes that reading made.
struct Content {
  std::span<const std::uint8_t> bytes;
  std::shared_ptr<const Bytes> made = {};  // what `bytes` lie in, unless that is the file
};
Content content_of(Bytes bytes);

/// How deeply values may be nested in a file. Reading uses stack space for every level.
inline constexpr int kMostLevels = 64;

/// An array of a file.
struct Tensor {
  std::string name;
  std::string dtype;  // as in safetensors files: F32, F16, I64, ...
  Shape shape;
  Content elements = {};               // row-major, little-endian
  std::string problem = {};            // why it cannot be read, if its dtype is not the reason
  std::function<Content()> read = {};  // gives the elements, if they have not been read
};

/// float32, int64, ...: the name in NumPy and in PyTorch.
const char* numpy_name(DType dtype);
/// PyTorch's storage class; nullptr if there is none. Files then have the dtype instead.
const char* storage_name(DType dtype);
/// The dtype of a type in .npy files, such as "<f4"; the type itself if arrays do not have it.
std::string dtype_of_npy(const std::string& type);
/// Bytes of an element; 0 for an unknown dtype.
std::size_t element_bytes(const std::string& dtype);
/// The bytes of the elements of an array. Throws BadText if there are 2^62 or more.
std::size_t elements_bytes(const std::string& dtype, const Shape& shape);

/// A file in a zip archive.
struct ZipEntry {
  std::string name;
  Content content;
};
/// All files of an archive, in order. This and the functions below throw BadText for damaged files.
std::vector<ZipEntry> read_zip(std::span<const std::uint8_t> archive);

/// The arrays of np.savez; `path` is for messages. Arrays of other types have no elements.
std::vector<Tensor> read_npz(const std::vector<ZipEntry>& entries, const std::string& path);
/// The tensors of torch.save, named by keys and positions with dots between them. Tensors inside a
/// call that is not run have a problem, as have quantised and sparse ones and those without
/// elements (on the device `meta`).
std::vector<Tensor> read_torch(const std::vector<ZipEntry>& entries);
/// The arrays of flax.serialization.to_bytes, named by keys with slashes between them.
std::vector<Tensor> read_msgpack(std::span<const std::uint8_t> bytes);
/// Whether a folder is an item of a checkpoint of Orbax: a saved tree.
bool is_orbax_item(const std::string& folder);
/// The arrays of such a folder, named by keys with slashes between them.
std::vector<Tensor> read_orbax(const std::string& folder);

}  // namespace tessera::foreign
