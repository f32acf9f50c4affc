// Python's pickle format, of which only what describes data is read: nothing is ever run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

/// The values of a pickle. Of globals it takes those that numpy names for arrays of bytes.
class Pickle {
 public:
  enum class Kind : std::uint8_t { none, number, text, list, tuple, dict, global, dtype, array };
  struct Value {
    Kind kind = Kind::none;
    std::int64_t number = 0;
    std::string_view text = {};             // of texts, globals, dtypes; an array's bytes
    std::vector<std::uint32_t> items = {};  // other values: of dicts key and value by turns
    std::vector<std::int64_t> shape = {};   // of an array
  };

  /// Throws UserError for what is not read, with its place in the file. `bytes` must outlive it.
  Pickle(std::span<const std::uint8_t> bytes, const std::string& path);

  const Value& root() const { return values_[root_]; }
  const Value& item(std::uint32_t index) const { return values_[index]; }
  /// The value of a dict at a key; none.
  const Value* find(const Value& dict, std::string_view key) const;

 private:
  std::vector<Value> values_;
  std::uint32_t root_ = 0;
};

}  // namespace tessera::data
