// Reads MessagePack as Flax writes it: maps, and arrays as extensions.
#include <algorithm>

#include "checkpoint/json.h"
#include "foreign/cursor.h"
#include "foreign/foreign.h"

namespace tessera::foreign {

const char* numpy_name(DType dtype) {
  static constexpr const char* kNames[] = {"bool",     "int8",    "int16",  "int32",  "int64",
                                           "uint8",    "uint16",  "uint32", "uint64", "float16",
                                           "bfloat16", "float32", "float64"};
  static_assert(std::size(kNames) == std::size(kAllDTypes));
  return kNames[static_cast<std::size_t>(dtype)];
}

namespace {

using checkpoint::BadText;

constexpr std::uint8_t kArrayExtension = 1, kScalarExtension = 3;
constexpr std::size_t kMostNameBytes = 4096;  // a long name could be repeated for many arrays

/// The name in safetensors files of a dtype of NumPy; the name itself if there is none.
std::string dtype_of_numpy(const std::string& name) {
  for (const DType dtype : kAllDTypes) {
    if (name == numpy_name(dtype)) return checkpoint::safetensors_name(dtype);
  }
  return name;
}

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : cursor_(bytes) {}

  /// Adds the arrays of the value that begins here.
  void read(const std::string& name, int level, std::vector<Tensor>& tensors) {
    if (level > kMostLevels) throw BadText("it is nested too deeply");
    if (name.size() > kMostNameBytes) throw BadText("a name has more than 4096 bytes");
    const std::uint8_t kind = cursor_.peek();
    if (const std::optional<std::uint64_t> pairs = map_size(kind)) {
      for (std::uint64_t i = 0; i < *pairs; ++i) {
        const std::string key = text();
        if (key == "__msgpack_chunked_array__") throw BadText(name + " is an array in chunks");
        read(name.empty() ? key : name + "/" + key, level + 1, tensors);
      }
    } else if (const std::optional<std::uint64_t> items = list_size(kind)) {
      for (std::uint64_t i = 0; i < *items; ++i) {
        read(name.empty() ? std::to_string(i) : name + "/" + std::to_string(i), level + 1, tensors);
      }
    } else if (const std::optional<std::uint64_t> size = extension_size(kind)) {
      const std::uint8_t type = cursor_.big_endian<std::uint8_t>();
      const auto content = cursor_.take(*size);
      // A number of NumPy is written as an array without dimensions.
      if (type == kArrayExtension || type == kScalarExtension)
        tensors.push_back(Reader(content).array(name));
    } else {
      skip_plain(kind);
    }
  }
  bool is_at_end() const { return cursor_.is_at_end(); }

 private:
  /// The size behind a byte that says how many bytes it has.
  std::uint64_t sized(int bytes) {
    cursor_.byte();
    if (bytes == 1) return cursor_.big_endian<std::uint8_t>();
    return bytes == 2 ? cursor_.big_endian<std::uint16_t>() : cursor_.big_endian<std::uint32_t>();
  }
  std::uint64_t small(std::uint64_t size) {
    cursor_.byte();
    return size;
  }

  std::optional<std::uint64_t> map_size(std::uint8_t kind) {
    if ((kind & 0xF0U) == 0x80U) return small(kind & 0x0FU);
    if (kind == 0xDE || kind == 0xDF) return sized(kind == 0xDE ? 2 : 4);
    return std::nullopt;
  }
  std::optional<std::uint64_t> list_size(std::uint8_t kind) {
    if ((kind & 0xF0U) == 0x90U) return small(kind & 0x0FU);
    if (kind == 0xDC || kind == 0xDD) return sized(kind == 0xDC ? 2 : 4);
    return std::nullopt;
  }
  std::optional<std::uint64_t> extension_size(std::uint8_t kind) {
    if (kind >= 0xC7 && kind <= 0xC9) return sized(1 << (kind - 0xC7));
    if (kind >= 0xD4 && kind <= 0xD8) return small(std::uint64_t{1} << (kind - 0xD4U));
    return std::nullopt;
  }
  std::optional<std::uint64_t> text_size(std::uint8_t kind) {
    if ((kind & 0xE0U) == 0xA0U) return small(kind & 0x1FU);
    if (kind >= 0xD9 && kind <= 0xDB) return sized(1 << (kind - 0xD9));
    if (kind >= 0xC4 && kind <= 0xC6) return sized(1 << (kind - 0xC4));  // bytes
    return std::nullopt;
  }

  std::span<const std::uint8_t> text_bytes() {
    const std::optional<std::uint64_t> size = text_size(cursor_.peek());
    if (!size) throw BadText("a key is not a string");
    return cursor_.take(*size);
  }
  std::string text() {
    const auto found = text_bytes();
    return {found.begin(), found.end()};
  }
  std::int64_t whole_number() {
    const std::uint8_t kind = cursor_.byte();
    if (kind < 0x80) return kind;
    if (kind == 0xCC) return cursor_.big_endian<std::uint8_t>();
    if (kind == 0xCD) return cursor_.big_endian<std::uint16_t>();
    if (kind == 0xCE) return cursor_.big_endian<std::uint32_t>();
    if (kind == 0xCF)
      return static_cast<std::int64_t>(cursor_.big_endian<std::uint64_t>() << 1U >> 1U);
    throw BadText("a size is not a whole number");
  }
  /// The three parts of an array: shape, dtype and bytes.
  Tensor array(const std::string& name) {
    if (list_size(cursor_.peek()) != std::uint64_t{3}) throw BadText(name + " is not an array");
    const std::optional<std::uint64_t> rank = list_size(cursor_.peek());
    if (!rank) throw BadText(name + " has no shape");
    Tensor tensor{.name = name, .dtype = {}, .shape = {}, .elements = {}};
    for (std::uint64_t i = 0; i < *rank; ++i) tensor.shape.push_back(whole_number());
    tensor.dtype = dtype_of_numpy(text());
    tensor.elements.bytes = text_bytes();
    return tensor;
  }
  /// Numbers, texts, nil and booleans.
  void skip_plain(std::uint8_t kind) {
    if (const std::optional<std::uint64_t> size = text_size(kind)) {
      cursor_.take(*size);
      return;
    }
    cursor_.byte();
    if (kind == 0xC1) throw BadText("it is not MessagePack");
    if (kind == 0xCA) cursor_.take(4);
    if (kind == 0xCB) cursor_.take(8);
    if (kind >= 0xCC && kind <= 0xCF) cursor_.take(std::uint64_t{1} << (kind - 0xCCU));
    if (kind >= 0xD0 && kind <= 0xD3) cursor_.take(std::uint64_t{1} << (kind - 0xD0U));
  }

  Cursor cursor_;
};

}  // namespace

std::vector<Tensor> read_msgpack(std::span<const std::uint8_t> bytes) {
  const bool is_map =
      !bytes.empty() && ((bytes[0] & 0xF0U) == 0x80U || bytes[0] == 0xDE || bytes[0] == 0xDF);
  if (!is_map) throw BadText("it is neither an archive nor a MessagePack map");
  Reader reader(bytes);
  std::vector<Tensor> tensors;
  reader.read("", 0, tensors);
  if (!reader.is_at_end()) throw BadText("there are bytes after the end");
  return tensors;
}

}  // namespace tessera::foreign
