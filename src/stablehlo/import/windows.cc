// Convolutions, pools and cumulative sums.
#include <algorithm>

#include "stablehlo/import/folds.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

bool all_are(const Ints& list, std::int64_t value) {
  return std::ranges::all_of(list, [&](std::int64_t each) { return each == value; });
}

/// Low and high padding, which are stored in turn.
struct Padding {
  Ints low, high;
};

Padding padding_of(Context& c, std::size_t rank) {
  const Ints list = c.ints("padding");
  Padding result;
  if (list.size() == 1) return {Ints(rank, list[0]), Ints(rank, list[0])};
  c.need(list.size() == 2 * rank, "padding of the wrong rank");
  for (std::size_t i = 0; i < rank; ++i) {
    result.low.push_back(list[2 * i]);
    result.high.push_back(list[2 * i + 1]);
  }
  return result;
}

/// Windows that begin or end with the array are cumulative.
std::optional<ValueId> cumulative(Context& c, ValueId x, const Ints& window, const Padding& padding,
                                  const std::string& name) {
  const Shape& shape = c.type(x).shape;
  std::optional<std::size_t> dim;
  for (std::size_t i = 0; i < window.size(); ++i) {
    if (window[i] == 1 && padding.low[i] == 0 && padding.high[i] == 0) continue;
    if (dim || window[i] != shape[i]) return std::nullopt;
    dim = i;
  }
  if (!dim) return std::nullopt;
  const std::int64_t rest = window[*dim] - 1;
  const bool is_forward = padding.low[*dim] == rest && padding.high[*dim] == 0;
  if (!is_forward && (padding.low[*dim] != 0 || padding.high[*dim] != rest)) return std::nullopt;
  return c.b().emit("cum" + name,
                    {{"dim", static_cast<std::int64_t>(*dim)}, {"reverse", !is_forward}}, {x});
}

/// What a reduction over windows says about them.
struct Pool {
  Ints window, stride, base, gaps;
  Padding padding;
};

Pool pool_of(Context& c) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31U;
  const auto rank = static_cast<std::size_t>(c.type(c.operand(0)).rank());
  Pool pool{.window = c.ints("window_dimensions"),
            .stride = c.ints("window_strides"),
            .base = c.ints("base_dilations"),
            .gaps = c.ints("window_dilations"),
            .padding = padding_of(c, rank)};
  c.need(pool.window.size() == rank && pool.stride.size() == rank && pool.base.size() == rank &&
             pool.gaps.size() == rank,
         "windows of the wrong rank");
  const auto is_size = [](std::int64_t size) { return size >= 1 && size < kMost; };
  for (const Ints* sizes : {&pool.window, &pool.stride, &pool.base, &pool.gaps}) {
    c.need(std::ranges::all_of(*sizes, is_size),
           "a window size, stride or dilation that is below 1 or too large");
  }
  const auto is_width = [](std::int64_t width) { return width > -kMost && width < kMost; };
  c.need(std::ranges::all_of(pool.padding.low, is_width) &&
             std::ranges::all_of(pool.padding.high, is_width),
         "too much padding");
  return pool;
}

/// `x` with `value` around and between its elements. Negative padding cuts off.
ValueId padded(Context& c, ValueId x, ValueId value, const Pool& pool) {
  Ints low = pool.padding.low;
  Ints high = pool.padding.high;
  Ints interior;
  Ints start;
  Ints limit;
  const Shape shape = c.type(x).shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    interior.push_back(pool.base[i] - 1);
    const std::int64_t spread = std::max<std::int64_t>((shape[i] - 1) * pool.base[i] + 1, 0);
    start.push_back(std::max<std::int64_t>(-low[i], 0));
    limit.push_back(start[i] + spread + low[i] + high[i]);
    low[i] = std::max<std::int64_t>(low[i], 0);
    high[i] = std::max<std::int64_t>(high[i], 0);
    c.need(limit[i] >= start[i], "negative padding that is larger than the dimension");
  }
  return ops::slice(c.b(), ops::pad(c.b(), x, value, low, high, interior), start, limit);
}

/// Reduces windows with any body, one dimension after the other, the last one first.
Values reduce_window_by_body(Context& c, const Pool& pool) {
  const std::size_t count = c.operands.size() / 2;
  c.need(count > 0 && 2 * count == c.operands.size(), "operands without initial values");
  const Join join(c, c.region(0), count);
  const Values firsts(c.operands.begin() + static_cast<std::ptrdiff_t>(count), c.operands.end());
  check_scalars(c, firsts);
  Values arrays;
  for (std::size_t i = 0; i < count; ++i) {
    arrays.push_back(padded(c, c.operand(i), firsts[i], pool));
  }
  // Padding changes nothing, whatever the initial values are.
  const Shape given = c.type(c.operand(0)).shape;
  const ValueId everywhere = ops::full(c.b(), 1, {DType::boolean, given});
  const ValueId nowhere = ops::scalar(c.b(), 0, DType::boolean);
  arrays.push_back(padded(c, everywhere, nowhere, pool));
  const Joins present = where_present(c, join);
  for (std::size_t dim = pool.window.size(); dim-- > 0;) {
    arrays = windows_joined(c, present, std::move(arrays), dim, pool.window[dim], pool.gaps[dim]);
    for (ValueId& each : arrays) {
      Ints steps(pool.window.size(), 1);
      steps[dim] = pool.stride[dim];
      const Shape shape = c.type(each).shape;
      each = ops::slice(c.b(), each, Ints(shape.size(), 0), shape, steps);
    }
  }
  Values first = firsts;
  first.push_back(ops::scalar(c.b(), 1, DType::boolean));
  arrays = joined_with_firsts(c, present, first, arrays);
  arrays.pop_back();
  return arrays;
}

/// `sum` for a body that adds; empty for bodies that windows of the IR do not have.
std::string window_name(Context& c) {
  if (c.operands.size() != 2 || c.type(c.operand(0)).dtype == DType::boolean) return {};
  const std::string_view kind = joined_by(c.region(0));
  return kind == "add"        ? "sum"
         : kind == "multiply" ? "prod"
         : kind == "maximum"  ? "max"
         : kind == "minimum"  ? "min"
                              : "";
}

Values reduce_window(Context& c) {
  const Pool pool = pool_of(c);
  if (num_elements(c.result().shape) == 0) {  // a window may be larger than the array
    Values empty;
    for (std::size_t i = 0; i < c.operands.size() / 2; ++i) {
      empty.push_back(ops::full(c.b(), 0, c.result(i)));
    }
    return empty;
  }
  const std::string name = window_name(c);
  if (name.empty()) return reduce_window_by_body(c, pool);
  const Type given = c.type(c.operand(0));
  const std::string join = name == "sum" ? "add" : name == "prod" ? "mul" : name;
  const bool is_sum = name == "sum" || name == "prod";
  const DType dtype = is_sum ? ops::sum_dtype(given.dtype) : given.dtype;
  if (given.rank() == 0) return {with_first(c, c.operand(0), c.operand(1), join)};
  if (all_are(pool.stride, 1) && all_are(pool.base, 1) && all_are(pool.gaps, 1) &&
      is_neutral(c, c.operand(1), join)) {
    const ValueId x = ops::convert(c.b(), c.operand(0), dtype);
    if (const auto result = cumulative(c, x, pool.window, pool.padding, name)) {
      return {ops::convert(c.b(), *result, given.dtype)};
    }
  }
  if (name == "prod" || !all_are(pool.gaps, 1)) return reduce_window_by_body(c, pool);
  // As in XLA, padding changes nothing, and the initial value counts once.
  const ValueId neutral = ops::scalar(c.b(), neutral_of(join, given.dtype), dtype);
  const ValueId x = padded(c, ops::convert(c.b(), c.operand(0), dtype), neutral, pool);
  const ValueId result =
      c.b().emit("reduce_window_" + name, {{"stride", pool.stride}, {"window", pool.window}}, {x});
  return {with_first(c, ops::convert(c.b(), result, given.dtype), c.operand(1), join)};
}

/// The gradient of a pool: adds each element of the second operand to the place of the chosen
/// element of its window, the first one if several are equal.
Values select_and_scatter(Context& c) {
  ir::Builder& b = c.b();
  const Type type = c.type(c.operand(0));
  const Region choice = without_copies(c.region(0));
  c.need(is_float(type.dtype), "elements that are not floats");
  c.need(choice.operations.size() == 2 && kind_of(choice.operations[0]) == "compare" &&
             choice.operations[0].operands == choice.arguments,
         "a custom selection");
  const std::string_view direction = text_of(choice.operations[0], "comparison_direction");
  c.need(direction == "GE" || direction == "LE", "a custom selection");
  const std::string name = direction == "GE" ? "max" : "min";
  const auto first = c.frame.splats.find(c.operand(2));
  c.need(joined_by(c.region(1)) == "add" && first != c.frame.splats.end() && first->second == 0,
         "a scatter other than a sum that starts at 0");
  const auto rank = static_cast<std::size_t>(type.rank());
  const Ints window = c.ints("window_dimensions");
  const Ints stride = c.ints("window_strides");
  const Padding padding = padding_of(c, rank);
  c.need(rank > 0 && window.size() == rank && stride.size() == rank, "windows of the wrong rank");
  c.need(std::ranges::min(padding.low) >= 0 && std::ranges::min(padding.high) >= 0,
         "negative padding");
  if (num_elements(c.type(c.operand(1)).shape) == 0) return {ops::full(b, 0, type)};
  const ValueId neutral = ops::scalar(b, neutral_of(name, type.dtype), type.dtype);
  const ValueId x = ops::pad(b, c.operand(0), neutral, padding.low, padding.high);
  const ir::Attributes windows = {{"stride", stride}, {"window", window}};
  const ValueId chosen = b.emit("reduce_window_" + name, windows, {x});
  const ValueId numbers = b.emit("find_in_windows", windows, {x, chosen});
  c.need(c.type(chosen).shape == c.type(c.operand(1)).shape,
         "values whose shape does not match the windows");
  return {
      b.emit("spread_from_windows",
             {{"low", padding.low}, {"shape", type.shape}, {"stride", stride}, {"window", window}},
             {numbers, c.operand(1)})};
}

/// The dimensions that an operand or result of a convolution has.
Ints ordered(std::int64_t first, const Ints& space, std::int64_t last) {
  Ints result = {first};
  result.insert(result.end(), space.begin(), space.end());
  result.push_back(last);
  return result;
}

/// The groups of an operand: `count` parts of dimension `dim`; 0: there are none.
struct Groups {
  std::int64_t count = 0;
  std::int64_t dim = 0;
};

/// The dimensions of an operand in another order, after its groups. Dimensions are split in place,
/// so this is a view of the operand.
ValueId arranged(Context& c, ValueId x, const Ints& order, const Groups& groups) {
  if (groups.count == 0) return ops::transpose(c.b(), x, order);
  Shape shape = c.type(x).shape;
  c.need(groups.dim >= 0 && groups.dim < std::ssize(shape), "a dimension that does not exist");
  const auto at = static_cast<std::size_t>(groups.dim);
  c.need(groups.count > 0 && shape[at] % groups.count == 0,
         "a dimension whose size is not divisible by the number of groups");
  shape[at] /= groups.count;
  shape.insert(shape.begin() + groups.dim, groups.count);
  Ints behind = {groups.dim};
  for (const std::int64_t dim : order) behind.push_back(dim < groups.dim ? dim : dim + 1);
  return ops::transpose(c.b(), ops::reshape(c.b(), x, shape), behind);
}

/// The inverse, for a result; its features are those of all groups. `order` has the dimensions of
/// the convolution: n, space.., features.
ValueId rearranged(Context& c, ValueId x, const Ints& order, bool is_grouped) {
  if (!is_grouped) return ops::transpose(c.b(), x, order);
  const std::int64_t features = std::ssize(order) - 1;
  Ints behind;
  for (const std::int64_t dim : order) {
    if (dim == features) behind.push_back(0);
    behind.push_back(dim + 1);
  }
  return ops::reshape(c.b(), ops::transpose(c.b(), x, behind), c.result().shape);
}

/// [batch.., n, space.., c] and [batch.., window.., c, o] -> [batch.., n, space.., o]; without
/// spatial dimensions it is a product.
ValueId convolved(Context& c, ValueId x, ValueId kernel, bool is_grouped, std::int64_t rank) {
  if (rank == 0) {
    const std::int64_t lead = is_grouped ? 1 : 0;
    ops::DotDims dims{.lhs_contract = {lead + 1}, .rhs_contract = {lead}};
    if (is_grouped) dims.lhs_batch = dims.rhs_batch = {0};
    return ops::dot_general(c.b(), x, kernel, dims);
  }
  const Padding padding = padding_of(c, static_cast<std::size_t>(rank));
  return c.b().emit("conv",
                    {{"dilation", c.ints("rhs_dilation")},
                     {"high", padding.high},
                     {"low", padding.low},
                     {"spread", c.ints("lhs_dilation")},
                     {"stride", c.ints("window_strides")}},
                    {x, kernel});
}

Values convolution(Context& c) {
  ir::Builder& b = c.b();
  const Ints space = c.ints("input_spatial_dimensions");
  const Ints kernel_space = c.ints("kernel_spatial_dimensions");
  const auto rank = static_cast<std::int64_t>(space.size());
  if (num_elements(c.result().shape) == 0) return {ops::full(b, 0, c.result())};
  ValueId x = c.operand(0);
  ValueId kernel = c.operand(1);
  match_for_sums(c, x, kernel);
  const std::int64_t features = c.integer("feature_group_count");
  const std::int64_t batches = c.integer("batch_group_count");
  c.need(features == 1 || batches == 1, "both feature groups and batch groups");
  const std::int64_t groups = features == 1 && batches == 1 ? 0 : std::max(features, batches);
  const std::int64_t of_batch = c.integer("input_batch_dimension");
  const std::int64_t of_features = c.integer("input_feature_dimension");
  x = arranged(c, x, ordered(of_batch, space, of_features),
               {.count = groups, .dim = batches == 1 ? of_features : of_batch});
  Ints kernel_order = kernel_space;
  kernel_order.push_back(c.integer("kernel_input_feature_dimension"));
  kernel_order.push_back(c.integer("kernel_output_feature_dimension"));
  kernel = arranged(c, kernel, kernel_order, {.count = groups, .dim = kernel_order.back()});
  const std::int64_t lead = groups == 0 ? 0 : 1;
  Ints reversed;
  const Ints reversal = c.ints("window_reversal");
  for (std::int64_t i = 0; i < rank; ++i) {
    const auto at = static_cast<std::size_t>(reversal.size() == 1 ? 0 : i);
    if (at < reversal.size() && reversal[at] != 0) reversed.push_back(lead + i);
  }
  kernel = ops::reverse(b, kernel, reversed);
  const ValueId result = convolved(c, x, kernel, groups != 0, rank);
  const Ints order =
      ordered(c.integer("output_batch_dimension"), c.ints("output_spatial_dimensions"),
              c.integer("output_feature_dimension"));
  Ints inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    c.need(order[i] >= 0 && order[i] < rank + 2, "a dimension that does not exist");
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return {as_sum(c, rearranged(c, result, inverse, groups != 0))};
}

}  // namespace

const Handlers& window_handlers() {
  static const Handlers kHandlers = {{"convolution", convolution},
                                     {"reduce_window", reduce_window},
                                     {"select_and_scatter", select_and_scatter}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
