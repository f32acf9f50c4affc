// Convolution and pooling.
#include <algorithm>
#include <fmt/format.h>

#include <tessera/functions.h>

#include "api/operands.h"
#include "ops/emit.h"
#include "ops/stablehlo/writer.h"

namespace tessera {

using detail::as_array;
using detail::emit;
using detail::Ids;
using detail::Ints;
using detail::public_op;
using ir::Builder;
using ir::ValueId;

namespace {

/// `steps`, or `count` ones if it is empty.
Ints steps_of(const char* op, const char* name, const Ints& steps, std::size_t count) {
  if (steps.empty()) return Ints(count, 1);
  const bool is_positive =
      std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step >= 1; });
  if (steps.size() == count && is_positive) return steps;
  detail::fail(op, fmt::format("the {} do not match the window", name), to_string(steps),
               fmt::format("{} numbers of 1 or more", count),
               "give one number per dimension of the window, or none");
}

struct Widths {
  Ints low;
  Ints high;
  bool any() const {
    auto is_some = [](std::int64_t width) { return width != 0; };
    return std::any_of(low.begin(), low.end(), is_some) ||
           std::any_of(high.begin(), high.end(), is_some);
  }
};

/// How windows slide over an array. Per dimension: its size, the extent of a window, the stride.
struct Slide {
  Ints sizes;
  Ints extents;
  Ints strides;
};

Widths widths_of(const char* op, const Padding& padding, const Slide& slide) {
  Widths widths;
  const std::size_t count = slide.sizes.size();
  if (padding.name() == "VALID") return {Ints(count, 0), Ints(count, 0)};
  if (padding.name() == "SAME") {
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t windows = (slide.sizes[i] + slide.strides[i] - 1) / slide.strides[i];
      const std::int64_t needed = (windows - 1) * slide.strides[i] + slide.extents[i];
      const std::int64_t total = std::max<std::int64_t>(needed - slide.sizes[i], 0);
      widths.low.push_back(total / 2);
      widths.high.push_back(total - total / 2);
    }
    return widths;
  }
  const std::vector<Padding::Width> given = padding.widths(count);
  bool fits = padding.name().empty() && given.size() == count;
  for (const auto& [low, high] : given) {
    fits = fits && low >= 0 && high >= 0;
    widths.low.push_back(low);
    widths.high.push_back(high);
  }
  if (fits) return widths;
  const std::string found = padding.name().empty() ? fmt::format("{} and {}", to_string(widths.low),
                                                                 to_string(widths.high))
                                                   : fmt::format("\"{}\"", padding.name());
  detail::fail(op, "the padding does not match the window", found,
               fmt::format("\"VALID\", \"SAME\" or {} pairs of 0 or more", count),
               "give one pair per dimension of the window");
}

// --- convolution

/// [.., groups * c, ..] -> [groups, .., c, ..] for dimension `dim`.
Array groups_first(const Array& x, std::int64_t dim, std::int64_t groups) {
  Shape split = x.shape();
  split[static_cast<std::size_t>(dim)] /= groups;
  split.insert(split.begin() + dim, groups);
  Ints permutation = {dim};
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(split.size()); ++i) {
    if (i != dim) permutation.push_back(i);
  }
  return transpose(reshape(x, split), permutation);
}

/// [groups, .., c] -> [.., groups * c]
Array groups_last(const Array& x) {
  Ints permutation;
  for (std::int64_t i = 1; i < x.rank() - 1; ++i) permutation.push_back(i);
  permutation.insert(permutation.end(), {0, x.rank() - 1});
  const Array moved = transpose(x, permutation);
  Shape merged = moved.shape();
  const std::int64_t last = merged.back();
  merged.pop_back();
  merged.back() *= last;
  return reshape(moved, merged);
}

/// What moves dimension `from` behind all others, as code.
std::string moved_last(const char* name, std::int64_t rank, std::int64_t from) {
  std::string text = fmt::format("transpose({}, {{", name);
  for (std::int64_t i = 0; i < rank; ++i) {
    if (i != from) text += fmt::format("{}, ", i);
  }
  return text + fmt::format("{}}})", from);
}

/// The cure for channels that do not match: those of PyTorch come before the space.
std::string cure_of_channels(const Array& x, const Array& kernel, std::int64_t groups) {
  const std::int64_t rank = x.rank();
  const std::int64_t taken = kernel.dim(-2);
  if (taken * groups == x.dim(1)) {
    return "the channels of the array come last: write " + moved_last("x", rank, 1);
  }
  // There are more features than a window is long.
  const bool has_features_first =
      kernel.dim(1) * groups == x.dim(-1) && kernel.dim(0) > kernel.dim(-1);
  if (!has_features_first) return "check the last dimensions and feature_group_count";
  std::string text = "a kernel [features, channels, window..] is moved by transpose(kernel, {";
  for (std::int64_t i = 2; i < rank; ++i) text += fmt::format("{}, ", i);
  return text + "1, 0})";
}

void check_conv(const Array& x, const Array& kernel, std::int64_t groups) {
  const std::string found = detail::describe(x) + " and " + detail::describe(kernel);
  if (x.rank() < 3 || kernel.rank() != x.rank()) {
    detail::fail(
        "conv", "the ranks do not match", found,
        "an array [n, space.., channels], a kernel [window.., channels / groups, features]",
        "reshape one of them");
  }
  const std::int64_t channels = x.shape().back();
  const std::int64_t features = kernel.shape().back();
  const std::int64_t taken = kernel.shape()[kernel.shape().size() - 2];
  if (groups >= 1 && features % groups == 0 && taken * groups == channels) return;
  detail::fail(
      "conv", "the channels do not match", found,
      fmt::format("a kernel for {} / {} channels, and a number of features that {} divides",
                  channels, groups, groups),
      cure_of_channels(x, kernel, groups));
}

struct ConvSteps {
  Ints strides, dilation, spread;
};

/// The attributes of the op, for a kernel of one group.
ir::Attributes conv_attributes(const ConvSteps& steps, const Widths& widths) {
  return {{"dilation", steps.dilation},
          {"high", widths.high},
          {"low", widths.low},
          {"spread", steps.spread},
          {"stride", steps.strides}};
}

Array convolved(const Array& x, const Array& kernel, const ir::Attributes& attributes) {
  return detail::with_dtype(emit("conv", {x, kernel}, attributes), x.dtype());
}

Array conv_of(const Array& x, const Array& kernel, const ConvOptions& options) {
  check_conv(x, kernel, options.feature_group_count);
  const std::size_t count = x.shape().size() - 2;
  const ConvSteps steps = {
      .strides = steps_of("conv", "strides", options.strides, count),
      .dilation = steps_of("conv", "kernel dilations", options.kernel_dilation, count),
      .spread = steps_of("conv", "input dilations", options.input_dilation, count)};
  Slide slide{.sizes = {}, .extents = {}, .strides = steps.strides};
  for (std::size_t i = 0; i < count; ++i) {
    slide.sizes.push_back(std::max<std::int64_t>((x.shape()[i + 1] - 1) * steps.spread[i] + 1, 0));
    slide.extents.push_back((kernel.shape()[i] - 1) * steps.dilation[i] + 1);
  }
  const ir::Attributes attributes =
      conv_attributes(steps, widths_of("conv", options.padding, slide));
  const std::int64_t groups = options.feature_group_count;
  if (groups == 1) return convolved(x, kernel, attributes);
  return groups_last(convolved(groups_first(x, x.rank() - 1, groups),
                               groups_first(kernel, kernel.rank() - 1, groups), attributes));
}

// --- pooling

double neutral_of(std::string_view op, DType dtype) {
  if (op == "reduce_window_sum") return 0.0;
  return ops::hlo::identity_of(op == "reduce_window_max" ? "maximum" : "minimum", dtype);
}

Array reduce_window(const char* name, const Operand& x, const Ints& window, const Ints& strides,
                    const Padding& padding, std::string_view op) {
  return public_op(x.where, [&] {
    const Array v = as_array(name, x);
    const std::size_t count = v.shape().size();
    const Ints sizes = steps_of(name, "sizes", window, count);
    const Ints steps = steps_of(name, "strides", strides, count);
    const Widths widths =
        widths_of(name, padding, {.sizes = v.shape(), .extents = sizes, .strides = steps});
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t room = v.shape()[i] + widths.low[i] + widths.high[i];
      if (sizes[i] <= std::max<std::int64_t>(room, 1)) continue;  // 1 fits in an empty batch
      detail::fail(name, "the window is larger than the array",
                   fmt::format("{} elements along axis {} of {}", sizes[i], i, detail::describe(v)),
                   fmt::format("at most {}", room),
                   "use a smaller window, or the padding \"SAME\"");
    }
    return emit({v}, [&](Builder& b, const Ids& ids) {
      const ValueId fill = ops::scalar(b, neutral_of(op, v.dtype()), v.dtype());
      const ValueId padded = ops::pad(b, ids[0], fill, widths.low, widths.high);
      const bool is_sum = op == "reduce_window_sum";
      const ValueId terms = is_sum ? ops::convert(b, padded, ops::sum_dtype(v.dtype())) : padded;
      return ops::convert(b, b.emit(op, {{"stride", steps}, {"window", sizes}}, {terms}),
                          v.dtype());
    });
  });
}

/// Extends a list over the space dimensions to [n, space.., channels].
Ints over_space(const char* name, const Array& x, Ints list) {
  if (static_cast<std::int64_t>(list.size()) != x.rank() - 2) {
    detail::fail(name, "the window does not match the array",
                 fmt::format("{} and {}", to_string(list), detail::describe(x)),
                 "one entry per spatial dimension of [n, space.., channels]",
                 "leave out the entries for n and channels");
  }
  list.insert(list.begin(), 1);
  list.push_back(1);
  return list;
}

Array pool(const char* name, const Operand& x, const Ints& window, const Ints& strides,
           const Padding& padding, std::string_view op) {
  return public_op(x.where, [&] {
    const Array v = as_array(name, x);
    const Ints sizes = over_space(name, v, window);
    const Ints steps = strides.empty() ? Ints{} : over_space(name, v, strides);
    std::vector<Padding::Width> widths = padding.widths(window.size());
    if (!padding.name().empty()) return reduce_window(name, v, sizes, steps, padding, op);
    widths.insert(widths.begin(), {0, 0});
    widths.emplace_back(0, 0);
    return reduce_window(name, v, sizes, steps, Padding(widths), op);
  });
}

}  // namespace

Array conv(Operand x, Operand kernel, const ConvOptions& options) {
  return public_op(x.where, [&] {
    const DType dtype = detail::common_dtype("conv", {x, kernel});
    return conv_of(as_array("conv", x, dtype), as_array("conv", kernel, dtype), options);
  });
}

Array reduce_window_sum(Operand x, std::vector<std::int64_t> window,
                        std::vector<std::int64_t> strides, const Padding& padding) {
  return reduce_window("reduce_window_sum", x, window, strides, padding, "reduce_window_sum");
}
Array reduce_window_max(Operand x, std::vector<std::int64_t> window,
                        std::vector<std::int64_t> strides, const Padding& padding) {
  return reduce_window("reduce_window_max", x, window, strides, padding, "reduce_window_max");
}
Array reduce_window_min(Operand x, std::vector<std::int64_t> window,
                        std::vector<std::int64_t> strides, const Padding& padding) {
  return reduce_window("reduce_window_min", x, window, strides, padding, "reduce_window_min");
}

Array max_pool(Operand x, std::vector<std::int64_t> window, std::vector<std::int64_t> strides,
               const Padding& padding) {
  return pool("max_pool", x, window, strides, padding, "reduce_window_max");
}
Array min_pool(Operand x, std::vector<std::int64_t> window, std::vector<std::int64_t> strides,
               const Padding& padding) {
  return pool("min_pool", x, window, strides, padding, "reduce_window_min");
}
Array avg_pool(Operand x, std::vector<std::int64_t> window, std::vector<std::int64_t> strides,
               const Padding& padding) {
  return public_op(x.where, [&] {
    const Array sums = pool("avg_pool", x, window, strides, padding, "reduce_window_sum");
    return sums / static_cast<double>(num_elements(window));
  });
}

}  // namespace tessera
