// conv: dot products of a kernel with every window of an array.
#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <utility>

#include "base/conv_unit.h"
#include "base/leaf_tree.h"
#include "ops/ops.h"
#include "ops/reference/leaves.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"
#include "ops/window/windows.h"

namespace tessera::ops {

namespace {

/// The positions of an operand's dimensions. The lhs is [batch.., n, space.., c], the rhs is
/// [batch.., space.., c, o] and the result is [batch.., n, space.., o].
struct ConvDims {
  std::size_t batch;  // count
  std::size_t space;  // count

  std::size_t lhs_space(std::size_t i) const { return batch + 1 + i; }
  std::size_t rhs_space(std::size_t i) const { return batch + i; }
  std::size_t second_last() const { return batch + space; }
  std::size_t last() const { return batch + space + 1; }
};

ConvDims dims_of(const Attributes& attributes, const Type& operand) {
  const std::size_t space = attributes.ints("stride").size();
  return {.batch = operand.shape.size() - space - 2, .space = space};
}

/// Which array element meets a window element: index p * stride + q * dilation - low of the array,
/// whose elements are `spread` apart. The dimension of the window is `dim`.
struct Steps {
  std::int64_t stride, dilation, spread, low;

  Steps(const Attributes& attributes, std::size_t dim)
      : stride(attributes.ints("stride")[dim]),
        dilation(attributes.ints("dilation")[dim]),
        spread(attributes.ints("spread")[dim]),
        low(attributes.ints("low")[dim]) {}
};

std::int64_t extent_of(std::int64_t size, std::int64_t step) {
  return size == 0 ? 0 : (size - 1) * step + 1;
}

// --- shape

void expect_one_per_space_dim(const ShapeContext& c, std::string_view attribute) {
  const Ints& steps = ints_of(c, attribute);
  if (steps.size() == ints_of(c, "stride").size()) return;
  c.fail(std::string(attribute) + " and stride have different lengths",
         "one entry per dimension of the window", "give both lists the same length");
}

void expect_entries(const ShapeContext& c, std::string_view attribute, std::int64_t least,
                    const std::string& wanted, const std::string& cure) {
  expect_one_per_space_dim(c, attribute);
  const Ints& steps = ints_of(c, attribute);
  for (std::int64_t step : steps) {
    if (step >= least && step <= kFarthest) continue;
    c.fail(std::string(attribute) + " = " + tessera::to_string(steps) + " has an entry " +
               (step > kFarthest ? "above 2^40" : "below " + std::to_string(least)),
           wanted, cure);
  }
}

/// Without padding, and every element of the array next to the one before.
void add_no_padding(Attributes& attributes) {
  for (const auto& [name, value] : Attributes(attributes).items()) {
    const Ints* stride = name == "stride" ? std::get_if<Ints>(&value) : nullptr;
    if (stride == nullptr) continue;
    for (const auto& [usual, step] : {std::pair("high", 0), {"low", 0}, {"spread", 1}}) {
      if (!attributes.has(usual)) attributes.set(usual, Ints(stride->size(), step));
    }
  }
}

void expect_steps(const ShapeContext& c) {
  for (const char* attribute : {"stride", "dilation", "spread"})
    expect_entries(c, attribute, 1, "entries of 1 or more", "write 1 where nothing is skipped");
  for (const char* attribute : {"low", "high"})
    expect_entries(
        c, attribute, -kFarthest,
        "entries from " + std::to_string(-kFarthest) + " to " + std::to_string(kFarthest),
        "write 0 where nothing is added");
}

/// How many windows of `size` elements that are `dilation` apart fit in `room`, `stride` apart.
std::int64_t num_windows(std::int64_t room, std::int64_t size, std::int64_t dilation,
                         std::int64_t stride) {
  const std::int64_t extent = (size - 1) * dilation + 1;
  return room < extent ? 0 : (room - extent) / stride + 1;
}

void expect_same_size(const ShapeContext& c, std::size_t lhs_dim, std::size_t rhs_dim,
                      const std::string& what) {
  const std::int64_t left = c.operands[0].shape[lhs_dim];
  const std::int64_t right = c.operands[1].shape[rhs_dim];
  if (left == right) return;
  c.fail("the array has " + std::to_string(left) + " " + what + ", the kernel " +
             std::to_string(right),
         "equal numbers of " + what,
         "give the array the shape [batch.., n, space.., c] and the kernel [batch.., window.., c, "
         "o]");
}

std::vector<Type> conv_shape(const ShapeContext& c) {
  expect_operands(c, 2);
  expect_steps(c);
  const Type& lhs = c.operands[0];
  const Type& rhs = c.operands[1];
  const auto space = static_cast<std::int64_t>(ints_of(c, "stride").size());
  if (lhs.rank() != rhs.rank() || lhs.rank() < space + 2 || lhs.dtype != rhs.dtype || space == 0) {
    c.fail("the array and the kernel do not match a window of rank " + std::to_string(space),
           "an array [batch.., n, space.., c] and a kernel [batch.., window.., c, o] of one dtype",
           "reshape or convert one of them");
  }
  const ConvDims dims = dims_of(c.attributes, lhs);
  for (std::size_t i = 0; i < dims.batch; ++i) expect_same_size(c, i, i, "batches");
  expect_same_size(c, dims.last(), dims.second_last(), "channels");
  Type result = lhs;
  result.dtype = sum_dtype(lhs.dtype);
  for (std::size_t i = 0; i < dims.space; ++i) {
    const std::int64_t room =
        extent_of(lhs.shape[dims.lhs_space(i)], c.attributes.ints("spread")[i]) +
        c.attributes.ints("low")[i] + c.attributes.ints("high")[i];
    const std::int64_t size = rhs.shape[dims.rhs_space(i)];
    std::int64_t& count = result.shape[dims.lhs_space(i)];
    count =
        num_windows(room, size, c.attributes.ints("dilation")[i], c.attributes.ints("stride")[i]);
    if (count >= 1 && size >= 1) continue;
    c.fail("dimension " + std::to_string(i) + " of the window does not fit: " +
               std::to_string(extent_of(size, c.attributes.ints("dilation")[i])) + " elements in " +
               std::to_string(room),
           "a window of 1 or more elements that fits in the array",
           "use a smaller kernel, or pad the array first");
  }
  result.shape[dims.last()] = rhs.shape[dims.last()];
  return {result};
}

// --- derivative

/// A permutation that keeps the batch dimensions and reorders the others as `after_batch` says.
Ints permutation_of(const ConvDims& dims, const std::vector<std::size_t>& after_batch) {
  Ints permutation;
  for (std::size_t i = 0; i < dims.batch; ++i) permutation.push_back(static_cast<std::int64_t>(i));
  for (std::size_t dim : after_batch) permutation.push_back(static_cast<std::int64_t>(dim));
  return permutation;
}

/// Attributes of a convolution, dimension by dimension.
struct Slide {
  Ints dilation, high, low, spread, stride;

  /// The padding after the array follows from the number of windows.
  void add(const Steps& steps, std::int64_t room, std::int64_t size, std::int64_t windows) {
    dilation.push_back(steps.dilation);
    high.push_back(extent_of(windows, steps.stride) + (size - 1) * steps.dilation -
                   extent_of(room, steps.spread) - steps.low);
    low.push_back(steps.low);
    spread.push_back(steps.spread);
    stride.push_back(steps.stride);
  }
  ValueId emit(Builder& b, ValueId lhs, ValueId rhs) const {
    return b.emit("conv",
                  {{"dilation", dilation},
                   {"high", high},
                   {"low", low},
                   {"spread", spread},
                   {"stride", stride}},
                  {lhs, rhs});
  }
};

/// Convolves the cotangent with the reversed kernel. The cotangent's elements are as far apart as
/// the windows were, and the new windows are as far apart as the array's elements were.
ValueId conv_vjp_lhs(VjpContext& c) {
  Builder& b = c.b;
  const ValueId cotangent = convert(b, c.cotangent(), c.operand_type(0).dtype);
  const Shape lhs = c.operand_type(0).shape;
  const Shape rhs = c.operand_type(1).shape;
  const ConvDims dims = dims_of(c.equation.attributes, c.operand_type(0));
  Slide slide;
  Ints window;
  std::vector<std::size_t> swapped;
  for (std::size_t i = 0; i < dims.space; ++i) {
    const std::size_t dim = dims.lhs_space(i);
    const std::int64_t size = rhs[dims.rhs_space(i)];
    Steps steps(c.equation.attributes, i);
    std::swap(steps.stride, steps.spread);
    steps.low = (size - 1) * steps.dilation - steps.low;
    slide.add(steps, b.type(cotangent).shape[dim], size, lhs[dim]);
    window.push_back(static_cast<std::int64_t>(dims.rhs_space(i)));
    swapped.push_back(dims.rhs_space(i));
  }
  swapped.insert(swapped.end(), {dims.last(), dims.second_last()});
  const ValueId kernel =
      transpose(b, reverse(b, c.operand(1), window), permutation_of(dims, swapped));
  return convert(b, slide.emit(b, cotangent, kernel), c.operand_type(0).dtype);
}

/// With few channels, as in a first layer, a product per element of the window has too few rows:
/// the array is padded first, so that there is one product.
bool is_padded_first(const ConvDims& dims, const Attributes& attributes, const Shape& lhs) {
  constexpr std::int64_t kFewChannels = 8;
  const auto all = [&](const char* name, auto is_fine) {
    return std::all_of(attributes.ints(name).begin(), attributes.ints(name).end(), is_fine);
  };
  const auto is_width = [](std::int64_t width) { return width >= 0; };
  return dims.batch == 0 && lhs[dims.last()] < kFewChannels && all("low", is_width) &&
         all("high", is_width) && all("spread", [](std::int64_t step) { return step == 1; });
}

/// Convolves the array with the cotangent as the kernel. Channels take the role of n, and n is
/// summed over.
ValueId conv_vjp_rhs(VjpContext& c) {
  Builder& b = c.b;
  const ValueId cotangent = convert(b, c.cotangent(), c.operand_type(0).dtype);
  Shape lhs = c.operand_type(0).shape;
  const Shape rhs = c.operand_type(1).shape;
  const ConvDims dims = dims_of(c.equation.attributes, c.operand_type(0));
  const bool is_padded = is_padded_first(dims, c.equation.attributes, lhs);
  Ints low(lhs.size(), 0), high(lhs.size(), 0);
  Slide slide;
  std::vector<std::size_t> channels_first = {dims.last()};
  std::vector<std::size_t> n_second_last;
  std::vector<std::size_t> back;
  for (std::size_t i = 0; i < dims.space; ++i) {
    const std::size_t dim = dims.lhs_space(i);
    Steps steps(c.equation.attributes, i);
    std::swap(steps.stride, steps.dilation);
    if (is_padded) {
      low[dim] = std::exchange(steps.low, 0);
      high[dim] = c.equation.attributes.ints("high")[i];
      lhs[dim] += low[dim] + high[dim];
    }
    slide.add(steps, lhs[dim], b.type(cotangent).shape[dim], rhs[dims.rhs_space(i)]);
    channels_first.push_back(dim);
    n_second_last.push_back(dim);
    back.push_back(dim);
  }
  channels_first.push_back(dims.batch);
  n_second_last.insert(n_second_last.end(), {dims.batch, dims.last()});
  back.insert(back.end(), {dims.batch, dims.last()});
  const ValueId zero = scalar(b, 0.0, c.operand_type(0).dtype);
  const ValueId array = is_padded ? pad(b, c.operand(0), zero, low, high) : c.operand(0);
  const ValueId rows = transpose(b, array, permutation_of(dims, channels_first));
  const ValueId window = transpose(b, cotangent, permutation_of(dims, n_second_last));
  const ValueId gradient = slide.emit(b, rows, window);
  return transpose(b, convert(b, gradient, c.operand_type(1).dtype), permutation_of(dims, back));
}

// --- batching, factors

/// The new dimension becomes one more batch dimension.
std::vector<ValueId> conv_batch(BatchContext& c) {
  return c.b.emit_all(*c.equation.op, c.equation.attributes, {c.batched(0), c.batched(1)});
}

/// A row of the array is given by a position in the window and by the number of the window. In the
/// forward pass windows are small, so shards of the array match shards of the result. In the
/// derivative with respect to the kernel the window is as large as the cotangent: both operands are
/// split alike, and the shards yield partial sums.
Factors conv_factors(const Attributes& attributes, const std::vector<Type>& operands,
                     const std::vector<Type>& results) {
  const ConvDims dims = dims_of(attributes, operands[0]);
  Factors f;
  Factors::Dims result = add_dims(f, results[0].shape);
  Factors::Dims lhs(result);
  Factors::Dims rhs(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(dims.batch));
  const int channel = add_factor(f, operands[0].shape[dims.last()], FactorKind::reduce);
  f.reduced = {channel};
  for (std::size_t i = 0; i < dims.space; ++i) {
    f.reduced.push_back(add_factor(f, operands[1].shape[dims.rhs_space(i)], FactorKind::reduce));
    rhs.push_back({f.reduced.back()});
  }
  rhs.insert(rhs.end(), {{channel}, result.back()});
  lhs.back() = {channel};
  f.operands = {lhs, rhs};
  f.results = {result};
  for (std::size_t i = 0; i < dims.space; ++i) {
    const std::size_t dim = dims.lhs_space(i);
    const Steps steps(attributes, i);
    add_window(f, {.operand = 0,
                   .dim = dim,
                   .size = operands[0].shape[dim],
                   .offset = -steps.low,
                   .terms = {{.factor = result[dim][0], .step = steps.stride},
                             {.factor = f.reduced[i + 1], .step = steps.dilation}},
                   .divisor = steps.spread});
  }
  return f;
}

// --- reference

/// Calls `f` with the terms of a grain in their order: for each group of channels the window, and
/// for each place in the window the channels of the group.
template <typename F>
void for_each_term(const Leaf& leaf, const ChannelGroups& groups, const F& f) {
  std::vector<std::int64_t> window = leaf.size;
  window[0] = 1;
  for (std::int64_t first = 0; first < leaf.size[0]; first += groups.size) {
    const std::int64_t count = std::min(groups.size, leaf.size[0] - first);
    for_each_index(window, [&](std::vector<std::int64_t> term) {
      for (std::size_t i = 0; i < term.size(); ++i) term[i] += leaf.start[i];
      for (std::int64_t i = 0; i < count; ++i) {
        term[0] = leaf.start[0] + first + (groups.last_first ? count - 1 - i : i);
        f(term);
      }
    });
  }
}

/// Where the terms of an element of the result are.
class ConvTerms {
 public:
  ConvTerms(const Attributes& attributes, const Type& lhs, const Type& rhs)
      : dims_(dims_of(attributes, lhs)),
        lhs_(lhs.shape),
        lhs_strides_(row_major_strides(lhs.shape)),
        rhs_strides_(row_major_strides(rhs.shape)) {
    sizes = {rhs.shape[dims_.second_last()]};
    for (std::size_t i = 0; i < dims_.space; ++i) {
      sizes.push_back(rhs.shape[dims_.rhs_space(i)]);
      steps_.emplace_back(attributes, i);
    }
  }

  struct Places {
    std::size_t lhs, rhs;
  };
  /// Where the factors of a term are; empty if the array has no such element.
  std::optional<Places> places(const std::vector<std::int64_t>& index,
                               const std::vector<std::int64_t>& term) const {
    std::vector<std::int64_t> lhs = index;
    std::vector<std::int64_t> rhs = index;
    lhs[dims_.last()] = rhs[dims_.second_last()] = term[0];
    for (std::size_t i = 0; i < dims_.space; ++i) {
      const std::size_t dim = dims_.lhs_space(i);
      const Steps& s = steps_[i];
      const std::int64_t at = index[dim] * s.stride + term[i + 1] * s.dilation - s.low;
      if (at < 0 || at % s.spread != 0 || at / s.spread >= lhs_[dim]) return std::nullopt;
      lhs[dim] = at / s.spread;
      rhs[dims_.rhs_space(i)] = term[i + 1];
    }
    return Places{offset_of(lhs_strides_, lhs), offset_of(rhs_strides_, rhs)};
  }

  Shape sizes;

 private:
  ConvDims dims_;
  Shape lhs_;
  Ints lhs_strides_, rhs_strides_;
  std::vector<Steps> steps_;
};

std::vector<HostArray> conv_reference(const ReferenceContext& c) {
  HostArray result(c.results[0]);
  const Type& lhs = c.operands[0]->type();
  const ConvTerms terms(c.attributes, lhs, c.operands[1]->type());
  const std::vector<Leaf> leaves = leaves_of(terms.sizes, leaf_counts(terms.sizes, c.grains));
  const DotUnit unit = unit_of_convolution(c.dot_unit, c.results[0].shape.back());
  const ChannelGroups groups = channel_groups(unit);
  Numbers::visit(lhs.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x = c.operands[0]->data<T>();
    const auto y = c.operands[1]->data<T>();
    std::size_t at_result = 0;
    for_each_index(c.results[0].shape, [&](const std::vector<std::int64_t>& index) {
      TreeSum<Wrapping<T>> tree;
      for (const Leaf& leaf : leaves) {
        ProductSum<T> sum(unit);
        for_each_term(leaf, groups, [&](const std::vector<std::int64_t>& term) {
          if (const auto places = terms.places(index, term))
            sum.add(x[places->lhs], y[places->rhs]);
        });
        tree.push({sum.value()});
      }
      result.data<T>()[at_result++] = tree.finish().value;
    });
  });
  return one_result(std::move(result));
}

double conv_cost(const Attributes& attributes, const std::vector<Type>& operands,
                 const std::vector<Type>& results) {
  const ConvDims dims = dims_of(attributes, operands[0]);
  const Shape& kernel = operands[1].shape;
  double flops = 2.0 * static_cast<double>(num_elements(results[0].shape));
  for (std::size_t i = dims.batch; i < dims.last(); ++i) flops *= static_cast<double>(kernel[i]);
  for (const std::int64_t spread : attributes.ints("spread")) flops /= static_cast<double>(spread);
  return flops;
}

/// The attributes of a sample, per dimension of the window.
struct Slides {
  Ints stride, dilation;
  Ints low = Ints(stride.size(), 0), high = Ints(stride.size(), 0);
  Ints spread = Ints(stride.size(), 1);
};

Sample conv_sample(Type lhs, Type rhs, Slides slides) {
  return {.operands = {{std::move(lhs)}, {std::move(rhs)}},
          .attributes = {{"dilation", std::move(slides.dilation)},
                         {"high", std::move(slides.high)},
                         {"low", std::move(slides.low)},
                         {"spread", std::move(slides.spread)},
                         {"stride", std::move(slides.stride)}}};
}

Samples conv_samples() {
  return {conv_sample(f32({3, 6, 5, 12}), f32({3, 2, 12, 2}), {{1, 1}, {1, 1}}),
          conv_sample(f32({2, 7, 1, 3}), f32({3, 1, 3, 5}), {{2, 1}, {1, 1}}),
          conv_sample(f32({10, 9, 2}), f32({3, 2, 6}), {{1}, {2}}),
          conv_sample(f32({5, 10, 1}), f32({4, 1, 3}), {{3}, {2}}),
          conv_sample(f32({2, 6, 6, 3}), f32({3, 2, 3, 4}), {{3, 2}, {1, 1}}),
          conv_sample(f32({3, 2, 5, 6}), f32({3, 2, 6, 1}), {{1}, {1}}),
          conv_sample(f32({2, 3, 4, 3, 2}), f32({2, 2, 3, 2, 3}), {{1, 2, 1}, {1, 1, 1}}),
          conv_sample(f32({2, 6, 5, 2}), f32({3, 3, 2, 4}), {{1, 2}, {1, 1}, {1, 1}, {1, 1}}),
          conv_sample(f32({2, 6, 2}), f32({4, 2, 3}), {{1}, {1}, {2}, {1}, {2}}),
          conv_sample(f32({3, 5, 2}), f32({3, 2, 2}), {{2}, {2}, {3}, {-1}, {3}}),
          conv_sample(i32({2, 5, 3}), i32({2, 3, 2}), {{1}, {1}, {1}, {0}, {2}}),
          conv_sample(bf16({3, 6, 5, 2}), bf16({3, 2, 2, 4}), {{2, 1}, {1, 1}, {1, 0}, {1, 1}})};
}

// --- StableHLO

/// Batch dimensions become groups of channels: they are moved before the last dimension and merged
/// with it.
hlo::Value with_groups(hlo::Writer& w, const hlo::Value& x, std::size_t batch) {
  if (batch == 0) return x;
  const std::size_t rank = x.type.shape.size();
  Ints order = dims_from(static_cast<std::int64_t>(batch), rank - batch - 1);
  const Ints batches = dims_from(0, batch);
  order.insert(order.end(), batches.begin(), batches.end());
  order.push_back(static_cast<std::int64_t>(rank) - 1);
  const hlo::Value moved = w.transpose(x, order);
  Shape merged(moved.type.shape.begin(),
               moved.type.shape.begin() + static_cast<std::ptrdiff_t>(rank - batch - 1));
  std::int64_t channels = 1;
  for (std::size_t i = rank - batch - 1; i < rank; ++i) channels *= moved.type.shape[i];
  merged.push_back(channels);
  return w.reshape(moved, merged);
}

/// The inverse, for the result.
hlo::Value without_groups(hlo::Writer& w, const hlo::Value& x, std::size_t batch,
                          const Shape& shape) {
  if (batch == 0) return x;
  const auto count = static_cast<std::int64_t>(batch);
  Shape split(shape.begin() + count, shape.end() - 1);
  split.insert(split.end(), shape.begin(), shape.begin() + count);
  split.push_back(shape.back());
  const auto rest = static_cast<std::int64_t>(shape.size()) - count - 1;
  Ints order = dims_from(rest, batch);
  const Ints others = dims_from(0, static_cast<std::size_t>(rest));
  order.insert(order.end(), others.begin(), others.end());
  order.push_back(static_cast<std::int64_t>(shape.size()) - 1);
  return w.transpose(w.reshape(x, split), order);
}

hlo::Values conv_form(hlo::FormContext& c) {
  const ConvDims dims = dims_of(c.attributes(), c.x(0).type);
  Ints contracted = {static_cast<std::int64_t>(dims.second_last())};
  for (std::size_t i = 0; i < dims.space; ++i) {
    contracted.push_back(static_cast<std::int64_t>(dims.rhs_space(i)));
  }
  const hlo::Value zero = c.w.scalar(0, c.x(0).type.dtype);
  const hlo::FormContext::Rows rows = c.rows_of(0, &zero);
  hlo::Value lhs = rows.x;
  const hlo::Ranges channels = c.ranges(c.equation.operands[0], dims.last());
  if (!hlo::is_even(channels)) lhs = hlo::masked(c.w, lhs, dims.last(), channels, zero);
  const hlo::Value rhs = c.masked_operand(1, contracted, 0);
  std::int64_t groups = 1;
  for (std::size_t i = 0; i < dims.batch; ++i) groups *= lhs.type.shape[i];
  const hlo::Value x = with_groups(c.w, c.factor(lhs), dims.batch);
  const hlo::Value kernel = with_groups(c.w, c.factor(rhs), dims.batch);
  Type type = c.results[0];
  type.shape.erase(type.shape.begin(),
                   type.shape.begin() + static_cast<std::ptrdiff_t>(dims.batch));
  type.shape.back() *= groups;
  std::string space;
  std::string padding;
  Ints spread = c.attributes().ints("spread");
  for (std::size_t i = 0; i < dims.space; ++i) {
    const bool is_cut = rows.is_cut[dims.lhs_space(i)];  // then padded and spread already
    if (is_cut) spread[i] = 1;
    space += fmt::format("{}, ", i);
    padding +=
        fmt::format("{}[{}, {}]", i == 0 ? "" : ", ", is_cut ? 0 : c.attributes().ints("low")[i],
                    is_cut ? 0 : c.attributes().ints("high")[i]);
  }
  const char* const precision = x.type.dtype == DType::f32 ? "HIGHEST" : "DEFAULT";
  const hlo::Value result = c.w.op(
      fmt::format(
          "stablehlo.convolution({}, {}) dim_numbers = [b, {}f]x[{}i, o]->[b, {}f], window = "
          "{{stride = {}, pad = [{}], lhs_dilate = {}, rhs_dilate = {}}} {{batch_group_count = 1 : "
          "i64, "
          "feature_group_count = {} : i64, precision_config = [#stablehlo<precision {}>, "
          "#stablehlo<precision {}>]}} : ({}, {}) -> {}",
          x.name, kernel.name, space, space, space, hlo::list_text(c.attributes().ints("stride")),
          padding, hlo::list_text(spread), hlo::list_text(c.attributes().ints("dilation")), groups,
          precision, precision, hlo::type_text(x.type), hlo::type_text(kernel.type),
          hlo::type_text(type)),
      type);
  return {without_groups(c.w, result, dims.batch, c.results[0].shape)};
}

}  // namespace

const OpRecord conv_op{
    .name = "conv",
    .doc =
        "The convolution of an array [batch.., n, space.., c] with a kernel [batch.., window.., "
        "c, o]: element [batch.., n, p.., o] is the sum over c and q of array[.., n, (p * stride "
        "+ q * dilation - low) / spread, c] * kernel[.., q, c, o]. Terms whose index is not "
        "whole or lies outside of the array are left out. Windows start at every `stride`-th "
        "index that leaves room for them, with `low` and `high` more before and after the array; "
        "less if negative. The sum follows the summation tree; its grains are ordered as [c, "
        "window..]. Sums of products of bf16 are f32; some dot units take the channels of a grain "
        "in groups, ordered as [group, window.., channel]: avx512_bf16 in groups of 2, the second "
        "channel first, and amx_bf16 in groups of 32. The last group may have fewer. With o < 16, "
        "avx512_bf16 gives way to portable, and amx_bf16 with o < 32.",
    .source = "StableHLO, convolution; groups are batches",
    .attributes = AttributeNames{"dilation", "high", "low", "spread", "stride"},
    .types = TypeSet::numbers,
    .shape = conv_shape,
    .vjp = per_operand({conv_vjp_lhs, conv_vjp_rhs}),
    .batch = conv_batch,
    .factors = conv_factors,
    .pattern = Pattern::opaque,
    .host = "conv",
    .stablehlo = conv_form,
    .reference = conv_reference,
    .cost = conv_cost,
    .samples = conv_samples(),
    .linearity = Linearity::each,
    .add_usual = add_no_padding,
};

OpFamily conv_ops() { return {&conv_op}; }

}  // namespace tessera::ops
