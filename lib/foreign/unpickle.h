// Reads pickles as data. Nothing in a pickle is ever run.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::foreign {

/// A value of a pickle. Values may refer to each other in circles, and to any depth. Texts lie in
/// the pickle, so a value stays small however long its text is.
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
  const Value* result = nullptr;
};

/// The value that the bytes describe, which must outlive it. Throws BadText if they are damaged.
Pickle read_pickle(std::span<const std::uint8_t> bytes);

}  // namespace tessera::foreign
