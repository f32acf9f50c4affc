// Discrete Fourier transforms, whose complex operands and results are pairs of parts.
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

/// The inverse is divided by the length.
Values complex_transform(ir::Builder& b, std::size_t dim, Values parts, bool is_inverse) {
  const std::int64_t length = b.type(parts[0]).shape[dim];
  if (length <= 1) return parts;
  const double scale = is_inverse ? 1.0 / static_cast<double>(length) : 1.0;
  return b.emit_all(
      "fft", {{"dim", static_cast<std::int64_t>(dim)}, {"inverse", is_inverse}, {"scale", scale}},
      std::move(parts));
}

/// Transforms along the last dimensions, as many as there are lengths.
Values fft(Context& c) {
  ir::Builder& b = c.b();
  const std::string_view kind = c.text("fft_type");
  const Ints lengths = c.ints("fft_length");
  Values parts = c.operands;
  const bool from_real = kind == "RFFT";
  const bool to_real = kind == "IRFFT";
  const bool is_inverse = to_real || kind == "IFFT";
  c.need(parts.size() == (from_real ? 1U : 2U), "an operand of the wrong dtype for this transform");
  c.need(c.op.results.size() == (to_real ? 1U : 2U),
         "a result of the wrong dtype for this transform");
  const Shape shape = c.type(parts[0]).shape;
  const std::size_t rank = shape.size();
  c.need(!lengths.empty() && lengths.size() <= rank,
         "no transform lengths, or more of them than dimensions");
  const std::size_t first = rank - lengths.size();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const bool is_half = to_real && i + 1 == lengths.size();
    c.need(lengths[i] >= 0 && shape[first + i] == (is_half ? lengths[i] / 2 + 1 : lengths[i]),
           "transform lengths that do not match the dimensions");
  }
  c.need(lengths.back() > 0 || !(from_real || to_real), "a transform length of 0");
  if (from_real) parts = b.emit_all("rfft", {{"scale", 1.0}}, parts);
  for (std::size_t dim = first; dim + (from_real || to_real ? 1 : 0) < rank; ++dim) {
    parts = complex_transform(b, dim, std::move(parts), is_inverse);
  }
  if (!to_real) return parts;
  const double scale = 1.0 / static_cast<double>(lengths.back());
  return b.emit_all("irfft", {{"length", lengths.back()}, {"scale", scale}}, parts);
}

}  // namespace

const Handlers& fourier_handlers() {
  static const Handlers kHandlers = {{"fft", fft}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
