// Types and attributes as text.
#pragma once

#include <span>
#include <string>

#include "stablehlo/bytecode/cursor.h"
#include "stablehlo/bytecode/module.h"

namespace tessera::stablehlo::bytecode {

void append_type(std::string& text, const Type& type);
void append_attribute(std::string& text, const Attribute& attribute);
/// For attributes of the dialect sdy.
void append_sdy(std::string& text, const Attribute& attribute);
/// The text inside `loc(...)`.
void append_location(std::string& text, const Attribute& location);
/// `{a = 1 : i32, b}`.
void append_named(std::string& text, const std::vector<NamedAttribute>& attributes);
/// `[1, 2, ?]`
void append_numbers(std::string& text, std::span<const std::int64_t> numbers);
void append_quoted(std::string& text, std::string_view word);

/// Calls `append` for each of `list`, with commas between them.
template <typename List, typename Append>
void append_list(std::string& text, const List& list, const Append& append) {
  bool is_first = true;
  for (const auto& each : list) {
    if (!is_first) text += ", ";
    is_first = false;
    append(each);
  }
}

}  // namespace tessera::stablehlo::bytecode
