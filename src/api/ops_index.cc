// Indexing and sorting.
#include <fmt/format.h>

#include <tessera/ops.h>

#include "api/operands.h"
#include "ops/emit.h"

namespace tessera {

using detail::as_array;
using detail::emit;
using detail::Ids;
using detail::public_op;
using ir::Builder;

namespace {

Array checked_indices(const char* name, const Operand& indices) {
  const Array list = as_array(name, indices, DType::i32);
  if (list.dtype() == DType::i32) return list;
  detail::fail(name, "the indices are not i32", detail::describe(list), "i32",
               "convert them: astype(indices, DType::i32)");
}

}  // namespace

Array take(Operand x, Operand indices, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("take", x);
    const Array list = checked_indices("take", indices);
    const std::int64_t dim = detail::checked_axis("take", axis, v.rank(), detail::describe(v));
    return emit({v, list},
                [&](Builder& b, const Ids& ids) { return ops::gather(b, ids[0], ids[1], dim); });
  });
}

Array scatter_add(Operand x, Operand indices, Operand updates) {
  return public_op(x.where, [&] {
    const Array v = as_array("scatter_add", x);
    const Array list = checked_indices("scatter_add", indices);
    detail::common_dtype("scatter_add", {x, updates});
    if (v.rank() == 0) {
      detail::fail("scatter_add", "the target is a scalar", detail::describe(v),
                   "an array of rank 1 or more", "add the sum of the updates instead");
    }
    Shape wanted = list.shape();
    wanted.insert(wanted.end(), v.shape().begin() + 1, v.shape().end());
    const Array rows = as_array("scatter_add", updates, v.dtype());
    if (!rows.shape().empty() && rows.shape() != wanted) {
      detail::fail("scatter_add", "the updates do not fit", detail::describe(rows),
                   fmt::format("{}: the shape of the indices, then that of a row",
                               to_string(Type{v.dtype(), wanted})),
                   "reshape the updates");
    }
    const Array added =
        emit({list, detail::broadcast(rows, wanted)}, [&](Builder& b, const Ids& ids) {
          return ops::scatter_add(b, ids[0], ids[1], 0, v.shape()[0]);
        });
    return v + added;
  });
}

Array one_hot(Operand indices, std::int64_t depth, DType dtype) {
  return public_op(indices.where, [&] {
    const Array list = checked_indices("one_hot", indices);
    Shape shape = list.shape();
    shape.push_back(depth);
    const Array positions = iota(shape, -1, DType::i32);
    return astype(equal(expand_dims(list, -1), positions), dtype);
  });
}

Array sort(Operand x, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("sort", x);
    const std::int64_t dim = detail::checked_axis("sort", axis, v.rank(), detail::describe(v));
    return emit({v}, [&](Builder& b, const Ids& ids) { return ops::sort(b, {ids[0]}, dim)[0]; });
  });
}

std::pair<Array, Array> sort_by(Operand keys, Operand values, std::int64_t axis) {
  const std::vector<Array> sorted = detail::public_ops(keys.where, [&] {
    const Array k = as_array("sort_by", keys);
    const Array v = as_array("sort_by", values);
    if (k.shape() != v.shape()) {
      detail::fail("sort_by", "keys and values differ in shape",
                   detail::describe(k) + " and " + detail::describe(v), "equal shapes",
                   "broadcast one of them first");
    }
    const std::int64_t dim = detail::checked_axis("sort_by", axis, k.rank(), detail::describe(k));
    return detail::emit_all({k, v}, [&](Builder& b, const Ids& ids) {
      return ops::sort(b, {ids[0], ids[1]}, dim);
    });
  });
  return {sorted[0], sorted[1]};
}

}  // namespace tessera
