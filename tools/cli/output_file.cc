#include "output_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
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

std::string cure_of(const std::string& path, int reason) {
  std::error_code error;
  if (reason == ENOENT && !path.empty() && !fs::exists(folder_of(path), error)) {
    return "create its folder first: mkdir -p " + folder_of(path);
  }
  if (reason == EISDIR) return "add the name of a file in that folder: " + path + "/NAME";
  return "choose another path";
}

/// Throws the error for a file that cannot be written because of `reason`, an errno.
[[noreturn]] void cannot_write(const std::string& flag, const std::string& path, int reason) {
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

/// Its errors name a flag.
class FlagDisk final : public checkpoint::Disk {
 public:
  explicit FlagDisk(std::string flag) : flag_(std::move(flag)) {}

 private:
  [[noreturn]] void fail(const std::string& /*what*/, const std::string& shown,
                         int reason) const override {
    cannot_write(flag_, shown, reason);
  }

  std::string flag_;
};

/// Other processes of the run may check the same path.
std::string own_state() { return std::to_string(getpid()) + ".unfinished"; }

void check_is_file(const std::string& flag, const std::string& path) {
  if (path.empty()) cannot_write(flag, path, ENOENT);
  const bool is_folder =
      path.back() == '/' || checkpoint::destination_of(path).kind == checkpoint::PathKind::folder;
  if (is_folder) cannot_write(flag, path, EISDIR);
}

}  // namespace

void write_file(const std::string& flag, const std::string& path, const std::string& text) {
  check_is_file(flag, path);
  FlagDisk disk(flag);
  checkpoint::WholeFile file(disk, path, own_state());
  file.write(std::as_bytes(std::span(text)), 0);
  file.commit();
}

void check_writable(const std::string& flag, const std::string& path) {
  check_is_file(flag, path);
  // Opening a pipe would wait for its reader.
  if (checkpoint::destination_of(path).is_in_place()) return;
  FlagDisk disk(flag);
  const checkpoint::WholeFile file(disk, path, own_state());
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

}  // namespace tessera::cli
