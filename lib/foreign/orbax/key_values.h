// The stores in which TensorStore, and so Orbax, keeps the chunks of arrays.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "foreign/foreign.h"

namespace tessera::foreign {

/// A folder in which each key is a file, or a database in TensorStore's format OCDBT: a B+tree in
/// the data files that `manifest.ocdbt` names. Keys look like paths. Throws BadText if damaged.
class KeyValues {
 public:
  explicit KeyValues(std::string folder);
  std::optional<Bytes> read(const std::string& key) const;
  /// The bytes of all values that have keys with this prefix, as far as that is known without
  /// reading them; for folders, those of the files in the folder `prefix`.
  std::uint64_t stored_bytes(const std::string& prefix) const;

 private:
  struct Value {
    Bytes here;        // if it is stored in the tree
    std::string path;  // of the data file that has it otherwise
    std::uint64_t offset = 0, length = 0;
  };
  friend class OcdbtTree;

  std::string folder_;
  bool is_database_ = false;
  std::map<std::string, Value> values_;  // of a database
};

}  // namespace tessera::foreign
