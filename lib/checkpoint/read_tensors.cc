// Reads safetensors files: one, or several with an index.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <tessera/checkpoint.h>
#include <tessera/error.h>
#include <tessera/ops.h>

#include "checkpoint/disk.h"
#include "checkpoint/elements.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"

namespace tessera::checkpoint {

namespace {

constexpr const char* kReader = "read_safetensors";
constexpr const char* kFileName = "model.safetensors";
constexpr const char* kIndexEnd = ".safetensors.index.json";

/// The tensors that an index lists in each file. Files are relative to its folder. Throws BadText.
std::map<std::string, std::vector<std::string>> files_of_index(const std::string& text) {
  const Json index = parse_json(text);
  const Json& map = member(index, "weight_map");
  if (!map.is_object()) throw BadText("weight_map is not an object");
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [name, file] : map.items()) {
    const std::string path = text_at(map, name);
    if (path.empty() || path.find('/') != std::string::npos)
      throw BadText("weight_map names a file that is not beside the index");
    files[path].push_back(name);
  }
  return files;
}

UserError unreadable(const std::string& path, const char* problem,
                     const std::source_location& where) {
  return UserError({.what = "read_safetensors: the file cannot be read",
                    .where = where,
                    .found = path + ": " + problem,
                    .wanted = "a complete file in the safetensors format",
                    .cure = "copy the file again from its source"});
}

/// The path of a file or an index, also for the folder that contains it.
std::string path_in(const std::string& path) {
  if (kind_of(path) != PathKind::folder) return path;
  for (const std::string& name : {std::string(kFileName), "model" + std::string(kIndexEnd)}) {
    if (kind_of(path + "/" + name) == PathKind::file) return path + "/" + name;
  }
  return path + "/" + kFileName;  // the error for a missing file names it
}

/// A tensor and where it is.
struct Found {
  std::size_t file;
  HeaderEntry entry;

  FileTensor tensor() const {
    const std::string& other = entry.foreign;
    const bool is_known = other.empty() || !float8_values(other).empty();
    return {.name = entry.name,
            .dtype = other.empty() ? safetensors_name(entry.type.dtype) : other,
            .shape = entry.type.shape,
            .problem = is_known ? "" : kNoSuchDtype};
  }
};

class TensorFiles {
 public:
  TensorFiles(const std::string& path, const std::source_location& where) : where_(where) {
    const std::string first = path_in(path);
    if (first.ends_with(kIndexEnd)) {
      add_indexed(first);
    } else {
      add(first);
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const Found& a, const Found& b) { return a.entry.name < b.entry.name; });
    const auto twice = std::adjacent_find(
        tensors_.begin(), tensors_.end(),
        [](const Found& a, const Found& b) { return a.entry.name == b.entry.name; });
    if (twice != tensors_.end())
      throw unreadable(first, ("two files have " + twice->entry.name).c_str(), where_);
  }

  const std::vector<Found>& tensors() const { return tensors_; }

  /// An array of the type, whose elements `fill` makes of the bytes in the file.
  template <typename Fill>
  Array read(const Found& found, const Type& type, const Fill& fill) const {
    const auto& [file, header_size] = files_[found.file];
    const auto read_all = [&](const std::vector<IndexRange>&, std::span<std::byte> elements) {
      const auto read_bytes = [&, size = header_size, from = file.get()](std::span<std::byte> to) {
        if (!from->read(to, size + found.entry.begin))
          throw unreadable(from->path(), "it is cut off", where_);
      };
      fill(read_bytes, elements);
    };
    return make_array_from_callback(type, NamedSharding(), read_all, where_);
  }
  /// The path of the file that a tensor is in.
  const std::string& path_of(const Found& found) const { return files_[found.file].first->path(); }

 private:
  void add_indexed(const std::string& index) {
    std::map<std::string, std::vector<std::string>> files;
    try {
      files = files_of_index(InputFile(kReader, index).text());
    } catch (const BadText& error) {
      throw unreadable(index, error.what(), where_);
    }
    for (const auto& [file, names] : files) {
      const std::string path = parent_of(index) + "/" + file;
      const auto first = static_cast<std::ptrdiff_t>(tensors_.size());
      add(path);
      std::set<std::string_view> found;
      for (auto each = tensors_.begin() + first; each != tensors_.end(); ++each)
        found.insert(each->entry.name);
      for (const std::string& name : names) {
        if (!found.contains(name))
          throw unreadable(path, ("it does not have " + name + ", which the index lists").c_str(),
                           where_);
      }
    }
  }
  void add(const std::string& path) {
    auto file = std::make_unique<InputFile>(kReader, path);
    try {
      Header header = read_header(*file);
      for (HeaderEntry& entry : header.entries) {
        tensors_.push_back({.file = files_.size(), .entry = std::move(entry)});
      }
      files_.emplace_back(std::move(file), header.size);
    } catch (const BadText& error) {
      throw unreadable(path, error.what(), where_);
    }
  }

  std::source_location where_;
  std::vector<std::pair<std::unique_ptr<InputFile>, std::int64_t>> files_;  // with header sizes
  std::vector<Found> tensors_;
};

Array read_known(const TensorFiles& files, const Found& found, const std::source_location& where) {
  return files.read(
      found, found.entry.type, [&](const auto& read_bytes, std::span<std::byte> elements) {
        read_bytes(elements);
        const bool is_valid = found.entry.type.dtype != DType::boolean ||
                              std::all_of(elements.begin(), elements.end(),
                                          [](std::byte value) { return value <= std::byte{1}; });
        if (is_valid) return;
        const std::string problem =
            "an element of " + found.entry.name + " is neither true nor false";
        throw unreadable(files.path_of(found), problem.c_str(), where);
      });
}

Array read_float8(const TensorFiles& files, const Found& found) {
  const std::vector<bfloat16> values = float8_values(found.entry.foreign);
  const auto widen = [&](const auto& read_bytes, std::span<std::byte> elements) {
    std::vector<std::byte> bytes(elements.size() / sizeof(bfloat16));
    read_bytes(std::span(bytes));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::memcpy(elements.data() + i * sizeof(bfloat16),
                  &values[std::to_integer<std::size_t>(bytes[i])], sizeof(bfloat16));
    }
  };
  return files.read(found, {DType::bf16, found.entry.type.shape}, widen);
}

std::string text_of(const FileTensor& tensor) {
  return tensor.name + " " + tensor.dtype + to_string(tensor.shape);
}

/// The first few texts, and how many more there are.
std::string some_of(const std::vector<std::string>& texts) {
  constexpr std::size_t kShown = 4;
  std::string list;
  for (std::size_t i = 0; i < std::min(kShown, texts.size()); ++i) {
    list += (i > 0 ? ", " : "") + texts[i];
  }
  return texts.size() <= kShown ? list
                                : list + " and " + std::to_string(texts.size() - kShown) + " more";
}

/// Throws UserError unless the file has all of the names.
void check_wanted(const std::vector<FileTensor>& tensors, const std::string& path,
                  const std::vector<std::string>& names, const TensorReader& reader,
                  const std::source_location& where) {
  std::set<std::string> known;
  for (const FileTensor& tensor : tensors) known.insert(tensor.name);
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!known.contains(name)) missing.push_back(name);
  }
  if (missing.empty()) return;
  const std::string meant = nearest(missing[0], {known.begin(), known.end()});
  throw UserError(
      {.what = reader.name + ": the file does not have all of these tensors",
       .where = where,
       .found = path + " without " + some_of(missing),
       .wanted = "names of tensors in the file",
       .cure = meant.empty() ? reader.cure : "did you mean '" + meant + "'? " + reader.cure});
}

[[noreturn]] void refuse(const FileTensor& tensor, const TensorReader& reader,
                         const std::source_location& where) {
  if (tensor.problem != kNoSuchDtype) {
    throw UserError(
        {.what = reader.name + ": this tensor cannot be read",
         .where = where,
         .found = text_of(tensor) + ": " + tensor.problem,
         .wanted = "names of tensors that can be read",
         .cure = "leave it out of the names, or save it as a dense array in a dict or list"});
  }
  throw UserError(
      {.what = reader.name + ": the dtype of this tensor is not supported",
       .where = where,
       .found = text_of(tensor),
       .wanted = "one of BOOL, I8 to I64, U8 to U64, F8_E4M3, F8_E5M2, F16, BF16, F32, F64",
       .cure = "leave it out of the names, or convert the file"});
}

}  // namespace

Array as_wanted(const Array& read, const ReadOptions& options) {
  const bool must_widen = options.f16_as_f32 && read.dtype() == DType::f16;
  return must_widen ? astype(read, DType::f32) : read;
}

std::vector<bool> choose_tensors(const std::vector<FileTensor>& tensors, const std::string& path,
                                 const ReadOptions& options, const TensorReader& reader,
                                 const std::source_location& where) {
  check_wanted(tensors, path, options.names, reader, where);
  const std::set<std::string> names(options.names.begin(), options.names.end());
  std::vector<bool> is_read;
  std::vector<FileTensor> left;
  for (const FileTensor& tensor : tensors) {
    const bool is_wanted = names.empty() || names.contains(tensor.name);
    const bool can_read = tensor.problem.empty();
    if (is_wanted && !can_read && !names.empty()) refuse(tensor, reader, where);
    if (is_wanted && !can_read) left.push_back(tensor);
    is_read.push_back(is_wanted && can_read);
  }
  if (options.left != nullptr) *options.left = std::move(left);
  return is_read;
}

std::vector<NamedArray> read_safetensors(const std::string& path, const ReadOptions& options,
                                         std::source_location where) {
  const TensorFiles files(path, where);
  std::vector<FileTensor> listed;
  for (const Found& found : files.tensors()) listed.push_back(found.tensor());
  const TensorReader reader{.name = kReader, .cure = "list_safetensors() lists the tensors"};
  const std::vector<bool> is_read = choose_tensors(listed, path, options, reader, where);
  std::vector<NamedArray> arrays;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (!is_read[i]) continue;
    const Found& found = files.tensors()[i];
    const Array read =
        found.entry.foreign.empty() ? read_known(files, found, where) : read_float8(files, found);
    arrays.push_back({.name = listed[i].name, .array = as_wanted(read, options)});
  }
  return arrays;
}

std::vector<FileTensor> list_safetensors(const std::string& path, std::source_location where) {
  const TensorFiles files(path, where);
  std::vector<FileTensor> tensors;
  for (const Found& found : files.tensors()) tensors.push_back(found.tensor());
  return tensors;
}

}  // namespace tessera::checkpoint
