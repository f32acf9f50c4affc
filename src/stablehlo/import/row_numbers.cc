#include "stablehlo/import/row_numbers.h"

#include <algorithm>
#include <numeric>

namespace tessera::stablehlo {

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

Ints batch_dims(Context& c, const char* attribute) {
  return c.op.find(attribute) == nullptr ? Ints() : c.ints(attribute);
}

void set_indices(Context& c, Indexing& to, ValueId indices, std::int64_t vector_dim) {
  ValueId x = as_index(c, indices);
  const std::int64_t rank = c.type(x).rank();
  c.need(vector_dim >= 0 && vector_dim <= rank, "an index_vector_dim that is out of range");
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
         "index vectors of the wrong length");
  for (std::size_t i = 0; i < to.lead_batch.size(); ++i) {
    if (vector_dim < to.lead_batch[i]) --to.lead_batch[i];
  }
}

namespace {

class RowNumbers {
 public:
  RowNumbers(Context& c, const Indexing& indexing) : c_(c), b_(c.b()), in_(indexing) {}

  Rows run() {
    for (const std::int64_t dim : in_.named) {
      c_.need(!has(in_.batch, dim), "an index into a batch dimension");
    }
    rows_.dims = joined(in_.batch, in_.named);
    std::ranges::sort(rows_.dims);
    for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(in_.shape.size()); ++dim) {
      if (has(in_.named, dim) && window(dim) != 1) rows_.windows.push_back(dim);
    }
    full_ = in_.lead;
    for (const std::int64_t dim : rows_.windows) full_.push_back(window(dim));
    for (const std::int64_t dim : rows_.dims) {
      const ValueId place = has(in_.batch, dim) ? batch_place(dim) : named_place(dim);
      if (dim == rows_.dims[0]) {
        rows_.numbers = place;
      } else {
        const ValueId scaled = ops::mul(b_, rows_.numbers, number(size(dim)));
        rows_.numbers = ops::add(b_, scaled, place);
      }
    }
    if (rows_.dims.empty()) rows_.numbers = number(0);
    // If there is only one dimension, an index out of range is also a row number out of range.
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
  /// Element `at` of each index vector. If the vectors were concatenated from their elements, the
  /// elements are used directly.
  ValueId element(std::int64_t last, std::int64_t at) {
    const ir::Equation* maker = c_.frame.maker_of(in_.indices);
    const bool is_joined = maker != nullptr && ir::op_name(*maker->op) == "concatenate" &&
                           maker->attributes.integer("dim") == last &&
                           maker->operands.size() == in_.named.size();
    return is_joined ? maker->operands[static_cast<std::size_t>(at)]
                     : ops::slice_dim(b_, in_.indices, last, at, at + 1);
  }
  ValueId named_place(std::int64_t dim) {
    const auto last = static_cast<std::int64_t>(in_.lead.size());
    const auto at = static_cast<std::int64_t>(place_of(in_.named, dim));
    ValueId start = ops::reshape(b_, element(last, at), in_.lead);
    const std::int64_t highest = size(dim) - window(dim);
    if (in_.is_clamped) {
      const Type type{DType::i32, in_.lead};
      const ValueId low = ops::full(b_, 0, type);
      start = ops::clamp(b_, low, start, ops::full(b_, static_cast<double>(highest), type));
    } else {
      const ValueId inside = ops::in_range(b_, start, highest + 1);
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

}  // namespace

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
  c.need(in.window.size() == in.shape.size(), "windows of the wrong rank");
  c.need(in.batch.size() == in.lead_batch.size(), "batch dimensions that do not match");
  check_dims(c, in.lead_batch, c.type(in.indices).shape.size() - 1);
  constexpr std::int64_t kMostRows = 0x7FFFFFFF;
  c.need(product(in.shape) > 0 && product(in.shape) < kMostRows && product(in.lead) > 0,
         "an array of more than 2^31 elements");
  for (std::size_t i = 0; i < in.shape.size(); ++i) {
    c.need(in.window[i] > 0 && in.window[i] <= in.shape[i],
           "windows that are empty or larger than the array");
  }
}

void name_dim(Context& c, Indexing& in, std::int64_t dim) {
  in.named.push_back(dim);
  Ints high(in.lead.size() + 1, 0);
  high.back() = 1;
  in.indices =
      ops::pad(c.b(), in.indices, ops::scalar(c.b(), 0, DType::i32), Ints(high.size(), 0), high);
}

void name_between(Context& c, Indexing& in) {
  const Ints dims = joined(in.batch, in.named);
  if (dims.empty() || 4 * product(in.lead) * product(in.window) > product(in.shape)) return;
  const auto [first, last] = std::ranges::minmax_element(dims);
  for (std::int64_t dim = *first; dim < *last; ++dim) {
    if (!has(dims, dim)) name_dim(c, in, dim);
  }
}

Rows row_numbers(Context& c, const Indexing& in) { return RowNumbers(c, in).run(); }

Table::Table(const Shape& shape, const Rows& rows)
    : shape_(shape),
      rest_(others(shape.size(), rows.dims)),
      num_rows_(product(sizes_of(shape, rows.dims))),
      dim_(0) {
  const Ints& dims = rows.dims;
  const auto count = static_cast<std::int64_t>(dims.size());
  if (count > 0 && dims.back() - dims.front() == count - 1) dim_ = dims.front();
  order_ = rest_;
  order_.insert(order_.begin() + dim_, dims.begin(), dims.end());
}

ValueId Table::of(ir::Builder& b, ValueId array) const {
  Shape shape = row();
  shape.insert(shape.begin() + dim_, num_rows_);
  return ops::reshape(b, ops::transpose(b, array, order_), shape);
}

ValueId Table::array(ir::Builder& b, ValueId table) const {
  Ints inverse(order_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) {
    inverse[static_cast<std::size_t>(order_[i])] = static_cast<std::int64_t>(i);
  }
  return ops::transpose(b, ops::reshape(b, table, sizes_of(shape_, order_)), inverse);
}

ValueId Table::first(ir::Builder& b, ValueId lines, std::int64_t num_dims) const {
  Ints order(static_cast<std::size_t>(b.type(lines).rank()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + dim_, order.begin() + dim_ + num_dims);
  return ops::transpose(b, lines, order);
}

ValueId Table::in_place(ir::Builder& b, ValueId lines, std::int64_t num_dims) const {
  Ints order(static_cast<std::size_t>(b.type(lines).rank()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + num_dims, order.begin() + num_dims + dim_);
  return ops::transpose(b, lines, order);
}

}  // namespace tessera::stablehlo
