// MessagePack as Flax writes it: maps with arrays of extension type 1, which hold shape, name of
// the dtype and elements.
#include <limits>
#include <map>
#include <memory>

#include <tessera/error.h>

#include "foreign/foreign.h"
#include "foreign/write.h"

namespace tessera::foreign {

namespace {

/// The lowest `count` bytes, big-endian.
std::string number(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = count; i-- > 0;) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

std::string map_of(std::size_t size) { return "\xdf" + number(size, 4); }
std::string text_of(const std::string& text) { return "\xdb" + number(text.size(), 4) + text; }

/// An array, or a map of what lies below.
struct Tree {
  const Source* array = nullptr;
  std::map<std::string, Tree> below;
};

[[noreturn]] void fail(const std::string& found, const std::string& wanted) {
  throw UserError({.what = "export: an array cannot be written as MessagePack",
                   .found = found,
                   .wanted = wanted,
                   .cure = "export safetensors instead"});
}

Tree tree_of(const Sources& sources) {
  Tree root;
  for (const Source& source : sources) {
    Tree* place = &root;
    for (std::size_t begin = 0; begin <= source.name.size();) {
      if (place->array != nullptr) {
        fail(place->array->name + " and " + source.name, "paths none of which continues another");
      }
      const std::size_t end = std::min(source.name.find('/', begin), source.name.size());
      place = &place->below[source.name.substr(begin, end - begin)];
      begin = end + 1;
    }
    if (!place->below.empty()) {
      fail(source.name + " and paths below it", "paths none of which continues another");
    }
    place->array = &source;
  }
  return root;
}

void write_array(const Source& source, const Append& append) {
  const std::vector<std::byte> elements = source.elements();
  std::string before = "\x93\xdd" + number(source.type.shape.size(), 4);
  for (const std::int64_t size : source.type.shape) {
    before += "\xcf" + number(static_cast<std::uint64_t>(size), 8);
  }
  before += text_of(numpy_name(source.type.dtype)) + "\xc6" + number(elements.size(), 4);
  const std::size_t bytes = before.size() + elements.size();
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    fail(source.name + ": " + to_string(source.type), "arrays of less than 4 GiB");
  }
  const std::string head = "\xc9" + number(bytes, 4) + "\x01" + before;
  append(std::as_bytes(std::span(head)));
  append(elements);
}

void write_tree(const Tree& tree, const Append& append) {
  if (tree.array != nullptr) return write_array(*tree.array, append);
  const std::string head = map_of(tree.below.size());
  append(std::as_bytes(std::span(head)));
  for (const auto& [key, below] : tree.below) {
    const std::string name = text_of(key);
    append(std::as_bytes(std::span(name)));
    write_tree(below, append);
  }
}

}  // namespace

void write_msgpack(const Sources& sources, const Append& append) {
  write_tree(tree_of(sources), append);
}

}  // namespace tessera::foreign
