// Checks the names of arrays and reads their elements.
#pragma once

#include <cstddef>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>

namespace tessera::checkpoint {

void sort_by_name(std::vector<NamedArray>& arrays);
/// Throws UserError if a name occurs twice or is "__metadata__", which the format reserves. The
/// message begins with `subject`.
void check_names(const std::vector<NamedArray>& arrays, const std::string& subject,
                 const std::source_location& where);
/// The value of each byte as a float of 8 bits: F8_E4M3 or F8_E5M2 of the safetensors format. bf16
/// has all of these values. Empty for other dtypes.
std::vector<bfloat16> float8_values(const std::string& dtype);
/// The `problem` of a tensor whose dtype no array has.
inline constexpr const char* kNoSuchDtype = "arrays cannot have this dtype";
/// The function that reads a file, for messages.
struct TensorReader {
  std::string name;
  std::string cure;  // how to list the tensors of the file
};
/// Which tensors of a file the options ask for; sets options.left. Throws UserError if one of the
/// names is missing, or is that of a tensor with a problem.
std::vector<bool> choose_tensors(const std::vector<FileTensor>& tensors, const std::string& path,
                                 const ReadOptions& options, const TensorReader& reader,
                                 const std::source_location& where);
/// Converts a tensor that was read to what the options ask for.
Array as_wanted(const Array& read, const ReadOptions& options);
/// The bytes of all elements in row-major order: those of the array itself if this process holds
/// all of it as one tile, otherwise a copy. With several processes, the constructor is a
/// collective: all processes must call it.
class Elements {
 public:
  Elements(const Array& array, const std::source_location& where);
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<Shard> shards_;
  std::vector<std::byte> copy_;
  std::span<const std::byte> bytes_;  // of one of these
};

}  // namespace tessera::checkpoint
