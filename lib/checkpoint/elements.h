// The names and the bytes of arrays.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>

namespace tessera::checkpoint {

void sort_by_name(std::vector<NamedArray>& arrays);
/// Throws UserError for a name that stands twice and for one that files do not take.
void check_names(const std::vector<NamedArray>& arrays, const std::string& subject,
                 const std::source_location& where);
/// Row-major. With one process per device a collective.
std::string elements_of(const Array& array, const std::source_location& where);

}  // namespace tessera::checkpoint
