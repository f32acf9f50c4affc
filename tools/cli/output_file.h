// Writes files atomically: if anything fails, the whole old file stays.
#pragma once

#include <string>

namespace tessera::cli {

/// A file that is written under a temporary name in the same folder and moved to its path by
/// commit(). What is not a regular file, such as /dev/stdout or a pipe, is written directly.
class OutputFile {
 public:
  /// Creates the temporary file. Messages begin with `flag`. Throws UserError if no file can be
  /// written at this path.
  OutputFile(std::string flag, const std::string& path);
  /// Removes the temporary file if it was not committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// The path to write to.
  const std::string& place() const { return place_; }
  /// Flushes the file to the disk and moves it to its path. Throws as cannot_write() does.
  void commit();

 private:
  std::string flag_, path_, place_;
  bool is_in_place_ = false;
};

/// Writes a file. If it cannot be written, leaves the old file and throws as cannot_write() does.
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
