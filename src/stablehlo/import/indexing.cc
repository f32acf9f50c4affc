// Gathers and scatters. Those of StableHLO name windows of an array by vectors of indices; those of
// the IR name rows of a table. So the dimensions that indices name become the rows of a table, and
// the indices row numbers.
#include <algorithm>
#include <array>
#include <numeric>

#include "ops/stablehlo/writer.h"
#include "stablehlo/import/folds.h"
#include "stablehlo/import/importer.h"

namespace tessera::stablehlo {

namespace {

bool has(const Ints& list, std::int64_t value) {
  return std::ranges::find(list, value) != list.end();
}

std::size_t place_of(const Ints& list, std::int64_t value) {
  return static_cast<std::size_t>(std::ranges::find(list, value) - list.begin());
}

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Ints joined(Ints first, const Ints& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Shape sizes_of(const Shape& shape, const Ints& dims) {
  Shape result;
  for (const std::int64_t dim : dims) result.push_back(shape[static_cast<std::size_t>(dim)]);
  return result;
}

/// Operations of old releases have no batch dimensions.
Ints batch_dims(Context& c, const char* attribute) {
  return c.op.find(attribute) == nullptr ? Ints() : c.ints(attribute);
}

/// What a gather or a scatter says about its array and its indices.
struct Indexing {
  ValueId indices = ir::kNoValue;  // [lead.., vector], i32
  Shape lead = {};
  Shape shape = {};      // of the array
  Ints window = {};      // sizes of the windows
  Ints named = {};       // the dimension that each element of a vector is an index of
  Ints batch = {};       // dimensions of the array that are batch dimensions
  Ints lead_batch = {};  // and those of lead that go with them
  bool is_clamped = false;
};

/// Moves the dimension of the index vectors to the end.
void set_indices(Context& c, Indexing& to, ValueId indices, std::int64_t vector_dim) {
  ValueId x = as_index(c, indices);
  const std::int64_t rank = c.type(x).rank();
  c.need(vector_dim >= 0 && vector_dim <= rank, "an index vector that is not there");
  if (vector_dim == rank) {
    Shape shape = c.type(x).shape;
    shape.push_back(1);
    x = ops::reshape(c.b(), x, shape);
  } else {
    Ints order;
    for (std::int64_t i = 0; i < rank; ++i) {
      if (i != vector_dim) order.push_back(i);
    }
    order.push_back(vector_dim);
    x = ops::transpose(c.b(), x, order);
  }
  to.indices = x;
  to.lead = c.type(x).shape;
  to.lead.pop_back();
  c.need(c.type(x).shape.back() == static_cast<std::int64_t>(to.named.size()),
         "index vectors of another length");
  for (std::size_t i = 0; i < to.lead_batch.size(); ++i) {
    if (vector_dim < to.lead_batch[i]) --to.lead_batch[i];
  }
}

/// Row numbers of the table whose rows are the dimensions `dims`: [lead.., windows..]. Windows of
/// one element have no dimension.
struct Rows {
  ValueId numbers = ir::kNoValue;
  Ints dims = {};
  Ints windows = {};
};

class RowNumbers {
 public:
  RowNumbers(Context& c, const Indexing& indexing) : c_(c), b_(c.b()), in_(indexing) {}

  Rows run() {
    rows_.dims = in_.batch;
    for (const std::int64_t dim : in_.named) {
      c_.need(!has(in_.batch, dim), "an index of a batch dimension");
      rows_.dims.push_back(dim);
    }
    for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(in_.shape.size()); ++dim) {
      if (has(in_.named, dim) && window(dim) != 1) rows_.windows.push_back(dim);
    }
    full_ = in_.lead;
    for (const std::int64_t dim : rows_.windows) full_.push_back(window(dim));
    rows_.numbers = number(0);
    for (const std::int64_t dim : rows_.dims) {
      const ValueId place = has(in_.batch, dim) ? batch_place(dim) : named_place(dim);
      const ValueId scaled = ops::mul(b_, rows_.numbers, number(size(dim)));
      rows_.numbers = ops::add(b_, scaled, place);
    }
    // An index of the only dimension is out of range as the number of a row, too.
    const bool is_number = rows_.dims.size() == 1 && rows_.windows.empty();
    if (valid_ && !is_number) {
      const ValueId outside = number(product(sizes_of(in_.shape, rows_.dims)));
      rows_.numbers = ops::select(b_, spread(*valid_), rows_.numbers, outside);
    }
    return rows_;
  }

 private:
  std::int64_t size(std::int64_t dim) const { return in_.shape[static_cast<std::size_t>(dim)]; }
  std::int64_t window(std::int64_t dim) const { return in_.window[static_cast<std::size_t>(dim)]; }
  ValueId number(std::int64_t value) {
    return ops::full(b_, static_cast<double>(value), {DType::i32, full_});
  }
  ValueId spread(ValueId x) {
    Ints dims(in_.lead.size());
    std::iota(dims.begin(), dims.end(), 0);
    return ops::broadcast_in_dim(b_, x, dims, full_);
  }
  ValueId batch_place(std::int64_t dim) {
    const std::size_t i = place_of(in_.batch, dim);
    c_.need(i < in_.lead_batch.size(), "batch dimensions that do not match");
    return ops::iota(b_, DType::i32, full_, in_.lead_batch[i]);
  }
  ValueId named_place(std::int64_t dim) {
    const auto last = static_cast<std::int64_t>(in_.lead.size());
    const auto at = static_cast<std::int64_t>(place_of(in_.named, dim));
    ValueId start = ops::reshape(b_, ops::slice_dim(b_, in_.indices, last, at, at + 1), in_.lead);
    const std::int64_t highest = size(dim) - window(dim);
    const Type type{DType::i32, in_.lead};
    const ValueId low = ops::full(b_, 0, type);
    const ValueId high = ops::full(b_, static_cast<double>(highest), type);
    if (in_.is_clamped) {
      start = ops::clamp(b_, low, start, high);
    } else {
      const ValueId inside = ops::bitwise_and(b_, ops::compare(b_, "ge", start, low),
                                              ops::compare(b_, "le", start, high));
      valid_ = valid_ ? ops::bitwise_and(b_, *valid_, inside) : inside;
    }
    start = spread(start);
    if (!has(rows_.windows, dim)) return start;
    const auto position = static_cast<std::int64_t>(place_of(rows_.windows, dim));
    return ops::add(b_, start, ops::iota(b_, DType::i32, full_, last + position));
  }

  Context& c_;
  ir::Builder& b_;
  const Indexing& in_;
  Rows rows_;
  Shape full_;
  std::optional<ValueId> valid_;
};

Ints others(std::size_t rank, const Ints& dims) {
  Ints result;
  for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(rank); ++dim) {
    if (!has(dims, dim)) result.push_back(dim);
  }
  return result;
}

void check_dims(Context& c, const Ints& dims, std::size_t rank) {
  for (const std::int64_t dim : dims) {
    c.need(dim >= 0 && dim < static_cast<std::int64_t>(rank), "a dimension that does not exist");
    c.need(std::ranges::count(dims, dim) == 1, "a dimension that is named twice");
  }
}

void check_indexing(Context& c, const Indexing& in) {
  check_dims(c, in.named, in.shape.size());
  check_dims(c, in.batch, in.shape.size());
  c.need(in.window.size() == in.shape.size(), "windows of another rank");
  c.need(in.batch.size() == in.lead_batch.size(), "batch dimensions that do not match");
  check_dims(c, in.lead_batch, c.type(in.indices).shape.size() - 1);
  constexpr std::int64_t kMostRows = 0x7FFFFFFF;
  c.need(product(in.shape) > 0 && product(in.shape) < kMostRows && product(in.lead) > 0,
         "an array of more than 2^31 elements");
  for (std::size_t i = 0; i < in.shape.size(); ++i) {
    c.need(in.window[i] > 0 && in.window[i] <= in.shape[i], "windows of another size");
  }
}

Values gather(Context& c) {
  ir::Builder& b = c.b();
  if (num_elements(c.result().shape) == 0) return {ops::full(b, 0, c.result())};
  ValueId x = c.operand(0);
  Indexing in{.shape = c.type(x).shape,
              .window = c.ints("slice_sizes"),
              .named = c.ints("start_index_map"),
              .batch = batch_dims(c, "operand_batching_dims"),
              .lead_batch = batch_dims(c, "start_indices_batching_dims"),
              .is_clamped = true};
  set_indices(c, in, c.operand(1), c.integer("index_vector_dim"));
  check_indexing(c, in);
  const std::size_t rank = in.shape.size();
  // Windows that do not fill a dimension that no index names begin at 0.
  Shape cut = in.shape;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto dim = static_cast<std::int64_t>(i);
    if (!has(in.named, dim) && !has(in.batch, dim)) cut[i] = in.window[i];
  }
  x = ops::slice(b, x, Ints(rank, 0), cut, Ints(rank, 1));
  in.shape = cut;
  const Rows rows = RowNumbers(c, in).run();
  const Ints rest = others(rank, rows.dims);
  const Shape row = sizes_of(cut, rest);
  x = ops::reshape(b, ops::transpose(b, x, joined(rows.dims, rest)),
                   joined({product(sizes_of(cut, rows.dims))}, row));
  ValueId result = ops::gather(b, x, rows.numbers, 0);
  // Now [lead.., windows.., rest..]; windows of one element that the result has come last.
  const Ints dropped = joined(c.ints("collapsed_slice_dims"), in.batch);
  const Ints kept = others(rank, dropped);
  Ints found = joined(rows.windows, rest);
  for (const std::int64_t dim : found) c.need(has(kept, dim), "a window that is dropped");
  Shape shape = c.type(result).shape;
  for (const std::int64_t dim : kept) {
    if (has(found, dim)) continue;
    found.push_back(dim);
    shape.push_back(1);
  }
  result = ops::reshape(b, result, shape);
  const Ints offsets = c.ints("offset_dims");
  c.need(offsets.size() == kept.size(), "windows of another rank");
  Ints order;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(shape.size()); ++i) {
    if (!has(offsets, i)) {
      order.push_back(next++);
      continue;
    }
    order.push_back(
        static_cast<std::int64_t>(in.lead.size() + place_of(found, kept[place_of(offsets, i)])));
  }
  return {ops::transpose(b, result, order)};
}

/// The dimensions of the updates that stand for dimensions `dims` of the array.
Ints update_dims(const Ints& dims, const Ints& kept, const Ints& update_windows) {
  Ints result;
  for (const std::int64_t dim : dims) result.push_back(update_windows[place_of(kept, dim)]);
  return result;
}

/// The dimensions of the array that windows have, and those of the updates that stand for them.
struct Windows {
  Ints kept, updates;
};

/// Names a dimension whose windows all begin at 0.
void name_dim(Context& c, Indexing& in, std::int64_t dim) {
  in.named.push_back(dim);
  Ints high(in.lead.size() + 1, 0);
  high.back() = 1;
  in.indices =
      ops::pad(c.b(), in.indices, ops::scalar(c.b(), 0, DType::i32), Ints(high.size(), 0), high);
}

/// Of the last operand of `count` arrays, indices, and `count` updates.
Indexing scatter_indexing(Context& c, std::size_t count, Windows& windows) {
  const Shape shape = c.type(c.operand(0)).shape;
  const Shape update_shape = c.type(c.operand(count + 1)).shape;
  Indexing in{.shape = shape,
              .named = c.ints("scatter_dims_to_operand_dims"),
              .batch = batch_dims(c, "input_batching_dims"),
              .lead_batch = batch_dims(c, "scatter_indices_batching_dims")};
  set_indices(c, in, c.operand(count), c.integer("index_vector_dim"));
  const std::size_t rank = in.shape.size();
  windows.kept = others(rank, joined(c.ints("inserted_window_dims"), in.batch));
  windows.updates = c.ints("update_window_dims");
  check_dims(c, windows.updates, update_shape.size());
  c.need(windows.updates.size() == windows.kept.size(), "windows of another rank");
  in.window.assign(rank, 1);
  for (std::size_t i = 0; i < windows.kept.size(); ++i) {
    in.window[static_cast<std::size_t>(windows.kept[i])] =
        update_shape[static_cast<std::size_t>(windows.updates[i])];
  }
  check_indexing(c, in);
  for (std::size_t i = 0; i < rank; ++i) {
    const auto dim = static_cast<std::int64_t>(i);
    const bool is_known = has(in.named, dim) || has(in.batch, dim);
    if (!is_known && in.window[i] != in.shape[i]) name_dim(c, in, dim);
  }
  return in;
}

/// A scatter as one of rows: row numbers[i] of the tables is joined with lines[i].
struct RowScatter {
  ValueId numbers;  // [count], i32; those of rows that do not exist are dropped
  Values tables;    // [rows, rest..]
  Values lines;     // [count, rest..]
};

/// Joins of which the order does not matter to the result's meaning: any number of updates may be
/// joined before they meet the element.
bool is_associative(std::string_view join) {
  constexpr std::array<std::string_view, 7> kNames = {"add",      "and", "maximum", "minimum",
                                                      "multiply", "or",  "xor"};
  return std::ranges::find(kNames, join) != kNames.end();
}

/// Whether several updates may name one row.
bool has_repeats(Context& c, const RowScatter& rows) {
  return num_elements(c.type(rows.numbers).shape) > 1 && !c.boolean("unique_indices");
}

/// The updates of each row are joined in their order, then the element with them.
Values scattered_by_body(Context& c, const Region& body, RowScatter rows) {
  ir::Builder& b = c.b();
  const Join join(c, body, rows.tables.size());
  if (has_repeats(c, rows)) {
    const std::int64_t count = num_elements(c.type(rows.numbers).shape);
    c.need(is_associative(joined_by(body)) || c.op.find(kAssociative) != nullptr,
           "several updates for one element by such a body");
    const Values sorted = ops::sort(b, {rows.numbers, ops::iota(b, DType::i32, {count}, 0)}, 0);
    rows.numbers = sorted[0];
    for (ValueId& each : rows.lines) each = ops::gather(b, each, sorted[1], 0);
    // The last update of a row wins, and that is the join of all.
    rows.lines = prefixes_joined(c, join, rows.numbers, std::move(rows.lines));
  }
  Values old;
  for (const ValueId table : rows.tables) old.push_back(ops::gather(b, table, rows.numbers, 0));
  const Values changed = join(old, rows.lines);
  Values results;
  for (std::size_t i = 0; i < changed.size(); ++i) {
    results.push_back(ops::scatter(b, rows.tables[i], rows.numbers, changed[i], 0));
  }
  return results;
}

/// Whether the updates replace what is there.
bool replaces(const Region& body, std::size_t count) {
  if (body.operations.size() != 1 || body.arguments.size() != 2 * count) return false;
  const auto first = body.arguments.begin() + static_cast<std::ptrdiff_t>(count);
  return body.operations[0].operands == std::vector<ValueNumber>(first, body.arguments.end());
}

/// Whether the array to scatter to is made of the element that changes no join with others. Sums of
/// updates begin at +0.0, so that they are never -0.0.
bool changes_nothing(const Context& c, std::string_view join, DType dtype) {
  const auto splat = c.frame.splats.find(c.operand(0));
  const bool is_exact = is_float(dtype) || size_bytes(dtype) <= 4;  // as a double
  return splat != c.frame.splats.end() && is_exact && join != "subtract" &&
         splat->second == ops::hlo::identity_of(join, dtype);
}

Values scattered(Context& c, const RowScatter& rows) {
  ir::Builder& b = c.b();
  const Region body = without_copies(c.region(0));
  Values results;
  if (replaces(body, rows.tables.size())) {
    for (std::size_t i = 0; i < rows.tables.size(); ++i) {
      results.push_back(ops::scatter(b, rows.tables[i], rows.numbers, rows.lines[i], 0));
    }
    return results;
  }
  const std::string_view join = joined_by(body);
  const ValueId table = rows.tables[0];
  const Type type = c.type(table);
  const bool is_sum = join == "add" || join == "subtract";
  const bool is_max = join == "maximum";
  const bool is_one_number = type.dtype != DType::boolean && rows.tables.size() == 1;
  if (is_one_number && !is_sum && (is_max || join == "minimum") && has_repeats(c, rows)) {
    constexpr std::int64_t kZero = 0;
    const ir::Attributes attributes = {
        {"dim", kZero}, {"num_batch", kZero}, {"size", type.shape[0]}};
    const ValueId joined = b.emit(is_max ? "scatter_max" : "scatter_min", attributes,
                                  {rows.numbers, rows.lines[0]});
    if (changes_nothing(c, join, type.dtype)) return {joined};
    return {b.emit(is_max ? "max" : "min", {}, {table, joined})};
  }
  if (!is_one_number || !is_sum) return scattered_by_body(c, body, rows);
  const ValueId wide = ops::convert(b, rows.lines[0], ops::sum_dtype(type.dtype));
  const ValueId sums = ops::scatter_add(b, rows.numbers, wide, 0, type.shape[0]);
  const ValueId sum = ops::convert(b, sums, type.dtype);
  if (changes_nothing(c, join, type.dtype)) return {sum};
  return {join == "subtract" ? ops::sub(b, table, sum) : ops::add(b, table, sum)};
}

/// The dimension of which each row of an array has one updated element, if it is made of equal
/// elements; -1 otherwise. So all elements are written anyway, and each can ask whether it is the
/// one, as part of a larger region.
std::int64_t chosen_dim(const Context& c, const Indexing& in, const Windows& windows) {
  const bool has_one = in.named.size() == 1 && c.operands.size() == 3 &&
                       c.frame.splats.contains(c.operand(0)) &&
                       in.window[static_cast<std::size_t>(in.named[0])] == 1 &&
                       in.lead_batch.size() == in.batch.size();
  if (!has_one || has(windows.kept, in.named[0])) return -1;
  for (std::size_t i = 0; i < in.lead.size(); ++i) {
    if (in.lead[i] != 1 && !has(in.lead_batch, static_cast<std::int64_t>(i))) return -1;
  }
  return in.named[0];
}

/// Such a scatter: the join of an element and the update of its row where the index is its own.
Values scattered_by_choice(Context& c, const Indexing& in, const Windows& windows,
                           std::int64_t dim) {
  ir::Builder& b = c.b();
  const Type type = c.type(c.operand(0));
  // Dimensions of `lead` without those of one element are the batch dimensions, in another order.
  Ints order = in.lead_batch;
  Ints sizes;
  for (std::size_t i = 0; i < in.lead.size(); ++i) {
    if (!has(order, static_cast<std::int64_t>(i))) order.push_back(static_cast<std::int64_t>(i));
  }
  for (const std::int64_t each : in.batch)
    sizes.push_back(type.shape[static_cast<std::size_t>(each)]);
  const auto spread_rows = [&](ValueId x, const Ints& dims, const Shape& shape) {
    // The dimensions of x stand for `dims`; broadcasts want them in ascending order.
    Ints ascending(dims.size());
    std::iota(ascending.begin(), ascending.end(), 0);
    std::ranges::sort(ascending, {},
                      [&](std::int64_t i) { return dims[static_cast<std::size_t>(i)]; });
    Ints sorted = dims;
    std::ranges::sort(sorted);
    return ops::broadcast_in_dim(b, ops::transpose(b, ops::reshape(b, x, shape), ascending), sorted,
                                 type.shape);
  };
  const ValueId numbers = ops::transpose(b, ops::reshape(b, in.indices, in.lead), order);
  const ValueId chosen = spread_rows(numbers, in.batch, sizes);
  const ValueId is_chosen =
      ops::compare(b, "eq", chosen, ops::iota(b, DType::i32, type.shape, dim));
  // Updates are [lead.. and windows..].
  const Type updates = c.type(c.operand(2));
  const Ints leads = others(static_cast<std::size_t>(updates.rank()), windows.updates);
  Ints moved;
  for (const std::int64_t each : order) moved.push_back(leads[static_cast<std::size_t>(each)]);
  const Ints dims = joined(in.batch, windows.kept);
  const ValueId lines = spread_rows(ops::transpose(b, c.operand(2), joined(moved, windows.updates)),
                                    dims, sizes_of(type.shape, dims));
  const Region body = without_copies(c.region(0));
  const ValueId old = c.operand(0);
  const ValueId changed = replaces(body, 1) ? lines : Join(c, body, 1)({old}, {lines})[0];
  return {ops::select(b, is_chosen, changed, old)};
}

Values scatter(Context& c) {
  ir::Builder& b = c.b();
  const std::size_t arrays = c.operands.size() / 2;
  c.need(arrays > 0 && c.operands.size() == 2 * arrays + 1, "arrays without updates");
  const Type updates = c.type(c.operand(arrays + 1));
  const bool is_empty =
      num_elements(updates.shape) == 0 || num_elements(c.type(c.operand(0)).shape) == 0;
  if (is_empty)
    return {c.operands.begin(), c.operands.begin() + static_cast<std::ptrdiff_t>(arrays)};
  for (std::size_t i = 0; i < arrays; ++i) {
    c.need(c.type(c.operand(i)).shape == c.type(c.operand(0)).shape &&
               c.type(c.operand(arrays + 1 + i)).shape == updates.shape,
           "arrays of several shapes");
  }
  Windows windows;
  const Indexing in = scatter_indexing(c, arrays, windows);
  if (const std::int64_t dim = chosen_dim(c, in, windows); dim >= 0) {
    return scattered_by_choice(c, in, windows, dim);
  }
  const Ints& kept = windows.kept;
  const std::size_t rank = in.shape.size();
  const Rows rows = RowNumbers(c, in).run();
  const Ints rest = others(rank, rows.dims);
  Ints ones;
  for (const std::int64_t dim : kept) {
    if (!has(rows.windows, dim) && !has(rest, dim)) ones.push_back(dim);
  }
  const Ints order =
      joined(joined(others(static_cast<std::size_t>(updates.rank()), windows.updates),
                    update_dims(joined(rows.windows, rest), kept, windows.updates)),
             update_dims(ones, kept, windows.updates));
  const std::int64_t count = num_elements(c.type(rows.numbers).shape);
  const Shape row = sizes_of(in.shape, rest);
  const std::int64_t table_rows = product(sizes_of(in.shape, rows.dims));
  const Ints dims = joined(rows.dims, rest);
  RowScatter by_rows{.numbers = ops::reshape(b, rows.numbers, {count}), .tables = {}, .lines = {}};
  for (std::size_t i = 0; i < arrays; ++i) {
    const ValueId lines = ops::transpose(b, c.operand(arrays + 1 + i), order);
    by_rows.lines.push_back(ops::reshape(b, lines, joined({count}, row)));
    const ValueId table = ops::transpose(b, c.operand(i), dims);
    by_rows.tables.push_back(ops::reshape(b, table, joined({table_rows}, row)));
  }
  Ints inverse(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    inverse[static_cast<std::size_t>(dims[i])] = static_cast<std::int64_t>(i);
  }
  Values results = scattered(c, by_rows);
  for (ValueId& each : results) {
    each = ops::transpose(b, ops::reshape(b, each, sizes_of(in.shape, dims)), inverse);
  }
  return results;
}

}  // namespace

const Handlers& index_handlers() {
  static const Handlers kHandlers = {{"gather", gather}, {"scatter", scatter}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
