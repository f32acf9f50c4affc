#include "picture.h"

#include <cairo-svg.h>
#include <cairo.h>

#include <tessera/error.h>

#include "tools/cli/output_file.h"

namespace tessera::cli {

struct Picture::Page {
  std::string flag;
  std::string path;
  std::string bytes;  // of the file
  bool is_svg;
  cairo_surface_t* surface;
  cairo_t* pen;
};

namespace {

bool ends_with(const std::string& path, const std::string& end) {
  return path.size() > end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
}

cairo_status_t append(void* bytes, const unsigned char* data, unsigned int length) {
  try {
    static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), length);
    return CAIRO_STATUS_SUCCESS;
  } catch (const std::bad_alloc&) {
    return CAIRO_STATUS_NO_MEMORY;
  }
}

}  // namespace

Color color_of(std::size_t number) {
  // The palette of M. Okabe and K. Ito, with grey in place of black, which is used for text.
  static constexpr Color kColors[] = {{0.00, 0.45, 0.70}, {0.90, 0.62, 0.00}, {0.00, 0.62, 0.45},
                                      {0.80, 0.47, 0.65}, {0.34, 0.71, 0.91}, {0.84, 0.37, 0.00},
                                      {0.94, 0.89, 0.26}, {0.60, 0.60, 0.60}};
  return kColors[number % 8];
}

Color lighter(Color color) {
  constexpr double kWhite = 0.55;
  const auto mixed = [](double part) { return part + (1 - part) * kWhite; };
  return {.red = mixed(color.red), .green = mixed(color.green), .blue = mixed(color.blue)};
}

Picture::Picture(const std::string& flag, const std::string& path, double width, double height) {
  const bool is_svg = ends_with(path, ".svg");
  if (!is_svg && !ends_with(path, ".png")) {
    throw UserError({.what = flag + ": the file name does not show the format of the picture",
                     .found = path,
                     .wanted = "a name that ends in .png or .svg",
                     .cure = "write for example " + flag + " grid.png"});
  }
  check_writable(flag, path);
  page_ = std::make_unique<Page>(Page{.flag = flag,
                                      .path = path,
                                      .bytes = {},
                                      .is_svg = is_svg,
                                      .surface = nullptr,
                                      .pen = nullptr});
  // Cairo draws into memory: it does not tell why a file cannot be written.
  page_->surface = is_svg
                       ? cairo_svg_surface_create_for_stream(append, &page_->bytes, width, height)
                       : cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width),
                                                    static_cast<int>(height));
  page_->pen = cairo_create(page_->surface);
  cairo_set_source_rgb(page_->pen, 1, 1, 1);
  cairo_paint(page_->pen);
}

Picture::~Picture() {
  cairo_destroy(page_->pen);
  cairo_surface_destroy(page_->surface);
}

namespace {

cairo_text_extents_t extents_of(cairo_t* pen, double size, const std::string& line) {
  cairo_select_font_face(pen, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(pen, size);
  cairo_text_extents_t extents;
  cairo_text_extents(pen, line.c_str(), &extents);
  return extents;
}

}  // namespace

double Picture::text_width(double size, const std::string& line) {
  return extents_of(page_->pen, size, line).width;
}

void Picture::text(double x, double y, double size, const std::string& line, Align align) {
  cairo_t* pen = page_->pen;
  const cairo_text_extents_t extents = extents_of(pen, size, line);
  const double part = align == Align::left ? 0 : align == Align::middle ? 0.5 : 1;
  cairo_set_source_rgb(pen, 0.1, 0.1, 0.1);
  cairo_move_to(pen, x - part * extents.width - extents.x_bearing, y);
  cairo_show_text(pen, line.c_str());
}

void Picture::text_upwards(double x, double y, double size, const std::string& line) {
  constexpr double kQuarter = -1.5707963267948966;
  cairo_t* pen = page_->pen;
  cairo_save(pen);
  cairo_translate(pen, x, y);
  cairo_rotate(pen, kQuarter);
  text(0, 0, size, line);
  cairo_restore(pen);
}

void Picture::rectangle(Point corner, double width, double height, Color fill, bool has_edge) {
  cairo_t* pen = page_->pen;
  cairo_rectangle(pen, corner.x, corner.y, width, height);
  cairo_set_source_rgb(pen, fill.red, fill.green, fill.blue);
  cairo_fill_preserve(pen);
  cairo_set_source_rgb(pen, 0.2, 0.2, 0.2);
  cairo_set_line_width(pen, 1);
  if (has_edge) cairo_stroke(pen);
  cairo_new_path(pen);
}

void Picture::line(const std::vector<Point>& points, double width, Color color) {
  cairo_t* pen = page_->pen;
  cairo_new_path(pen);  // cairo_show_text() leaves a current point, which would start the line
  for (const Point& point : points) cairo_line_to(pen, point.x, point.y);
  cairo_set_source_rgb(pen, color.red, color.green, color.blue);
  cairo_set_line_width(pen, width);
  cairo_set_line_join(pen, CAIRO_LINE_JOIN_ROUND);
  cairo_stroke(pen);
}

void Picture::image(double x, double y, double width, const std::vector<std::uint8_t>& pixels,
                    std::int64_t side) {
  const int count = static_cast<int>(side);
  cairo_surface_t* from = cairo_image_surface_create(CAIRO_FORMAT_RGB24, count, count);
  unsigned char* rows = cairo_image_surface_get_data(from);
  const int stride = cairo_image_surface_get_stride(from);
  for (int i = 0; i < count * count; ++i) {
    const std::uint8_t* rgb = &pixels[static_cast<std::size_t>(3 * i)];
    const std::uint32_t pixel = static_cast<std::uint32_t>(rgb[0]) << 16U |
                                static_cast<std::uint32_t>(rgb[1]) << 8U | rgb[2];
    *reinterpret_cast<std::uint32_t*>(rows + i / count * stride + i % count * 4) = pixel;
  }
  cairo_surface_mark_dirty(from);
  cairo_t* pen = page_->pen;
  cairo_save(pen);
  cairo_translate(pen, x, y);
  cairo_scale(pen, width / static_cast<double>(side), width / static_cast<double>(side));
  cairo_set_source_surface(pen, from, 0, 0);
  cairo_pattern_set_filter(cairo_get_source(pen), CAIRO_FILTER_NEAREST);
  cairo_paint(pen);
  cairo_restore(pen);
  cairo_surface_destroy(from);
}

void Picture::write() {
  cairo_status_t status = cairo_status(page_->pen);
  if (page_->is_svg) {
    cairo_surface_finish(page_->surface);
    if (status == CAIRO_STATUS_SUCCESS) status = cairo_surface_status(page_->surface);
  } else if (status == CAIRO_STATUS_SUCCESS) {
    status = cairo_surface_write_to_png_stream(page_->surface, append, &page_->bytes);
  }
  if (status == CAIRO_STATUS_SUCCESS) return write_file(page_->flag, page_->path, page_->bytes);
  throw RuntimeFault(page_->flag + ": cannot draw " + page_->path + ": " +
                     cairo_status_to_string(status));
}

}  // namespace tessera::cli
