#include "foreign/numpy_pickle.h"

#include "data/npy_file.h"

namespace tessera::foreign {

namespace {

using Kind = Value::Kind;

bool is_numpy(const Value& function, const std::string& module, std::string_view name) {
  return function.is_global("numpy.core." + module, name) ||
         function.is_global("numpy._core." + module, name);
}

/// Whether a value is the result of a call with at least so many arguments. Its items are the
/// function, the list of arguments, and what was set afterwards.
bool is_call(const Value& value, std::size_t arguments) {
  return value.kind == Kind::opaque && value.items.size() >= 2 &&
         value.items[0]->kind == Kind::global && value.items[1]->kind == Kind::list &&
         value.items[1]->items.size() >= arguments;
}

/// The type as .npy files write it; nothing if the value is no dtype.
std::optional<std::string> type_of(const Value& dtype) {
  if (!is_call(dtype, 1) || !dtype.items[0]->is_global("numpy", "dtype")) return std::nullopt;
  const Value& code = *dtype.items[1]->items[0];
  if (code.kind == Kind::global) return std::string(code.text.substr(0, 64));
  if (code.kind != Kind::text) return std::nullopt;
  // The second part of the state is the order of the bytes.
  const Value* const state = dtype.items.size() > 2 ? dtype.items[2] : nullptr;
  const bool has_order = state != nullptr && state->kind == Kind::list && state->items.size() > 1 &&
                         state->items[1]->kind == Kind::text;
  const std::string order = has_order ? std::string(state->items[1]->text.substr(0, 1)) : "<";
  const bool is_byte = code.text == "b1" || code.text == "i1" || code.text == "u1";
  return (is_byte ? "|" : order) + std::string(code.text.substr(0, 63));
}

std::span<const std::uint8_t> bytes_in(const Value& value) {
  if (value.kind != Kind::text) return {};  // objects are in a list
  return {reinterpret_cast<const std::uint8_t*>(value.text.data()), value.text.size()};
}

/// Puts the elements in row-major order, if they have the size that the shape asks for.
void make_row_major(NumpyArray& array) {
  const std::string dtype = dtype_of_npy(array.type);
  const std::size_t size = element_bytes(dtype);
  if (size == 0 || elements_bytes(dtype, array.shape) != array.elements.bytes.size()) return;
  array.elements = content_of(data::row_major(array.elements.bytes.data(), array.shape, size));
}

std::optional<NumpyArray> array_of(const Value& shape, const Value& dtype, bool is_column_major,
                                   const Value& elements) {
  const std::optional<Shape> sizes = sizes_in(shape);
  const std::optional<std::string> type = type_of(dtype);
  if (!sizes || !type) return std::nullopt;
  NumpyArray array{.type = *type, .shape = *sizes, .elements = {.bytes = bytes_in(elements)}};
  if (is_column_major) make_row_major(array);
  return array;
}

}  // namespace

std::optional<NumpyArray> numpy_array(const Value& value) {
  if (!is_call(value, 0)) return std::nullopt;
  const Value& function = *value.items[0];
  if (is_numpy(function, "multiarray", "_reconstruct")) {
    // An empty array is made first. Its state is version, shape, dtype, order and elements.
    const Value* const state = value.items.size() > 2 ? value.items[2] : nullptr;
    if (state == nullptr || state->kind != Kind::list || state->items.size() != 5)
      return std::nullopt;
    const auto& parts = state->items;
    return array_of(*parts[1], *parts[2], parts[3]->number != 0, *parts[4]);
  }
  if (is_numpy(function, "numeric", "_frombuffer") && is_call(value, 4)) {  // of protocol 5
    const auto& given = value.items[1]->items;
    return array_of(*given[2], *given[1], given[3]->text == "F", *given[0]);
  }
  return std::nullopt;
}

}  // namespace tessera::foreign
