#include "stablehlo/complex/fourier.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>

namespace tessera::stablehlo {

namespace {

using Value = bytecode::ValueNumber;

constexpr std::int64_t kLongestMatrix = 64;  // if a shorter one is possible
constexpr std::int64_t kLargestPrime = 2048;
constexpr std::int64_t kLongest = 1 << 24;

/// The largest divisor up to kLongestMatrix; of numbers without one that is larger than 1, the
/// least.
std::int64_t first_factor(std::int64_t length) {
  for (std::int64_t factor = std::min(kLongestMatrix, length); factor > 1; --factor) {
    if (length % factor == 0) return factor;
  }
  for (std::int64_t factor = kLongestMatrix + 1; factor * factor <= length; ++factor) {
    if (length % factor == 0) return factor;
  }
  return length;
}

std::string bytes_of(const std::vector<double>& numbers, bool is_double) {
  std::string bytes;
  for (const double number : numbers) {
    const auto narrow = static_cast<float>(number);
    const std::size_t size = is_double ? sizeof(number) : sizeof(narrow);
    const void* from = is_double ? static_cast<const void*>(&number) : &narrow;
    bytes.append(static_cast<const char*>(from), size);
  }
  return bytes;
}

}  // namespace

bool FourierTransform::has_length(std::int64_t length) {
  if (length < 0 || length > kLongest) return false;
  while (length > 1) {
    const std::int64_t factor = first_factor(length);
    if (factor > kLargestPrime) return false;
    length /= factor;
  }
  return true;
}

Pair FourierTransform::roots(std::int64_t rows, std::int64_t columns, std::int64_t length, int sign,
                             const bytecode::Type& like) {
  std::vector<double> re, im;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto turn = static_cast<double>(i * j % length) / static_cast<double>(length);
      re.push_back(std::cos(2 * std::numbers::pi * turn));
      im.push_back(sign * std::sin(2 * std::numbers::pi * turn));
    }
  }
  const bytecode::Type& type = make_.tensor({rows, columns}, *like.types[0]);
  const bool is_double = like.types[0]->name == "f64";
  const Value first = make_.constant(bytes_of(re, is_double), type);
  return {first, make_.constant(bytes_of(im, is_double), type)};
}

/// The transformed dimension comes last.
Pair FourierTransform::with_matrix(Pair x, std::size_t dim, int sign) {
  const std::int64_t length = make_.type(x.re).shape[dim];
  const Pair w = roots(length, length, length, sign, make_.type(x.re));
  const auto of = [&](Value part, Value matrix) { return make_.product(part, dim, matrix); };
  const Value re = make_.sub(of(x.re, w.re), of(x.im, w.im));
  return {re, make_.add(of(x.re, w.im), of(x.im, w.re))};
}

/// Element b i + j of a row of a b elements is [i, j] of a matrix. Element i + a j of its transform
/// is a transform along i, times roots of unity, then along j.
Pair FourierTransform::along_last(Pair x, int sign) {
  std::vector<std::int64_t> shape = make_.type(x.re).shape;
  const std::size_t last = shape.size() - 1;
  const std::int64_t length = shape[last];
  const std::int64_t a = first_factor(length);
  const std::int64_t b = length / a;
  if (b == 1) return with_matrix(x, last, sign);
  std::vector<std::int64_t> matrix = shape;
  matrix[last] = a;
  matrix.push_back(b);
  x = PairMaker::both(x, [&](Value part) { return make_.reshape(part, matrix); });
  x = with_matrix(x, last, sign);  // [.., j, i]
  const Pair w = roots(b, a, length, sign, make_.type(x.re));
  const Pair all = PairMaker::both(
      w, [&](Value part) { return make_.broadcast_last(part, make_.type(x.re).shape); });
  x = make_.mul(x, all);
  std::vector<std::int64_t> swapped(shape.size() + 1);
  std::iota(swapped.begin(), swapped.end(), 0);
  std::swap(swapped[last], swapped[last + 1]);
  const auto transpose = [&](Value part) { return make_.transpose(part, swapped); };
  x = along_last(PairMaker::both(x, transpose), sign);
  x = PairMaker::both(x, transpose);
  return PairMaker::both(x, [&](Value part) { return make_.reshape(part, shape); });
}

Pair FourierTransform::along(Pair x, std::size_t dim, int sign) {
  const std::vector<std::int64_t> shape = make_.type(x.re).shape;
  for (const std::int64_t size : shape) {
    if (size == 0) return x;
  }
  if (shape[dim] == 1) return x;
  std::vector<std::int64_t> swapped(shape.size());
  std::iota(swapped.begin(), swapped.end(), 0);
  std::swap(swapped[dim], swapped.back());
  const bool is_last = dim + 1 == shape.size();
  const auto transpose = [&](Value part) {
    return is_last ? part : make_.transpose(part, swapped);
  };
  return PairMaker::both(along_last(PairMaker::both(x, transpose), sign), transpose);
}

Pair FourierTransform::inverse(Pair x, std::size_t dim) {
  const auto length = static_cast<double>(make_.type(x.re).shape[dim]);
  return PairMaker::both(along(x, dim, 1),
                         [&](Value part) { return make_.scaled(part, 1 / length); });
}

Pair FourierTransform::forward_real(Value x, std::size_t dim) {
  const std::int64_t length = make_.type(x).shape[dim];
  return PairMaker::both(forward(make_.real(x), dim),
                         [&](Value part) { return make_.slice(part, dim, 0, length / 2 + 1); });
}

/// The other elements are conjugates of the first ones, in reverse order.
Value FourierTransform::inverse_real(Pair x, std::size_t dim, std::int64_t length) {
  if (length > 2) {
    const auto others = [&](Value part) {
      return make_.reverse(make_.slice(part, dim, 1, (length + 1) / 2), dim);
    };
    x = {make_.concatenate(x.re, others(x.re), dim),
         make_.concatenate(x.im, make_.neg(others(x.im)), dim)};
  } else if (length == 1) {
    x = PairMaker::both(x, [&](Value part) { return make_.slice(part, dim, 0, 1); });
  }
  return inverse(x, dim).re;
}

}  // namespace tessera::stablehlo
