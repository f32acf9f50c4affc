// Elementwise arithmetic of two or three operands of one type.
#include <limits>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

template <typename T>
T quotient(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    return x / y;
  } else {
    if (y == 0) return wrapping_neg(T{1});
    if (std::is_signed_v<T> && y == wrapping_neg(T{1})) return wrapping_neg(x);
    return static_cast<T>(x / y);
  }
}

template <typename T>
T remainder_of(T x, T y) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(x, y);
  } else {
    if (y == 0) return x;
    if (std::is_signed_v<T> && y == wrapping_neg(T{1})) return 0;
    return static_cast<T>(x % y);
  }
}

/// The part of the cotangent of max or min that operand `i` gets: all of it, half of it for a tie,
/// or zero.
ValueId share_of_extreme(VjpContext& c, std::size_t i) {
  Builder& b = c.b;
  const ValueId mine = c.operand(i);
  const ValueId other = c.operand(1 - i);
  const ValueId one = full_like(b, 1.0, mine);
  const ValueId is_mine = compare(b, "eq", mine, c.result());
  const ValueId is_other = compare(b, "eq", other, c.result());
  const ValueId part = select(b, is_mine, one, full_like(b, 0.0, mine));
  const ValueId count = select(b, is_other, full_like(b, 2.0, mine), one);
  return mul(b, c.cotangent(), div(b, part, count));
}

VjpRule extreme_vjp() {
  return per_operand({[](VjpContext& c) { return share_of_extreme(c, 0); },
                      [](VjpContext& c) { return share_of_extreme(c, 1); }});
}

/// `x` with its zeros replaced by ones.
ValueId replace_zeros(Builder& b, ValueId x) {
  const ValueId is_zero = compare(b, "eq", x, full_like(b, 0.0, x));
  return select(b, is_zero, full_like(b, 1.0, x), x);
}

ValueId pow_vjp_base(VjpContext& c) {
  Builder& b = c.b;
  const ValueId x = c.operand(0);
  const ValueId y = c.operand(1);
  const ValueId zero = full_like(b, 0.0, y);
  const ValueId power = pow(b, x, sub(b, y, full_like(b, 1.0, y)));
  // x^0 is 1 for every x, but at x = 0 the formula would compute 0 * infinity.
  const ValueId is_one = compare(b, "eq", y, zero);
  const ValueId slope = select(b, is_one, zero, mul(b, replace_zeros(b, y), power));
  return mul(b, c.cotangent(), slope);
}

ValueId pow_vjp_exponent(VjpContext& c) {
  Builder& b = c.b;
  const ValueId log_x = log(b, replace_zeros(b, c.operand(0)));
  return mul(b, c.cotangent(), mul(b, log_x, c.result()));
}

ValueId rem_vjp_divisor(VjpContext& c) {
  Builder& b = c.b;
  const ValueId ratio = div(b, c.operand(0), c.operand(1));
  const ValueId direction = sign(b, ratio);
  const ValueId whole = mul(b, direction, floor(b, abs(b, ratio)));
  return mul(b, neg(b, c.cotangent()), whole);
}

/// The record of x + y, which exists under several names.
OpRecord sum_record(const char* name, const char* doc, const char* source) {
  const auto passed_on = [](VjpContext& c) { return c.cotangent(); };
  return {
      .name = name,
      .doc = doc,
      .source = source,
      .hlo = "add",
      .attributes = AttributeNames{},
      .types = TypeSet::numbers,
      .shape = same_as_both,
      .vjp = per_operand({passed_on, passed_on}),
      .batch = elementwise_batch,
      .factors = elementwise_factors,
      .pattern = Pattern::elementwise,
      .host = "add",
      .stablehlo = "stablehlo.add {0}, {1} : {type}",
      .reference = map2<Numbers>([](auto x, auto y) { return wrapping_add(x, y); }),
      .cost = flops_per_element(1),
      .samples = number_samples(2),
      .linearity = Linearity::all,
  };
}

// --- StableHLO

/// Whether an integer is 0.
hlo::Value is_zero(hlo::Writer& w, const hlo::Value& x) {
  return w.compare("eq", x, w.constant(0, x.type));
}

/// The divisor, with 1 in place of divisors for which StableHLO leaves the integer quotient
/// undefined: 0, and -1 if the quotient does not fit. XLA may end the process when it divides
/// constants by these.
hlo::Value safe_divisor(hlo::Writer& w, const hlo::Value& x, const hlo::Value& y) {
  hlo::Value is_bad = is_zero(w, y);
  if (is_signed(x.type.dtype)) {
    const double lowest = hlo::identity_of("maximum", x.type.dtype);
    const hlo::Value is_lowest = w.compare("eq", x, w.constant(lowest, x.type));
    const hlo::Value is_minus_one = w.compare("eq", y, w.constant(-1, y.type));
    is_bad = w.binary("or", is_bad, w.binary("and", is_lowest, is_minus_one));
  }
  return w.select(is_bad, w.constant(1, y.type), y);
}

hlo::Values div_form(hlo::FormContext& c) {
  hlo::Writer& w = c.w;
  if (is_float(c.x().type.dtype)) return {w.binary("divide", c.x(0), c.x(1))};
  const hlo::Value quotient = w.binary("divide", c.x(0), safe_divisor(w, c.x(0), c.x(1)));
  const hlo::Value ones = w.unary("not", w.constant(0, quotient.type));
  return {w.select(is_zero(w, c.x(1)), ones, quotient)};
}

hlo::Values rem_form(hlo::FormContext& c) {
  hlo::Writer& w = c.w;
  if (is_float(c.x().type.dtype)) return {w.binary("remainder", c.x(0), c.x(1))};
  const hlo::Value rest = w.binary("remainder", c.x(0), safe_divisor(w, c.x(0), c.x(1)));
  return {w.select(is_zero(w, c.x(1)), c.x(0), rest)};
}

/// Computed in a type that holds the product exactly, if there is one.
hlo::Values fma_form(hlo::FormContext& c) {
  const DType dtype = c.x().type.dtype;
  const DType wide = size_bytes(dtype) == 2 ? DType::f32 : DType::f64;
  hlo::Values wider;
  for (const hlo::Value& x : c.operands) wider.push_back(c.w.convert(x, wide));
  const hlo::Value product = c.w.binary("multiply", wider[0], wider[1]);
  return {c.w.convert(c.w.binary("add", product, wider[2]), dtype)};
}

}  // namespace

const OpRecord add_op = sum_record("add", "x + y; integers wrap around.", "StableHLO, add");

const OpRecord add_any_op = sum_record(
    "add_any",
    "x + y, for two cotangents of the same value; becomes `add` once differentiation is done.",
    "JAX, add_any");

const OpRecord div_op{
    .name = "div",
    .doc =
        "x / y. Integer division rounds toward zero; division by zero gives -1, and the most "
        "negative integer divided by -1 is itself.",
    .source = "StableHLO, divide; RISC-V for integers by zero",
    .hlo = "divide",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = same_as_both,
    .vjp = per_operand({[](VjpContext& c) { return div(c.b, c.cotangent(), c.operand(1)); },
                        [](VjpContext& c) {
                          const ValueId y = c.operand(1);
                          const ValueId one = full_like(c.b, 1.0, y);
                          const ValueId slope = div(c.b, one, square(c.b, y));
                          return mul(c.b, mul(c.b, neg(c.b, c.cotangent()), c.operand(0)), slope);
                        }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "div",
    .stablehlo = div_form,
    .reference = map2<Numbers>([](auto x, auto y) { return quotient(x, y); }),
    .cost = flops_per_element(1),
    .samples = number_samples(2, 0.5, 2.0),
    .linearity = Linearity::first,
};

const OpRecord fma_op{
    .name = "fma",
    .doc = "x * y + z, rounded once.",
    .source = "IEEE 754, fusedMultiplyAdd",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = [](const ShapeContext& c) -> std::vector<Type> {
      expect_operands(c, 3);
      expect_same_types(c);
      return {c.operands[0]};
    },
    .vjp = per_operand({[](VjpContext& c) { return mul(c.b, c.cotangent(), c.operand(1)); },
                        [](VjpContext& c) { return mul(c.b, c.operand(0), c.cotangent()); },
                        [](VjpContext& c) { return c.cotangent(); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "fma",
    .stablehlo = fma_form,
    .reference = map3<Floats>([](auto x, auto y, auto z) { return std::fma(x, y, z); }),
    .cost = flops_per_element(2),
    .samples = float_samples(3, -2.0, 2.0),
};

const OpRecord max_op{
    .name = "max",
    .doc = "The greater of x and y; NaN wins and -0 < +0. Equal operands share the cotangent.",
    .source = "StableHLO, maximum",
    .hlo = "maximum",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = same_as_both,
    .vjp = extreme_vjp(),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "max",
    .stablehlo = "stablehlo.maximum {0}, {1} : {type}",
    .reference = map2<Numbers>([](auto x, auto y) { return greater_of(x, y); }),
    .cost = flops_per_element(1),
    .samples = number_samples(2),
};

const OpRecord min_op{
    .name = "min",
    .doc = "The lesser of x and y; NaN wins and -0 < +0. Equal operands share the cotangent.",
    .source = "StableHLO, minimum",
    .hlo = "minimum",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = same_as_both,
    .vjp = extreme_vjp(),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "min",
    .stablehlo = "stablehlo.minimum {0}, {1} : {type}",
    .reference = map2<Numbers>([](auto x, auto y) { return lesser_of(x, y); }),
    .cost = flops_per_element(1),
    .samples = number_samples(2),
};

const OpRecord mul_op{
    .name = "mul",
    .doc = "x * y; integers wrap around.",
    .source = "StableHLO, multiply",
    .hlo = "multiply",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = same_as_both,
    .vjp = per_operand({[](VjpContext& c) { return mul(c.b, c.cotangent(), c.operand(1)); },
                        [](VjpContext& c) { return mul(c.b, c.operand(0), c.cotangent()); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "mul",
    .stablehlo = "stablehlo.multiply {0}, {1} : {type}",
    .reference = map2<Numbers>([](auto x, auto y) { return wrapping_mul(x, y); }),
    .cost = flops_per_element(1),
    .samples = number_samples(2),
    .linearity = Linearity::each,
};

const OpRecord pow_op{
    .name = "pow",
    .doc = "x to the power y.",
    .source = "StableHLO, power",
    .hlo = "power",
    .attributes = AttributeNames{},
    .types = TypeSet::floats,
    .shape = same_as_both,
    .vjp = per_operand({pow_vjp_base, pow_vjp_exponent}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "pow",
    .stablehlo = "stablehlo.power {0}, {1} : {type}",
    .reference = map2<Floats>([](auto x, auto y) {
      return static_cast<decltype(x)>(std::pow(static_cast<double>(x), static_cast<double>(y)));
    }),
    .cost = flops_per_element(20),
    .samples = float_samples(2, 0.5, 2.0, kFunctionUlp),
};

const OpRecord rem_op{
    .name = "rem",
    .doc =
        "The remainder of x / y rounded toward zero, with the sign of x. For integers, x if y is "
        "0.",
    .source = "StableHLO, remainder; RISC-V for integers by zero",
    .hlo = "remainder",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = same_as_both,
    .vjp = per_operand({[](VjpContext& c) { return c.cotangent(); }, rem_vjp_divisor}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "rem",
    .stablehlo = rem_form,
    .reference = map2<Numbers>([](auto x, auto y) { return remainder_of(x, y); }),
    .cost = flops_per_element(4),
    .samples = Samples{{.operands = {{f32({5, 6}), 2.2, 2.8}, {f32({5, 6}), 0.95, 1.05}}},
                       {.operands = {{f32({12, 1}), -2.8, -2.2}, {f32({12, 1}), 0.95, 1.05}}},
                       {.operands = {{i32({10}), -99.0, 99.0}, {i32({10}), -7.0, 7.0}}},
                       {.operands = {{u32({6}), 0.0, 4e9}, {u32({6}), 0.0, 1e6}}}},
};

const OpRecord sub_op{
    .name = "sub",
    .doc = "x - y; integers wrap around.",
    .source = "StableHLO, subtract",
    .hlo = "subtract",
    .attributes = AttributeNames{},
    .types = TypeSet::numbers,
    .shape = same_as_both,
    .vjp = per_operand({[](VjpContext& c) { return c.cotangent(); },
                        [](VjpContext& c) { return neg(c.b, c.cotangent()); }}),
    .batch = elementwise_batch,
    .factors = elementwise_factors,
    .pattern = Pattern::elementwise,
    .host = "sub",
    .stablehlo = "stablehlo.subtract {0}, {1} : {type}",
    .reference = map2<Numbers>([](auto x, auto y) {
      if constexpr (std::is_integral_v<decltype(x)>) {
        return wrapping_add(x, wrapping_neg(y));
      } else {
        return x - y;
      }
    }),
    .cost = flops_per_element(1),
    .samples = number_samples(2),
    .linearity = Linearity::all,
};

OpFamily elementwise_binary_ops() {
  return {&add_op, &add_any_op, &div_op, &fma_op, &max_op,
          &min_op, &mul_op,     &pow_op, &rem_op, &sub_op};
}

}  // namespace tessera::ops
