// Files that commands write: the old one or the new one is there, whole, whatever happens.
#pragma once

#include <string>

namespace tessera::cli {

/// A file that is built beside its place and moved there by commit(). What is no regular file, such
/// as /dev/stdout or a pipe, is written where it is.
class OutputFile {
 public:
  /// `flag` names the file in messages. Throws UserError for a path where no file can be.
  OutputFile(std::string flag, const std::string& path);
  /// Removes what was not committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Where to write it.
  const std::string& place() const { return place_; }
  /// Returns when it is on the disk and at its path. Throws RuntimeFault.
  void commit();

 private:
  std::string flag_, path_, place_;
  bool is_in_place_ = false;
};

/// Throws RuntimeFault when it cannot be written, and then leaves the old file.
void write_file(const std::string& flag, const std::string& path, const std::string& text);
/// Throws UserError when no file can be written there.
void check_writable(const std::string& flag, const std::string& path);

/// Throws UserError when the folder `path` is not there and cannot be made, or cannot be written.
void check_folder(const std::string& flag, const std::string& path);

/// Throws what `reason`, an errno, means for a file to be written: UserError where another path
/// would do, RuntimeFault for the rest.
[[noreturn]] void cannot_write(const std::string& flag, const std::string& path, int reason);

}  // namespace tessera::cli
