// Gathers and scatters.
#include <algorithm>
#include <array>
#include <numeric>

#include "ops/control/control.h"
#include "ops/stablehlo/writer.h"
#include "stablehlo/import/folds.h"
#include "stablehlo/import/row_numbers.h"

namespace tessera::stablehlo {

namespace {

constexpr std::int64_t kZero = 0;

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
  name_between(c, in);
  const std::size_t rank = in.shape.size();
  // In a dimension without an index, windows that do not fill the dimension begin at 0.
  Shape cut = in.shape;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto dim = static_cast<std::int64_t>(i);
    if (!has(in.named, dim) && !has(in.batch, dim)) cut[i] = in.window[i];
  }
  x = ops::slice(b, x, Ints(rank, 0), cut, Ints(rank, 1));
  in.shape = cut;
  const Rows rows = row_numbers(c, in);
  const Table table(cut, rows);
  const ValueId found_rows = ops::gather(b, table.of(b, x), rows.numbers, table.dim());
  ValueId result = table.first(b, found_rows, c.type(rows.numbers).rank());
  // Now [lead.., windows.., rest..]; windows of one element that the result has come last.
  const Ints dropped = joined(c.ints("collapsed_slice_dims"), in.batch);
  const Ints kept = others(rank, dropped);
  Ints found = joined(rows.windows, table.rest());
  for (const std::int64_t dim : found) c.need(has(kept, dim), "a window along a dropped dimension");
  Shape shape = c.type(result).shape;
  for (const std::int64_t dim : kept) {
    if (has(found, dim)) continue;
    found.push_back(dim);
    shape.push_back(1);
  }
  result = ops::reshape(b, result, shape);
  const Ints offsets = c.ints("offset_dims");
  c.need(offsets.size() == kept.size(), "windows of the wrong rank");
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

/// The dimensions of the updates that correspond to dimensions `dims` of the array.
Ints update_dims(const Ints& dims, const Ints& kept, const Ints& update_windows) {
  Ints result;
  for (const std::int64_t dim : dims) result.push_back(update_windows[place_of(kept, dim)]);
  return result;
}

/// The dimensions of the array that windows have, and the corresponding dimensions of the updates.
struct Windows {
  Ints kept, updates;
};

/// The operands are `count` arrays, the indices, and `count` updates.
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
  c.need(windows.updates.size() == windows.kept.size(), "windows of the wrong rank");
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
  Table form;
  ValueId numbers;  // [count], i32; those of rows that do not exist are dropped
  Values tables;    // [before.., rows, after..]
  Values lines;     // [count, before.., after..]

  ValueId read(ir::Builder& b, std::size_t i) const {
    return form.first(b, ops::gather(b, tables[i], numbers, form.dim()), 1);
  }
  ValueId written(ir::Builder& b, std::size_t i, ValueId rows) const {
    return ops::scatter(b, tables[i], numbers, form.in_place(b, rows, 1), form.dim());
  }
};

/// Joins whose order does not matter for the meaning of the result: any number of updates may be
/// joined before they are joined with the element.
bool is_associative(std::string_view join) {
  constexpr std::array<std::string_view, 7> kNames = {"add",      "and", "maximum", "minimum",
                                                      "multiply", "or",  "xor"};
  return std::ranges::find(kNames, join) != kNames.end();
}

/// Whether several updates may name one row.
bool has_repeats(Context& c, const RowScatter& rows) {
  return num_elements(c.type(rows.numbers).shape) > 1 && !c.boolean("unique_indices");
}

/// The elements joined with the updates of their rows, one update per row. Works within any
/// function.
Values updated(ir::Builder& b, const Join& join, const Values& captured, const RowScatter& rows) {
  Values old;
  for (std::size_t i = 0; i < rows.tables.size(); ++i) old.push_back(rows.read(b, i));
  const Values changed = join.nested(b, captured, old, rows.lines);
  Values results;
  for (std::size_t i = 0; i < changed.size(); ++i) {
    results.push_back(rows.written(b, i, changed[i]));
  }
  return results;
}

/// Per update, how many updates of the same row come before it. `numbers`: sorted row numbers.
ValueId places_in_rows(ir::Builder& b, ValueId numbers) {
  const std::int64_t count = b.type(numbers).shape[0];
  const ValueId places = ops::iota(b, DType::i32, {count}, 0);
  const ValueId later = ops::slice_dim(b, numbers, 0, 1, count);
  const ValueId earlier = ops::slice_dim(b, numbers, 0, 0, count - 1);
  const ValueId is_next = ops::compare(b, "ne", later, earlier);
  const ValueId is_first =
      ops::concatenate(b, {ops::full(b, 1, {DType::boolean, {1}}), is_next}, 0);
  const ValueId firsts = ops::select(b, is_first, places, ops::full_like(b, 0, places));
  return b.emit("sub", {},
                {places, b.emit("cummax", {{"dim", kZero}, {"reverse", false}}, {firsts})});
}

/// The inputs of the functions of a loop in which round r applies the update at place r of each
/// row.
struct Round {
  Round(ir::Builder& b, const ir::Builder& around, const Values& consts, const RowScatter& all)
      : rows{.form = all.form, .numbers = {}, .tables = {}, .lines = {}} {
    const auto input = [&](ValueId id) { return b.add_input(around.type(id)); };
    for (const ValueId id : consts) captured.push_back(input(id));
    rows.numbers = input(all.numbers);
    places = input(all.numbers);
    last = b.add_input({DType::i32, {}});
    for (const ValueId id : all.lines) rows.lines.push_back(input(id));
    round = b.add_input({DType::i32, {}});
    for (const ValueId id : all.tables) rows.tables.push_back(input(id));
  }

  Values captured;
  RowScatter rows;
  ValueId places, last, round;
};

/// Applies the updates of each row one after the other, and those of different rows at once.
/// `rows`: sorted by row.
Values updated_in_rounds(Context& c, const Join& join, const RowScatter& rows) {
  ir::Builder& b = c.b();
  const ValueId places = places_in_rows(b, rows.numbers);
  Values operands = join.captured();
  const auto add = [&](const Values& more) {
    operands.insert(operands.end(), more.begin(), more.end());
  };
  add({rows.numbers, places, ops::reduce_max(b, places, {0})});
  add(rows.lines);
  const std::size_t num_consts = operands.size();
  add({ops::full(b, 0, {DType::i32, {}})});
  add(rows.tables);

  const auto condition = std::make_shared<ir::Function>(ir::empty_like(b.function()));
  ir::Builder in_condition(*condition);
  const Round asked(in_condition, b, join.captured(), rows);
  in_condition.set_outputs({ops::compare(in_condition, "le", asked.round, asked.last)});

  const auto body = std::make_shared<ir::Function>(ir::empty_like(b.function()));
  ir::Builder in_body(*body);
  Round now(in_body, b, join.captured(), rows);
  const ValueId is_now =
      ops::compare(in_body, "eq", now.places,
                   ops::broadcast_scalar(in_body, now.round, in_body.type(now.places).shape));
  // Updates of other rounds go to a row that does not exist.
  now.rows.numbers = ops::select(
      in_body, is_now, now.rows.numbers,
      ops::full_like(in_body, static_cast<double>(rows.form.num_rows()), now.rows.numbers));
  Values next = updated(in_body, join, now.captured, now.rows);
  next.insert(next.begin(),
              in_body.emit("add", {}, {now.round, ops::full_like(in_body, 1, now.round)}));
  in_body.set_outputs(std::move(next));

  Values results = ops::while_loop(b, num_consts, condition, body, operands);
  results.erase(results.begin());
  return results;
}

/// Joins the updates of each row in their order, and then the element with the result. If updates
/// cannot be joined first, joins the element with each of them.
Values scattered_by_body(Context& c, const Region& body, RowScatter rows) {
  ir::Builder& b = c.b();
  const Join join(c, body, rows.tables.size());
  if (has_repeats(c, rows)) {
    const std::int64_t count = num_elements(c.type(rows.numbers).shape);
    const Values sorted = ops::sort(b, {rows.numbers, ops::iota(b, DType::i32, {count}, 0)}, 0);
    rows.numbers = sorted[0];
    for (ValueId& each : rows.lines) each = ops::gather(b, each, sorted[1], 0);
    if (!is_associative(joined_by(body)) && c.op.find(kAssociative) == nullptr) {
      return updated_in_rounds(c, join, rows);
    }
    // The last update of a row wins, and that is the join of all.
    rows.lines = prefixes_joined(c, join, rows.numbers, std::move(rows.lines));
  }
  return updated(b, join, join.captured(), rows);
}

/// Whether the updates replace the elements.
bool replaces(const Region& body, std::size_t count) {
  if (body.operations.size() != 1 || body.arguments.size() != 2 * count) return false;
  const auto first = body.arguments.begin() + static_cast<std::ptrdiff_t>(count);
  return body.operations[0].operands == std::vector<ValueNumber>(first, body.arguments.end());
}

/// The scatter of the sums of all updates of each row, which are the sums of scatter_add.
RowScatter summed(Context& c, RowScatter rows) {
  const ops::RowSums sums =
      ops::row_sums(c.b(), rows.numbers, rows.lines[0], 0, rows.form.num_rows());
  rows.numbers = sums.numbers;
  rows.lines = {sums.sums};
  return rows;
}

/// Whether all elements of the array to scatter to are the identity element of the join. Sums of
/// updates begin at +0.0, so they are never -0.0.
bool changes_nothing(const Context& c, std::string_view join, DType dtype) {
  const auto splat = c.frame.splats.find(c.operand(0));
  const bool is_exact = is_float(dtype) || size_bytes(dtype) <= 4;  // as a double
  return splat != c.frame.splats.end() && is_exact && join != "subtract" &&
         splat->second == ops::hlo::identity_of(join, dtype);
}

/// Joins all rows with a table of the joined updates of each row.
ValueId joined_with_all(Context& c, const RowScatter& rows, std::string_view join) {
  ir::Builder& b = c.b();
  const bool is_sum = join == "add" || join == "subtract";
  const DType dtype = c.type(rows.tables[0]).dtype;
  ValueId lines = rows.form.in_place(b, rows.lines[0], 1);
  if (is_sum) lines = ops::convert(b, lines, ops::sum_dtype(dtype));
  const std::string_view op = is_sum              ? "scatter_add"
                              : join == "maximum" ? "scatter_max"
                                                  : "scatter_min";
  const ValueId updates =
      b.emit(op, {{"dim", rows.form.dim()}, {"num_batch", kZero}, {"size", rows.form.num_rows()}},
             {rows.numbers, lines});
  const ValueId of_rows = ops::convert(b, updates, dtype);
  if (changes_nothing(c, join, dtype)) return of_rows;
  if (is_sum) {
    return b.emit(join == "subtract" ? "sub" : "add", {}, {rows.tables[0], of_rows});
  }
  return b.emit(join == "maximum" ? "max" : "min", {}, {rows.tables[0], of_rows});
}

Values scattered(Context& c, const RowScatter& rows) {
  ir::Builder& b = c.b();
  const Region body = without_copies(c.region(0));
  Values results;
  if (replaces(body, rows.tables.size())) {
    for (std::size_t i = 0; i < rows.tables.size(); ++i) {
      results.push_back(rows.written(b, i, rows.lines[i]));
    }
    return results;
  }
  const std::string_view join = joined_by(body);
  const bool is_sum = join == "add" || join == "subtract";
  const bool is_extreme = join == "maximum" || join == "minimum";
  const Type type = c.type(rows.tables[0]);
  if (type.dtype == DType::boolean || rows.tables.size() != 1 || !(is_sum || is_extreme)) {
    return scattered_by_body(c, body, rows);
  }
  // A constant table is written as a whole. In any other table, a few rows are changed in place.
  const bool is_splat = c.frame.splats.contains(c.operand(0));
  const bool is_small = 4 * num_elements(c.type(rows.numbers).shape) <= rows.form.num_rows();
  if (!has_repeats(c, rows) && !(is_sum && is_splat)) return scattered_by_body(c, body, rows);
  if (is_splat || !is_small) return {joined_with_all(c, rows, join)};
  if (is_extreme) return scattered_by_body(c, body, rows);
  const RowScatter sums = summed(c, rows);
  const ValueId changed =
      b.emit(join == "subtract" ? "sub" : "add", {}, {sums.read(b, 0), sums.lines[0]});
  return {sums.written(b, 0, changed)};
}

/// If all elements of the array are equal and each row has one updated element along some
/// dimension: this dimension; otherwise -1. All elements are written anyway then, and each can
/// check, as part of a larger region, whether it is the updated one.
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

/// Such a scatter: each element whose position is the index of its row is joined with the update.
Values scattered_by_choice(Context& c, const Indexing& in, const Windows& windows,
                           std::int64_t dim) {
  ir::Builder& b = c.b();
  const Type type = c.type(c.operand(0));
  // The dimensions of `lead`, except those of one element, are the batch dimensions in another
  // order.
  Ints order = in.lead_batch;
  Ints sizes;
  for (std::size_t i = 0; i < in.lead.size(); ++i) {
    if (!has(order, static_cast<std::int64_t>(i))) order.push_back(static_cast<std::int64_t>(i));
  }
  for (const std::int64_t each : in.batch)
    sizes.push_back(type.shape[static_cast<std::size_t>(each)]);
  const auto spread_rows = [&](ValueId x, const Ints& dims, const Shape& shape) {
    // The dimensions of x correspond to `dims`; broadcasts need them in ascending order.
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
           "arrays of different shapes");
  }
  Windows windows;
  Indexing in = scatter_indexing(c, arrays, windows);
  if (const std::int64_t dim = chosen_dim(c, in, windows); dim >= 0) {
    return scattered_by_choice(c, in, windows, dim);
  }
  name_between(c, in);
  const Ints& kept = windows.kept;
  const Rows rows = row_numbers(c, in);
  const Table table(in.shape, rows);
  Ints ones;
  for (const std::int64_t dim : kept) {
    if (!has(rows.windows, dim) && !has(table.rest(), dim)) ones.push_back(dim);
  }
  const Ints order =
      joined(joined(others(static_cast<std::size_t>(updates.rank()), windows.updates),
                    update_dims(joined(rows.windows, table.rest()), kept, windows.updates)),
             update_dims(ones, kept, windows.updates));
  const std::int64_t count = num_elements(c.type(rows.numbers).shape);
  RowScatter by_rows{
      .form = table, .numbers = ops::reshape(b, rows.numbers, {count}), .tables = {}, .lines = {}};
  for (std::size_t i = 0; i < arrays; ++i) {
    const ValueId lines = ops::transpose(b, c.operand(arrays + 1 + i), order);
    by_rows.lines.push_back(ops::reshape(b, lines, joined({count}, table.row())));
    by_rows.tables.push_back(table.of(b, c.operand(i)));
  }
  Values results = scattered(c, by_rows);
  for (ValueId& each : results) each = table.array(b, each);
  return results;
}

}  // namespace

const Handlers& index_handlers() {
  static const Handlers kHandlers = {{"gather", gather}, {"scatter", scatter}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
