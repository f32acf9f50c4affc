#include <cmath>

#include <tessera/error.h>
#include <tessera/nn.h>

#include "nn/input.h"

namespace tessera::nn {

namespace {

/// The cosines and sines of angles [.., T, 1, pairs], for all heads.
struct Rotation {
  Array cosine, sine;
};

Rotation rotation_of(const Array& positions, double base, std::int64_t pairs, DType dtype) {
  std::vector<double> steps;  // by which the angles grow per position, in radians
  for (std::int64_t i = 0; i < pairs; ++i) {
    steps.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
  }
  const Array columns = expand_dims(expand_dims(astype(positions, dtype), -1), -1);
  const Array angles = columns * astype(array(steps), dtype);
  return {cos(angles), sin(angles)};
}

/// Rotates pairs, which are the two elements along `axis`.
Array rotated(const Array& x, const Rotation& by, std::int64_t axis) {
  const auto part = [&](std::int64_t i) { return squeeze(x.slice(axis, i, i + 1), axis); };
  const Array a = part(0), b = part(1);
  return stack({a * by.cosine - b * by.sine, b * by.cosine + a * by.sine}, axis);
}

/// x [.., T, H, D].
const Array& heads_of(const Operand& x) {
  const std::string wanted = "floats [.., T, H, D]";
  const Array& heads = input_of("rotary_embedding", x, wanted, 3);
  if (is_float(heads.dtype())) return heads;
  throw UserError({.what = "rotary_embedding: the input is not floats",
                   .where = x.where,
                   .found = to_string(heads.type()),
                   .wanted = wanted,
                   .cure = "convert it, for example astype(x, DType::f32)"});
}

void check_options(const RotaryOptions& o, const Type& x, const std::source_location& where) {
  const std::int64_t all = x.shape.back();
  if (o.features >= 0 && o.features <= all && (o.features == 0 ? all : o.features) % 2 == 0 &&
      o.base > 0) {
    return;
  }
  throw UserError(
      {.what = "rotary_embedding: the options are not valid",
       .where = where,
       .found = "features = " + std::to_string(o.features) + ", base = " + text_of(o.base) +
                " for " + to_string(x),
       .wanted = "an even number of features up to " + std::to_string(all) + ", a base above 0",
       .cure = "set features, such as {.features = " + std::to_string(all / 2 * 2) +
               "}; the others are not rotated"});
}

void check_positions(const Type& positions, const Type& x, const std::source_location& where) {
  const Shape rows(x.shape.begin(), x.shape.end() - 2);
  const bool fits = positions.shape == rows || positions.shape == Shape{rows.back()};
  if (fits && is_integer(positions.dtype)) return;
  throw UserError({.what = "rotary_embedding: the positions do not match x",
                   .where = where,
                   .found = to_string(positions) + " for " + to_string(x),
                   .wanted = "integers [" + std::to_string(rows.back()) + "] or " + to_string(rows),
                   .cure = "write for example iota({x.dim(-3)}, 0)"});
}

}  // namespace

Array rotary_embedding(Operand x, Operand positions, const RotaryOptions& options) {
  const CallScope call(x.where);
  const Array& heads = heads_of(x);
  const Type type = heads.type();
  const Array& at = input_of("rotary_embedding", positions, "the positions, integers [T]");
  check_options(options, type, x.where);
  check_positions(at.type(), type, x.where);
  const std::int64_t features = options.features == 0 ? type.shape.back() : options.features;
  const DType wide = type.dtype == DType::f64 ? DType::f64 : DType::f32;
  const Rotation by = rotation_of(at, options.base, features / 2, wide);
  Shape shape = type.shape;
  shape.back() = options.is_interleaved ? features / 2 : 2;
  shape.push_back(features / shape.back());
  const Array pairs = reshape(astype(heads.slice(-1, 0, features), wide), shape);
  const Array turned = rotated(pairs, by, options.is_interleaved ? -1 : -2);
  shape = type.shape;
  shape.back() = features;
  Array result = astype(reshape(turned, shape), type.dtype);
  if (features == type.shape.back()) return result;
  return concatenate({result, heads.slice(-1, features)}, -1);
}

}  // namespace tessera::nn
