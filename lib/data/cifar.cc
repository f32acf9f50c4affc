#include <algorithm>
#include <filesystem>

#include <tessera/data.h>
#include <tessera/error.h>

#include "checkpoint/json.h"
#include "data/file.h"
#include "data/index_shuffle.h"
#include "foreign/numpy_pickle.h"
#include "foreign/unpickle.h"

namespace tessera::data {

namespace {

namespace fs = std::filesystem;
using foreign::Value;
using Kind = Value::Kind;

constexpr std::size_t kSide = 32;
constexpr std::size_t kPixels = kSide * kSide;
constexpr std::size_t kImageBytes = 3 * kPixels;
constexpr std::size_t kRecordBytes = 1 + kImageBytes;
constexpr std::int64_t kClasses = 10;
constexpr std::uint32_t kSplitSeed = 0;
constexpr const char* kCure = "unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz again";

/// Images [n, height, width, channels] with their labels.
struct Images {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;

  std::int64_t size() const { return std::ssize(labels); }
  /// Adds an image, given as planes of red, green and blue, each row-major.
  void add(std::int64_t label, const std::uint8_t* planes) {
    labels.push_back(static_cast<std::int32_t>(label));
    const std::size_t begin = pixels.size();
    pixels.resize(begin + kImageBytes);
    std::uint8_t* to = pixels.data() + begin;
    for (std::size_t i = 0; i < kPixels; ++i) {
      for (std::size_t c = 0; c < 3; ++c) to[3 * i + c] = planes[c * kPixels + i];
    }
  }
};

[[noreturn]] void fail_file(const std::string& found, const std::string& wanted) {
  throw UserError({.what = "cifar10: the file is not in the format of CIFAR-10",
                   .found = found,
                   .wanted = wanted,
                   .cure = kCure});
}

/// `place` says where the label is.
void check_label(const std::string& place, std::int64_t label) {
  if (label >= 0 && label < kClasses) return;
  throw UserError({.what = "cifar10: a label is out of range",
                   .found = place + " with the label " + std::to_string(label),
                   .wanted = "labels from 0 to 9",
                   .cure = kCure});
}

std::vector<std::uint8_t> read_part(const std::string& path) {
  return read_file(path, "cifar10", "all files of the data set", kCure);
}

void read_binary(const std::string& path, Images& images) {
  const std::vector<std::uint8_t> bytes = read_part(path);
  if (bytes.empty() || bytes.size() % kRecordBytes != 0) {
    fail_file(at_byte(path, bytes.size(), "the end of the file"),
              "records of 3073 bytes: a label and the planes of an image");
  }
  for (std::size_t at = 0; at < bytes.size(); at += kRecordBytes) {
    check_label(path + ": image " + std::to_string(at / kRecordBytes), bytes[at]);
    images.add(bytes[at], bytes.data() + at + 1);
  }
}

constexpr const char* kWantedPickle =
    "a dict with `data`, an array [n,3072] of bytes, and `labels`, a list of n numbers";

/// Reads a pickle, whose values refer to the bytes.
foreign::Pickle unpickled(const std::vector<std::uint8_t>& bytes, const std::string& path) {
  try {
    return foreign::read_pickle(bytes);
  } catch (const checkpoint::BadText& error) {
    fail_file(path + ": " + error.what(), kWantedPickle);
  }
}

/// The images of a file, as planes.
foreign::NumpyArray images_in(const Value& root, const std::string& path) {
  const Value* const data = foreign::find(root, "data");
  std::optional<foreign::NumpyArray> images;
  if (data != nullptr) images = foreign::numpy_array(*data);
  if (images && images->type == "|u1") return *images;
  const Value* const found = data == nullptr ? &root : data;
  fail_file(path + (found->kind == Kind::opaque && !images
                        ? ": a call of " + foreign::name_of_call(*found) + ", which is not run"
                        : ": no array `data` of bytes"),
            kWantedPickle);
}

void read_python(const std::string& path, Images& images) {
  const std::vector<std::uint8_t> bytes = read_part(path);
  const foreign::Pickle pickle = unpickled(bytes, path);
  const foreign::NumpyArray data = images_in(*pickle.result, path);
  const Value* const labels = foreign::find(*pickle.result, "labels");
  if (labels == nullptr || labels->kind != Kind::list)
    fail_file(path + ": no list `labels`", kWantedPickle);
  const std::size_t count = labels->items.size();
  const Shape wanted = {static_cast<std::int64_t>(count), kImageBytes};
  if (count == 0 || data.shape != wanted || data.elements.bytes.size() != count * kImageBytes) {
    fail_file(path + ": " + std::to_string(count) + " labels, and data of shape " +
                  to_string(data.shape) + " with " + std::to_string(data.elements.bytes.size()) +
                  " bytes",
              kWantedPickle);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Value& label = *labels->items[i];
    if (label.kind != Kind::number)
      fail_file(path + ": a label that is not a number", kWantedPickle);
    check_label(path + ": image " + std::to_string(i), label.number);
    images.add(label.number, &data.elements.bytes[i * kImageBytes]);
  }
}

struct Folder {
  fs::path path;
  bool is_binary;
};

/// Finds the folder of the files, which may be a subfolder of `folder`, and their layout.
Folder find_folder(const std::string& folder) {
  std::error_code ignored;
  for (const fs::path& path : {fs::path(folder), fs::path(folder) / "cifar-10-batches-bin",
                               fs::path(folder) / "cifar-10-batches-py"}) {
    if (fs::exists(path / "data_batch_1.bin", ignored)) return {.path = path, .is_binary = true};
    if (fs::exists(path / "data_batch_1", ignored)) return {.path = path, .is_binary = false};
  }
  const bool is_there = fs::is_directory(folder, ignored);
  throw UserError(
      {.what = "cifar10: the folder does not hold the data set",
       .found =
           folder + ": " + (is_there ? "neither data_batch_1.bin nor data_batch_1" : "no folder"),
       .wanted = "the files of CIFAR-10 in their binary or Python layout",
       .cure = "unpack cifar-10-binary.tar.gz there, or give the folder that has the files"});
}

Images read_files(const Folder& folder, bool is_test) {
  std::vector<std::string> names = {"test_batch"};
  if (!is_test) {
    names.clear();
    for (int i = 1; i <= 5; ++i) names.push_back("data_batch_" + std::to_string(i));
  }
  Images images;
  for (const std::string& name : names) {
    if (folder.is_binary) {
      read_binary((folder.path / (name + ".bin")).string(), images);
    } else {
      read_python((folder.path / name).string(), images);
    }
  }
  return images;
}

/// The images that are held back for validation, or the other ones, in the order of the files.
Images chosen(const Images& all, bool is_validation, const std::string& folder) {
  const auto size = static_cast<std::size_t>(all.size());
  const std::size_t held_back = size / 10;
  if (held_back == 0) {
    throw UserError({.what = "cifar10: there are too few images to hold some back for validation",
                     .found = folder + " with " + std::to_string(size) + " training images",
                     .wanted = "at least 10",
                     .cure = "use a larger data set"});
  }
  std::vector<bool> is_held_back(size);
  for (std::size_t i = size - held_back; i < size; ++i) {
    is_held_back[index_shuffle(i, size - 1, kSplitSeed)] = true;
  }
  Images images;
  for (std::size_t i = 0; i < size; ++i) {
    if (is_held_back[i] != is_validation) continue;
    images.labels.push_back(all.labels[i]);
    const auto begin = all.pixels.begin() + static_cast<std::ptrdiff_t>(i * kImageBytes);
    images.pixels.insert(images.pixels.end(), begin, begin + kImageBytes);
  }
  return images;
}

class Cifar final : public Source {
 public:
  explicit Cifar(Images images) : images_(std::move(images)) {}
  std::int64_t size() const override { return images_.size(); }
  Record read(std::int64_t record, RecordRandom& /*random*/) const override {
    const auto i = static_cast<std::size_t>(record);
    const auto begin = images_.pixels.begin() + static_cast<std::ptrdiff_t>(i * kImageBytes);
    return {{.shape = {kSide, kSide, 3},
             .values = std::vector<std::uint8_t>(begin, begin + kImageBytes)},
            {.shape = {}, .values = std::vector<std::int32_t>{images_.labels[i]}}};
  }

 private:
  Images images_;
};

std::vector<std::string> numbered(std::vector<std::string> names) {
  for (std::int64_t i = std::ssize(names); i < kClasses; ++i) names.push_back(std::to_string(i));
  names.resize(kClasses);
  return names;
}

std::vector<std::string> classes_in(const std::string& folder) {
  const Folder found = find_folder(folder);
  const std::string path =
      (found.path / (found.is_binary ? "batches.meta.txt" : "batches.meta")).string();
  const std::optional<std::vector<std::uint8_t>> bytes = read_bytes(path);
  std::vector<std::string> names;
  if (!bytes) return numbered({});
  if (found.is_binary) {
    std::string name;
    for (const std::uint8_t byte : *bytes) {
      if (byte != '\n') {
        name += static_cast<char>(byte);
      } else if (!name.empty()) {
        names.push_back(std::exchange(name, {}));
      }
    }
    if (!name.empty()) names.push_back(name);
    return numbered(std::move(names));
  }
  const foreign::Pickle pickle = unpickled(*bytes, path);
  const Value* const list = foreign::find(*pickle.result, "label_names");
  if (list == nullptr || list->kind != Kind::list) return numbered({});
  for (const Value* name : list->items) names.emplace_back(name->text);
  return numbered(std::move(names));
}

}  // namespace

Dataset cifar10(const std::string& folder, Split split, std::source_location where) {
  return at_line(where, [&] {
    Images images = read_files(find_folder(folder), split == Split::test);
    if (split != Split::test) images = chosen(images, split == Split::validation, folder);
    return Dataset(std::make_shared<Cifar>(std::move(images)));
  });
}

std::vector<std::string> cifar10_classes(const std::string& folder, std::source_location where) {
  return at_line(where, [&] { return classes_in(folder); });
}

}  // namespace tessera::data
