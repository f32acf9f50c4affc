// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::checkpoint {

/// What saving does to the disk. Everything throws RuntimeFault with the reason and the name
/// `shown`, which is where the file will be.
class Disk {
 public:
  virtual ~Disk() = default;
  /// Creates a file that is not there yet; returns its descriptor.
  virtual int create(const std::string& path, const std::string& shown);
  virtual void write(int file, std::span<const std::byte> bytes, std::int64_t offset,
                     const std::string& shown);
  /// Returns when the bytes have reached the disk.
  virtual void sync(int file, const std::string& shown);
  virtual void make_folder(const std::string& path, const std::string& shown);
  virtual void sync_folder(const std::string& path, const std::string& shown);
  /// `from` takes the place of `to` in one step; a folder that was there is at `from` afterwards.
  virtual void replace(const std::string& from, const std::string& to);
};
/// The one of this machine.
Disk& local_disk();

/// A file, or a folder of files, that is built beside its place and moved there as a whole. What is
/// not committed is removed.
class Unfinished {
 public:
  /// Removes what a process that was killed has left there.
  Unfinished(Disk& disk, std::string path);
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  /// Where to build it, and where it will be.
  const std::string& place() const { return place_; }
  const std::string& path() const { return path_; }
  /// What is built is on the disk; afterwards what stood at the path is gone.
  void commit();

 private:
  Disk& disk_;
  std::string path_, place_;
};

/// A file that is open for writing.
class OutputFile {
 public:
  OutputFile(Disk& disk, const std::string& path, std::string shown);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes, std::int64_t offset);
  void sync();

 private:
  Disk& disk_;
  std::string shown_;
  int file_;
};
/// Creates a file with this text, on the disk.
void write_text(Disk& disk, const std::string& path, const std::string& shown,
                const std::string& text);

/// A file that is open for reading.
class InputFile {
 public:
  /// Throws UserError when there is none and RuntimeFault when it cannot be read; `reader` opens
  /// the message.
  InputFile(std::string reader, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Fills `bytes`; false where the file ends before.
  bool read(std::span<std::byte> bytes, std::int64_t offset) const;
  /// The whole file.
  std::string text() const;

 private:
  [[noreturn]] void fail_reading(int reason) const;

  std::string reader_, path_;
  int file_;
  std::int64_t size_ = 0;
};

enum class PathKind : std::uint8_t { none, file, folder, other };
/// What is at a path. Throws RuntimeFault if that cannot be found out.
PathKind kind_of(const std::string& path);
/// The names in a folder; none where there is no folder. Throws RuntimeFault when it cannot be
/// read.
std::vector<std::string> names_in(const std::string& folder);

/// Creates a folder and its missing parents, and flushes their names to the disk.
void make_folders(Disk& disk, const std::string& path);
/// The folder that has `path`.
std::string parent_of(const std::string& path);
/// Throws RuntimeFault if the file cannot be removed.
void remove_file(const std::string& path);
/// Removes a file or a folder with all that is in it. What cannot be removed stays.
void remove_quietly(const std::string& path) noexcept;
/// A name that readers of folders pass over: what stands there is not finished, or being removed.
std::string hidden_name(const std::string& path, const std::string& state);

}  // namespace tessera::checkpoint
