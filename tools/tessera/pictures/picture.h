// Draws pictures and writes them as PNG or SVG files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::cli {

struct Color {
  double red, green, blue;  // 0 to 1
};
/// Colours that colour-blind readers can tell apart; they repeat after eight.
Color color_of(std::size_t number);
/// The colour mixed with white.
Color lighter(Color color);

struct Point {
  double x, y;
};
/// Which point of a text its x gives.
enum class Align : std::uint8_t { left, middle, right };

/// A white page. Lengths are pixels of the PNG file; y points down.
class Picture {
 public:
  /// `path` ends in .png or .svg; throws UserError naming `flag` otherwise.
  Picture(const std::string& flag, const std::string& path, double width, double height);
  ~Picture();
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;

  /// Draws one line of text with its baseline at y.
  void text(double x, double y, double size, const std::string& line, Align align = Align::middle);
  /// Draws one line of text that runs upwards, with its middle at y and its baseline at x.
  void text_upwards(double x, double y, double size, const std::string& line);
  double text_width(double size, const std::string& line);
  /// Draws a filled rectangle, with a thin dark edge if `has_edge`.
  void rectangle(Point corner, double width, double height, Color fill, bool has_edge = false);
  void line(const std::vector<Point>& points, double width, Color color);
  /// Draws an image, u8[side, side, 3], as a square of this width with its upper left corner at
  /// (x, y).
  void image(double x, double y, double width, const std::vector<std::uint8_t>& pixels,
             std::int64_t side);
  /// Writes the file; throws RuntimeFault.
  void write();

 private:
  struct Page;
  std::unique_ptr<Page> page_;
};

}  // namespace tessera::cli
