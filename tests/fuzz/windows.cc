// Recipes of ops along lines, ops with windows, and ops that read or write at computed positions.
#include <algorithm>

#include "tests/fuzz/program.h"

namespace tessera::fuzz {

namespace {

using Ids = std::vector<ValueId>;

DType any_number(Program& p) { return p.random().chance(75) ? any_float(p) : DType::i32; }

void cumulate(Program& p, const ops::OpRecord& op) {
  const ValueId x = fitting(p, op, p.any(any_number(p), 1));
  p.emit(*op.name, {{"dim", any_dim(p, x)}, {"reverse", p.random().chance(50)}}, {x});
}

void top_k(Program& p) {
  const ValueId x = p.any(any_number(p), 1);
  const std::int64_t dim = any_dim(p, x);
  const std::int64_t most = p.shape(x)[at(dim)];
  p.emit("top_k", {{"dim", dim}, {"k", p.random().between(most > 0 ? 1 : 0, most)}}, {x});
}

// --- windows

void reduce_window(Program& p, const ops::OpRecord& op) {
  const ValueId x = fitting(p, op, p.any(any_number(p), 1));
  Ints window, stride;
  for (std::int64_t size : p.shape(x)) {
    const bool has_window = size > 0 && p.random().chance(60);
    window.push_back(has_window ? p.random().between(1, std::min<std::int64_t>(size, 4)) : 1);
    stride.push_back(has_window ? p.random().between(1, 3) : 1);
    if (size == 0) return;
  }
  p.emit(*op.name, {{"stride", stride}, {"window", window}}, {x});
}

/// The positions of the extremes in windows. If `is_spread`, also values that are spread back to
/// them.
void window_numbers(Program& p, bool is_spread) {
  const ValueId x = p.any(any_float(p), 1);
  Ints window, stride;
  for (std::int64_t size : p.shape(x)) {
    if (size == 0) return;
    const bool has_window = p.random().chance(60);
    window.push_back(has_window ? p.random().between(1, std::min<std::int64_t>(size, 4)) : 1);
    stride.push_back(has_window ? p.random().between(1, 3) : 1);
  }
  const ir::Attributes windows = {{"stride", stride}, {"window", window}};
  const Ids extremes = p.emit_anyway("reduce_window_max", windows, {x});
  const Ids numbers = p.emit_anyway("find_in_windows", windows, {x, extremes.at(0)});
  if (!is_spread) return;
  // Sometimes the windows are those of a padded or a truncated array.
  Ints low, shape = p.shape(x);
  for (std::int64_t& size : shape) {
    low.push_back(p.random().chance(30) ? p.random().between(-2, 2) : 0);
    if (p.random().chance(20)) size = p.random().between(1, size + 2);
  }
  p.emit("spread_from_windows",
         {{"low", low}, {"shape", shape}, {"stride", stride}, {"window", window}},
         {numbers.at(0), p.of_type(p.type(extremes.at(0)))});
}

void conv(Program& p) {
  const std::int64_t space = p.random().between(1, 2);
  const std::int64_t batch = p.random().chance(20) ? 1 : 0;
  const DType dtype = p.random().chance(85) ? any_float(p) : DType::i32;
  const ValueId old = p.recent([&](const Type& type) {
    return type.dtype == dtype && type.rank() == batch + space + 2 &&
           std::count(type.shape.begin(), type.shape.end(), 0) == 0;
  });
  ValueId x = old;
  if (old == ir::kNoValue) {
    Shape shape;
    for (std::int64_t i = 0; i < batch + space + 2; ++i) shape.push_back(p.random().between(1, 9));
    if (num_elements(shape) > 2000) return;
    x = p.of_type({dtype, shape});
  }
  const Shape shape = p.shape(x);
  Shape kernel(shape.begin(), shape.begin() + batch);
  Ints stride, dilation, spread, low, high;
  for (std::int64_t i = 0; i < space; ++i) {
    spread.push_back(p.random().chance(30) ? p.random().between(2, 3) : 1);
    for (Ints* widths : {&low, &high})
      widths->push_back(p.random().chance(50) ? p.random().between(-1, 2) : 0);
    const std::int64_t room =
        (shape[at(batch + 1 + i)] - 1) * spread.back() + 1 + low.back() + high.back();
    if (room < 1) return;
    const std::int64_t window = p.random().between(1, std::min<std::int64_t>(room, 3));
    const std::int64_t most = window == 1 ? 2 : (room - 1) / (window - 1);
    kernel.push_back(window);
    stride.push_back(p.random().between(1, 3));
    dilation.push_back(p.random().between(1, std::min<std::int64_t>(most, 2)));
  }
  kernel.push_back(shape.back());
  kernel.push_back(p.random().between(1, 6));
  if (num_elements(kernel) > 2000) return;
  p.emit("conv",
         {{"dilation", dilation},
          {"high", high},
          {"low", low},
          {"spread", spread},
          {"stride", stride}},
         {x, p.of_type({dtype, kernel})});
}

// --- computed positions

/// A start index per dimension, sometimes out of range.
Ids starts(Program& p, const Shape& shape) {
  Ids ids;
  for (std::int64_t size : shape) {
    const bool is_shared = !ids.empty() && p.random().chance(20);
    ids.push_back(is_shared ? ids.back() : indices(p, {}, size));
  }
  return ids;
}

Shape part_of(Program& p, Shape shape) {
  for (std::int64_t& size : shape) {
    if (size > 0 && p.random().chance(60)) size = p.random().between(1, size);
  }
  return shape;
}

void dynamic_slice(Program& p) {
  const ValueId x = p.any(1);
  const Shape shape = p.shape(x);
  Ids operands = {x};
  for (ValueId id : starts(p, shape)) operands.push_back(id);
  p.emit("dynamic_slice", {{"sizes", part_of(p, shape)}}, operands);
}

void dynamic_update_slice(Program& p) {
  const ValueId x = p.any(1);
  const Type type = p.type(x);
  Ids operands = {x, p.of_type({type.dtype, part_of(p, type.shape)})};
  for (ValueId id : starts(p, type.shape)) operands.push_back(id);
  p.emit("dynamic_update_slice", {}, operands);
}

void gather_along(Program& p) {
  const ValueId x = p.any(1);
  const std::int64_t dim = any_dim(p, x);
  Shape shape = p.shape(x);
  const std::int64_t size = shape[at(dim)];
  if (p.random().chance(60)) shape[at(dim)] = p.size();
  if (num_elements(shape) > 1000) return;
  p.emit("gather_along", {{"dim", dim}}, {x, indices(p, shape, size)});
}

void scatter_add_along(Program& p) {
  const ValueId updates = fitting(p, ir::op_named("scatter_add_along"), p.any(any_number(p), 1));
  const std::int64_t dim = any_dim(p, updates);
  const std::int64_t size = p.size();
  const ValueId places = indices(p, p.shape(updates), size);
  p.emit("scatter_add_along", {{"dim", dim}, {"size", size}}, {places, updates});
}

void scatter(Program& p) {
  const ValueId x = p.any(1);
  const std::int64_t dim = any_dim(p, x);
  const Type type = p.type(x);
  const Shape rows = p.shape_of_rank(p.random().between(0, 2));
  Shape shape = type.shape;
  shape.erase(shape.begin() + dim);
  shape.insert(shape.begin() + dim, rows.begin(), rows.end());
  if (num_elements(shape) > 2000 || shape.size() > 6) return;
  const ValueId places = indices(p, rows, type.shape[at(dim)]);
  p.emit("scatter", {{"dim", dim}}, {x, places, p.of_type({type.dtype, shape})});
}

}  // namespace

Recipes window_and_index_recipes() {
  Recipes recipes = {{"conv", {5, conv}},
                     {"dynamic_slice", {3, dynamic_slice}},
                     {"dynamic_update_slice", {3, dynamic_update_slice}},
                     {"find_in_windows", {1, [](Program& p) { window_numbers(p, false); }}},
                     {"gather_along", {3, gather_along}},
                     {"scatter_add_along", {3, scatter_add_along}},
                     {"scatter", {3, scatter}},
                     {"spread_from_windows", {2, [](Program& p) { window_numbers(p, true); }}},
                     {"top_k", {3, top_k}}};
  for (const ops::OpRecord* op : ops::all_ops()) {
    if (*op->host == "cumulative") {
      recipes[*op->name] = {2, [op](Program& p) { cumulate(p, *op); }};
    }
    if (*op->host == "reduce_window") {
      recipes[*op->name] = {2, [op](Program& p) { reduce_window(p, *op); }};
    }
  }
  return recipes;
}

}  // namespace tessera::fuzz
