#include "stablehlo/complex/fourier.h"

#include <algorithm>
#include <cmath>
#include <complex>
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

/// exp(2 pi i numerator / length).
std::complex<double> root(std::int64_t numerator, std::int64_t length) {
  const double angle =
      2 * std::numbers::pi * static_cast<double>(numerator % length) / static_cast<double>(length);
  return {std::cos(angle), std::sin(angle)};
}

/// Whether the transform is one product with a matrix.
bool is_one_matrix(std::int64_t length) { return first_factor(length) == length; }

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

Pair FourierTransform::constants(std::int64_t rows, std::int64_t columns,
                                 const bytecode::Type& like, const Entry& entry) {
  std::vector<double> re, im;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::complex<double> value = entry(i, j);
      re.push_back(value.real());
      im.push_back(value.imag());
    }
  }
  const bytecode::Type& type = make_.tensor({rows, columns}, *like.types[0]);
  const bool is_double = like.types[0]->name == "f64";
  const Value first = make_.constant(bytes_of(re, is_double), type);
  return {first, make_.constant(bytes_of(im, is_double), type)};
}

Pair FourierTransform::roots(std::int64_t rows, std::int64_t columns, std::int64_t length, int sign,
                             const bytecode::Type& like) {
  return constants(rows, columns, like, [&](std::int64_t i, std::int64_t j) {
    const std::complex<double> value = root(i * j, length);
    return sign < 0 ? std::conj(value) : value;
  });
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

/// Exchanges a dimension and the last one.
Value FourierTransform::swapped(Value x, std::size_t dim) {
  std::vector<std::int64_t> order(make_.type(x).shape.size());
  if (dim + 1 == order.size()) return x;
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[dim], order.back());
  return make_.transpose(x, order);
}

/// The last dimension becomes dimension `dim`.
Pair FourierTransform::moved_back(Pair x, std::size_t dim) {
  const std::size_t rank = make_.type(x.re).shape.size();
  if (dim + 1 == rank) return x;
  std::vector<std::int64_t> order(rank - 1);
  std::iota(order.begin(), order.end(), 0);
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(dim),
               static_cast<std::int64_t>(rank) - 1);
  return PairMaker::both(x, [&](Value part) { return make_.transpose(part, order); });
}

/// A matrix of one row as a vector.
Pair FourierTransform::without_rows(Pair x) {
  return PairMaker::both(
      x, [&](Value part) { return make_.reshape(part, {make_.type(part).shape[1]}); });
}

/// (x + conj y) / 2 + factors (x - conj y) / 2: the transforms of even and of odd elements are sums
/// and differences of that of complex numbers made of both.
Pair FourierTransform::mixed(Pair x, Pair y, Pair factors) {
  const Pair conjugate = {y.re, make_.neg(y.im)};
  const auto half = [&](Value part) { return make_.scaled(part, 0.5); };
  const Pair all = PairMaker::both(
      factors, [&](Value part) { return make_.broadcast_last(part, make_.type(x.re).shape); });
  const Pair difference = PairMaker::both(make_.sub(x, conjugate), half);
  return make_.add(PairMaker::both(make_.add(x, conjugate), half), make_.mul(all, difference));
}

Pair FourierTransform::forward_real(Value x, std::size_t dim) {
  const bytecode::Type& type = make_.type(x);
  const std::int64_t length = type.shape[dim];
  const bool is_empty = std::ranges::find(type.shape, 0) != type.shape.end();
  if (length == 1) return make_.real(x);
  if (!is_empty && is_one_matrix(length)) {
    const Pair w = roots(length, length / 2 + 1, length, -1, type);
    // The transformed dimension comes last.
    return moved_back(PairMaker::both(w, [&](Value m) { return make_.product(x, dim, m); }), dim);
  }
  if (is_empty || length % 2 != 0) {
    return PairMaker::both(forward(make_.real(x), dim),
                           [&](Value part) { return make_.slice(part, dim, 0, length / 2 + 1); });
  }
  const std::int64_t half = length / 2;
  const std::size_t last = type.shape.size() - 1;
  const auto range = [&](Value part, std::int64_t start, std::int64_t limit) {
    return make_.slice(part, last, start, limit);
  };
  const Pair z = forward(make_.halves(swapped(x, dim), last), last);
  const auto once_more = [&](Value part) {
    return make_.concatenate(part, range(part, 0, 1), last);
  };
  const auto turned = [&](Value part) {
    return make_.concatenate(range(part, 0, 1), make_.reverse(part, last), last);
  };
  const Pair w = constants(1, half + 1, type, [&](std::int64_t, std::int64_t k) {
    return std::complex<double>(0, -1) * std::conj(root(k, length));
  });
  const Pair result =
      mixed(PairMaker::both(z, once_more), PairMaker::both(z, turned), without_rows(w));
  return PairMaker::both(result, [&](Value part) { return swapped(part, dim); });
}

/// Elements that are not there are conjugates of others. The first has no imaginary part, nor has
/// the middle one.
Value FourierTransform::inverse_real(Pair x, std::size_t dim, std::int64_t length) {
  const bytecode::Type& type = make_.type(x.re);
  const bool is_empty = std::ranges::find(type.shape, 0) != type.shape.end() || length == 0;
  if (length == 1) return x.re;
  if (!is_empty && is_one_matrix(length)) {
    const Pair w = constants(length / 2 + 1, length, type, [&](std::int64_t k, std::int64_t j) {
      const double times = k == 0 || 2 * k == length ? 1 : 2;
      return root(k * j, length) * (times / static_cast<double>(length));
    });
    const Value sum = make_.sub(make_.product(x.re, dim, w.re), make_.product(x.im, dim, w.im));
    return moved_back({sum, sum}, dim).re;
  }
  if (is_empty || length % 2 != 0) return inverse_odd(x, dim, length);
  const std::int64_t half = length / 2;
  const std::size_t last = type.shape.size() - 1;
  x = PairMaker::both(x, [&](Value part) { return swapped(part, dim); });
  const auto range = [&](Value part, std::int64_t start, std::int64_t limit) {
    return make_.slice(part, last, start, limit);
  };
  const Value none = make_.constant_like(0, range(x.im, 0, 1));
  x.im = make_.concatenate(make_.concatenate(none, range(x.im, 1, half), last), none, last);
  const auto front = [&](Value part) { return range(part, 0, half); };
  const auto turned = [&](Value part) { return make_.reverse(range(part, 1, half + 1), last); };
  const Pair w = constants(1, half, type, [&](std::int64_t, std::int64_t k) {
    return std::complex<double>(0, 1) * root(k, length);
  });
  const Pair z = mixed(PairMaker::both(x, front), PairMaker::both(x, turned), without_rows(w));
  const Pair turns = inverse(z, last);
  return swapped(make_.in_turn(turns.re, turns.im, last), dim);
}

Value FourierTransform::inverse_odd(Pair x, std::size_t dim, std::int64_t length) {
  const auto others = [&](Value part) {
    return make_.reverse(make_.slice(part, dim, 1, (length + 1) / 2), dim);
  };
  if (length > 2) {
    x = {make_.concatenate(x.re, others(x.re), dim),
         make_.concatenate(x.im, make_.neg(others(x.im)), dim)};
  }
  return inverse(x, dim).re;
}

}  // namespace tessera::stablehlo
