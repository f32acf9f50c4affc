#include "foreign/orbax/zarr.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <tessera/types.h>

#include "checkpoint/json.h"
#include "data/crc32c.h"
#include "foreign/cursor.h"
#include "foreign/orbax/zstd_frame.h"

namespace tessera::foreign {

namespace {

using checkpoint::BadText;
using checkpoint::Json;
using checkpoint::member;
using checkpoint::shape_at;
using checkpoint::text_at;

/// Says why an array that is not damaged cannot be read.
class Unsupported : public BadText {
 public:
  using BadText::BadText;
};

/// How an array is stored.
struct Layout {
  Shape shape = {}, chunk = {};
  std::string dtype = {};                      // as in safetensors files
  std::string separator = {}, beginning = {};  // of the keys of chunks
  bool is_compressed = false;  // each chunk, or each part of a chunk, is a zstd frame
  bool has_parts = false;      // chunks are shards of Zarr 3
  Shape part = {};             // of such a chunk
  bool has_checksum = false;   // the list of the parts
  Bytes fill = {};             // an element that is not stored
};

std::string dtype_of_zarr3(const std::string& type) {
  if (type == "bool") return "BOOL";
  const std::size_t digits = type.find_first_of("0123456789");
  if (digits == std::string::npos) return type;
  const std::string kind = type.substr(0, digits), bits = type.substr(digits);
  if (bits.find_first_not_of("0123456789") != std::string::npos) return type;  // float8_e4m3fn
  if (kind == "float") return "F" + bits;
  if (kind == "bfloat") return "BF" + bits;
  if (kind == "int") return "I" + bits;
  if (kind == "uint") return "U" + bits;
  return type;
}

/// The bytes of a fill value: a number, bool, null for 0, or a text for one that is not finite.
Bytes fill_of(const Json& value, const std::string& dtype) {
  const std::optional<DType> known = checkpoint::find_safetensors_dtype(dtype);
  if (!known) return {};
  double number = 0;
  if (value.is_boolean()) {
    number = value.get<bool>() ? 1 : 0;
  } else if (value.is_number()) {
    number = value.get<double>();
  } else if (value == "NaN") {
    number = std::numeric_limits<double>::quiet_NaN();
  } else if (value == "Infinity" || value == "-Infinity") {
    number = std::numeric_limits<double>::infinity() * (value == "Infinity" ? 1 : -1);
  } else if (!value.is_null()) {
    throw Unsupported("its fill value is not a number");
  }
  Bytes bytes(element_bytes(dtype));
  const auto write = [&](auto element) {
    std::memcpy(bytes.data(), &element, std::min(bytes.size(), sizeof(element)));
  };
  if (*known == DType::f64) write(number);
  if (*known == DType::f32) write(static_cast<float>(number));
  if (*known == DType::f16) write(float16(number));
  if (*known == DType::bf16) write(bfloat16(number));
  if (!is_float(*known) && number != 0) {
    if (!value.is_boolean() && !value.is_number_integer())
      throw Unsupported("its fill value is not a whole number");
    write(value.is_boolean() ? 1 : value.get<std::int64_t>());
  }
  return bytes;
}

Layout layout_of_zarr2(const Json& json) {
  Layout layout{.shape = shape_at(json, "shape"),
                .chunk = shape_at(json, "chunks"),
                .dtype = text_at(json, "dtype"),
                .separator = "."};
  if (layout.dtype != "bfloat16") layout.dtype = dtype_of_npy(layout.dtype);
  if (layout.dtype == "bfloat16") layout.dtype = "BF16";
  if (json.contains("dimension_separator")) layout.separator = text_at(json, "dimension_separator");
  if (text_at(json, "order") != "C") throw Unsupported("it is stored in column-major order");
  if (json.contains("filters") && !json["filters"].is_null())
    throw Unsupported("it is stored with filters");
  const Json& compressor = member(json, "compressor");
  layout.is_compressed = !compressor.is_null();
  if (layout.is_compressed && text_at(compressor, "id") != "zstd")
    throw Unsupported("it is compressed with " + text_at(compressor, "id"));
  layout.fill = fill_of(member(json, "fill_value"), layout.dtype);
  return layout;
}

/// Reads the codecs of chunks, or of parts of chunks; returns whether they end with a checksum.
bool read_codecs(const Json& codecs, Layout& layout) {
  if (!codecs.is_array() || codecs.empty()) throw BadText("it has no codecs");
  bool has_checksum = false;
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    const std::string name = text_at(codecs[i], "name");
    const bool is_bytes = name == "bytes" && i == 0;
    const Json settings = codecs[i].value("configuration", Json::object());
    if (is_bytes && settings.value("endian", "little") != "little")
      throw Unsupported("it is stored in big-endian order");
    const bool is_last = i + 1 == codecs.size();
    if (name == "zstd" && i > 0 && is_last) {
      layout.is_compressed = true;
    } else if (name == "crc32c" && i > 0 && is_last) {
      has_checksum = true;
    } else if (!is_bytes) {
      throw Unsupported("it is stored with the codec " + name);
    }
  }
  return has_checksum;
}

Layout layout_of_zarr3(const Json& json) {
  const Json& grid = member(json, "chunk_grid");
  if (text_at(grid, "name") != "regular") throw Unsupported("its chunks have different sizes");
  Layout layout{.shape = shape_at(json, "shape"),
                .chunk = shape_at(member(grid, "configuration"), "chunk_shape"),
                .dtype = dtype_of_zarr3(text_at(json, "data_type")),
                .separator = "/",
                .beginning = "c"};
  const Json& keys = member(json, "chunk_key_encoding");
  if (text_at(keys, "name") != "default") throw Unsupported("its chunks have other names");
  if (keys.contains("configuration"))
    layout.separator = keys["configuration"].value("separator", layout.separator);
  const Json& codecs = member(json, "codecs");
  if (codecs.is_array() && codecs.size() == 1 && text_at(codecs[0], "name") == "sharding_indexed") {
    const Json& settings = member(codecs[0], "configuration");
    layout.has_parts = true;
    layout.part = shape_at(settings, "chunk_shape");
    if (layout.part.size() != layout.chunk.size()) throw BadText("parts of another rank");
    if (settings.value("index_location", "end") != "end")
      throw Unsupported("its chunks begin with their index");
    Layout index;
    layout.has_checksum = read_codecs(member(settings, "index_codecs"), index);
    if (index.is_compressed) throw Unsupported("the index of its chunks is compressed");
    if (read_codecs(member(settings, "codecs"), layout))
      throw Unsupported("its chunks have checksums");
  } else if (read_codecs(codecs, layout)) {
    throw Unsupported("its chunks have checksums");
  }
  layout.fill = fill_of(member(json, "fill_value"), layout.dtype);
  return layout;
}

/// Calls f(position) for each position in an array of this shape, in row-major order.
template <typename F>
void for_each_position(const Shape& shape, const F& f) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Shape position(shape.size(), 0);
  while (true) {
    f(position);
    std::size_t dim = shape.size();
    while (dim > 0 && ++position[dim - 1] == shape[dim - 1]) position[--dim] = 0;
    if (dim == 0) return;
  }
}

Shape quotients(const Shape& whole, const Shape& part) {
  Shape result;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    result.push_back((whole[i] + part[i] - 1) / part[i]);
  }
  return result;
}

/// The elements of an array while its chunks are read.
class Elements {
 public:
  Elements(const Layout& layout, const KeyValues& store, const std::string& key)
      : layout_(layout), element_(element_bytes(layout.dtype)) {
    const std::uint64_t size = elements_bytes(layout.dtype, layout.shape);
    // A zstd frame is at least a 2^15th of its content, so a small file cannot ask for much memory.
    constexpr std::uint64_t kMostRatio = 1 << 15, kAllowance = 1 << 17;
    const std::uint64_t stored = store.stored_bytes(key + "/");
    if (size / kMostRatio > stored + kAllowance) throw BadText("it is larger than its chunks");
    if (static_cast<std::uint64_t>(num_elements(quotients(layout.shape, layout.chunk))) >
        stored + kAllowance)
      throw BadText("it has more chunks than bytes");
    bytes_.resize(size);
    if (std::any_of(layout.fill.begin(), layout.fill.end(), [](auto byte) { return byte != 0; })) {
      for (std::size_t at = 0; at < size; at += element_)
        std::memcpy(bytes_.data() + at, layout.fill.data(), element_);
    }
  }

  /// Copies what a chunk has inside of the array; `begin` is the position of its first element.
  void add_chunk(std::span<const std::uint8_t> stored, const Shape& begin) {
    if (!layout_.has_parts) return add_part(stored, begin, layout_.chunk);
    const Shape counts = quotients(layout_.chunk, layout_.part);
    const auto parts = static_cast<std::uint64_t>(num_elements(counts));
    const std::uint64_t checksum = layout_.has_checksum ? 4 : 0;
    constexpr std::uint64_t kEntryBytes = 16;
    if (parts > stored.size() / kEntryBytes || parts * kEntryBytes + checksum > stored.size())
      throw BadText("a chunk is cut off");
    Cursor index(stored.last(parts * kEntryBytes + checksum));
    if (checksum > 0) check(stored.last(parts * kEntryBytes + checksum));
    for_each_position(counts, [&](const Shape& position) {
      const auto offset = index.little_endian<std::uint64_t>();
      const auto length = index.little_endian<std::uint64_t>();
      if (offset == kNotStored) return;
      if (offset > stored.size() || length > stored.size() - offset)
        throw BadText("a chunk is cut off");
      Shape inner = begin;
      for (std::size_t i = 0; i < inner.size(); ++i) inner[i] += position[i] * layout_.part[i];
      add_part(stored.subspan(offset, length), inner, layout_.part);
    });
  }

  Bytes take() { return std::move(bytes_); }

 private:
  static constexpr std::uint64_t kNotStored = std::numeric_limits<std::uint64_t>::max();

  static void check(std::span<const std::uint8_t> index) {
    Cursor end(index.last(4));
    if (end.little_endian<std::uint32_t>() != data::crc32c(index.first(index.size() - 4)))
      throw BadText("a chunk has a wrong checksum");
  }

  void add_part(std::span<const std::uint8_t> stored, const Shape& begin, const Shape& part) {
    const std::uint64_t size = elements_bytes(layout_.dtype, part);
    Bytes unpacked;
    if (layout_.is_compressed) stored = unpacked = unpack_zstd(stored, size);
    if (stored.size() != size) throw BadText("a chunk has the wrong size");
    copy_rows(stored, begin, part);
  }

  /// Chunks at the end of a dimension may have elements beyond it.
  void copy_rows(std::span<const std::uint8_t> from, const Shape& begin, const Shape& part) {
    if (part.empty()) return copy(from, 0, 0, 1);
    Shape rows = part;
    rows.back() = 1;
    const std::size_t last = part.size() - 1;
    const std::int64_t row = std::min(part[last], layout_.shape[last] - begin[last]);
    std::int64_t source = 0;
    for_each_position(rows, [&](const Shape& position) {
      std::int64_t target = 0;
      bool is_inside = row > 0;
      for (std::size_t i = 0; i < part.size(); ++i) {
        const std::int64_t at = begin[i] + position[i];
        is_inside = is_inside && at < layout_.shape[i];
        target = target * layout_.shape[i] + at;
      }
      if (is_inside) copy(from, source, target, row);
      source += part[last];
    });
  }

  void copy(std::span<const std::uint8_t> from, std::int64_t source, std::int64_t target,
            std::int64_t count) {
    std::memcpy(bytes_.data() + static_cast<std::size_t>(target) * element_,
                from.data() + static_cast<std::size_t>(source) * element_,
                static_cast<std::size_t>(count) * element_);
  }

  const Layout& layout_;
  std::size_t element_;
  Bytes bytes_;
};

std::string chunk_key(const Layout& layout, const Shape& position) {
  std::string key = layout.beginning;
  for (std::size_t i = 0; i < position.size(); ++i) {
    if (i > 0 || !layout.beginning.empty()) key += layout.separator;
    key += std::to_string(position[i]);
  }
  return key.empty() ? "0" : key;
}

Bytes read_elements(const Layout& layout, const KeyValues& store, const std::string& key) {
  Elements elements(layout, store, key);
  for_each_position(quotients(layout.shape, layout.chunk), [&](const Shape& position) {
    const std::optional<Bytes> stored = store.read(key + "/" + chunk_key(layout, position));
    if (!stored) return;  // all of its elements are the fill value
    Shape begin = position;
    for (std::size_t i = 0; i < begin.size(); ++i) begin[i] *= layout.chunk[i];
    elements.add_chunk(*stored, begin);
  });
  return elements.take();
}

Layout layout_of(const KeyValues& store, const std::string& key, Tensor& tensor) {
  std::optional<Bytes> text = store.read(key + "/.zarray");
  const bool is_zarr2 = text.has_value();
  if (!is_zarr2) text = store.read(key + "/zarr.json");
  if (!text) throw Unsupported("it is not stored as an array");
  const Json json = checkpoint::parse_json(
      std::string_view(reinterpret_cast<const char*>(text->data()), text->size()));
  tensor.shape = shape_at(json, "shape");
  tensor.dtype = text_at(json, is_zarr2 ? "dtype" : "data_type").substr(0, 64);
  Layout layout = is_zarr2 ? layout_of_zarr2(json) : layout_of_zarr3(json);
  if (layout.chunk.size() != layout.shape.size()) throw BadText("chunks of another rank");
  for (const Shape* shape : {&layout.chunk, &layout.part}) {
    if (std::find(shape->begin(), shape->end(), 0) != shape->end())
      throw BadText("chunks without elements");
  }
  return layout;
}

}  // namespace

Tensor read_zarr(const std::shared_ptr<const KeyValues>& store, const std::string& key) {
  Tensor tensor;
  try {
    auto layout = std::make_shared<const Layout>(layout_of(*store, key, tensor));
    tensor.dtype = layout->dtype;
    tensor.read = [store, key, layout] { return content_of(read_elements(*layout, *store, key)); };
  } catch (const Unsupported& reason) {
    tensor.problem = reason.what();
  } catch (const Json::exception&) {
    throw BadText("the description of " + key + " has a value of the wrong kind");
  }
  return tensor;
}

}  // namespace tessera::foreign
