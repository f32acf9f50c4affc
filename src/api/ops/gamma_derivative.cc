// F is a series in x, and 1 - F a continued fraction, which converges faster for large x. Both are
// differentiated term by term (Cephes' igam and igamc, as JAX and TensorFlow do).
#include "api/ops/gamma_derivative.h"

#include <limits>

#include <tessera/control.h>
#include <tessera/functions.h>
#include <tessera/ops.h>

#include "api/operands.h"

namespace tessera::detail {

namespace {

constexpr std::int32_t kMostRounds = 2000;

double epsilon_of(DType dtype) {
  return dtype == DType::f64 ? std::numeric_limits<double>::epsilon()
                             : double{std::numeric_limits<float>::epsilon()};
}

/// The derivative of log(gamma(x)) for x > 0: by its recurrence, and the asymptotic series.
Array digamma(Array x) {
  Array below = filled(0.0, x.type());
  for (int i = 0; i < 8; ++i) {
    below = below + 1.0 / x;
    x = x + 1;
  }
  const Array inverse = 1.0 / x;
  const Array square = inverse * inverse;
  Array sum = filled(0.0, x.type());
  // Bernoulli numbers B(2k) / 2k, the last first.
  for (const double term :
       {1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12}) {
    sum = (sum + term) * square;
  }
  return log(x) - inverse * 0.5 - sum - below;
}

/// By the series x^alpha e^-x / gamma(alpha + 1) * (1 + x / (alpha + 1) + ...).
Array by_series(const Array& alpha, const Array& x, const Array& is_wanted) {
  struct State {
    Array r, term, sum;  // r = alpha + the number of the term
    Array d_term, d_sum, round;
    TESSERA_TREE(r, term, sum, d_term, d_sum, round)
  };
  const double epsilon = epsilon_of(x.dtype());
  const auto goes_on = [&](const State& s) {
    const Array is_first = equal(s.round, 0);
    const Array has_changed = abs(s.d_term) > epsilon * abs(s.d_sum);
    return is_wanted && less(s.round, kMostRounds) && (is_first || has_changed);
  };
  const auto add_term = [&](const State& s) {
    const Array r = s.r + 1;
    const Array d_term = s.d_term * (x / r) - s.term * x / (r * r);
    const Array term = s.term * (x / r);
    return State{r, term, s.sum + term, d_term, s.d_sum + d_term, s.round + 1};
  };
  const Array zero = filled(0.0, x.type());
  const State last = tessera::while_loop(
      goes_on, add_term, State{alpha, zero + 1, zero + 1, zero, zero, full({}, 0, DType::i32)});
  return -(last.d_sum + last.sum * (log(x) - digamma(alpha + 1))) * x / alpha;
}

/// A convergent of the continued fraction, and its derivative.
struct Convergent {
  Array p, q, d_p, d_q;
  TESSERA_TREE(p, q, d_p, d_q)

  /// Numerators and denominators grow, and only their quotients count.
  Convergent times(const Array& factor) const {
    return {p * factor, q * factor, d_p * factor, d_q * factor};
  }
};

Array by_fraction(const Array& alpha, const Array& x, const Array& is_wanted) {
  struct State {
    Convergent last, before;
    Array value, d_value, change, y, z, round;
    TESSERA_TREE(last, before, value, d_value, change, y, z, round)
  };
  const double epsilon = epsilon_of(x.dtype());
  const auto goes_on = [&](const State& s) {
    return is_wanted && less(s.round, kMostRounds) && s.change > epsilon;
  };
  const auto next = [&](const State& s) {
    const Array count = astype(s.round + 1, x.dtype());
    const Array y = s.y + 1;
    const Array z = s.z + 2;
    const Array yc = y * count;
    const Convergent now{s.last.p * z - s.before.p * yc, s.last.q * z - s.before.q * yc,
                         s.last.d_p * z - s.last.p - s.before.d_p * yc + s.before.p * count,
                         s.last.d_q * z - s.last.q - s.before.d_q * yc + s.before.q * count};
    const Array is_number = not_equal(now.q, 0);
    const Array divisor = where(is_number, now.q, 1);
    const Array value = where(is_number, now.p / divisor, s.value);
    const Array d_value = where(is_number, (now.d_p - value * now.d_q) / divisor, s.d_value);
    const Array change = where(is_number, abs(d_value - s.d_value), 1);
    const Array factor = where(abs(now.p) > 1.0 / epsilon, filled(epsilon, x.type()), 1);
    return State{now.times(factor), s.last.times(factor), value, d_value, change, y, z,
                 s.round + 1};
  };
  const Array zero = filled(0.0, x.type());
  const Array y = 1 - alpha;
  const Array z = x + y + 1;
  const Convergent first{x + 1, z * x, zero, -x};
  const Array value = first.p / first.q;
  const State last = tessera::while_loop(
      goes_on, next,
      State{first, Convergent{zero + 1, x, zero, zero}, value, -value * first.d_q / first.q,
            zero + 1, y, z, full({}, 0, DType::i32)});
  return (last.d_value + last.value * (log(x) - digamma(alpha))) * x;
}

}  // namespace

Array gamma_derivative(const Array& alpha, const Array& x) {
  const Array is_positive = x > 0;
  const Array inside = where(is_positive, x, 1);
  const Array is_large = inside > 1 && inside > alpha;
  const Array series = by_series(alpha, inside, !is_large && is_positive);
  const Array fraction = by_fraction(alpha, inside, is_large && is_positive);
  // A number that was rounded to 0 does not move.
  return where(is_positive, where(is_large, fraction, series), 0);
}

}  // namespace tessera::detail
