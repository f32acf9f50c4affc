#include <algorithm>
#include <numeric>

#include "compile/host/contraction.h"
#include "compile/host/dense/window_classes.h"
#include "compile/host/leaves.h"
#include "ops/rules.h"

namespace tessera::compile::host {

namespace {

using Indices = std::vector<std::int64_t>;

/// Adds each of `places` * `stride` to each offset; the last places vary fastest.
void extend(OffsetTable& offsets, const Indices& places, std::int64_t stride) {
  OffsetTable next;
  next.reserve(offsets.size() * places.size());
  for (const std::int64_t offset : offsets) {
    for (const std::int64_t place : places) next.push_back(offset + place * stride);
  }
  offsets = std::move(next);
}

/// A tile of a convolution as matrix products: one per combination of classes. Windows are read
/// without a copy, because the offset of element (window, place in the window) is the sum of two
/// offsets.
class ConvProblems {
 public:
  ConvProblems(const LowerContext& context, const Equation& equation, const StridedTile& lhs,
               const StridedTile& rhs, const AtomDigits& digits);

  std::vector<kernels::GemmProblem> list() const {
    std::vector<kernels::GemmProblem> problems;
    std::vector<std::size_t> chosen(classes_.size(), 0);
    while (true) {
      problems.push_back(problem(chosen));
      std::size_t i = chosen.size();
      while (i > 0 && ++chosen[i - 1] == classes_[i - 1].size()) chosen[--i] = 0;
      if (i == 0) return problems;
    }
  }

 private:
  kernels::GemmProblem problem(const std::vector<std::size_t>& chosen) const;
  void add_leaf(const LeafBox& leaf, const std::vector<std::size_t>& chosen,
                kernels::GemmProblem& problem) const;
  Indices channels_of_group(std::int64_t size) const;
  void add_terms(const LeafBox& leaf, const std::vector<std::size_t>& chosen,
                 const Indices& channels, const Indices& in_each,
                 kernels::GemmProblem& problem) const;

  std::vector<std::vector<WindowClass>> classes_;  // per dimension of space
  std::vector<LeafBox> leaves_;                    // of the channel and the window
  Box lhs_, rhs_, result_;
  Indices lhs_strides_, rhs_strides_, result_strides_;
  std::size_t batch_, last_;  // the number of batch dimensions; the dimension of channels
  ChannelGroups groups_;      // for bf16; one channel each for other types
};

SpaceDim space_dim(const LowerContext& context, const Equation& equation, std::size_t i,
                   const AtomDigits& digits) {
  const auto attribute = [&](const char* name) { return equation.attributes.ints(name)[i]; };
  const Box lhs = context.box(equation.operands[0], digits);
  const Box rhs = context.box(equation.operands[1], digits);
  const Box result = context.box(equation.results[0], digits);
  const std::size_t batch = lhs.size.size() - 2 - equation.attributes.ints("stride").size();
  const std::size_t window = batch + i, space = window + 1;
  SpaceDim dim{.stride = attribute("stride"),
               .dilation = attribute("dilation"),
               .spread = attribute("spread"),
               .low = attribute("low"),
               .windows = result.size[space],
               .size = rhs.size[window],
               .rows = lhs.size[space]};
  dim.low += lhs.start[space] * dim.spread - result.start[space] * dim.stride -
             rhs.start[window] * dim.dilation;
  return dim;
}

ConvProblems::ConvProblems(const LowerContext& context, const Equation& equation,
                           const StridedTile& lhs, const StridedTile& rhs, const AtomDigits& digits)
    : lhs_(context.box(equation.operands[0], digits)),
      rhs_(context.box(equation.operands[1], digits)),
      result_(context.box(equation.results[0], digits)),
      lhs_strides_(lhs.strides),
      rhs_strides_(rhs.strides),
      result_strides_(context.read(equation.results[0], digits).strides),
      last_(lhs_.size.size() - 1) {
  const std::size_t space = equation.attributes.ints("stride").size();
  batch_ = last_ - 1 - space;
  const Layout& kernel = context.layout(equation.operands[1]);
  std::vector<LeafRange> ranges = {leaf_range(kernel, last_ - 1, digits)};
  for (std::size_t i = 0; i < space; ++i) {
    classes_.push_back(classes_of(space_dim(context, equation, i, digits)));
    ranges.push_back(leaf_range(kernel, batch_ + i, digits));
  }
  const DType dtype = context.function().type(equation.operands[0]).dtype;
  if (dtype == DType::bf16) groups_ = channel_groups(context.dot_unit());
  leaves_ = leaf_boxes(ranges, context.function(), equation, dtype);
}

kernels::GemmProblem ConvProblems::problem(const std::vector<std::size_t>& chosen) const {
  const ir::Ints batches = ops::dims_from(0, batch_);
  const ir::Ints n = {static_cast<std::int64_t>(batch_)};
  kernels::GemmProblem problem;
  problem.a.batch = offsets(batches, lhs_.size, lhs_strides_);
  problem.b.batch = offsets(batches, rhs_.size, rhs_strides_);
  problem.c_batch = offsets(batches, result_.size, result_strides_);
  problem.a.outer = offsets(n, lhs_.size, lhs_strides_);
  problem.c_rows = offsets(n, result_.size, result_strides_);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const WindowClass& windows = classes_[i][chosen[i]];
    extend(problem.a.outer, windows.rows, lhs_strides_[batch_ + 1 + i]);
    extend(problem.c_rows, windows.windows, result_strides_[batch_ + 1 + i]);
  }
  problem.b.outer = offsets({static_cast<std::int64_t>(last_)}, rhs_.size, rhs_strides_);
  for (const LeafBox& leaf : leaves_) add_leaf(leaf, chosen, problem);
  return problem;
}

void ConvProblems::add_leaf(const LeafBox& leaf, const std::vector<std::size_t>& chosen,
                            kernels::GemmProblem& problem) const {
  const std::int64_t whole = leaf.size[0] / groups_.size * groups_.size;
  Indices groups;
  for (std::int64_t c = 0; c < whole; c += groups_.size) groups.push_back(leaf.start[0] + c);
  add_terms(leaf, chosen, groups, channels_of_group(groups_.size), problem);
  const std::int64_t rest = leaf.size[0] - whole;
  if (rest > 0) add_terms(leaf, chosen, {leaf.start[0] + whole}, channels_of_group(rest), problem);
  problem.leaf_ends.push_back(static_cast<std::int64_t>(problem.a.k.size()));
}

/// The channels of a group in the order of the sum, relative to its first one.
Indices ConvProblems::channels_of_group(std::int64_t size) const {
  Indices channels(static_cast<std::size_t>(size));
  std::iota(channels.begin(), channels.end(), 0);
  if (groups_.last_first) std::reverse(channels.begin(), channels.end());
  return channels;
}

/// Adds the terms of groups of channels that begin at `channels`: for each group it goes through
/// the window, and at each place in the window it takes the channels at distances `in_each`.
void ConvProblems::add_terms(const LeafBox& leaf, const std::vector<std::size_t>& chosen,
                             const Indices& channels, const Indices& in_each,
                             kernels::GemmProblem& problem) const {
  OffsetTable a = {0}, b = {0};
  extend(a, channels, lhs_strides_[last_]);
  extend(b, channels, rhs_strides_[last_ - 1]);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const WindowClass& windows = classes_[i][chosen[i]];
    const auto& elements = windows.elements;
    const auto first = std::lower_bound(elements.begin(), elements.end(), leaf.start[i + 1]);
    const auto end = std::lower_bound(first, elements.end(), leaf.start[i + 1] + leaf.size[i + 1]);
    const auto steps = windows.steps.begin();
    extend(a, Indices(steps + (first - elements.begin()), steps + (end - elements.begin())),
           lhs_strides_[batch_ + 1 + i]);
    extend(b, Indices(first, end), rhs_strides_[batch_ + i]);
  }
  extend(a, in_each, lhs_strides_[last_]);
  extend(b, in_each, rhs_strides_[last_ - 1]);
  problem.a.k.insert(problem.a.k.end(), a.begin(), a.end());
  problem.b.k.insert(problem.b.k.end(), b.begin(), b.end());
}

/// Where the windows of a tile begin and how many there are. At the borders, tiles whose operands
/// have the same extents may differ in this.
Indices placement(const LowerContext& context, const Equation& equation, const AtomDigits& digits) {
  Indices key;
  for (std::size_t i = 0; i < equation.attributes.ints("stride").size(); ++i) {
    const SpaceDim dim = space_dim(context, equation, i, digits);
    key.insert(key.end(), {dim.low, dim.windows});
  }
  return key;
}

std::vector<TileTask> lower_conv(const LowerContext& context, const Equation& equation) {
  const std::size_t spatial = equation.attributes.ints("stride").size();
  const auto rank = static_cast<std::size_t>(context.function().type(equation.results[0]).rank());
  return contraction_tasks(
      context, equation,
      {.dims = {.batch = rank - spatial - 2, .columns = 1},
       .make =
           [&](const StridedTile& lhs, const StridedTile& rhs, const AtomDigits& digits) {
             return ConvProblems(context, equation, lhs, rhs, digits).list();
           },
       .key = [&](const AtomDigits& digits) { return placement(context, equation, digits); }});
}

}  // namespace

Lowerings conv_lowerings() { return {{"conv", lower_conv, false, Arithmetic::bf16}}; }

}  // namespace tessera::compile::host
