#include "api/operands.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>

#include <tessera/error.h>

#include "ops/emit.h"
#include "ops/host_array.h"

namespace tessera::detail {

void fail(std::string_view op, const std::string& what, const std::string& found,
          const std::string& wanted, const std::string& cure) {
  throw UserError({.what = fmt::format("{}: {}", op, what),
                   .where = call_span(),
                   .found = found,
                   .wanted = wanted,
                   .cure = cure});
}

void check_floats(std::string_view op, const Array& x, const std::string& other_cure) {
  if (is_float(x.dtype())) return;
  fail(op, "the array is not a float array", describe(x), "an array of f16, bf16, f32 or f64",
       "convert it: astype(x, DType::f32)" + (other_cure.empty() ? "" : ", or " + other_cure));
}

namespace {

/// Unsigned numbers from 2^63 on are negative as an i64, but not as a double.
bool is_above_i64(const Operand& number) {
  return number.kind == Operand::Kind::integer && number.integer < 0 && number.real > 0;
}

std::string number_text(const Operand& number) {
  if (number.kind == Operand::Kind::real) return fmt::format("{}", number.real);
  return is_above_i64(number) ? fmt::format("{}", static_cast<std::uint64_t>(number.integer))
                              : fmt::format("{}", number.integer);
}

/// The dtype of a number that is not combined with arrays.
DType natural_dtype(const Operand& number) {
  switch (number.kind) {
    case Operand::Kind::boolean:
      return DType::boolean;
    case Operand::Kind::integer:
      return DType::i32;
    default:
      return DType::f32;
  }
}

std::string describe_all(const std::vector<Array>& arrays) {
  std::string text;
  for (const Array& array : arrays) text += (text.empty() ? "" : " and ") + describe(array);
  return text;
}

constexpr std::int64_t kMostExact = std::int64_t{1} << 53;

/// The integers that fit the dtype and are exact as attributes of equations, which are doubles.
std::pair<std::int64_t, std::int64_t> range_of(DType dtype) {
  return ops::dispatch(dtype, [](auto zero) -> std::pair<std::int64_t, std::int64_t> {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, std::int64_t>) return {-kMostExact, kMostExact};
    if constexpr (std::is_same_v<T, std::uint64_t>) return {0, kMostExact};
    if constexpr (std::is_integral_v<T>) {
      return {std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max()};
    } else {
      return {0, 0};
    }
  });
}

}  // namespace

void check_number(std::string_view op, const Operand& number, DType dtype) {
  const bool has_fraction = number.kind == Operand::Kind::real;
  if (is_float(dtype)) return;
  const std::string found = fmt::format("{} and an array of {}", number_text(number), name(dtype));
  if (has_fraction && !(is_integer(dtype) && number.real == std::trunc(number.real) &&
                        std::abs(number.real) < 2147483648.0)) {
    fail(op, "a number with a fraction cannot be combined with an array of integers or bool", found,
         "a whole number", "convert the array first: astype(x, DType::f32)");
  }
  if (dtype == DType::boolean) {
    if (number.kind == Operand::Kind::boolean) return;
    fail(op, "a number cannot be combined with an array of bool", found, "true or false",
         "compare the array, or convert it: astype(x, DType::i32)");
  }
  const auto [low, high] = range_of(dtype);
  const std::int64_t value = has_fraction ? static_cast<std::int64_t>(number.real) : number.integer;
  if (value < low || value > high || is_above_i64(number)) {
    const bool is_wide = size_bytes(dtype) == 8;
    fail(op, "a number is out of range for the dtype of the array", found,
         fmt::format("a number from {} to {}", low, high),
         is_wide ? "make an array of it: scalar(number)" : "use a number in this range");
  }
}

double number_value(const Operand& number) { return number.real; }

DType common_dtype(std::string_view op, std::span<const Operand> operands) {
  const Operand* first = nullptr;
  for (const Operand& operand : operands) {
    if (operand.is_number()) continue;
    if (operand.array.is_empty()) fail_empty("", call_span());
    if (first == nullptr) first = &operand;
    if (operand.array.dtype() == first->array.dtype()) continue;
    const bool is_first_wider =
        is_float(first->array.dtype()) || operand.array.dtype() == DType::boolean;
    fail(op, "the arrays have different dtypes",
         describe(first->array) + " and " + describe(operand.array), "arrays of the same dtype",
         fmt::format("convert one of them: astype(x, DType::{})",
                     name(is_first_wider ? first->array.dtype() : operand.array.dtype())));
  }
  if (first != nullptr) return first->array.dtype();
  DType dtype = DType::boolean;
  for (const Operand& operand : operands) {
    const DType natural = natural_dtype(operand);
    if (natural == DType::f32 || dtype == DType::boolean) dtype = natural;
  }
  return dtype;
}

Array with_dtype(const Array& x, DType dtype) { return x.dtype() == dtype ? x : astype(x, dtype); }

Array filled(double value, const Type& type) {
  return emit("constant", {}, {{"dtype", type.dtype}, {"shape", type.shape}, {"value", value}});
}

FloatLimits float_limits(DType dtype) {
  const auto of = [](int mantissa, int exponent) -> FloatLimits {
    const double epsilon = std::ldexp(1.0, -mantissa);
    return {.largest = std::ldexp(2.0 - epsilon, exponent),
            .smallest = std::ldexp(1.0, 1 - exponent),
            .epsilon = epsilon};
  };
  if (dtype == DType::f64) return of(52, 1023);
  if (dtype == DType::f32) return of(23, 127);
  if (dtype == DType::bf16) return of(7, 127);
  return dtype == DType::f16 ? of(10, 15) : FloatLimits{0, 0, 0};
}

Array as_array(std::string_view op, const Operand& operand, DType dtype) {
  if (!operand.is_number()) {
    node_of(operand.array, call_span());
    return operand.array;
  }
  check_number(op, operand, dtype);
  return filled(number_value(operand), {dtype, {}});
}

Array as_array(std::string_view op, const Operand& operand) {
  return as_array(op, operand, common_dtype(op, {operand}));
}

Shape broadcast_shape(std::string_view op, const std::vector<Array>& arrays) {
  std::vector<Shape> shapes;
  for (const Array& array : arrays) shapes.push_back(array.shape());
  return broadcast_shape(op, shapes, describe_all(arrays));
}

Shape broadcast_shape(std::string_view op, const std::vector<Shape>& shapes,
                      const std::string& found) {
  std::size_t rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.size());
  Shape result(rank, 1);
  for (const Shape& shape : shapes) {
    const std::size_t offset = rank - shape.size();
    for (std::size_t i = 0; i < shape.size(); ++i) {
      std::int64_t& common = result[offset + i];
      if (shape[i] == common || shape[i] == 1) continue;
      if (common != 1) {
        fail(op, "the shapes cannot be broadcast together", found,
             "sizes that are equal or 1 in each dimension, counted from the last one",
             "reshape, transpose or expand_dims one of them");
      }
      common = shape[i];
    }
  }
  return result;
}

Array broadcast(const Array& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Ints dims;
  for (std::size_t i = 0; i < x.shape().size(); ++i) {
    dims.push_back(static_cast<std::int64_t>(shape.size() - x.shape().size() + i));
  }
  return emit({x}, [&](ir::Builder& b, const Ids& ids) {
    return ops::broadcast_in_dim(b, ids[0], dims, shape);
  });
}

std::vector<Array> broadcast_operands(std::string_view op, const std::vector<Operand>& operands) {
  const DType dtype = common_dtype(op, operands);
  std::vector<Array> arrays;
  for (const Operand& operand : operands) {
    if (!operand.is_number()) arrays.push_back(operand.array);
  }
  const Shape shape = broadcast_shape(op, arrays);
  std::vector<Array> result;
  for (const Operand& operand : operands) {
    if (operand.is_number()) {
      check_number(op, operand, dtype);
      result.push_back(filled(number_value(operand), {dtype, shape}));
    } else {
      result.push_back(broadcast(operand.array, shape));
    }
  }
  return result;
}

std::int64_t checked_axis(std::string_view op, std::int64_t axis, std::int64_t rank,
                          const std::string& found) {
  const std::int64_t index = axis < 0 ? axis + rank : axis;
  if (index >= 0 && index < rank) return index;
  fail(op, fmt::format("axis {} is out of range", axis), found,
       rank == 0 ? "an array of rank 1 or more"
                 : fmt::format("an axis from {} to {}", -rank, rank - 1),
       "count axes from 0, or from the end with negative numbers");
}

Ints checked_axes(std::string_view op, const Axes& axes, const Array& x) {
  Ints list;
  if (axes.all()) {
    for (std::int64_t axis = 0; axis < x.rank(); ++axis) list.push_back(axis);
    return list;
  }
  for (std::int64_t axis : axes.list()) {
    list.push_back(checked_axis(op, axis, x.rank(), describe(x)));
  }
  std::sort(list.begin(), list.end());
  if (std::adjacent_find(list.begin(), list.end()) != list.end()) {
    fail(op, "an axis is given twice", describe(x), "distinct axes", "name each axis once");
  }
  return list;
}

void check_sizes(std::string_view op, const Shape& shape) {
  constexpr double kMostElements = 4e18;  // below 2^62
  double elements = 1;
  for (std::int64_t size : shape) {
    if (size < 0) {
      fail(op, "the shape has a negative size", to_string(shape), "sizes of 0 or more",
           "write every size out; only reshape takes -1");
    }
    elements *= static_cast<double>(size);
  }
  if (elements < kMostElements) return;
  fail(op, "the shape has too many elements", to_string(shape), "fewer than 4e18 elements",
       "check the sizes");
}

}  // namespace tessera::detail
