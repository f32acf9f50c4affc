// Reads the files of other programs by their kinds.
#include <algorithm>
#include <cstring>
#include <set>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

#include "checkpoint/disk.h"
#include "checkpoint/elements.h"
#include "checkpoint/json.h"
#include "data/file.h"
#include "data/npy_file.h"
#include "foreign/foreign.h"

namespace tessera::foreign {

std::size_t element_bytes(const std::string& dtype) {
  const std::optional<DType> known = checkpoint::find_safetensors_dtype(dtype);
  return known ? size_bytes(*known) : 0;
}

std::size_t elements_bytes(const std::string& dtype, const Shape& shape) {
  std::uint64_t total = element_bytes(dtype);
  bool fits = true;
  // Sizes of 0 count as 1, so that the other sizes are checked, too.
  for (const std::int64_t size : shape) {
    fits = fits && size >= 0 &&
           !__builtin_mul_overflow(
               total, static_cast<std::uint64_t>(std::max<std::int64_t>(1, size)), &total) &&
           total < std::uint64_t{1} << 62;
  }
  if (!fits) throw checkpoint::BadText("an array is too large");
  const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return is_empty ? 0 : total;
}

std::vector<Tensor> read_npz(std::vector<ZipEntry> entries, const std::string& path) {
  data::NpyReader reader{.types = {"<V2"},  // another name of bf16
                         .least_rank = 0,
                         .takes_empty = true,
                         .wanted = "arrays of bool, integers or floats, in little-endian order",
                         .cure =
                             "save the array as one of these types, for example as "
                             "array.astype(\"<f4\")"};
  for (const DType dtype : kAllDTypes) reader.types.push_back(data::npy_type(dtype));
  std::vector<Tensor> tensors;
  for (ZipEntry& entry : entries) {
    if (!entry.name.ends_with(".npy")) continue;
    const data::NpyHeader header = data::npy_header(entry.bytes, path + "/" + entry.name, reader);
    const auto* dtype = std::find_if(std::begin(kAllDTypes), std::end(kAllDTypes), [&](DType each) {
      return data::npy_type(each) == header.type;
    });
    if (dtype == std::end(kAllDTypes))
      dtype = std::find(std::begin(kAllDTypes), dtype, DType::bf16);
    entry.bytes.erase(entry.bytes.begin(),
                      entry.bytes.begin() + static_cast<std::ptrdiff_t>(header.begin));
    tensors.push_back({.name = entry.name.substr(0, entry.name.size() - 4),
                       .dtype = checkpoint::safetensors_name(*dtype),
                       .shape = header.shape,
                       .elements = std::move(entry.bytes)});
  }
  return tensors;
}

}  // namespace tessera::foreign

namespace tessera::checkpoint {

namespace {

using foreign::Tensor;

std::vector<Tensor> tensors_of(const std::string& path) {
  const std::vector<std::uint8_t> bytes =
      data::read_file(path, "import_arrays", "a file with arrays", "check the path of the file");
  const auto begins_with = [&](std::string_view start) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
        .starts_with(start);
  };
  if (begins_with("\x80\x02\x8a\x0a"))
    throw BadText("it is in the format of PyTorch before version 1.6; save it again");
  if (!begins_with("PK\x03\x04")) return foreign::read_msgpack(bytes);
  std::vector<foreign::ZipEntry> entries = foreign::read_zip(bytes);
  const bool is_npz = std::any_of(entries.begin(), entries.end(),
                                  [](const auto& entry) { return entry.name.ends_with(".npy"); });
  return is_npz ? foreign::read_npz(std::move(entries), path) : foreign::read_torch(entries);
}

Array array_of(const Tensor& tensor, DType dtype, const std::source_location& where) {
  const auto fill = [&](const std::vector<IndexRange>&, std::span<std::byte> elements) {
    if (!elements.empty()) std::memcpy(elements.data(), tensor.elements.data(), elements.size());
  };
  return make_array_from_callback({dtype, tensor.shape}, NamedSharding(), fill, where);
}

void check_tensor(const Tensor& tensor) {
  const std::size_t bytes = foreign::element_bytes(tensor.dtype);
  if (bytes > 0 && tensor.elements.size() != foreign::elements_bytes(tensor.dtype, tensor.shape))
    throw BadText(tensor.name + " has the wrong number of bytes for its shape");
  const bool is_valid =
      tensor.dtype != "BOOL" || std::all_of(tensor.elements.begin(), tensor.elements.end(),
                                            [](std::uint8_t value) { return value <= 1; });
  if (!is_valid) throw BadText("an element of " + tensor.name + " is neither true nor false");
}

}  // namespace

std::vector<NamedArray> import_arrays(const std::string& path, const ReadOptions& options,
                                      std::source_location where) {
  if (path.ends_with(".safetensors") || path.ends_with(".json") ||
      kind_of(path) == PathKind::folder) {
    return read_safetensors(path, options, where);
  }
  std::vector<Tensor> tensors;
  std::vector<FileTensor> listed;
  try {
    tensors = tensors_of(path);
    for (const Tensor& tensor : tensors) {
      check_tensor(tensor);
      listed.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    }
  } catch (const BadText& error) {
    throw UserError(
        {.what = "import_arrays: the file cannot be read",
         .where = where,
         .found = path + ": " + error.what(),
         .wanted = "safetensors, .npz, weights saved by torch.save, or MessagePack of Flax",
         .cure = "save the arrays in one of these formats, for example as a state_dict"});
  }
  const auto reads = [](const std::string& dtype) {
    return find_safetensors_dtype(dtype).has_value();
  };
  const std::vector<bool> is_read = choose_tensors(listed, path, options, reads, where);
  std::vector<NamedArray> arrays;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_read[i]) continue;
    const DType dtype = *find_safetensors_dtype(tensors[i].dtype);
    const Array read = array_of(tensors[i], dtype, where);
    arrays.push_back({.name = tensors[i].name, .array = as_wanted(read, options)});
    tensors[i].elements = {};
  }
  sort_by_name(arrays);
  return arrays;
}

}  // namespace tessera::checkpoint
