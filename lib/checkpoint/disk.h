// File access. Files and folders are written so that they appear either whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera::checkpoint {

// The command uses what is exported.

/// The operations that write files; virtual so that tests can make them fail. All call fail() with
/// the reason and the path `shown`, the final path of the file; `path` may be temporary.
class TESSERA_EXPORT Disk {
 public:
  virtual ~Disk() = default;
  /// Creates a file, which must not exist yet; returns its descriptor.
  virtual int create(const std::string& path, const std::string& shown);
  /// Opens what is at `path`, such as a pipe or a device, to write to it; returns its descriptor.
  virtual int open_existing(const std::string& path, const std::string& shown);
  /// Writes all bytes. A pipe has no offsets: it gets them after those of the previous call.
  virtual void write(int file, std::span<const std::byte> bytes, std::int64_t offset,
                     const std::string& shown);
  /// Flushes the file; returns when its bytes are on the disk.
  virtual void sync(int file, const std::string& shown);
  virtual void make_folder(const std::string& path, const std::string& shown);
  virtual void sync_folder(const std::string& path, const std::string& shown);
  /// Moves `from` to `to` atomically. If `to` was a folder with files, it is at `from` afterwards.
  virtual void replace(const std::string& from, const std::string& to);

 protected:
  /// Throws RuntimeFault: "cannot WHAT SHOWN: " and the text of an errno.
  [[noreturn]] virtual void fail(const std::string& what, const std::string& shown,
                                 int reason) const;
};
/// The file system of this machine.
Disk& local_disk();

/// A file or folder that is built under a temporary name in the same folder and then moved to its
/// path as a whole. It is removed if it is not committed.
class TESSERA_EXPORT Unfinished {
 public:
  /// Removes what a killed process left at place(). `state` ends the temporary name.
  Unfinished(Disk& disk, std::string path, const std::string& state = "unfinished");
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  /// The temporary path at which to build it, and its final path.
  const std::string& place() const { return place_; }
  const std::string& path() const { return path_; }
  /// Moves what was built to path(). The caller must flush it to the disk first. Whatever was at
  /// path() is removed when this object is destroyed.
  void commit();

 private:
  Disk& disk_;
  std::string path_, place_;
};

enum class PathKind : std::uint8_t { none, file, folder, other };

/// Where a file is written that is asked for at some path.
struct Destination {
  /// With symbolic links resolved: a link stays, and the file that it names is replaced.
  std::string path;
  PathKind kind = PathKind::none;
  /// The permissions of what is there.
  std::uint32_t mode = 0;

  /// A pipe or a device is written to as it is, because a file must not take its place.
  bool is_in_place() const { return kind == PathKind::other; }
};
/// Throws nothing if the system cannot tell: opening the path then fails with the reason.
TESSERA_EXPORT Destination destination_of(const std::string& path);

/// A file that is open for writing. Throws RuntimeFault with the path `shown`.
class TESSERA_EXPORT OutputFile {
 public:
  /// Creates a file, which must not exist yet.
  OutputFile(Disk& disk, const std::string& path, std::string shown);
  /// Takes over a descriptor.
  OutputFile(Disk& disk, int file, std::string shown);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes, std::int64_t offset);
  void sync();
  /// Sets the permissions, or leaves them where the file system forbids that.
  void set_mode(std::uint32_t mode);

 private:
  Disk& disk_;
  std::string shown_;
  int file_;
};
/// A file that appears whole at its path, or in place if its destination asks for that.
class TESSERA_EXPORT WholeFile {
 public:
  /// `state` ends the temporary name. Processes that may write the same file need different ones.
  WholeFile(Disk& disk, const std::string& path, const std::string& state = "unfinished");
  /// Writes bytes. Must be called in the order of the offsets, without gaps.
  void write(std::span<const std::byte> bytes, std::int64_t offset) { file_->write(bytes, offset); }
  /// Flushes the file and moves it to its path.
  void commit();

 private:
  std::optional<Unfinished> unfinished_;  // unless it is written in place
  std::optional<OutputFile> file_;
};

/// Creates a file with this text and flushes it to the disk.
void write_text(Disk& disk, const std::string& path, const std::string& shown,
                const std::string& text);

/// A file that is open for reading. Throws RuntimeFault when it cannot be read.
class InputFile {
 public:
  /// Throws UserError when there is no such file and RuntimeFault when it cannot be read. The
  /// message begins with `reader`.
  InputFile(std::string reader, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Fills `bytes` with the file's bytes from `offset` on. Returns false if the file is too short.
  bool read(std::span<std::byte> bytes, std::int64_t offset) const;
  /// The whole file; empty if it became shorter meanwhile.
  std::string text() const;

 private:
  [[noreturn]] void fail_reading(int reason) const;

  std::string reader_, path_;
  int file_;
  std::int64_t size_ = 0;
};

/// What is at a path. Throws RuntimeFault if the system cannot tell.
PathKind kind_of(const std::string& path);
/// The names in a folder; empty if the folder does not exist. Throws RuntimeFault if it cannot be
/// read.
std::vector<std::string> names_in(const std::string& folder);

/// Creates a folder and its missing parents, and flushes their names to the disk.
void make_folders(Disk& disk, const std::string& path);
/// The folder that contains `path`.
std::string parent_of(const std::string& path);
/// Throws RuntimeFault if the file cannot be removed.
void remove_file(const std::string& path);
/// Removes a file, or a folder and its contents. Silently leaves what cannot be removed.
void remove_quietly(const std::string& path) noexcept;
/// The path `.NAME.STATE` beside `path`, for what is unfinished or being removed. Code that lists
/// the steps of a folder ignores such names.
std::string hidden_name(const std::string& path, const std::string& state);

}  // namespace tessera::checkpoint
