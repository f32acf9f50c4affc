// Gathers and scatters along one dimension.
#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops::hlo {

namespace {

/// The indices with a last dimension of one index each.
Value as_vectors(Writer& w, const Value& indices) {
  Shape shape = indices.type.shape;
  shape.push_back(1);
  return w.reshape(indices, shape);
}

std::string batch_text(const IndexDims& dims, const char* of_table, const char* of_indices) {
  if (dims.batch.empty()) return "";
  return fmt::format(", {} = {}, {} = {}", of_table, list_text(dims.batch), of_indices,
                     list_text(dims.batch));
}

/// The value that is read at an index out of range.
double fill_of(DType dtype) {
  if (is_float(dtype)) return std::numeric_limits<double>::quiet_NaN();
  return identity_of("maximum", dtype);
}

}  // namespace

Value gathered(Writer& w, const Value& table, const Value& indices, const IndexDims& dims,
               Shape result) {
  const Type type{table.type.dtype, std::move(result)};
  if (num_elements(table.type.shape) == 0) return w.constant(0, type);  // no slice of size 1 fits
  const Value vectors = as_vectors(w, indices);
  Ints sizes;
  for (std::int64_t i = 0; i < table.type.rank(); ++i) {
    sizes.push_back(i == dims.dim || contains_dim(dims.batch, i) ? 1 : table.type.shape[at(i)]);
  }
  return w.op(
      fmt::format(
          "\"stablehlo.gather\"({}, {}) {{dimension_numbers = #stablehlo.gather<offset_dims "
          "= {}, collapsed_slice_dims = [{}]{}, start_index_map = [{}], index_vector_dim = "
          "{}>, slice_sizes = {}, indices_are_sorted = false}} : ({}, {}) -> {}",
          table.name, vectors.name, list_text(dims.rows), dims.dim,
          batch_text(dims, "operand_batching_dims", "start_indices_batching_dims"), dims.dim,
          indices.type.rank(), array_text(sizes), type_text(table.type), type_text(vectors.type),
          type_text(type)),
      type);
}

Value scattered(Writer& w, const Value& table, const Value& indices, const Value& updates,
                const IndexDims& dims, std::string_view combine) {
  if (num_elements(updates.type.shape) == 0) return table;
  const Value vectors = as_vectors(w, indices);
  return w.op(
      fmt::format("\"stablehlo.scatter\"({}, {}, {}) ({}) {{scatter_dimension_numbers = "
                  "#stablehlo.scatter<update_window_dims = {}, inserted_window_dims = [{}]{}, "
                  "scatter_dims_to_operand_dims = [{}], index_vector_dim = {}>, indices_are_sorted "
                  "= false, unique_indices = false}} : ({}, {}, {}) -> {}",
                  table.name, vectors.name, updates.name, w.combiner(combine, table.type.dtype),
                  list_text(dims.rows), dims.dim,
                  batch_text(dims, "input_batching_dims", "scatter_indices_batching_dims"),
                  dims.dim, indices.type.rank(), type_text(table.type), type_text(vectors.type),
                  type_text(updates.type), type_text(table.type)),
      table.type);
}

Value local_indices(FormContext& c, std::size_t i, ir::ValueId table, std::size_t dim) {
  const Value& indices = c.x(i);
  if (!c.is_split(table, dim)) return indices;
  const Value start = c.w.fill(c.start(table, dim), indices.type.shape);
  return c.w.binary("subtract", indices, start);
}

Value with_fill(FormContext& c, const Value& found, const Value& local, std::size_t dim,
                const Ints& dims) {
  Writer& w = c.w;
  const ir::ValueId table = c.equation.operands[0];
  const std::int64_t size = c.whole(table)[dim];
  const Shape& shape = found.type.shape;
  const auto spread = [&](const Value& x) { return w.broadcast(x, dims, shape); };
  const Value fill = w.constant(fill_of(found.type.dtype), found.type);
  const Value is_inside = w.in_range(c.x(1), 0, size);
  if (!c.is_split(table, dim)) return w.select(spread(is_inside), found, fill);
  // Only one device has the fill; the others have zeros.
  const Ranges held = c.ranges(table, dim);
  Ints sizes;
  for (const IndexRange& range : held) sizes.push_back(range.limit - range.start);
  const Value zeros = w.constant(0, local.type);
  const Value end = w.fill(w.per_device(sizes), local.type.shape);
  const Value is_above = w.compare("ge", local, zeros);
  const Value is_own = spread(w.binary("and", is_above, w.compare("lt", local, end)));
  const Value start = w.per_device(starts_of(held));
  const Value is_first =
      w.fill(w.compare("eq", start, w.scalar(0, DType::i32)), is_inside.type.shape);
  const Value is_filled = w.binary("and", is_first, w.unary("not", is_inside));
  const Value own = w.select(is_own, found, w.constant(0, found.type));
  return w.select(spread(is_filled), fill, own);
}

}  // namespace tessera::ops::hlo
