// Gathers and scatters. Those of StableHLO name windows of an array by vectors of indices; those of
// the IR name rows of a table. So the dimensions that indices name become the rows of a table, and
// the indices row numbers.
#include <algorithm>
#include <numeric>

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
    if (valid_) {
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
         "an empty array, or one of more than 2^31 elements");
  for (std::size_t i = 0; i < in.shape.size(); ++i) {
    c.need(in.window[i] > 0 && in.window[i] <= in.shape[i], "windows of another size");
  }
}

Values gather(Context& c) {
  ir::Builder& b = c.b();
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

Indexing scatter_indexing(Context& c, const Shape& shape, Windows& windows) {
  const Shape update_shape = c.type(c.operand(2)).shape;
  Indexing in{.shape = shape,
              .named = c.ints("scatter_dims_to_operand_dims"),
              .batch = batch_dims(c, "input_batching_dims"),
              .lead_batch = batch_dims(c, "scatter_indices_batching_dims")};
  set_indices(c, in, c.operand(1), c.integer("index_vector_dim"));
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
    c.need(has(in.named, dim) || has(in.batch, dim) || in.window[i] == in.shape[i],
           "windows that do not fill a dimension");
  }
  return in;
}

/// The operation of the IR that joins an element and its update; empty if there is none.
std::string_view row_join(std::string_view kind, DType dtype) {
  if (dtype == DType::boolean) return {};
  return kind == "multiply" ? "mul" : kind == "maximum" ? "max" : kind == "minimum" ? "min" : "";
}

Values scatter(Context& c) {
  ir::Builder& b = c.b();
  c.need(c.operands.size() == 3, "several arrays");
  const Region body = without_copies(c.region(0));
  const std::string_view join = joined_by(body);
  const bool is_difference = join == "subtract";
  const bool is_sum = join == "add" || is_difference;
  const bool is_set = body.operations.size() == 1 && body.arguments.size() == 2 &&
                      body.operations[0].operands == std::vector{body.arguments[1]};
  const Type type = c.type(c.operand(0));
  const std::string_view joined_row = row_join(join, type.dtype);
  const bool is_row_join = !is_sum && !joined_row.empty();
  c.need(is_sum || is_set || is_row_join, "a body of its own");
  const ValueId updates = c.operand(2);
  Windows windows;
  const Indexing in = scatter_indexing(c, type.shape, windows);
  const Ints& kept = windows.kept;
  const std::size_t rank = in.shape.size();
  const Rows rows = RowNumbers(c, in).run();
  const Ints rest = others(rank, rows.dims);
  Ints ones;
  for (const std::int64_t dim : kept) {
    if (!has(rows.windows, dim) && !has(rest, dim)) ones.push_back(dim);
  }
  const Ints order =
      joined(joined(others(static_cast<std::size_t>(c.type(updates).rank()), windows.updates),
                    update_dims(joined(rows.windows, rest), kept, windows.updates)),
             update_dims(ones, kept, windows.updates));
  const std::int64_t count = num_elements(c.type(rows.numbers).shape);
  const Shape row = sizes_of(in.shape, rest);
  const std::int64_t table_rows = product(sizes_of(in.shape, rows.dims));
  const ValueId numbers = ops::reshape(b, rows.numbers, {count});
  const ValueId lines = ops::reshape(b, ops::transpose(b, updates, order), joined({count}, row));
  const Ints dims = joined(rows.dims, rest);
  const ValueId table =
      ops::reshape(b, ops::transpose(b, c.operand(0), dims), joined({table_rows}, row));
  ValueId result = ir::kNoValue;
  if (is_row_join) {
    // Each row is written once, so it can be read, joined and written.
    c.need(count == 1 || c.boolean("unique_indices"),
           "products, maxima or minima of several updates for one element");
    const ValueId old = ops::gather(b, table, numbers, 0);
    const ValueId changed = b.emit(joined_row, {}, {old, lines});
    result = ops::scatter(b, table, numbers, changed, 0);
  } else if (is_sum) {
    const DType wide = ops::sum_dtype(type.dtype);
    const ValueId sums = ops::scatter_add(b, numbers, ops::convert(b, lines, wide), 0, table_rows);
    const ValueId sum = ops::convert(b, sums, type.dtype);
    result = is_difference ? ops::sub(b, table, sum) : ops::add(b, table, sum);
  } else {
    result = ops::scatter(b, table, numbers, lines, 0);
  }
  Ints inverse(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    inverse[static_cast<std::size_t>(dims[i])] = static_cast<std::int64_t>(i);
  }
  return {ops::transpose(b, ops::reshape(b, result, sizes_of(in.shape, dims)), inverse)};
}

}  // namespace

const Handlers& index_handlers() {
  static const Handlers kHandlers = {{"gather", gather}, {"scatter", scatter}};
  return kHandlers;
}

}  // namespace tessera::stablehlo
