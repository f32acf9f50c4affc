// Pictures as PNG or SVG files, from the same drawing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::cli {

struct Color {
  double red, green, blue;  // 0 to 1
};
/// Colours that differ for people who do not see all of them; they repeat after eight.
Color color_of(std::size_t number);
/// Nearer to white.
Color lighter(Color color);

struct Point {
  double x, y;
};
/// Where a text has its x.
enum class Align : std::uint8_t { left, middle, right };

/// A white page; lengths are pixels of the PNG file, y goes down.
class Picture {
 public:
  /// `path` ends in .png or .svg; throws UserError naming `flag` otherwise.
  Picture(const std::string& flag, const std::string& path, double width, double height);
  ~Picture();
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;

  /// One line of text whose letters stand on y.
  void text(double x, double y, double size, const std::string& line, Align align = Align::middle);
  /// The same, upwards: its middle is at y, and its letters stand on x.
  void text_upwards(double x, double y, double size, const std::string& line);
  double text_width(double size, const std::string& line);
  /// Filled, with a thin dark edge where asked for.
  void rectangle(Point corner, double width, double height, Color fill, bool has_edge = false);
  void line(const std::vector<Point>& points, double width, Color color);
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
