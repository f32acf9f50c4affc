// Reads pickles as data. Nothing in a pickle is ever run.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/types.h>

namespace tessera::foreign {

/// The most values that are read from a file, so that it cannot use up the memory.
inline constexpr std::size_t kMostValues = 10'000'000;

/// A value of a pickle. Values may refer to each other in circles, and to any depth. Nearly all
/// texts lie in the file, so a value stays small however long its text is.
struct Value {
  enum class Kind : std::uint8_t {
    none,     // None, a float, or a number of more than 64 bits
    number,   // also True and False
    text,     // also bytes
    list,     // also a tuple
    dict,     // has keys and values in turns
    global,   // a class or function: `module` and `text` are its names
    storage,  // has the class of the storage; `text` is the key of the file with its elements
    tensor,   // has the function that makes it and the list of its arguments
    opaque,   // what a call would give that is not run; has all values that the call would use
    mark
  };
  Kind kind = Kind::none;
  std::int64_t number = 0;
  std::string_view text = {}, module = {};
  std::vector<Value*> items = {};

  bool is_global(std::string_view of_module, std::string_view name) const {
    return kind == Kind::global && module == of_module && text == name;
  }
};

struct Pickle {
  std::deque<Value> values;
  std::deque<std::string> texts;  // what the texts of values refer to, unless that is the file
  const Value* result = nullptr;
};

/// The value of a dict at a key; null if it has no such key or is not a dict.
const Value* find(const Value& dict, std::string_view key);
/// `module.function` of what a value of kind opaque would call.
std::string name_of_call(const Value& call);
/// The numbers in a list of at most 64 whole numbers of 0 or more; nothing for another value.
std::optional<Shape> sizes_in(const Value& list);

/// The value that the bytes describe, which must outlive it. Throws BadText if they are damaged.
Pickle read_pickle(std::span<const std::uint8_t> bytes, std::size_t most_values = kMostValues);

}  // namespace tessera::foreign
