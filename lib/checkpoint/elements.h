// Checks the names of arrays and copies their elements.
#pragma once

#include <cstddef>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tessera/checkpoint.h>

namespace tessera::checkpoint {

void sort_by_name(std::vector<NamedArray>& arrays);
/// Throws UserError if a name occurs twice or is "__metadata__", which the format reserves. The
/// message begins with `subject`.
void check_names(const std::vector<NamedArray>& arrays, const std::string& subject,
                 const std::source_location& where);
/// Which tensors of a file the options ask for; sets options.left. Throws UserError if one is
/// missing, or if arrays do not have its dtype.
std::vector<bool> choose_tensors(const std::vector<FileTensor>& tensors, const std::string& path,
                                 const ReadOptions& options, const std::source_location& where);
/// Converts a tensor that was read to what the options ask for.
Array as_wanted(const Array& read, const ReadOptions& options);
/// The bytes of all elements in row-major order. With one process per device this is a collective:
/// all processes must call it.
std::string elements_of(const Array& array, const std::source_location& where);

}  // namespace tessera::checkpoint
