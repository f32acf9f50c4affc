// Reads Python's pickle format. Accepts only operations that describe data, and never runs
// anything.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

/// The values of a pickle. The only globals that it accepts are those that NumPy uses for arrays of
/// bytes.
class Pickle {
 public:
  enum class Kind : std::uint8_t { none, number, text, list, tuple, dict, global, dtype, array };
  struct Value {
    Kind kind = Kind::none;
    std::int64_t number = 0;
    std::string_view text = {};             // a text, name of a global or dtype, or array's bytes
    std::vector<std::uint32_t> items = {};  // for item(); a dict alternates keys and values
    std::vector<std::int64_t> shape = {};   // of an array
  };

  /// Throws UserError, with the position in the file, for a damaged file and for operations that
  /// are not accepted. `bytes` must outlive this object.
  Pickle(std::span<const std::uint8_t> bytes, const std::string& path);

  const Value& root() const { return values_[root_]; }
  const Value& item(std::uint32_t index) const { return values_[index]; }
  /// The value of a dict at a key; nullptr if it has no such key or is not a dict.
  const Value* find(const Value& dict, std::string_view key) const;

 private:
  std::vector<Value> values_;
  std::uint32_t root_ = 0;
};

}  // namespace tessera::data
