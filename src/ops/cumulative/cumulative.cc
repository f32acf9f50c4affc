// Cumulative reductions: cumsum, cumprod, cummax, cummin.
#include <algorithm>

#include "ops/ops.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

std::vector<Type> cumulative_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  dim_of(c, "dim", c.operands[0].rank());
  boolean_of(c, "reverse");
  return {c.operands[0]};
}

Factors cumulative_factors(const Attributes& attributes, const std::vector<Type>& operands,
                           const std::vector<Type>& results) {
  Factors factors = elementwise_factors(attributes, operands, results);
  factors.factors[at(attributes.integer("dim"))].kind = FactorKind::replicate;
  return factors;
}

template <typename Combine>
Reference cumulative_reference(Combine combine) {
  return [combine](const ReferenceContext& c) {
    HostArray result(c.results[0]);
    const Shape& shape = c.results[0].shape;
    const std::size_t dim = at(c.attributes.integer("dim"));
    const std::int64_t step = row_major_strides(shape)[dim];
    const bool reverse = c.attributes.get<bool>("reverse");
    Numbers::visit(c.results[0].dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto x = c.operands[0]->data<T>();
      const auto out = result.data<T>();
      // Row-major order visits each line from its first to its last element.
      std::int64_t n = 0;
      for_each_index(shape, [&](std::vector<std::int64_t> index) {
        const std::int64_t place = index[dim];
        const std::int64_t to = reverse ? n + (shape[dim] - 1 - 2 * place) * step : n;
        const std::int64_t before = reverse ? to + step : to - step;
        out[at(to)] = place == 0 ? x[at(to)] : combine(out[at(before)], x[at(to)]);
        ++n;
      });
    });
    return one_result(std::move(result));
  };
}

// --- derivatives

/// Helps derivatives to work on lines in the order in which the op walks them: forward() reverses
/// lines where the op does.
struct Direction {
  Builder& b;
  std::int64_t dim;
  bool is_reversed;

  ValueId forward(ValueId x) const { return is_reversed ? reverse(b, x, {dim}) : x; }
  std::int64_t size(ValueId x) const { return b.type(x).shape[at(dim)]; }
  /// Applies the cumulative op `op` along the lines.
  ValueId cumulate(std::string_view op, ValueId x) const {
    return b.emit(op, {{"dim", dim}, {"reverse", false}}, {x});
  }
  /// Element i of the result is element i - count of x, and `fill` where x has no such element.
  /// `count` may be negative.
  ValueId shifted(ValueId x, std::int64_t count, double fill) const {
    const std::int64_t n = size(x);
    const std::int64_t lost = std::min(std::abs(count), n);
    Ints low(b.type(x).shape.size(), 0);
    Ints high = low;
    (count > 0 ? low : high)[at(dim)] = lost;
    const ValueId kept =
        count > 0 ? slice_dim(b, x, dim, 0, n - lost) : slice_dim(b, x, dim, lost, n);
    return pad(b, kept, scalar(b, fill, b.type(x).dtype), low, high);
  }
};

Direction direction_of(VjpContext& c) {
  return {c.b, c.equation.attributes.integer("dim"), c.equation.attributes.get<bool>("reverse")};
}

ValueId cumsum_vjp(VjpContext& c) {
  Attributes attributes = c.equation.attributes;
  attributes.set("reverse", !attributes.get<bool>("reverse"));
  return c.b.emit("cumsum", attributes, {c.cotangent()});
}

/// With r[j] = cotangent[j] + x[j + 1] * r[j + 1], the cotangent of x[j] is r[j] times the product
/// of the elements before j. Nothing is divided by x, so this also holds where elements are zero.
/// The recurrence is solved by doubling.
ValueId cumprod_vjp(VjpContext& c) {
  const Direction direction = direction_of(c);
  Builder& b = c.b;
  const ValueId x = direction.forward(c.operand(0));
  ValueId rest = direction.forward(c.cotangent());
  ValueId factor = direction.shifted(x, -1, 0.0);
  for (std::int64_t step = 1; step < direction.size(x); step *= 2) {
    rest = add(b, rest, mul(b, factor, direction.shifted(rest, -step, 0.0)));
    factor = mul(b, factor, direction.shifted(factor, -step, 0.0));
  }
  const ValueId before = direction.shifted(direction.cumulate("cumprod", x), 1, 1.0);
  return direction.forward(mul(b, before, rest));
}

/// The cotangent of each result goes to the first element that reached the extreme.
ValueId extreme_vjp(VjpContext& c) {
  const Direction direction = direction_of(c);
  Builder& b = c.b;
  const ValueId extreme = direction.forward(c.result());
  const ValueId is_new = compare(b, "ne", extreme, direction.shifted(extreme, 1, 0.0));
  const Shape shape = b.type(extreme).shape;
  const ValueId positions = iota(b, DType::i32, shape, direction.dim);
  const ValueId reached = select(b, is_new, positions, full_like(b, 0.0, positions));
  const ValueId source = direction.cumulate("cummax", reached);
  const ValueId cotangent = direction.forward(c.cotangent());
  return direction.forward(
      scatter_add_along(b, source, cotangent, direction.dim, direction.size(extreme)));
}

Sample cumulative_sample(SampleOperand operand, std::int64_t dim, bool reverse) {
  return {.operands = {std::move(operand)}, .attributes = {{"dim", dim}, {"reverse", reverse}}};
}

Samples cumulative_samples() {
  return {cumulative_sample({f32({5, 6})}, 1, false),
          cumulative_sample({f32({12, 3})}, 0, true),
          cumulative_sample({f32({3, 7, 2})}, 1, false),
          cumulative_sample({f32({10, 1})}, 1, true),
          cumulative_sample({i32({6, 5}), -9.0, 9.0}, 0, false),
          cumulative_sample({u32({9}), 0.0, 4e9}, 0, true)};
}

Samples extreme_samples() {
  Samples samples = cumulative_samples();
  samples.push_back(cumulative_sample({bf16({5, 6})}, 1, true));
  return samples;
}

}  // namespace

const OpRecord cummax_op{
    .name = "cummax",
    .doc =
        "The maximum of the elements up to each position along `dim`, or from it to the end with "
        "`reverse`; NaN wins and -0 < +0. The first of equal elements takes the cotangent.",
    .source = "jax.lax.cummax",
    .attributes = AttributeNames{"dim", "reverse"},
    .types = TypeSet::numbers,
    .shape = cumulative_shape,
    .vjp = per_operand({extreme_vjp}),
    .batch = shifted_batch("dim"),
    .factors = cumulative_factors,
    .pattern = Pattern::opaque,
    .host = "cumulative",
    .stablehlo = hlo::cumulative_form("maximum"),
    .reference = cumulative_reference([](auto x, auto y) { return greater_of(x, y); }),
    .cost = flops_per_element(1),
    .samples = extreme_samples(),
};

const OpRecord cummin_op{
    .name = "cummin",
    .doc =
        "The minimum of the elements up to each position along `dim`, or from it to the end with "
        "`reverse`; NaN wins and -0 < +0. The first of equal elements takes the cotangent.",
    .source = "jax.lax.cummin",
    .attributes = AttributeNames{"dim", "reverse"},
    .types = TypeSet::numbers,
    .shape = cumulative_shape,
    .vjp = per_operand({extreme_vjp}),
    .batch = shifted_batch("dim"),
    .factors = cumulative_factors,
    .pattern = Pattern::opaque,
    .host = "cumulative",
    .stablehlo = hlo::cumulative_form("minimum"),
    .reference = cumulative_reference([](auto x, auto y) { return lesser_of(x, y); }),
    .cost = flops_per_element(1),
    .samples = extreme_samples(),
};

const OpRecord cumprod_op{
    .name = "cumprod",
    .doc =
        "The product of the elements up to each position along `dim`, multiplied in index order; "
        "with `reverse`, from the last element down. Integers wrap around.",
    .source = "jax.lax.cumprod",
    .attributes = AttributeNames{"dim", "reverse"},
    .types = TypeSet::wide_numbers,
    .shape = cumulative_shape,
    .vjp = per_operand({cumprod_vjp}),
    .batch = shifted_batch("dim"),
    .factors = cumulative_factors,
    .pattern = Pattern::opaque,
    .host = "cumulative",
    .stablehlo = hlo::cumulative_form("multiply"),
    .reference = cumulative_reference([](auto x, auto y) { return wrapping_mul(x, y); }),
    .cost = flops_per_element(1),
    .samples = cumulative_samples(),
};

const OpRecord cumsum_op{
    .name = "cumsum",
    .doc =
        "The sum of the elements up to each position along `dim`, added in index order; with "
        "`reverse`, from the last element down. Integers wrap around.",
    .source = "jax.lax.cumsum",
    .attributes = AttributeNames{"dim", "reverse"},
    .types = TypeSet::wide_numbers,
    .shape = cumulative_shape,
    .vjp = per_operand({cumsum_vjp}),
    .batch = shifted_batch("dim"),
    .factors = cumulative_factors,
    .pattern = Pattern::opaque,
    .host = "cumulative",
    .stablehlo = hlo::cumulative_form("add"),
    .reference = cumulative_reference([](auto x, auto y) { return wrapping_add(x, y); }),
    .cost = flops_per_element(1),
    .samples = cumulative_samples(),
    .linearity = Linearity::each,
};

OpFamily cumulative_ops() { return {&cummax_op, &cummin_op, &cumprod_op, &cumsum_op}; }

}  // namespace tessera::ops
