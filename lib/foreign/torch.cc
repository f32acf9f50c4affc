// Reads what torch.save writes: an archive with a pickle, whose tensors refer to other files of the
// archive.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "checkpoint/json.h"
#include "foreign/foreign.h"
#include "foreign/numpy_pickle.h"
#include "foreign/unpickle.h"

namespace tessera::foreign {

const char* storage_name(DType dtype) {
  static constexpr const char* kNames[] = {
      "BoolStorage",     "CharStorage",  "ShortStorage", "IntStorage", "LongStorage",
      "ByteStorage",     nullptr,        nullptr,        nullptr,      "HalfStorage",
      "BFloat16Storage", "FloatStorage", "DoubleStorage"};
  static_assert(std::size(kNames) == std::size(kAllDTypes));
  return kNames[static_cast<std::size_t>(dtype)];
}

namespace {

using checkpoint::BadText;
using Kind = Value::Kind;

/// The dtype of a class such as torch.FloatStorage; the name of the class if there is none.
std::string dtype_of_storage(const Value& type) {
  for (const DType dtype : kAllDTypes) {
    const char* const storage = storage_name(dtype);
    if (storage != nullptr && type.is_global("torch", storage)) {
      return checkpoint::safetensors_name(dtype);
    }
  }
  return std::string(type.text.substr(0, 64));
}

/// `torch.uint16` -> U16; other names as they are.
std::string dtype_named(const Value& type) {
  for (const DType dtype : kAllDTypes) {
    if (type.is_global("torch", numpy_name(dtype))) {
      return checkpoint::safetensors_name(dtype);
    }
  }
  return std::string(type.text.substr(0, 64));
}

Shape tensor_sizes(const Value& list) {
  const std::optional<Shape> sizes = sizes_in(list);
  if (!sizes) throw BadText("a tensor has a shape that is no list of at most 64 sizes");
  return *sizes;
}

/// A tensor as the pickle describes it: a part of a storage.
struct View {
  std::string dtype;
  std::string_view storage;
  std::int64_t offset;
  Shape shape, strides;
  bool is_negated = false;
  std::string problem = {};  // as in Tensor
};

/// Tensors may be marked as the negative or the conjugate of what is stored.
void read_flags(const Value& flags, View& view) {
  for (std::size_t i = 0; i + 1 < flags.items.size(); i += 2) {
    const Value& name = *flags.items[i];
    const Value& value = *flags.items[i + 1];
    const bool is_off = value.kind == Kind::number && value.number == 0;
    if (flags.kind == Kind::dict && is_off) continue;
    const bool is_float = view.dtype.find('F') != std::string::npos;
    if (flags.kind == Kind::dict && name.text == "neg" && value.kind == Kind::number && is_float) {
      view.is_negated = true;
    } else {
      view.problem =
          "it is marked as `" + std::string(name.text.substr(0, 32)) + "`, which is not supported";
    }
  }
}

View view_of(const Value& tensor) {
  const bool has_dtype = tensor.items[0]->text == "_rebuild_tensor_v3";
  const std::vector<Value*>& given = tensor.items[1]->items;
  const std::size_t least = has_dtype ? 7 : 4;
  if (given.size() < least || given[0]->kind != Kind::storage || given[1]->kind != Kind::number ||
      (has_dtype && given[6]->kind != Kind::global)) {
    throw BadText("a tensor is described in an unknown way");
  }
  // Storages of newer dtypes are bytes; the tensor names its dtype.
  View view{.dtype = has_dtype ? dtype_named(*given[6]) : dtype_of_storage(*given[0]->items[0]),
            .storage = given[0]->text,
            .offset = given[1]->number,
            .shape = tensor_sizes(*given[2]),
            .strides = tensor_sizes(*given[3])};
  const std::size_t flags = has_dtype ? 7 : 6;
  if (given.size() > flags) read_flags(*given[flags], view);
  return view;
}

/// Throws BadText unless all elements of a view lie in a storage of so many bytes.
void check_inside(const View& view, const std::string& name, std::size_t storage) {
  const std::size_t bytes = element_bytes(view.dtype);
  const auto most = static_cast<std::int64_t>(storage / bytes);
  std::int64_t last = view.offset;
  bool fits = view.strides.size() == view.shape.size() && last >= 0 && last < most;
  for (std::size_t i = 0; fits && i < view.shape.size(); ++i) {
    std::int64_t reach = 0;
    fits = !__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &reach) &&
           !__builtin_add_overflow(last, reach, &last) && last < most;
  }
  if (!fits) throw BadText(name + " is not inside its storage");
}

bool is_row_major(const View& view) {
  std::int64_t stride = 1;
  for (std::size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] != 1 && view.strides[i] != stride) return false;
    stride *= view.shape[i];
  }
  return true;
}

/// The elements of a view in row-major order. It must have some. They may overlap in the storage
/// or repeat there: views have any strides.
template <std::size_t kBytes>
Bytes gathered(const View& view, std::span<const std::uint8_t> storage, std::size_t total) {
  Bytes elements(total);
  Shape index(view.shape.size(), 0);
  for (std::size_t at = 0; at < total; at += kBytes) {
    std::int64_t from = view.offset;
    for (std::size_t i = 0; i < index.size(); ++i) from += index[i] * view.strides[i];
    std::memcpy(elements.data() + at, storage.data() + static_cast<std::size_t>(from) * kBytes,
                kBytes);
    for (std::size_t i = index.size(); i-- > 0;) {
      if (++index[i] < view.shape[i]) break;
      index[i] = 0;
    }
  }
  return elements;
}

Bytes gathered(const View& view, std::span<const std::uint8_t> storage, std::size_t total) {
  const std::size_t bytes = element_bytes(view.dtype);
  if (bytes == 1) return gathered<1>(view, storage, total);
  if (bytes == 2) return gathered<2>(view, storage, total);
  return bytes == 4 ? gathered<4>(view, storage, total) : gathered<8>(view, storage, total);
}

/// The elements of a tensor of `total` bytes, which may lie anywhere in its storage.
Content elements_of(const View& view, std::size_t total, const std::string& name,
                    const Content& storage, bool is_big_endian) {
  if (total == 0) return {};
  const std::size_t bytes = element_bytes(view.dtype);
  check_inside(view, name, storage.bytes.size());
  const bool is_as_stored = (!is_big_endian || bytes == 1) && !view.is_negated;
  if (is_row_major(view) && is_as_stored) {
    const auto begin = static_cast<std::size_t>(view.offset) * bytes;
    return {.bytes = storage.bytes.subspan(begin, total), .made = storage.made};
  }
  Bytes elements = gathered(view, storage.bytes, total);
  for (std::size_t at = 0; at < total; at += bytes) {
    if (is_big_endian) std::reverse(&elements[at], &elements[at] + bytes);
    if (view.is_negated) elements[at + bytes - 1] ^= 0x80;  // the sign
  }
  return content_of(std::move(elements));
}

/// A tensor of a kind that arrays do not have.
struct OtherTensor {
  std::string dtype;
  Shape shape;
  const char* problem;  // as in Tensor
};

/// A sparse tensor, which is stored as dense ones: positions, the values, the sizes of the whole,
/// and for some layouts a flag.
std::optional<OtherTensor> sparse_tensor(const std::vector<Value*>& given) {
  if (given.size() < 2 || given[1]->kind != Kind::list) return std::nullopt;
  const Value* values = nullptr;
  std::optional<Shape> sizes;
  for (const Value* part : given[1]->items) {
    if (part->kind == Kind::tensor) values = part;
    // torch.Size is a call with a list of sizes.
    const bool is_call = part->kind == Kind::opaque && part->items.size() >= 2 &&
                         part->items[0]->is_global("torch", "Size") &&
                         part->items[1]->items.size() == 1;
    if (is_call) sizes = sizes_in(*part->items[1]->items[0]);
  }
  if (values == nullptr || !sizes) return std::nullopt;
  return OtherTensor{view_of(*values).dtype, *sizes, "it is sparse; save x.to_dense() instead"};
}

/// The tensor that a call of PyTorch makes, which is not run; nothing for other values.
std::optional<OtherTensor> other_tensor(const Value& call) {
  const bool has_list = call.kind == Kind::opaque && call.items.size() >= 2 &&
                        call.items[0]->kind == Kind::global && call.items[1]->kind == Kind::list;
  if (!has_list) return std::nullopt;
  const Value& function = *call.items[0];
  const std::vector<Value*>& given = call.items[1]->items;
  if (function.is_global("torch._utils", "_rebuild_sparse_tensor")) return sparse_tensor(given);
  if (function.is_global("torch._utils", "_rebuild_qtensor")) {
    const bool is_right = given.size() >= 3 && given[0]->kind == Kind::storage;
    const std::optional<Shape> sizes = is_right ? sizes_in(*given[2]) : std::nullopt;
    if (!sizes) return std::nullopt;
    return OtherTensor{dtype_of_storage(*given[0]->items[0]), *sizes,
                       "it is quantised; save x.dequantize() instead"};
  }
  if (function.is_global("torch._utils", "_rebuild_meta_tensor_no_storage")) {
    const bool is_right = given.size() >= 2 && given[0]->kind == Kind::global;
    const std::optional<Shape> sizes = is_right ? sizes_in(*given[1]) : std::nullopt;
    if (!sizes) return std::nullopt;
    return OtherTensor{dtype_named(*given[0]), *sizes,
                       "it is on the device `meta`, so it has no elements"};
  }
  return std::nullopt;
}

/// Collects the tensors of a pickle and their elements.
class Collector {
 public:
  Collector(const std::vector<ZipEntry>& entries, std::string folder) : folder_(std::move(folder)) {
    std::uint64_t size = 0;
    for (const ZipEntry& entry : entries) {
      files_[entry.name] = &entry.content;
      size += entry.content.bytes.size();
    }
    // Tied weights, expanded tensors and views of each other need a few copies, but not many.
    constexpr std::uint64_t kMostCopies = 32, kAlways = std::uint64_t{256} << 20;
    room_ = std::max(kAlways, kMostCopies * size);
    const auto order = files_.find(folder_ + "byteorder");
    if (order == files_.end()) return;
    const std::span<const std::uint8_t> text = order->second->bytes;
    const std::string_view name(reinterpret_cast<const char*>(text.data()), text.size());
    if (name != "little" && name != "big") throw BadText("its byte order is unknown");
    is_big_endian_ = name == "big";
  }

  void collect(const Value& value, int level) {
    if (level > kMostLevels || ++count_ > kMostValues) throw BadText("it is nested too deeply");
    if (value.kind == Kind::tensor) {
      add(value, "");
    } else if (const std::optional<NumpyArray> array = numpy_array(value)) {
      add(*array, "");
    } else if (const std::optional<OtherTensor> other = other_tensor(value)) {
      add(*other, other->problem);
    } else if (value.kind == Kind::opaque) {
      const std::string call = name_of_call(value);
      if (first_call_.empty()) first_call_ = call;
      list_hidden(value, "it is inside a call of " + call + ", which is not run", level);
    } else if (value.kind == Kind::dict || value.kind == Kind::list) {
      each_item(value, [&](const Value& item, bool has_name) {
        if (has_name) {
          collect(item, level + 1);
        } else {
          list_hidden(item, "its key is neither a string nor a whole number", level + 1);
        }
      });
    }
  }
  /// Throws BadText if a call is not run and no tensor can be read.
  std::vector<Tensor> take() {
    const bool has_any = std::any_of(tensors_.begin(), tensors_.end(),
                                     [](const Tensor& tensor) { return tensor.problem.empty(); });
    if (!has_any && !first_call_.empty()) {
      throw BadText("the pickle calls " + first_call_ +
                    ", which is not run, and has no tensors outside of such calls");
    }
    return std::move(tensors_);
  }

 private:
  /// Visits the items of a dict, list or call, with their keys or positions in the path.
  template <typename Visit>
  void each_item(const Value& value, Visit visit) {
    const bool has_keys = value.kind == Kind::dict;
    for (std::size_t i = has_keys ? 1 : 0; i < value.items.size(); i += has_keys ? 2 : 1) {
      const Value position{.kind = Kind::number, .number = static_cast<std::int64_t>(i)};
      const Value& key = has_keys ? *value.items[i - 1] : position;
      path_.push_back(&key);
      visit(*value.items[i], key.kind == Kind::number || key.kind == Kind::text);
      path_.pop_back();
    }
  }
  /// Adds the tensors of something that is not read itself.
  void list_hidden(const Value& value, const std::string& problem, int level) {
    if (level > kMostLevels || !listed_.insert(&value).second) return;
    if (value.kind == Kind::tensor) return add(value, problem);
    if (const std::optional<NumpyArray> array = numpy_array(value)) return add(*array, problem);
    if (const std::optional<OtherTensor> other = other_tensor(value)) return add(*other, problem);
    each_item(value, [&](const Value& item, bool) { list_hidden(item, problem, level + 1); });
  }

  std::string name() const {
    std::string name;
    for (const Value* key : path_) {
      if (!name.empty()) name += '.';
      if (key->kind == Kind::number) {
        name += std::to_string(key->number);
      } else if (key->kind == Kind::text) {
        name += key->text;
      } else {
        name += '?';
      }
    }
    return name;
  }
  /// A small file could have the same large tensor, or the same long name, any number of times. It
  /// could also have one element that is expanded to any size.
  void use_room(std::uint64_t bytes) {
    if (bytes > room_) {
      throw BadText("its tensors repeat the same elements too often, for example those of " +
                    name().substr(0, 64) + "; save fewer copies of them");
    }
    room_ -= bytes;
  }
  void add(const Value& value, const std::string& problem) {
    const View view = view_of(value);
    Tensor tensor = new_tensor(view.dtype, view.shape, problem.empty() ? view.problem : problem);
    if (tensor.problem.empty()) {
      const auto file = files_.find(folder_ + "data/" + std::string(view.storage));
      if (file == files_.end()) throw BadText("the archive has no storage for " + tensor.name);
      const bool is_known = element_bytes(view.dtype) > 0;
      const std::size_t total = is_known ? elements_bytes(view.dtype, view.shape) : 0;
      use_room(total);
      tensor.elements = elements_of(view, total, tensor.name, *file->second, is_big_endian_);
    }
    tensors_.push_back(std::move(tensor));
  }
  void add(const NumpyArray& array, const std::string& problem) {
    Tensor tensor = new_tensor(dtype_of_npy(array.type), array.shape, problem);
    // The pickle, in which they may lie, is not kept.
    const std::span<const std::uint8_t> elements = array.elements.bytes;
    if (problem.empty()) {
      use_room(elements.size());
      tensor.elements = content_of(Bytes(elements.begin(), elements.end()));
    }
    tensors_.push_back(std::move(tensor));
  }
  void add(const OtherTensor& other, const std::string& problem) {
    tensors_.push_back(new_tensor(other.dtype, other.shape, problem));
  }
  /// A tensor without elements, with the name of the value that is visited.
  Tensor new_tensor(const std::string& dtype, const Shape& shape, const std::string& problem) {
    std::uint64_t bytes = sizeof(Tensor) + problem.size() + 8 * shape.size();
    for (const Value* key : path_) bytes += key->text.size() + 8;
    use_room(bytes);
    Tensor tensor;
    tensor.name = name();
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.problem = problem;
    return tensor;
  }

  std::string folder_;
  std::map<std::string, const Content*> files_;
  bool is_big_endian_ = false;
  std::uint64_t room_ = 0;  // bytes that tensors may still take
  std::size_t count_ = 0;
  std::vector<const Value*> path_;
  std::set<const Value*> listed_;
  std::string first_call_;
  std::vector<Tensor> tensors_;
};

}  // namespace

std::vector<Tensor> read_torch(const std::vector<ZipEntry>& entries) {
  constexpr std::string_view kPickle = "data.pkl";
  for (const ZipEntry& entry : entries) {
    if (!entry.name.ends_with(kPickle)) continue;
    Collector collector(entries, entry.name.substr(0, entry.name.size() - kPickle.size()));
    const Pickle pickle = read_pickle(entry.content.bytes);
    collector.collect(*pickle.result, 0);
    return collector.take();
  }
  throw BadText("the archive has neither NumPy arrays nor PyTorch tensors");
}

}  // namespace tessera::foreign
