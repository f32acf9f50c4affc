// NumPy's files with one array (.npy).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/array.h>

namespace tessera::data {

struct NpyHeader {
  std::string type;  // "<f4"; of elements with several fields, the list of their fields
  bool is_column_major = false;
  Shape shape;
  std::size_t begin = 0;  // offset of the elements in the file
};

/// What a reader of such files accepts, and the texts for its errors.
struct NpyReader {
  std::vector<std::string_view> types;
  std::size_t least_rank = 0;
  bool takes_empty = false;  // arrays without elements
  std::string wanted;
  std::string cure;  // for another type

  bool takes(std::string_view type) const;
};

/// The header of a file whose complete content is `bytes`, for an array of any type. Throws
/// UserError if it is damaged.
NpyHeader npy_header(std::span<const std::uint8_t> bytes, const std::string& path,
                     const NpyReader& reader);
/// The same for an array that the reader accepts. Puts column-major elements in row-major order.
/// Throws UserError for other arrays, and for a file with more or fewer elements than its header
/// says.
NpyHeader accepted_npy_header(std::vector<std::uint8_t>& bytes, const std::string& path,
                              const NpyReader& reader);
/// All that comes before the elements in a file with an array of this type.
std::string npy_header_for(const Type& type);

/// The elements of a column-major array, each of `size` bytes, in row-major order.
std::vector<std::uint8_t> row_major(const std::uint8_t* from, const Shape& shape, std::size_t size);

/// The element type as headers write it: "<f4". bf16, which NumPy does not have, is "|V2", as
/// ml_dtypes stores it.
const char* npy_type(DType dtype);

// These are exported because the command uses them.

/// The array in a file of bools, i32, u32, f32 or f64. Throws UserError for any other file.
TESSERA_EXPORT Array read_npy(const std::string& path);
/// The bytes of a file with this array; bf16 becomes f32.
TESSERA_EXPORT std::string npy_bytes(const Array& array);

}  // namespace tessera::data
