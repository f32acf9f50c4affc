// Reads Python's pickle format. Only operations that describe data are accepted: nothing is ever
// run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

/// The values of a pickle. The only globals it accepts are those that numpy uses for arrays of
/// bytes.
class Pickle {
 public:
  enum class Kind : std::uint8_t { none, number, text, list, tuple, dict, global, dtype, array };
  struct Value {
    Kind kind = Kind::none;
    std::int64_t number = 0;
    std::string_view text = {};             // a text, name of a global or dtype, or array's bytes
    std::vector<std::uint32_t> items = {};  // for item(); a dict has keys and values in turns
    std::vector<std::int64_t> shape = {};   // of an array
  };

  /// Throws UserError, with the position in the file, for damage and for operations that are not
  /// accepted. `bytes` must outlive this object.
  Pickle(std::span<const std::uint8_t> bytes, const std::string& path);

  const Value& root() const { return values_[root_]; }
  const Value& item(std::uint32_t index) const { return values_[index]; }
  /// The value of a dict at a key; nullptr if it has no such key or is no dict.
  const Value* find(const Value& dict, std::string_view key) const;

 private:
  std::vector<Value> values_;
  std::uint32_t root_ = 0;
};

}  // namespace tessera::data
