#include "output_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/error.h>

#include "lib/checkpoint/disk.h"

namespace tessera::cli {

namespace fs = std::filesystem;

namespace {

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// Owns a file descriptor and closes it.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

std::string cure_of(const std::string& path, int reason) {
  std::error_code error;
  if (reason == ENOENT && !path.empty() && !fs::exists(folder_of(path), error)) {
    return "create its folder first: mkdir -p " + folder_of(path);
  }
  if (reason == EISDIR) return "add the name of a file in that folder: " + path + "/NAME";
  return "choose another path";
}

}  // namespace

void cannot_write(const std::string& flag, const std::string& path, int reason) {
  constexpr std::array kOfThePath = {ENOENT, ENOTDIR, EISDIR,       EACCES,
                                     EPERM,  EROFS,   ENAMETOOLONG, ELOOP};
  if (std::find(kOfThePath.begin(), kOfThePath.end(), reason) == kOfThePath.end()) {
    throw RuntimeFault(flag + ": cannot write " + path + ": " + std::strerror(reason));
  }
  throw UserError({.what = flag + ": the file cannot be written",
                   .found = path + ": " + std::strerror(reason),
                   .wanted = "a file in an existing, writable folder",
                   .cure = cure_of(path, reason)});
}

namespace {

/// A file that is written under a temporary name in the same folder and moved to its path by
/// commit(), unless its destination is written in place.
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

OutputFile::OutputFile(std::string flag, const std::string& path) : flag_(std::move(flag)) {
  if (path.empty() || path.back() == '/') cannot_write(flag_, path, path.empty() ? ENOENT : EISDIR);
  const checkpoint::Destination to = checkpoint::destination_of(path);
  if (to.kind == checkpoint::PathKind::folder) cannot_write(flag_, path, EISDIR);
  path_ = to.path;
  is_in_place_ = to.is_in_place();
  if (is_in_place_) {
    place_ = path_;
    return;
  }
  const fs::path whole(path_);
  place_ = (whole.parent_path() /
            ("." + whole.filename().string() + "." + std::to_string(getpid()) + ".unfinished"))
               .string();
  const Descriptor file(
      open(place_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file.number() < 0) {
    const int reason = errno;
    place_.clear();
    cannot_write(flag_, path, reason);
  }
  // Give the new file the permissions of the old one. If that is forbidden, keep the default ones.
  const bool is_there = to.kind == checkpoint::PathKind::file;
  if (is_there && fchmod(file.number(), to.mode) != 0) return;
}

OutputFile::~OutputFile() {
  if (!is_in_place_ && !place_.empty()) std::remove(place_.c_str());
}

void OutputFile::commit() {
  if (is_in_place_) return;
  const Descriptor file(open(place_.c_str(), O_RDONLY | O_CLOEXEC));
  const bool is_moved = file.number() >= 0 && fsync(file.number()) == 0 &&
                        std::rename(place_.c_str(), path_.c_str()) == 0;
  if (!is_moved) cannot_write(flag_, path_, errno);
  place_.clear();
  const Descriptor folder(open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: this file system cannot flush folders and need not.
  if (folder.number() >= 0 && fsync(folder.number()) != 0 && errno != EINVAL) {
    cannot_write(flag_, path_, errno);
  }
}

}  // namespace

void write_file(const std::string& flag, const std::string& path, const std::string& text) {
  OutputFile target(flag, path);
  const Descriptor file(open(target.place().c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (file.number() < 0) cannot_write(flag, path, errno);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = write(file.number(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) cannot_write(flag, path, count == 0 ? ENOSPC : errno);
    done += static_cast<std::size_t>(count);
  }
  target.commit();
}

void check_folder(const std::string& flag, const std::string& path) {
  fs::path last = path;  // becomes the innermost part of the path that exists
  std::error_code error;
  fs::file_status status = fs::status(last, error);
  while (status.type() == fs::file_type::not_found && last.has_relative_path()) {
    last = last.parent_path();
    if (last.empty()) last = ".";
    status = fs::status(last, error);
  }
  if (status.type() == fs::file_type::none) {
    throw RuntimeFault("cannot read " + last.string() + ": " + error.message());
  }
  const bool is_folder = status.type() == fs::file_type::directory;
  if (is_folder && access(last.c_str(), W_OK | X_OK) == 0) return;
  const char* why = std::strerror(is_folder ? errno : ENOTDIR);
  throw UserError({.what = flag + ": the folder cannot be created or written to",
                   .found = path + ": " + last.string() + ": " + why,
                   .wanted = "a writable folder, or a path where one can be created",
                   .cure = "choose another path"});
}

void check_writable(const std::string& flag, const std::string& path) {
  const OutputFile target(flag, path);
}

}  // namespace tessera::cli
