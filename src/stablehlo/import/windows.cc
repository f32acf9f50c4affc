// Convolutions, pools and cumulative sums.
#include <algorithm>

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
  c.need(list.size() == 2 * rank, "padding of another rank");
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

Values reduce_window(Context& c) {
  c.need(c.operands.size() == 2, "several arrays");
  const std::string_view kind = joined_by(c.region(0));
  const std::string name = kind == "add"        ? "sum"
                           : kind == "multiply" ? "prod"
                           : kind == "maximum"  ? "max"
                           : kind == "minimum"  ? "min"
                                                : "";
  const Type given = c.type(c.operand(0));
  c.need(!name.empty() && given.dtype != DType::boolean, "a body of its own");
  const std::string join = name == "sum" ? "add" : name == "prod" ? "mul" : name;
  const auto rank = static_cast<std::size_t>(given.rank());
  const Ints window = c.ints("window_dimensions");
  const Ints stride = c.ints("window_strides");
  const Ints base = c.ints("base_dilations");
  const Padding padding = padding_of(c, rank);
  c.need(all_are(c.ints("window_dilations"), 1), "windows with gaps");
  c.need(window.size() == rank && stride.size() == rank && base.size() == rank,
         "windows of another rank");
  const bool is_sum = name == "sum" || name == "prod";
  const DType dtype = is_sum ? ops::sum_dtype(given.dtype) : given.dtype;
  ValueId x = ops::convert(c.b(), c.operand(0), dtype);
  if (rank == 0) return {with_first(c, x, c.operand(1), join)};
  if (all_are(stride, 1) && all_are(base, 1) && is_neutral(c, c.operand(1), join)) {
    if (const auto result = cumulative(c, x, window, padding, name)) {
      return {ops::convert(c.b(), *result, given.dtype)};
    }
  }
  c.need(name != "prod", "products of windows");
  c.need(std::ranges::min(padding.low) >= 0 && std::ranges::min(padding.high) >= 0,
         "negative padding");
  Ints interior;
  for (const std::int64_t each : base) interior.push_back(each - 1);
  // As XLA has it, padding changes nothing, and the first value counts once.
  const ValueId neutral = ops::scalar(c.b(), neutral_of(join, given.dtype), dtype);
  x = ops::pad(c.b(), x, neutral, padding.low, padding.high, interior);
  const ValueId result =
      c.b().emit("reduce_window_" + name, {{"stride", stride}, {"window", window}}, {x});
  return {with_first(c, ops::convert(c.b(), result, given.dtype), c.operand(1), join)};
}

/// The gradient of a pool: adds each element of the second operand where its window has the
/// element that is chosen, the first one of equal ones.
Values select_and_scatter(Context& c) {
  ir::Builder& b = c.b();
  const Type type = c.type(c.operand(0));
  const Region choice = without_copies(c.region(0));
  c.need(is_float(type.dtype), "elements that are not floats");
  c.need(choice.operations.size() == 2 && kind_of(choice.operations[0]) == "compare" &&
             choice.operations[0].operands == choice.arguments,
         "a choice of its own");
  const std::string_view direction = text_of(choice.operations[0], "comparison_direction");
  c.need(direction == "GE" || direction == "LE", "a choice of its own");
  const std::string name = direction == "GE" ? "max" : "min";
  const auto first = c.frame.splats.find(c.operand(2));
  c.need(joined_by(c.region(1)) == "add" && first != c.frame.splats.end() && first->second == 0,
         "anything but a sum that begins at 0");
  const auto rank = static_cast<std::size_t>(type.rank());
  const Ints window = c.ints("window_dimensions");
  const Ints stride = c.ints("window_strides");
  const Padding padding = padding_of(c, rank);
  c.need(rank > 0 && window.size() == rank && stride.size() == rank, "windows of another rank");
  c.need(std::ranges::min(padding.low) >= 0 && std::ranges::min(padding.high) >= 0,
         "negative padding");
  const ValueId neutral = ops::scalar(b, neutral_of(name, type.dtype), type.dtype);
  const ValueId x = ops::pad(b, c.operand(0), neutral, padding.low, padding.high);
  const ir::Attributes windows = {{"stride", stride}, {"window", window}};
  const ValueId chosen = b.emit("reduce_window_" + name, windows, {x});
  const ValueId numbers = b.emit("find_in_windows", windows, {x, chosen});
  c.need(c.type(chosen).shape == c.type(c.operand(1)).shape, "windows of another number");
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

/// Splits dimension `dim` into `groups` and moves these to the front.
ValueId grouped(Context& c, ValueId x, std::int64_t dim, std::int64_t groups) {
  Shape shape = c.type(x).shape;
  const auto at = static_cast<std::size_t>(dim);
  c.need(groups > 0 && shape[at] % groups == 0, "groups that do not divide a dimension");
  shape[at] /= groups;
  shape.insert(shape.begin() + dim, groups);
  Ints order = {dim};
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(shape.size()); ++i) {
    if (i != dim) order.push_back(i);
  }
  return ops::transpose(c.b(), ops::reshape(c.b(), x, shape), order);
}

/// Joins dimension 0 to dimension `dim`, which then follows it, of the others.
ValueId ungrouped(Context& c, ValueId x, std::int64_t dim) {
  Shape shape = c.type(x).shape;
  Ints order;
  for (std::int64_t i = 1; i < static_cast<std::int64_t>(shape.size()); ++i) {
    if (i == dim + 1) order.push_back(0);
    order.push_back(i);
  }
  const std::int64_t groups = shape[0];
  shape.erase(shape.begin());
  shape[static_cast<std::size_t>(dim)] *= groups;
  return ops::reshape(c.b(), ops::transpose(c.b(), x, order), shape);
}

/// A convolution without spatial dimensions.
ValueId product(Context& c) {
  c.need(c.integer("feature_group_count") == 1 && c.integer("batch_group_count") == 1,
         "groups without a spatial dimension");
  const ops::DotDims dims{.lhs_contract = {c.integer("input_feature_dimension")},
                          .rhs_contract = {c.integer("kernel_input_feature_dimension")}};
  const ValueId result = ops::dot_general(c.b(), c.operand(0), c.operand(1), dims);
  const bool is_turned = c.integer("output_batch_dimension") == 1;
  return ops::convert(c.b(), is_turned ? ops::transpose(c.b(), result, {1, 0}) : result,
                      c.result().dtype);
}

Values convolution(Context& c) {
  ir::Builder& b = c.b();
  const Ints space = c.ints("input_spatial_dimensions");
  const Ints kernel_space = c.ints("kernel_spatial_dimensions");
  const auto rank = static_cast<std::int64_t>(space.size());
  if (rank == 0) return {product(c)};
  ValueId x = ops::transpose(
      b, c.operand(0),
      ordered(c.integer("input_batch_dimension"), space, c.integer("input_feature_dimension")));
  Ints kernel_order = kernel_space;
  kernel_order.push_back(c.integer("kernel_input_feature_dimension"));
  kernel_order.push_back(c.integer("kernel_output_feature_dimension"));
  ValueId kernel = ops::transpose(b, c.operand(1), kernel_order);
  Ints reversed;
  const Ints reversal = c.ints("window_reversal");
  for (std::int64_t i = 0; i < rank; ++i) {
    const auto at = static_cast<std::size_t>(reversal.size() == 1 ? 0 : i);
    if (at < reversal.size() && reversal[at] != 0) reversed.push_back(i);
  }
  kernel = ops::reverse(b, kernel, reversed);
  const std::int64_t features = c.integer("feature_group_count");
  const std::int64_t batches = c.integer("batch_group_count");
  const bool is_grouped = features > 1 || batches > 1;
  if (is_grouped) {
    c.need(features == 1 || batches == 1, "groups of two kinds");
    kernel = grouped(c, kernel, rank + 1, std::max(features, batches));
    x = features > 1 ? grouped(c, x, rank + 1, features) : grouped(c, x, 0, batches);
  }
  const Padding padding = padding_of(c, space.size());
  ValueId result = b.emit("conv",
                          {{"dilation", c.ints("rhs_dilation")},
                           {"high", padding.high},
                           {"low", padding.low},
                           {"spread", c.ints("lhs_dilation")},
                           {"stride", c.ints("window_strides")}},
                          {x, kernel});
  if (is_grouped) result = ungrouped(c, result, rank + 1);
  const Ints order =
      ordered(c.integer("output_batch_dimension"), c.ints("output_spatial_dimensions"),
              c.integer("output_feature_dimension"));
  Ints inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    c.need(order[i] >= 0 && order[i] < rank + 2, "a dimension that does not exist");
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return {ops::convert(b, ops::transpose(b, result, inverse), c.result().dtype)};
}

}  // namespace

const Handlers& window_handlers() {
  static const Handlers kHandlers = {{"convolution", convolution},
                                     {"reduce_window", reduce_window},
                                     {"select_and_scatter", select_and_scatter}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
