// Checks the names of arrays and copies their elements.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>

namespace tessera::checkpoint {

void sort_by_name(std::vector<NamedArray>& arrays);
/// Throws UserError if a name occurs twice or is "__metadata__", which the format reserves. The
/// message begins with `subject`.
void check_names(const std::vector<NamedArray>& arrays, const std::string& subject,
                 const std::source_location& where);
/// The bytes of all elements in row-major order. With one process per device this is a collective:
/// all processes must call it.
std::string elements_of(const Array& array, const std::source_location& where);

}  // namespace tessera::checkpoint
