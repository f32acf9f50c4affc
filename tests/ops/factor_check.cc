// Checks that the sharding factors of ops are right.
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <set>

#include "compile/reference/interpret.h"
#include "ops/reference/loops.h"
#include "tests/ops/conformance.h"

namespace tessera::testing {

using ops::FactorKind;
using ops::Factors;
using ops::HostArray;

namespace {

Factors factors_of(const Case& c) {
  const ir::Function function = function_of(*c.op, c.sample());
  const ir::Equation& equation = function.equations[0];
  return (*c.op->factors)(equation.attributes, ir::operand_types(function, equation),
                          ir::result_types(function, equation));
}

bool has_factor(const Factors::Dims& dims, int factor) {
  for (const std::vector<int>& list : dims) {
    for (int one : list) {
      if (one == factor) return true;
    }
  }
  return false;
}

/// The position along `factor` of the element at `index`.
std::int64_t position_along(const Factors& factors, const Factors::Dims& dims,
                            const std::vector<std::int64_t>& index, int factor) {
  for (std::size_t i = 0; i < dims.size(); ++i) {
    std::int64_t rest = index[i];
    for (std::size_t n = dims[i].size(); n-- > 0;) {
      const std::int64_t size = factors.factors[static_cast<std::size_t>(dims[i][n])].size;
      if (dims[i][n] == factor) return rest % size;
      rest /= size;
    }
  }
  return -1;
}

/// Calls `visit(element number, position along factor)` for every element.
template <typename Visit>
void for_each_position(const Factors& factors, const Factors::Dims& dims, const Shape& shape,
                       int factor, Visit visit) {
  std::size_t element = 0;
  ops::for_each_index(shape, [&](const std::vector<std::int64_t>& index) {
    visit(element++, position_along(factors, dims, index, factor));
  });
}

/// The window through which operand `operand` is read along `factor`, or nullptr.
const ops::OperandWindow* window_over(const Factors& factors, std::size_t operand, int factor) {
  for (const ops::OperandWindow& window : factors.windows) {
    if (window.operand != operand) continue;
    for (const ops::OperandWindow::Term& term : window.terms) {
      if (term.factor == factor) return &window;
    }
  }
  return nullptr;
}

/// Per row of the dimension: whether the window reads it for index `kept` of `factor`.
std::vector<bool> rows_read(const Factors& factors, const ops::OperandWindow& window, int factor,
                            std::int64_t kept) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < window.extent; ++i) rows.push_back(window.offset + i);
  for (const ops::OperandWindow::Term& term : window.terms) {
    const std::int64_t size = factors.factors[static_cast<std::size_t>(term.factor)].size;
    std::vector<std::int64_t> next;
    for (std::int64_t row : rows) {
      for (std::int64_t i = 0; i < size; ++i) {
        if (term.factor != factor || i == kept) next.push_back(row + i * term.step);
      }
    }
    rows = std::move(next);
  }
  std::vector<bool> is_read(static_cast<std::size_t>(window.size), false);
  for (std::int64_t row : rows) {
    if (row < 0 || row % window.divisor != 0 || row / window.divisor >= window.size) continue;
    is_read[static_cast<std::size_t>(row / window.divisor)] = true;
  }
  return is_read;
}

/// The inputs, with new random values wherever index `kept` of `factor` does not read.
std::vector<HostArray> changed_elsewhere(const Case& c, const Factors& factors, int factor,
                                         std::int64_t kept, std::vector<HostArray> inputs) {
  std::mt19937_64 generator = generator_for(c, 3);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ops::OperandWindow* window = window_over(factors, i, factor);
    if (!window && !has_factor(factors.operands[i], factor)) continue;
    const HostArray other = random_array(generator, c.sample().operands[i]);
    if (window != nullptr) {
      const std::vector<bool> is_read = rows_read(factors, *window, factor, kept);
      std::size_t element = 0;
      ops::for_each_index(inputs[i].type().shape, [&](const std::vector<std::int64_t>& index) {
        const auto row = static_cast<std::size_t>(index[window->dim]);
        if (!is_read[row]) ops::copy_element(inputs[i], element, other, element);
        ++element;
      });
      continue;
    }
    for_each_position(factors, factors.operands[i], inputs[i].type().shape, factor,
                      [&](std::size_t element, std::int64_t position) {
                        if (position != kept) ops::copy_element(inputs[i], element, other, element);
                      });
  }
  return inputs;
}

/// The neutral element of a reduction.
template <typename T>
T neutral(ops::Reduction reduction) {
  if constexpr (detail::kIsHalf<T>) return T(neutral<float>(reduction));
  using Limits = std::numeric_limits<T>;
  switch (reduction) {
    case ops::Reduction::max:
      return Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
    case ops::Reduction::min:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ops::Reduction::logical_and:
      return static_cast<T>(1.0F);
    default:
      return T{};
  }
}

template <typename T>
T joined_bits(T x, T y) {
  if constexpr (detail::kIsHalf<T>) {
    return T::from_bits(x.bits() | y.bits());
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x | y);
  } else {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    return std::bit_cast<T>(std::bit_cast<Bits>(x) | std::bit_cast<Bits>(y));
  }
}

template <typename T>
T combined(ops::Reduction reduction, T x, T y) {
  if constexpr (std::is_same_v<T, bool>) {
    return reduction == ops::Reduction::logical_and ? x && y : x || y;
  } else {
    if (reduction == ops::Reduction::bit_or) return joined_bits(x, y);
    if (reduction == ops::Reduction::max) return ops::greater_of(x, y);
    if (reduction == ops::Reduction::min) return ops::lesser_of(x, y);
    return ops::wrapping_add(x, y);
  }
}

/// The inputs with one half along `factor` kept (the upper one if `is_upper`) and the other half
/// replaced by neutral elements. Changes the last operand that has the factor.
std::vector<HostArray> half_of(const Factors& factors, int factor, bool is_upper,
                               std::vector<HostArray> inputs) {
  std::size_t i = inputs.size() - 1;
  while (!has_factor(factors.operands[i], factor)) --i;
  const std::int64_t middle = factors.factors[static_cast<std::size_t>(factor)].size / 2;
  ops::dispatch(inputs[i].type().dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto data = inputs[i].data<T>();
    for_each_position(factors, factors.operands[i], inputs[i].type().shape, factor,
                      [&](std::size_t element, std::int64_t position) {
                        if ((position >= middle) == is_upper) return;
                        data[element] = neutral<T>(factors.reduction);
                      });
  });
  return inputs;
}

template <typename T>
bool is_combined(const Factors& factors, const HostArray& whole, const HostArray& lower,
                 const HostArray& upper) {
  for (std::size_t i = 0; i < whole.data<T>().size(); ++i) {
    const T sum = combined(factors.reduction, lower.data<T>()[i], upper.data<T>()[i]);
    if constexpr (std::is_floating_point_v<T>) {
      if (!(std::fabs(whole.data<T>()[i] - sum) <= 1e-3)) return false;
    } else {
      if (whole.data<T>()[i] != sum) return false;
    }
  }
  return true;
}

bool is_equal_at(const Factors& factors, const Factors::Dims& dims, int factor, std::int64_t kept,
                 const HostArray& expected, const HostArray& found) {
  const std::size_t size = size_bytes(expected.type().dtype);
  bool is_equal = true;
  for_each_position(factors, dims, expected.type().shape, factor,
                    [&](std::size_t element, std::int64_t position) {
                      if (position != kept) return;
                      is_equal =
                          is_equal && 0 == std::memcmp(expected.bytes().data() + element * size,
                                                       found.bytes().data() + element * size, size);
                    });
  return is_equal;
}

/// Whether the operand is read along the dimension through a window of this factor.
bool is_in_window(const Factors& factors, std::size_t operand, std::size_t dim, std::int64_t size,
                  int factor) {
  const ops::OperandWindow* window = window_over(factors, operand, factor);
  return window != nullptr && window->dim == dim && window->size == size;
}

Verdict dims_are_covered(const Factors& factors, const std::vector<Factors::Dims>& arrays,
                         const ir::Function& function, const std::vector<ir::ValueId>& ids) {
  if (arrays.size() != ids.size()) return "another number of arrays";
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Shape& shape = function.type(ids[i]).shape;
    if (arrays[i].size() != shape.size()) return "another rank";
    std::set<int> used;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      std::int64_t size = 1;
      const std::vector<int>& list = arrays[i][dim];
      const bool is_window = &arrays == &factors.operands && list.size() == 1 &&
                             is_in_window(factors, i, dim, shape[dim], list[0]);
      for (int factor : list) {
        size *= factors.factors[static_cast<std::size_t>(factor)].size;
        if (!used.insert(factor).second) return "a factor is used twice in one array";
      }
      if (!is_window && size != shape[dim]) return "the factors of a dimension have another size";
    }
  }
  return std::nullopt;
}

Verdict explained(Verdict verdict, const Factors& factors) {
  if (verdict) *verdict += ": " + ops::to_string(factors);
  return verdict;
}

}  // namespace

Verdict factors_cover_dimensions(const Case& c) {
  const ir::Function function = function_of(*c.op, c.sample());
  const Factors factors = factors_of(c);
  const ir::Equation& equation = function.equations[0];
  const Verdict operands = dims_are_covered(factors, factors.operands, function, equation.operands);
  if (operands) return explained(operands, factors);
  return explained(dims_are_covered(factors, factors.results, function, equation.results), factors);
}

Verdict factors_list_reductions(const Case& c) {
  const Factors factors = factors_of(c);
  const std::set<int> reduced(factors.reduced.begin(), factors.reduced.end());
  for (std::size_t i = 0; i < factors.factors.size(); ++i) {
    const int factor = static_cast<int>(i);
    if (reduced.contains(factor) != (factors.factors[i].kind == FactorKind::reduce)) {
      return explained("the list of reduced factors is wrong", factors);
    }
    for (const Factors::Dims& dims : factors.results) {
      if (reduced.contains(factor) && has_factor(dims, factor)) {
        return explained("a result has a reduced factor", factors);
      }
    }
  }
  return std::nullopt;
}

Verdict pass_factors_keep_blocks_apart(const Case& c) {
  const ir::Function function = function_of(*c.op, c.sample());
  const Factors factors = factors_of(c);
  const std::vector<HostArray> inputs = random_inputs(c);
  const std::vector<HostArray> expected = compile::interpret(function, inputs);
  for (std::size_t i = 0; i < factors.factors.size(); ++i) {
    const int factor = static_cast<int>(i);
    if (factors.factors[i].kind != FactorKind::pass || factors.factors[i].size == 0) continue;
    const std::int64_t kept = factors.factors[i].size / 2;
    const std::vector<HostArray> found =
        compile::interpret(function, changed_elsewhere(c, factors, factor, kept, inputs));
    for (std::size_t n = 0; n < found.size(); ++n) {
      if (!has_factor(factors.results[n], factor)) continue;
      if (!is_equal_at(factors, factors.results[n], factor, kept, expected[n], found[n])) {
        return explained("a block depends on another one", factors);
      }
    }
  }
  return std::nullopt;
}

Verdict reduce_factors_are_combined(const Case& c) {
  const ir::Function function = function_of(*c.op, c.sample());
  const Factors factors = factors_of(c);
  const std::vector<HostArray> inputs = random_inputs(c);
  const std::vector<HostArray> whole = compile::interpret(function, inputs);
  for (int factor : factors.reduced) {
    const auto lower = compile::interpret(function, half_of(factors, factor, false, inputs));
    const auto upper = compile::interpret(function, half_of(factors, factor, true, inputs));
    const bool is_sum = ops::dispatch(whole[0].type().dtype, [&](auto zero) {
      return is_combined<decltype(zero)>(factors, whole[0], lower[0], upper[0]);
    });
    if (!is_sum) return explained("halves do not combine to the whole", factors);
  }
  return std::nullopt;
}

}  // namespace tessera::testing
