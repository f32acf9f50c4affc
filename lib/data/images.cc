#include <algorithm>
#include <cmath>
#include <limits>

#include <tessera/data.h>
#include <tessera/error.h>

#include "data/crop.h"

namespace tessera::data {

namespace {

/// Bytes [height, width, channels].
struct View {
  const std::vector<std::uint8_t>& values;
  std::int64_t height, width, channels;
};

/// Throws UserError unless `image` is u8[height,width,channels] without empty dimensions.
View view_of(const HostArray& image, const char* name) {
  const auto* values = std::get_if<std::vector<std::uint8_t>>(&image.values);
  const bool has_sizes =
      image.shape.size() == 3 && image.shape[0] > 0 && image.shape[1] > 0 && image.shape[2] > 0;
  if (values == nullptr || !has_sizes ||
      num_elements(image.shape) != static_cast<std::int64_t>(values->size())) {
    throw UserError({.what = std::string(name) + ": the field is not an image",
                     .found = (values == nullptr ? "numbers " : "u8") + to_string(image.shape),
                     .wanted = "u8[height,width,channels]",
                     .cure = "transform images while they are u8, and normalise them last"});
  }
  return {*values, image.shape[0], image.shape[1], image.shape[2]};
}

/// e^x. Uses only operations that give the same bits on every machine; std::exp does not.
double portable_exp(double x) {
  int halvings = 0;
  for (; std::abs(x) > 0.125; ++halvings) x *= 0.5;
  double term = 1;
  double sum = 1;
  for (int i = 1; i <= 12; ++i) {
    term *= x / i;
    sum += term;
  }
  for (; halvings > 0; --halvings) sum *= sum;
  return sum;
}

/// The natural logarithm of a positive number, with the same bits on every machine.
double portable_log(double x) {
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);  // in [0.5, 1)
  const double s = (mantissa - 0.75) / (mantissa + 0.75);
  double power = s;
  double sum = 0;
  for (int i = 1; i <= 31; i += 2) {
    sum += power / i;
    power *= s * s;
  }
  return 2 * sum + exponent * 0.69314718055994530942 - 0.28768207245178092744;  // - log(4/3)
}

/// Weights for resizing a line (a row or a column). Output pixel i is the weighted mean of count[i]
/// input pixels from first[i] on. The weights are a triangle filter: its half-width is the ratio of
/// the sizes when the line gets shorter, and one input pixel when it gets longer (linear
/// interpolation). As in Pillow's Resample.c.
struct Weights {
  static constexpr int kBits = 22;         // fraction bits of a fixed-point weight
  std::int64_t most = 0;                   // the row size of `values`
  std::vector<std::int64_t> first, count;  // [output pixels]
  std::vector<std::int32_t> values;        // [output pixels, most]
};

Weights triangle_weights(std::int64_t from, std::int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  const double support = std::max(step, 1.0);
  Weights weights;
  weights.most = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  weights.first.resize(static_cast<std::size_t>(to));
  weights.count.resize(static_cast<std::size_t>(to));
  weights.values.resize(static_cast<std::size_t>(to * weights.most));
  std::vector<double> row(static_cast<std::size_t>(weights.most));
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step;
    const auto first =
        std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(centre - support + 0.5)), 0);
    const auto end = std::min(static_cast<std::int64_t>(std::floor(centre + support + 0.5)), from);
    double sum = 0;
    for (std::int64_t j = first; j < end; ++j) {
      const double x = (static_cast<double>(j) - centre + 0.5) * (1.0 / support);
      const double weight = std::max(0.0, 1.0 - std::abs(x));
      row[static_cast<std::size_t>(j - first)] = weight;
      sum += weight;
    }
    const auto place = static_cast<std::size_t>(i);
    weights.first[place] = first;
    weights.count[place] = end - first;
    for (std::int64_t j = 0; j < end - first; ++j) {
      const double weight = row[static_cast<std::size_t>(j)] / sum;
      weights.values[static_cast<std::size_t>(i * weights.most + j)] =
          static_cast<std::int32_t>(std::floor(0.5 + weight * (1 << Weights::kBits)));
    }
  }
  return weights;
}

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> Weights::kBits, 0, 255));
}

/// Resizes one line. Its pixels are `in_step` apart in `in` and `out_step` apart in `out`. Each
/// pixel is `width` adjacent values, which are resized alike.
void resize_line(const Weights& weights, const std::uint8_t* in, std::int64_t in_step,
                 std::uint8_t* out, std::int64_t out_step, std::int64_t width) {
  constexpr std::int32_t kHalf = 1 << (Weights::kBits - 1);
  for (std::size_t i = 0; i < weights.first.size(); ++i) {
    const std::int32_t* w = &weights.values[i * static_cast<std::size_t>(weights.most)];
    const std::uint8_t* from = in + weights.first[i] * in_step;
    std::uint8_t* to = out + static_cast<std::int64_t>(i) * out_step;
    for (std::int64_t c = 0; c < width; ++c) {
      std::int32_t sum = kHalf;
      for (std::int64_t j = 0; j < weights.count[i]; ++j) sum += from[j * in_step + c] * w[j];
      to[c] = rounded(sum);
    }
  }
}

/// The part `box` of an image, resized: first along rows, then along columns. Rounds to u8 in
/// between.
HostArray resized_part(const View& image, const Box& box, std::int64_t height, std::int64_t width) {
  const std::int64_t c = image.channels;
  HostArray result{.shape = {height, width, c}, .values = {}};
  auto& out = result.values.emplace<0>(static_cast<std::size_t>(height * width * c));
  std::vector<std::uint8_t> lines(static_cast<std::size_t>(box.height * width * c));
  const Weights across = triangle_weights(box.width, width);
  for (std::int64_t y = 0; y < box.height; ++y) {
    const std::uint8_t* from = image.values.data() + ((box.top + y) * image.width + box.left) * c;
    std::uint8_t* to = lines.data() + y * width * c;
    if (box.width == width) {
      std::copy_n(from, width * c, to);
    } else {
      resize_line(across, from, c, to, c, c);
    }
  }
  if (box.height == height) {
    out = std::move(lines);
  } else {
    const Weights down = triangle_weights(box.height, height);
    resize_line(down, lines.data(), width * c, out.data(), width * c, width * c);
  }
  return result;
}

/// The nearest whole number; ties go to the even one, as in Python's round().
std::int64_t rounded(double x) {
  const double low = std::floor(x);
  const double rest = x - low;
  const auto whole = static_cast<std::int64_t>(low);
  return whole + (rest > 0.5 || (rest == 0.5 && whole % 2 != 0) ? 1 : 0);
}

/// The largest box in the middle of an image whose ratio of width to height is allowed.
Box middle_box(std::int64_t height, std::int64_t width, const CropOptions& options) {
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  Box box{.top = 0, .left = 0, .height = height, .width = width};
  if (ratio < options.ratio[0]) {
    box.height = std::min(height, rounded(static_cast<double>(width) / options.ratio[0]));
  } else if (ratio > options.ratio[1]) {
    box.width = std::min(width, rounded(static_cast<double>(height) * options.ratio[1]));
  }
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

void check(const CropOptions& o) {
  const bool is_good = o.size >= 1 && o.size <= 65536 && o.scale[0] > 0 &&
                       o.scale[0] <= o.scale[1] && o.scale[1] <= 1 && o.ratio[0] > 0 &&
                       o.ratio[0] <= o.ratio[1] && o.ratio[1] <= 1e6;
  if (is_good) return;
  throw UserError(
      {.what = "random_resized_crop: the options are not valid",
       .found = "size " + std::to_string(o.size) + ", scale " + std::to_string(o.scale[0]) +
                " to " + std::to_string(o.scale[1]) + ", ratio " + std::to_string(o.ratio[0]) +
                " to " + std::to_string(o.ratio[1]),
       .wanted = "a size of at least 1, 0 < scale <= 1 and 0 < ratio, the smaller bound first",
       .cure = "write for example {.size = 32, .scale = {0.9, 1.0}, "
               ".ratio = {0.9, 1.1}}"});
}

}  // namespace

Box random_box(std::int64_t height, std::int64_t width, RecordRandom& random,
               const CropOptions& options) {
  const double area = static_cast<double>(height) * static_cast<double>(width);
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * random.random();
  };
  const double low = portable_log(options.ratio[0]);
  const double high = portable_log(options.ratio[1]);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * uniform(options.scale[0], options.scale[1]);
    const double ratio = portable_exp(uniform(low, high));
    const std::int64_t w = rounded(std::sqrt(part * ratio));
    const std::int64_t h = rounded(std::sqrt(part / ratio));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const std::int64_t top = random.integer(0, height - h);
    return {.top = top, .left = random.integer(0, width - w), .height = h, .width = w};
  }
  return middle_box(height, width, options);
}

HostArray random_horizontal_flip(HostArray image, RecordRandom& random, double probability) {
  const View view = view_of(image, "random_horizontal_flip");
  if (random.random() >= probability) return image;
  auto& values = std::get<0>(image.values);
  const std::int64_t c = view.channels;
  for (std::int64_t y = 0; y < view.height; ++y) {
    std::uint8_t* row = values.data() + y * view.width * c;
    for (std::int64_t x = 0; x < view.width / 2; ++x) {
      std::swap_ranges(row + x * c, row + (x + 1) * c, row + (view.width - 1 - x) * c);
    }
  }
  return image;
}

HostArray random_resized_crop(const HostArray& image, RecordRandom& random,
                              const CropOptions& options) {
  const View view = view_of(image, "random_resized_crop");
  check(options);
  const Box box = random_box(view.height, view.width, random, options);
  return resized_part(view, box, options.size, options.size);
}

HostArray resized(const HostArray& image, std::int64_t height, std::int64_t width) {
  const View view = view_of(image, "resized");
  if (height < 1 || width < 1 || height > 65536 || width > 65536) {
    throw UserError({.what = "resized: the size is not valid",
                     .found = std::to_string(height) + " x " + std::to_string(width),
                     .wanted = "a height and a width of 1 to 65536",
                     .cure = "pass both in pixels, the height first"});
  }
  return resized_part(view, {.top = 0, .left = 0, .height = view.height, .width = view.width},
                      height, width);
}

HostArray normalised(const HostArray& image, std::span<const double> means,
                     std::span<const double> deviations) {
  const View view = view_of(image, "normalised");
  const auto channels = static_cast<std::size_t>(view.channels);
  if (means.size() != channels || deviations.size() != channels) {
    throw UserError({.what = "normalised: the numbers of means and deviations do not match the "
                             "channels of the image",
                     .found = std::to_string(means.size()) + " means and " +
                              std::to_string(deviations.size()) + " deviations",
                     .wanted = std::to_string(channels) + " of both",
                     .cure = "pass one mean and one deviation per channel"});
  }
  HostArray result{.shape = image.shape, .values = {}};
  auto& out = result.values.emplace<2>(view.values.size());
  for (std::size_t i = 0; i < out.size(); i += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      // As NumPy does it: the quotient in f32, the rest in f64.
      const float part = static_cast<float>(view.values[i + c]) / 255.0F;
      out[i + c] = static_cast<float>((static_cast<double>(part) - means[c]) / deviations[c]);
    }
  }
  return result;
}

}  // namespace tessera::data
