// The tables of a bytecode file, to which its operations refer by number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stablehlo/bytecode/cursor.h"

namespace tessera::stablehlo::bytecode {

struct Tables {
  enum Section : std::uint8_t { strings, dialects, entries, offsets, operations, properties = 8 };
  static constexpr std::size_t kSections = 9;

  struct Entry {
    std::string_view dialect;
    std::size_t begin = 0;
    std::size_t size = 0;
    bool is_binary = false;  // otherwise text
  };
  struct OperationName {
    std::string_view name;  // with the dialect
    bool is_registered = true;
  };

  std::string_view file;
  std::uint64_t version = 0;  // of the bytecode
  std::string_view producer;
  std::array<std::optional<Cursor>, kSections> sections;
  std::vector<std::string_view> string_table;
  std::vector<OperationName> operation_names;
  std::vector<Entry> attributes;
  std::vector<Entry> types;
  std::vector<Cursor> property_table;

  /// Throws UserError. `names` owns the names of operations.
  static Tables read(std::string_view file, std::vector<std::string>& names);

  std::string_view string_numbered(std::uint64_t number, std::size_t offset) const;
  Cursor section(Section which) const;
  std::string_view string_at(Cursor& at) const {
    return string_table[at.index(string_table.size(), "string")];
  }
};

}  // namespace tessera::stablehlo::bytecode
