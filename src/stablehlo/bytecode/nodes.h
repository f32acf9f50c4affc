// Types and attributes of a module. They refer to each other by number and are read when they are
// first needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stablehlo/bytecode/cursor.h"
#include "stablehlo/bytecode/module.h"
#include "stablehlo/bytecode/tables.h"

namespace tessera::stablehlo::bytecode {

class Nodes {
 public:
  /// `module` and `tables` must outlive it.
  Nodes(Module& module, const Tables& tables);

  const Tables& tables() const { return tables_; }
  const Type* type(Cursor& at);
  const Attribute* attribute(Cursor& at);
  /// nullptr if there is none.
  const Attribute* optional_attribute(Cursor& at);
  const Attribute* attribute_numbered(std::uint64_t number, std::size_t offset);
  const Type* type_numbered(std::uint64_t number, std::size_t offset);

  // Parts of attributes.
  std::vector<const Type*> types(Cursor& at);
  std::vector<const Attribute*> attributes(Cursor& at);
  static std::vector<std::int64_t> signed_numbers(Cursor& at);
  /// The text of an attribute that must be a string.
  std::string_view string_attribute(Cursor& at);
  /// A number of this kind, with its type.
  Attribute number(Cursor& at, Attribute::Kind kind);
  /// A constant array: its type and the bytes of its elements. Their number is checked.
  Attribute tensor(Cursor& at);

 private:
  template <typename Node>
  struct Slot {
    const Node* node = nullptr;
    bool is_being_read = false;
  };
  Type read_type(const Tables::Entry& entry);
  Attribute read_attribute(const Tables::Entry& entry);

  Module& module_;
  const Tables& tables_;
  std::vector<Slot<Type>> types_;
  std::vector<Slot<Attribute>> attributes_;
  int depth_ = 0;
};

// One function for each dialect. `code` says which type or attribute follows.
Type read_builtin_type(Nodes& nodes, std::uint64_t code, Cursor& at);
Type read_vhlo_type(Nodes& nodes, std::uint64_t code, Cursor& at);
Attribute read_builtin_attribute(Nodes& nodes, std::uint64_t code, Cursor& at);
Attribute read_vhlo_attribute(Nodes& nodes, std::uint64_t code, Cursor& at);
Attribute read_sdy_attribute(Nodes& nodes, std::uint64_t code, Cursor& at);

}  // namespace tessera::stablehlo::bytecode
