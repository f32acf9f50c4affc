// Pictures as PNG or SVG files, from the same drawing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::cli {

/// A white page; lengths are pixels of the PNG file, y goes down.
class Picture {
 public:
  /// `path` ends in .png or .svg; throws UserError naming `flag` otherwise.
  Picture(const std::string& flag, const std::string& path, double width, double height);
  ~Picture();
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;

  /// One line of text whose middle is at x and whose letters stand on y.
  void text(double x, double y, double size, const std::string& line);
  /// Bytes [side, side, 3] as squares that fill [x, x + width) and as much downwards.
  void image(double x, double y, double width, const std::vector<std::uint8_t>& pixels,
             std::int64_t side);
  /// Writes the file; throws RuntimeFault.
  void write();

 private:
  struct Page;
  std::unique_ptr<Page> page_;
};

}  // namespace tessera::cli
