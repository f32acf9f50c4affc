// Writes files atomically: if anything fails, the whole old file stays.
#pragma once

#include <string>

namespace tessera::cli {

/// Writes a file. If it cannot be written, leaves the old file, and throws UserError if another
/// path would help, else RuntimeFault. Messages begin with `flag`. Follows links. What is not a
/// regular file, such as /dev/stdout or a pipe, is written in place.
void write_file(const std::string& flag, const std::string& path, const std::string& text);
/// Throws as write_file() does if the file cannot be written. Does not change the file.
void check_writable(const std::string& flag, const std::string& path);

/// Throws UserError if the folder `path` does not exist and cannot be made, or cannot be written
/// to.
void check_folder(const std::string& flag, const std::string& path);

}  // namespace tessera::cli
