// Reads the files of other programs by their kinds.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

#include "checkpoint/disk.h"
#include "checkpoint/elements.h"
#include "checkpoint/json.h"
#include "data/file.h"
#include "data/npy_file.h"
#include "foreign/foreign.h"

namespace tessera::foreign {

namespace {
constexpr const char* kOtherBf16 = "<V2";  // another name of bf16 in .npy files
}  // namespace

std::string dtype_of_npy(const std::string& type) {
  if (type == kOtherBf16) return checkpoint::safetensors_name(DType::bf16);
  const auto* const dtype = std::find_if(std::begin(kAllDTypes), std::end(kAllDTypes),
                                         [&](DType each) { return data::npy_type(each) == type; });
  return dtype == std::end(kAllDTypes) ? type : checkpoint::safetensors_name(*dtype);
}

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

Content content_of(Bytes bytes) {
  auto made = std::make_shared<const Bytes>(std::move(bytes));
  return {.bytes = *made, .made = made};
}

namespace {

/// The array of an .npy file.
Tensor npy_tensor(const ZipEntry& entry, const std::string& path, const data::NpyReader& reader) {
  Tensor tensor;
  tensor.name = entry.name.substr(0, entry.name.size() - 4);
  const std::string shown = path + "/" + entry.name;
  const data::NpyHeader header = data::npy_header(entry.content.bytes, shown, reader);
  tensor.shape = header.shape;
  tensor.dtype = dtype_of_npy(header.type).substr(0, 64);
  if (!reader.takes(header.type)) return tensor;  // is listed, but not read
  tensor.elements = entry.content;
  if (header.is_column_major) {
    Bytes file(entry.content.bytes.begin(), entry.content.bytes.end());
    data::accepted_npy_header(file, shown, reader);
    tensor.elements = content_of(std::move(file));
  }
  tensor.elements.bytes = tensor.elements.bytes.subspan(header.begin);
  return tensor;
}

}  // namespace

std::vector<Tensor> read_npz(const std::vector<ZipEntry>& entries, const std::string& path) {
  data::NpyReader reader{.types = {kOtherBf16},
                         .least_rank = 0,
                         .takes_empty = true,
                         .wanted = "arrays of bool, integers or floats, in little-endian order",
                         .cure =
                             "save the array as one of these types, for example as "
                             "array.astype(\"<f4\")"};
  for (const DType dtype : kAllDTypes) reader.types.push_back(data::npy_type(dtype));
  std::map<std::string, Tensor> tensors;  // of files with equal names the last one counts
  for (const ZipEntry& entry : entries) {
    if (!entry.name.ends_with(".npy")) continue;
    Tensor tensor = npy_tensor(entry, path, reader);
    tensors[tensor.name] = std::move(tensor);
  }
  std::vector<Tensor> found;
  for (auto& [name, tensor] : tensors) found.push_back(std::move(tensor));
  return found;
}

}  // namespace tessera::foreign

namespace tessera::checkpoint {

namespace {

using foreign::Tensor;

std::vector<Tensor> tensors_of(const foreign::Bytes& bytes, const std::string& path,
                               const std::source_location& where) {
  const auto begins_with = [&](std::string_view start) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
        .starts_with(start);
  };
  if (begins_with("\x93NUMPY")) {
    throw UserError({.what = "import_arrays: the file has one array without a name",
                     .where = where,
                     .found = path + ", a file of numpy.save (.npy)",
                     .wanted = "arrays with names, such as a file of numpy.savez (.npz)",
                     .cure = "name the array: numpy.savez(\"x.npz\", name=numpy.load(\"x.npy\"))"});
  }
  if (begins_with("\x80\x02\x8a\x0a"))
    throw BadText("it is in the format of PyTorch before version 1.6; save it again");
  if (!begins_with("PK\x03\x04")) return foreign::read_msgpack(bytes);
  const std::vector<foreign::ZipEntry> entries = foreign::read_zip(bytes);
  const bool is_npz = std::any_of(entries.begin(), entries.end(),
                                  [](const auto& entry) { return entry.name.ends_with(".npy"); });
  if (!is_npz) return foreign::read_torch(entries);
  return data::at_line(where, [&] { return foreign::read_npz(entries, path); });
}

Array array_of(const Tensor& tensor, DType dtype, const std::source_location& where) {
  const auto fill = [&](const std::vector<IndexRange>&, std::span<std::byte> elements) {
    if (elements.empty()) return;
    std::memcpy(elements.data(), tensor.elements.bytes.data(), elements.size());
  };
  return make_array_from_callback({dtype, tensor.shape}, NamedSharding(), fill, where);
}

void check_tensor(const Tensor& tensor) {
  const std::span<const std::uint8_t> elements = tensor.elements.bytes;
  const std::size_t bytes = foreign::element_bytes(tensor.dtype);
  if (bytes > 0 && elements.size() != foreign::elements_bytes(tensor.dtype, tensor.shape))
    throw BadText(tensor.name + " has the wrong number of bytes for its shape");
  const bool is_valid =
      tensor.dtype != "BOOL" ||
      std::all_of(elements.begin(), elements.end(), [](std::uint8_t value) { return value <= 1; });
  if (!is_valid) throw BadText("an element of " + tensor.name + " is neither true nor false");
}

/// The folder of a tree that Orbax has saved: `path`, or the only such folder in it. Empty if
/// `path` is no checkpoint of Orbax.
std::string orbax_item(const std::string& path, const std::source_location& where) {
  if (foreign::is_orbax_item(path)) return path;
  std::vector<std::string> items;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    if (foreign::is_orbax_item(entry.path())) items.push_back(entry.path());
  }
  if (items.size() == 1) return items[0];
  if (items.empty() && kind_of(path + "/_CHECKPOINT_METADATA") == PathKind::none &&
      kind_of(path + "/manifest.ocdbt") == PathKind::none) {
    return "";
  }
  std::sort(items.begin(), items.end());
  std::string found = path + (items.empty() ? ", which has no file _METADATA" : ", which has");
  for (const std::string& item : items) found += " " + item.substr(path.size() + 1);
  throw UserError({.what = "import_arrays: the checkpoint of Orbax does not have exactly one tree",
                   .where = where,
                   .found = found,
                   .wanted = "the folder of a saved tree, or a folder with one such folder in it",
                   .cure = "name the folder of the item, such as STEP/default or STEP/params"});
}

/// Keys such as `a.b` and `a` with `b` below it give the same name.
void check_names_differ(const std::vector<NamedArray>& sorted, const std::string& path,
                        const std::source_location& where) {
  const auto twice = std::adjacent_find(
      sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice == sorted.end()) return;
  throw UserError({.what = "import_arrays: two arrays of the file have the same name",
                   .where = where,
                   .found = path + " with two arrays `" + twice->name + "`",
                   .wanted = "keys that give different names when they are joined",
                   .cure = "save the file again with other keys, or ask only for other names"});
}

std::vector<FileTensor> listed(const std::vector<Tensor>& tensors) {
  std::vector<FileTensor> list;
  for (const Tensor& tensor : tensors) {
    const bool is_known = find_safetensors_dtype(tensor.dtype).has_value();
    list.push_back({.name = tensor.name,
                    .dtype = tensor.dtype,
                    .shape = tensor.shape,
                    .problem = tensor.problem});
    if (list.back().problem.empty() && !is_known) list.back().problem = kNoSuchDtype;
    if (list.back().problem.empty() && !tensor.read) check_tensor(tensor);
  }
  return list;
}

/// The arrays that the options ask for. They leave `tensors` one by one, to save memory.
std::vector<NamedArray> chosen_arrays(std::vector<Tensor> tensors, const std::string& path,
                                      const ReadOptions& options,
                                      const std::source_location& where) {
  const TensorReader reader{.name = "import_arrays",
                            .cure = "`tessera import " + path + "` lists the arrays"};
  const std::vector<bool> is_read = choose_tensors(listed(tensors), path, options, reader, where);
  std::vector<NamedArray> arrays;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_read[i]) continue;
    Tensor& tensor = tensors[i];
    if (tensor.read) {
      tensor.elements = tensor.read();
      check_tensor(tensor);
    }
    const Array read = array_of(tensor, *find_safetensors_dtype(tensor.dtype), where);
    arrays.push_back({.name = tensor.name, .array = as_wanted(read, options)});
    tensor.elements = {};
  }
  sort_by_name(arrays);
  check_names_differ(arrays, path, where);
  return arrays;
}

}  // namespace

std::vector<NamedArray> import_arrays(const std::string& path, const ReadOptions& options,
                                      std::source_location where) {
  const bool is_folder = kind_of(path) == PathKind::folder;
  const std::string item = is_folder ? orbax_item(path, where) : "";
  if (path.ends_with(".safetensors") || path.ends_with(".json") || (is_folder && item.empty())) {
    return read_safetensors(path, options, where);
  }
  foreign::Bytes bytes;
  if (!is_folder) {
    bytes = data::at_line(where, [&] {
      return data::read_file(path, "import_arrays", "a file with arrays",
                             "check the path of the file");
    });
  }
  try {
    return chosen_arrays(is_folder ? foreign::read_orbax(item) : tensors_of(bytes, path, where),
                         path, options, where);
  } catch (const BadText& error) {
    throw UserError({.what = "import_arrays: the file cannot be read",
                     .where = where,
                     .found = path + ": " + error.what(),
                     .wanted = "safetensors, .npz, weights saved by torch.save, MessagePack of "
                               "Flax, or a checkpoint of Orbax",
                     .cure = "save the arrays in one of these formats, for example as a "
                             "state_dict"});
  }
}

}  // namespace tessera::checkpoint
