// Writes files atomically: if anything fails, the whole old file stays.
#pragma once

#include <string>

namespace tessera::cli {

/// Writes a file. If it cannot be written, leaves the old file and throws as cannot_write() does.
/// Follows links. What is not a regular file, such as /dev/stdout or a pipe, is written in place.
void write_file(const std::string& flag, const std::string& path, const std::string& text);
/// Throws as cannot_write() does if the file cannot be written. Does not change the file.
void check_writable(const std::string& flag, const std::string& path);

/// Throws UserError if the folder `path` does not exist and cannot be made, or cannot be written
/// to.
void check_folder(const std::string& flag, const std::string& path);

/// Throws the error for a file that cannot be written because of `reason`, an errno: UserError if
/// another path would help, else RuntimeFault.
[[noreturn]] void cannot_write(const std::string& flag, const std::string& path, int reason);

}  // namespace tessera::cli
