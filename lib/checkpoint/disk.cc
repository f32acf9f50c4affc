#include "checkpoint/disk.h"

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/error.h>

namespace tessera::checkpoint {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void throw_fault(const std::string& what, const std::string& path, int reason) {
  throw RuntimeFault("cannot " + what + " " + path + ": " + std::strerror(reason));
}

/// Repeats a system call while signals interrupt it; returns its result.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

PathKind kind_in(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return PathKind::file;
  return S_ISDIR(status.st_mode) ? PathKind::folder : PathKind::other;
}

ssize_t write_some(int file, std::span<const std::byte> bytes, std::int64_t offset) {
  return uninterrupted([&] {
    const ssize_t written = pwrite(file, bytes.data(), bytes.size(), offset);
    const bool has_no_offsets = written < 0 && errno == ESPIPE;
    return has_no_offsets ? ::write(file, bytes.data(), bytes.size()) : written;
  });
}

}  // namespace

void Disk::fail(const std::string& what, const std::string& shown, int reason) const {
  throw_fault(what, shown, reason);
}

int Disk::create(const std::string& path, const std::string& shown) {
  const int file = uninterrupted(
      [&] { return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (file < 0) fail("write", shown, errno);
  return file;
}

int Disk::open_existing(const std::string& path, const std::string& shown) {
  const int file = uninterrupted([&] { return open(path.c_str(), O_WRONLY | O_CLOEXEC); });
  if (file < 0) fail("write", shown, errno);
  return file;
}

void Disk::write(int file, std::span<const std::byte> bytes, std::int64_t offset,
                 const std::string& shown) {
  while (!bytes.empty()) {
    const ssize_t written = write_some(file, bytes, offset);
    if (written < 0) fail("write", shown, errno);
    if (written == 0) fail("write", shown, ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
}

void Disk::sync(int file, const std::string& shown) {
  if (uninterrupted([&] { return fsync(file); }) != 0) fail("write", shown, errno);
}

void Disk::make_folder(const std::string& path, const std::string& shown) {
  if (mkdir(path.c_str(), 0777) != 0) fail("make the folder", shown, errno);
}

void Disk::sync_folder(const std::string& path, const std::string& shown) {
  const int folder =
      uninterrupted([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0) fail("write", shown, errno);
  const int result = uninterrupted([&] { return fsync(folder); });
  const int reason = errno;
  close(folder);
  // EINVAL: this file system cannot flush folders and need not.
  if (result != 0 && reason != EINVAL) fail("write", shown, reason);
}

void Disk::replace(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return;
  // rename() does not overwrite a folder with files: exchange the two instead.
  const bool is_taken = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
  if (!is_taken || renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    fail("replace", to, errno);
  }
}

Disk& local_disk() {
  static Disk disk;
  return disk;
}

Unfinished::Unfinished(Disk& disk, std::string path, const std::string& state)
    : disk_(disk), path_(std::move(path)), place_(hidden_name(path_, state)) {
  remove_quietly(place_);
}

Unfinished::~Unfinished() { remove_quietly(place_); }

void Unfinished::commit() {
  disk_.replace(place_, path_);
  disk_.sync_folder(parent_of(path_), path_);
}

Destination destination_of(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  Destination result{.path = error ? path : target.string()};
  struct stat status {};
  if (stat(result.path.c_str(), &status) != 0) return result;
  result.kind = kind_in(status);
  result.mode = status.st_mode & 07777U;
  return result;
}

OutputFile::OutputFile(Disk& disk, const std::string& path, std::string shown)
    : disk_(disk), shown_(std::move(shown)), file_(disk.create(path, shown_)) {}

OutputFile::OutputFile(Disk& disk, int file, std::string shown)
    : disk_(disk), shown_(std::move(shown)), file_(file) {}

OutputFile::~OutputFile() { close(file_); }

void OutputFile::write(std::span<const std::byte> bytes, std::int64_t offset) {
  disk_.write(file_, bytes, offset, shown_);
}

void OutputFile::sync() { disk_.sync(file_, shown_); }

void OutputFile::set_mode(std::uint32_t mode) {
  if (fchmod(file_, mode) != 0) return;
}

WholeFile::WholeFile(Disk& disk, const std::string& path, const std::string& state) {
  const Destination to = destination_of(path);
  if (to.is_in_place()) {
    file_.emplace(disk, disk.open_existing(to.path, path), path);
    return;
  }
  unfinished_.emplace(disk, to.path, state);
  file_.emplace(disk, unfinished_->place(), path);
  if (to.kind == PathKind::file) file_->set_mode(to.mode);
}

void WholeFile::commit() {
  if (!unfinished_) return;
  file_->sync();
  unfinished_->commit();
}

void write_text(Disk& disk, const std::string& path, const std::string& shown,
                const std::string& text) {
  OutputFile file(disk, path, shown);
  file.write(std::as_bytes(std::span(text)), 0);
  file.sync();
}

InputFile::InputFile(std::string reader, std::string path)
    : reader_(std::move(reader)),
      path_(std::move(path)),
      file_(uninterrupted([&] { return open(path_.c_str(), O_RDONLY | O_CLOEXEC); })) {
  const int reason = errno;
  if (file_ < 0 && reason != ENOENT && reason != ENOTDIR) fail_reading(reason);
  struct stat status {};
  if (file_ >= 0 && fstat(file_, &status) != 0) {
    const int why = errno;
    close(file_);
    fail_reading(why);
  }
  if (file_ >= 0 && S_ISREG(status.st_mode)) {
    size_ = status.st_size;
    return;
  }
  if (file_ >= 0) close(file_);
  throw UserError({.what = reader_ + ": a file is missing",
                   .found = file_ < 0 ? "no " + path_ : path_ + ", which is not a file",
                   .wanted = "the files that were saved together",
                   .cure = "check the path; `tessera checkpoint ls` lists what a folder holds"});
}

InputFile::~InputFile() { close(file_); }

void InputFile::fail_reading(int reason) const {
  throw RuntimeFault(reader_ + ": cannot read " + path_ + ": " + std::strerror(reason));
}

bool InputFile::read(std::span<std::byte> bytes, std::int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t count =
        uninterrupted([&] { return pread(file_, bytes.data(), bytes.size(), offset); });
    if (count < 0) fail_reading(errno);
    if (count == 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return true;
}

std::string InputFile::text() const {
  std::string text(static_cast<std::size_t>(size_), '\0');
  if (!read(std::as_writable_bytes(std::span(text)), 0)) text.clear();
  return text;
}

PathKind kind_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) throw_fault("read", path, errno);
    return PathKind::none;
  }
  return kind_in(status);
}

std::vector<std::string> names_in(const std::string& folder) {
  const auto end = [](DIR* open) { closedir(open); };
  const std::unique_ptr<DIR, decltype(end)> stream(opendir(folder.c_str()), end);
  if (stream == nullptr && errno == ENOENT) return {};
  if (stream == nullptr) throw_fault("read", folder, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) throw_fault("read", folder, errno);
  return names;
}

void make_folders(Disk& disk, const std::string& path) {
  const PathKind kind = kind_of(path);
  if (kind == PathKind::folder) return;
  if (kind != PathKind::none) throw_fault("make the folder", path, ENOTDIR);
  const std::string parent = parent_of(path);
  if (parent != path) make_folders(disk, parent);
  try {
    disk.make_folder(path, path);
  } catch (const RuntimeFault&) {
    // Another process may have created it meanwhile.
    if (kind_of(path) != PathKind::folder) throw;
  }
  disk.sync_folder(parent, path);
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void remove_file(const std::string& path) {
  if (uninterrupted([&] { return unlink(path.c_str()); }) != 0) throw_fault("remove", path, errno);
}

void remove_quietly(const std::string& path) noexcept {
  try {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  } catch (const std::exception&) {
    return;  // out of memory; the next run removes what is left
  }
}

std::string hidden_name(const std::string& path, const std::string& state) {
  const fs::path whole(path);
  return (whole.parent_path() / ("." + whole.filename().string() + "." + state)).string();
}

}  // namespace tessera::checkpoint
