// Folders of generated images in the two layouts of CIFAR-10, for tests only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tessera::testing {

/// Byte `i` of the colour planes of image `n`; below, the label of image `n`.
inline std::uint8_t cifar_byte(std::size_t n, std::size_t i) {
  return static_cast<std::uint8_t>((n * 131 + i * 7 + i / 1024 * 50) % 256);
}
inline std::uint8_t cifar_label(std::size_t n) { return static_cast<std::uint8_t>(n * 7 % 10); }

inline std::string cifar_planes(std::size_t n) {
  std::string planes(3072, '\0');
  for (std::size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<char>(cifar_byte(n, i));
  return planes;
}

/// A data file with images first, first + 1, ...: for each its label, then its planes.
inline std::string cifar_binary(std::size_t first, std::size_t count) {
  std::string file;
  for (std::size_t n = first; n < first + count; ++n) {
    file += static_cast<char>(cifar_label(n));
    file += cifar_planes(n);
  }
  return file;
}

/// Opcodes of pickle protocol 2, encoded as Python 2 wrote them.
inline std::string pickled_u32(char code, std::size_t value) {
  std::string bytes(1, code);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    bytes += static_cast<char>(value >> shift & 0xFFU);
  }
  return bytes;
}
inline std::string pickled_text(const std::string& text) {
  if (text.size() >= 256) return pickled_u32('T', text.size()) + text;
  return std::string("U") + static_cast<char>(text.size()) + text;
}
inline std::string pickled_small(std::size_t value) {
  return std::string("K") + static_cast<char>(value);
}

/// The same images as a pickled dict of an array, labels and names.
inline std::string cifar_python(std::size_t first, std::size_t count) {
  std::string planes;
  std::string labels;
  std::string names;
  for (std::size_t n = first; n < first + count; ++n) {
    planes += cifar_planes(n);
    labels += pickled_small(cifar_label(n));
    names += pickled_text("image_" + std::to_string(n) + ".png");
    names += pickled_u32('r', 100 + n - first);
  }
  // A zero byte would end a string literal, so texts that contain one are put together from parts.
  std::string state = "cnumpy\ndtype\nq\x06U\x02u1q\x07";
  state += pickled_small(0) + pickled_small(1) + "\x87q\x08Rq\x09(K\x03U\x01|NNN";
  state += pickled_u32('J', 0xFFFFFFFF) + pickled_u32('J', 0xFFFFFFFF) + pickled_small(0) + "tb";
  std::string file = "\x80\x02}q\x01(";
  file += pickled_text("batch_label") + "q\x02" + pickled_text("generated") + "q\x03";
  file += pickled_text("labels") + "q\x04]q\x05(" + labels + "e";
  file += pickled_text("data") + "cnumpy.core.multiarray\n_reconstruct\nq\x0a" +
          "cnumpy\nndarray\nq\x0b";
  file += pickled_small(0) + "\x85q\x0cU\x01" + "b\x87q\x0dRq\x0e(" + pickled_small(1);
  file += pickled_u32('J', count) + std::string("M\x00\x0c", 3) + "\x86q\x0f" + state + "\x89";
  file += pickled_text(planes) + "tb";
  file += pickled_text("filenames") + "]q\x10(" + names + "eu.";
  return file;
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

enum class CifarLayout { binary, python };

/// Writes five training files and a test file, with `count` images each.
inline void write_cifar_folder(const std::filesystem::path& folder, CifarLayout layout,
                               std::size_t count) {
  std::filesystem::create_directories(folder);
  for (std::size_t i = 0; i < 6; ++i) {
    const std::string name = i < 5 ? "data_batch_" + std::to_string(i + 1) : "test_batch";
    if (layout == CifarLayout::binary) {
      write_file(folder / (name + ".bin"), cifar_binary(i * count, count));
    } else {
      write_file(folder / name, cifar_python(i * count, count));
    }
  }
}

}  // namespace tessera::testing
