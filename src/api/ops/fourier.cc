// Fourier transforms.
#include <cmath>
#include <numeric>

#include <tessera/functions.h>
#include <tessera/linalg.h>

#include "api/operands.h"

namespace tessera::fft {

using detail::public_op;
using detail::public_ops;

namespace {

using Ints = std::vector<std::int64_t>;
using Parts = std::vector<Array>;  // real and imaginary parts, or real numbers alone

Complex complex_of(const Parts& parts) { return {.real = parts[0], .imag = parts[1]}; }

void check_dtype(const char* op, const Array& x) {
  if (x.dtype() == DType::f32 || x.dtype() == DType::f64) return;
  detail::fail(op, "this dtype is not supported", detail::describe(x), "f32 or f64",
               "convert them first: astype(x, DType::f32)");
}

Parts parts_of(const char* op, const Complex& x) {
  check_dtype(op, x.real);
  if (x.real.type() != x.imag.type()) {
    detail::fail(op, "the real and imaginary parts do not match",
                 detail::describe(x.real) + " and " + detail::describe(x.imag),
                 "real and imaginary parts of the same shape and dtype",
                 "broadcast the parts, or convert one of them");
  }
  return {x.real, x.imag};
}

Array real_numbers(const char* op, const Operand& x) {
  Array v = detail::as_array(op, x);
  check_dtype(op, v);
  return v;
}

/// The part of x of this size, or x with zeros behind it.
Array resized(const Array& x, std::int64_t axis, std::int64_t size) {
  const std::int64_t before = x.shape()[static_cast<std::size_t>(axis)];
  if (size < before) return x.slice(axis, 0, size);
  if (size == before) return x;
  Ints low(x.shape().size(), 0);
  Ints high = low;
  high[static_cast<std::size_t>(axis)] = size - before;
  return pad(x, low, high);
}

/// One axis of a transform, from 0 on, and the length of the transform.
struct Line {
  std::int64_t axis;
  std::int64_t length;
};

/// `is_half`: the axis has length / 2 + 1 elements.
Line line_of(const char* op, const Array& x, std::int64_t axis, std::int64_t length,
             bool is_half = false) {
  const std::int64_t checked = detail::checked_axis(op, axis, x.rank(), detail::describe(x));
  const std::int64_t size = x.shape()[static_cast<std::size_t>(checked)];
  const std::int64_t usual = is_half ? 2 * (size - 1) : size;
  const std::int64_t found = length == -1 ? usual : length;
  if (found < 1) {
    detail::fail(op, "the transform has no elements",
                 detail::describe(x) + ", length " + std::to_string(length),
                 "a length of at least 1", "give `length`, or an axis that has elements");
  }
  return {checked, found};
}

double scale_of(Norm norm, bool is_inverse, std::int64_t length) {
  const auto n = static_cast<double>(length);
  if (norm == Norm::ortho) return 1.0 / std::sqrt(n);
  return (norm == Norm::backward) == is_inverse ? 1.0 / n : 1.0;
}

/// The op on the parts, with the axis as the last one.
Parts along(const Line& line, Parts parts, const char* op, const ir::Attributes& attributes) {
  for (Array& part : parts) part = swap_axes(part, line.axis, -1);
  parts = detail::emit_all(op, parts, attributes);
  for (Array& part : parts) part = swap_axes(part, line.axis, -1);
  return parts;
}

Parts complex_along(const Line& line, Parts parts, Norm norm, bool is_inverse) {
  for (Array& part : parts) part = resized(part, line.axis, line.length);
  return detail::emit_all("fft", parts,
                          {{"dim", line.axis},
                           {"inverse", is_inverse},
                           {"scale", scale_of(norm, is_inverse, line.length)}});
}

Parts from_real_along(const Line& line, const Array& x, Norm norm) {
  return along(line, {resized(x, line.axis, line.length)}, "rfft",
               {{"scale", scale_of(norm, false, line.length)}});
}

Parts to_real_along(const Line& line, Parts parts, Norm norm) {
  for (Array& part : parts) part = resized(part, line.axis, line.length / 2 + 1);
  return along(line, std::move(parts), "irfft",
               {{"length", line.length}, {"scale", scale_of(norm, true, line.length)}});
}

/// `is_half`: as in line_of(), of the last axis.
std::vector<Line> lines_of(const char* op, const Array& x, const OptionsN& options, bool is_half) {
  Ints axes = options.axes;
  const std::string given = detail::describe(x) + ", " + std::to_string(axes.size()) +
                            " axes and " + std::to_string(options.lengths.size()) + " lengths";
  if (axes.empty()) {
    const auto rank = static_cast<std::size_t>(x.rank());
    axes.resize(options.lengths.empty() ? rank : std::min(rank, options.lengths.size()));
    std::iota(axes.begin(), axes.end(), -std::ssize(axes));
  }
  if (axes.empty() || (!options.lengths.empty() && options.lengths.size() != axes.size())) {
    detail::fail(op, "the axes and lengths do not match", given,
                 "at least one axis, and a length for each or none",
                 "give as many lengths as axes, or leave one of the lists out");
  }
  std::vector<Line> lines;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t length = options.lengths.empty() ? -1 : options.lengths[i];
    lines.push_back(line_of(op, x, axes[i], length, is_half && i + 1 == axes.size()));
    for (std::size_t j = 0; j < i; ++j) {
      if (lines[j].axis == lines[i].axis) {
        detail::fail(op, "an axis is listed twice", given, "distinct axes", "list each axis once");
      }
    }
  }
  return lines;
}

Complex transformed(const char* op, const Complex& x, const Options& options, bool is_inverse,
                    const std::source_location& where) {
  return complex_of(public_ops(where, [&] {
    const Parts parts = parts_of(op, x);
    const Line line = line_of(op, parts[0], options.axis, options.length);
    return complex_along(line, parts, options.norm, is_inverse);
  }));
}

Complex transformed(const char* op, const Complex& x, const OptionsN& options, bool is_inverse,
                    const std::source_location& where) {
  return complex_of(public_ops(where, [&] {
    Parts parts = parts_of(op, x);
    for (const Line& line : lines_of(op, parts[0], options, false)) {
      parts = complex_along(line, std::move(parts), options.norm, is_inverse);
    }
    return parts;
  }));
}

void check_frequencies(const char* op, std::int64_t n, double spacing, DType dtype) {
  if (n >= 1 && spacing != 0.0 && std::isfinite(spacing) && is_float(dtype)) return;
  detail::fail(op, "the arguments are not valid",
               std::to_string(n) + " samples at a spacing of " + std::to_string(spacing) + ", " +
                   std::string(name(dtype)),
               "at least one sample, a finite spacing other than 0, and a float dtype",
               "pass the length of the transform and the distance between two samples");
}

/// Moves elements by half of each size, rounded down, or by what is left.
Array shifted(const char* op, const Operand& x, const Axes& axes, bool is_back) {
  return public_op(x.where, [&] {
    Array v = detail::as_array(op, x);
    for (const std::int64_t axis : detail::checked_axes(op, axes, v)) {
      const std::int64_t half = v.shape()[static_cast<std::size_t>(axis)] / 2;
      v = roll(v, is_back ? -half : half, axis);
    }
    return v;
  });
}

}  // namespace

Complex operator*(const Complex& x, const Complex& y) {
  return {.real = x.real * y.real - x.imag * y.imag, .imag = x.real * y.imag + x.imag * y.real};
}

Complex conj(const Complex& x) { return {.real = x.real, .imag = -x.imag}; }

Array abs(const Complex& x) {
  const Array square = x.real * x.real + x.imag * x.imag;
  const Array is_zero = equal(square, 0);
  return where(is_zero, 0, sqrt(where(is_zero, 1, square)));
}

Complex fft(const Complex& x, const Options& options, std::source_location where) {
  return transformed("fft", x, options, false, where);
}

Complex ifft(const Complex& x, const Options& options, std::source_location where) {
  return transformed("ifft", x, options, true, where);
}

Complex rfft(Operand x, const Options& options) {
  return complex_of(public_ops(x.where, [&] {
    const Array v = real_numbers("rfft", x);
    return from_real_along(line_of("rfft", v, options.axis, options.length), v, options.norm);
  }));
}

Array irfft(const Complex& x, const Options& options, std::source_location where) {
  return public_op(where, [&] {
    const Parts parts = parts_of("irfft", x);
    const Line line = line_of("irfft", parts[0], options.axis, options.length, true);
    return to_real_along(line, parts, options.norm)[0];
  });
}

Complex fftn(const Complex& x, const OptionsN& options, std::source_location where) {
  return transformed("fftn", x, options, false, where);
}

Complex ifftn(const Complex& x, const OptionsN& options, std::source_location where) {
  return transformed("ifftn", x, options, true, where);
}

Complex rfftn(Operand x, const OptionsN& options) {
  return complex_of(public_ops(x.where, [&] {
    const Array v = real_numbers("rfftn", x);
    std::vector<Line> lines = lines_of("rfftn", v, options, false);
    Parts parts = from_real_along(lines.back(), v, options.norm);
    lines.pop_back();
    for (const Line& line : lines) {
      parts = complex_along(line, std::move(parts), options.norm, false);
    }
    return parts;
  }));
}

Array irfftn(const Complex& x, const OptionsN& options, std::source_location where) {
  return public_op(where, [&] {
    Parts parts = parts_of("irfftn", x);
    std::vector<Line> lines = lines_of("irfftn", parts[0], options, true);
    const Line last = lines.back();
    lines.pop_back();
    for (const Line& line : lines) {
      parts = complex_along(line, std::move(parts), options.norm, true);
    }
    return to_real_along(last, std::move(parts), options.norm)[0];
  });
}

Complex fft2(const Complex& x, std::source_location where) {
  return transformed("fft2", x, {.axes = {-2, -1}}, false, where);
}

Complex ifft2(const Complex& x, std::source_location where) {
  return transformed("ifft2", x, {.axes = {-2, -1}}, true, where);
}

Array fftfreq(std::int64_t n, double spacing, DType dtype, std::source_location where) {
  return public_op(where, [&] {
    check_frequencies("fftfreq", n, spacing, dtype);
    const Array k = astype(arange(n), dtype);
    const Array is_late = k >= static_cast<double>((n + 1) / 2);
    const Array number = tessera::where(is_late, k - static_cast<double>(n), k);
    return number * (1.0 / (static_cast<double>(n) * spacing));
  });
}

Array rfftfreq(std::int64_t n, double spacing, DType dtype, std::source_location where) {
  return public_op(where, [&] {
    check_frequencies("rfftfreq", n, spacing, dtype);
    return astype(arange(n / 2 + 1), dtype) * (1.0 / (static_cast<double>(n) * spacing));
  });
}

Array fftshift(Operand x, Axes axes) { return shifted("fftshift", x, axes, false); }

Array ifftshift(Operand x, Axes axes) { return shifted("ifftshift", x, axes, true); }

}  // namespace tessera::fft
