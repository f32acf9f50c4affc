// Loops from which references are built.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/error.h>

#include "ops/record.h"
#include "ops/reference/numeric_convert.h"

namespace tessera::ops {

inline std::vector<HostArray> one_result(HostArray array) {
  std::vector<HostArray> results;
  results.push_back(std::move(array));
  return results;
}

template <typename T>
constexpr bool is_float_type = std::is_floating_point_v<T> || detail::kIsHalf<T>;

template <typename T>
T not_a_number() {
  return static_cast<T>(std::numeric_limits<float>::quiet_NaN());
}

/// The value that is read at an index out of range.
template <typename T>
T fill_value() {
  if constexpr (is_float_type<T>) return not_a_number<T>();
  return std::numeric_limits<T>::lowest();
}

// --- dispatch on the dtypes that an op accepts

struct Floats {
  template <typename Visit>
  static void visit(DType dtype, Visit&& visit) {
    require(is_float(dtype), "an operand is not a float");
    dtype == DType::f32 ? visit(float{}) : visit(double{});
  }
};

struct Integers {
  template <typename Visit>
  static void visit(DType dtype, Visit&& visit) {
    require(is_integer(dtype), "an operand is not an integer");
    dispatch(dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) visit(zero);
    });
  }
};

/// Half precision is computed as f32 or f64 (evaluate.cc).
struct Numbers {
  template <typename Visit>
  static void visit(DType dtype, Visit&& visit) {
    is_float(dtype) ? Floats::visit(dtype, visit) : Integers::visit(dtype, visit);
  }
};

struct Bits {
  template <typename Visit>
  static void visit(DType dtype, Visit&& visit) {
    dtype == DType::boolean ? visit(bool{}) : Integers::visit(dtype, visit);
  }
};

struct Any {
  template <typename Visit>
  static void visit(DType dtype, Visit&& visit) {
    dispatch(dtype, std::forward<Visit>(visit));
  }
};

// --- elementwise

/// result[i] = f(x[i]). R is the element type of the result; void stands for that of the operand.
template <typename Set, typename R = void, typename F>
Reference map1(F f) {
  return [f](const ReferenceContext& c) {
    HostArray result(c.results[0]);
    Set::visit(c.operands[0]->type().dtype, [&](auto zero) {
      using T = decltype(zero);
      using Out = std::conditional_t<std::is_void_v<R>, T, R>;
      const auto x = c.operands[0]->data<T>();
      const auto out = result.data<Out>();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(x[i]);
    });
    return one_result(std::move(result));
  };
}

template <typename Set, typename F>
Reference map2(F f) {
  return [f](const ReferenceContext& c) {
    HostArray result(c.results[0]);
    Set::visit(c.operands[0]->type().dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto x = c.operands[0]->data<T>();
      const auto y = c.operands[1]->data<T>();
      const auto out = result.data<T>();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(x[i], y[i]);
    });
    return one_result(std::move(result));
  };
}

template <typename Set, typename F>
Reference map3(F f) {
  return [f](const ReferenceContext& c) {
    HostArray result(c.results[0]);
    Set::visit(c.operands[0]->type().dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto x = c.operands[0]->data<T>();
      const auto y = c.operands[1]->data<T>();
      const auto z = c.operands[2]->data<T>();
      const auto out = result.data<T>();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(x[i], y[i], z[i]);
    });
    return one_result(std::move(result));
  };
}

/// A function of a real number, computed in double precision and rounded once.
template <typename F>
Reference map_real(F f) {
  return map1<Floats>([f](auto x) { return static_cast<decltype(x)>(f(static_cast<double>(x))); });
}

// --- arithmetic: integers wrap around

template <typename T>
T wrapping_add(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(x) + static_cast<std::uint64_t>(y));
  } else {
    return static_cast<T>(x + y);
  }
}

template <typename T>
T wrapping_mul(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y));
  } else {
    return static_cast<T>(x * y);
  }
}

template <typename T>
T wrapping_neg(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(x));
  } else {
    return -x;
  }
}

template <typename T>
bool is_nan(T x) {
  if constexpr (is_float_type<T>) {
    return std::isnan(x);
  } else {
    return false;
  }
}

template <typename T>
bool is_negative(T x) {
  if constexpr (is_float_type<T>) {
    return std::signbit(x);
  } else if constexpr (std::is_signed_v<T>) {
    return x < 0;
  } else {
    return false;
  }
}

/// NaN wins and -0 < +0.
template <typename T>
T greater_of(T x, T y) {
  if (is_nan(x) || is_nan(y)) return not_a_number<T>();
  if (x == y) return is_negative(x) ? y : x;
  return x > y ? x : y;
}

template <typename T>
T lesser_of(T x, T y) {
  if (is_nan(x) || is_nan(y)) return not_a_number<T>();
  if (x == y) return is_negative(x) ? x : y;
  return x < y ? x : y;
}

// --- indices

/// Calls `visit(index)` for every index of `shape`, row-major.
template <typename Visit>
void for_each_index(const Shape& shape, Visit&& visit) {
  std::vector<std::int64_t> index(shape.size(), 0);
  const std::int64_t count = num_elements(shape);
  for (std::int64_t n = 0; n < count; ++n) {
    visit(std::as_const(index));
    for (std::size_t dim = shape.size(); dim-- > 0;) {
      if (++index[dim] < shape[dim]) break;
      index[dim] = 0;
    }
  }
}

/// The position of `index` in an array with these strides.
inline std::size_t offset_of(const std::vector<std::int64_t>& strides,
                             const std::vector<std::int64_t>& index) {
  std::int64_t offset = 0;
  for (std::size_t dim = 0; dim < strides.size(); ++dim) offset += strides[dim] * index[dim];
  return static_cast<std::size_t>(offset);
}

/// to[to_offset] = from[from_offset] for arrays of one dtype.
inline void copy_element(HostArray& to, std::size_t to_offset, const HostArray& from,
                         std::size_t from_offset) {
  const std::size_t size = size_bytes(from.type().dtype);
  std::memcpy(to.bytes().data() + to_offset * size, from.bytes().data() + from_offset * size, size);
}

/// Element i of the row-major result is element `source(index)` of the first operand.
template <typename Source>
HostArray rearranged(const HostArray& operand, const Type& result_type, Source source) {
  HostArray result(result_type);
  std::size_t at_result = 0;
  for_each_index(result_type.shape, [&](const std::vector<std::int64_t>& index) {
    copy_element(result, at_result++, operand, source(index));
  });
  return result;
}

}  // namespace tessera::ops
