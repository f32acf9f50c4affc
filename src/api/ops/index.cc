// Indexing and sorting.
#include <fmt/format.h>

#include <tessera/ops.h>

#include "api/inspect/index_checks.h"
#include "api/operands.h"
#include "ops/emit.h"

namespace tessera {

using detail::as_array;
using detail::emit;
using detail::public_op;

namespace {

Array checked_indices(const char* name, const Operand& indices) {
  const Array list = as_array(name, indices, DType::i32);
  if (list.dtype() == DType::i32) return list;
  detail::fail(name, "the indices are not i32", detail::describe(list), "i32",
               "convert them: astype(indices, DType::i32)");
}

constexpr const char* kGivesNan = "reads NaN, the lowest integer or false";
constexpr const char* kIsDropped = "changes nothing";

void check_indices(const char* op, const Array& indices, const Array& x, std::int64_t dim,
                   const char* otherwise) {
  detail::check_indices(indices, {.op = op,
                                  .size = x.dim(dim),
                                  .of = fmt::format("axis {} of {}", dim, detail::describe(x)),
                                  .otherwise = otherwise});
}

}  // namespace

Array take(Operand x, Operand indices, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("take", x);
    const Array list = checked_indices("take", indices);
    const std::int64_t dim = detail::checked_axis("take", axis, v.rank(), detail::describe(v));
    check_indices("take", list, v, dim, kGivesNan);
    return emit("gather", {v, list}, {{"dim", dim}, {"num_batch", std::int64_t{0}}});
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
      detail::fail("scatter_add", "the updates have the wrong shape", detail::describe(rows),
                   fmt::format("{}: the shape of the indices, followed by the shape of a row",
                               to_string(Type{v.dtype(), wanted})),
                   "reshape the updates");
    }
    constexpr std::int64_t kZero = 0;
    check_indices("scatter_add", list, v, kZero, kIsDropped);
    // bf16 is summed in f32. The target is added in f32 too, before the result is rounded.
    const DType sums = ops::sum_dtype(v.dtype());
    const Array added =
        emit("scatter_add", {list, detail::broadcast(detail::with_dtype(rows, sums), wanted)},
             {{"dim", kZero}, {"num_batch", kZero}, {"size", v.shape()[0]}});
    return detail::with_dtype(detail::with_dtype(v, sums) + added, v.dtype());
  });
}

Array scatter(Operand x, Operand indices, Operand updates, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("scatter", x);
    const Array list = checked_indices("scatter", indices);
    detail::common_dtype("scatter", {x, updates});
    const std::int64_t dim = detail::checked_axis("scatter", axis, v.rank(), detail::describe(v));
    Shape wanted = v.shape();
    wanted.erase(wanted.begin() + dim);
    wanted.insert(wanted.begin() + dim, list.shape().begin(), list.shape().end());
    const Array given = as_array("scatter", updates, v.dtype());
    if (!given.shape().empty() && given.shape() != wanted) {
      detail::fail(
          "scatter", "the updates have the wrong shape", detail::describe(given),
          fmt::format(
              "{}: the shape of the array with axis {} replaced by the shape of the indices",
              to_string(Type{v.dtype(), wanted}), dim),
          "reshape the updates, or pass one number");
    }
    const Array rows = detail::broadcast(given, wanted);
    check_indices("scatter", list, v, dim, kIsDropped);
    return emit("scatter", {v, list, rows}, {{"dim", dim}});
  });
}

Array take_along_axis(Operand x, Operand indices, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("take_along_axis", x);
    const Array list = checked_indices("take_along_axis", indices);
    const std::int64_t dim =
        detail::checked_axis("take_along_axis", axis, v.rank(), detail::describe(v));
    Shape fitting = v.shape();
    if (list.rank() == v.rank()) fitting[static_cast<std::size_t>(dim)] = list.dim(dim);
    if (list.shape() != fitting) {
      detail::fail("take_along_axis", "the indices do not match the array",
                   detail::describe(v) + " and " + detail::describe(list),
                   fmt::format("indices with the shape of the array, except along axis {}", dim),
                   "broadcast the indices, or take whole slices with take");
    }
    check_indices("take_along_axis", list, v, dim, kGivesNan);
    return emit("gather_along", {v, list}, {{"dim", dim}});
  });
}

namespace {

/// `first`, followed by the starts as i32 scalars.
std::vector<Array> with_starts(const char* name, std::vector<Array> first,
                               const std::vector<Operand>& starts) {
  const auto rank = static_cast<std::size_t>(first[0].rank());
  if (starts.size() != rank) {
    detail::fail(name, "the number of starts does not match the array",
                 fmt::format("{} starts for {}", starts.size(), detail::describe(first[0])),
                 fmt::format("{} starts", rank), "give one start per dimension");
  }
  for (const Operand& start : starts) first.push_back(checked_indices(name, start));
  return first;
}

}  // namespace

Array dynamic_slice(Operand x, const std::vector<Operand>& starts, Shape sizes) {
  return public_op(x.where, [&] {
    const auto operands = with_starts("dynamic_slice", {as_array("dynamic_slice", x)}, starts);
    return emit("dynamic_slice", operands, {{"sizes", sizes}});
  });
}

Array dynamic_update_slice(Operand x, Operand update, const std::vector<Operand>& starts) {
  constexpr const char* kName = "dynamic_update_slice";
  return public_op(x.where, [&] {
    const DType dtype = detail::common_dtype(kName, {x, update});
    const auto operands =
        with_starts(kName, {as_array(kName, x, dtype), as_array(kName, update, dtype)}, starts);
    return emit(kName, operands);
  });
}

std::pair<Array, Array> top_k(Operand x, std::int64_t k, std::int64_t axis) {
  const std::vector<Array> best = detail::public_ops(x.where, [&] {
    const Array v = as_array("top_k", x);
    const std::int64_t dim = detail::checked_axis("top_k", axis, v.rank(), detail::describe(v));
    return detail::emit_all("top_k", {v}, {{"dim", dim}, {"k", k}});
  });
  return {best[0], best[1]};
}

Array one_hot(Operand indices, std::int64_t depth, DType dtype) {
  return public_op(indices.where, [&] {
    const Array list = checked_indices("one_hot", indices);
    Shape shape = list.shape();
    shape.push_back(depth);
    detail::check_sizes("one_hot", shape);
    detail::check_indices(list, {.op = "one_hot",
                                 .size = depth,
                                 .of = fmt::format("depth {}", depth),
                                 .otherwise = "makes zeros"});
    const Array positions = iota(shape, -1, DType::i32);
    return astype(equal(expand_dims(list, -1), positions), dtype);
  });
}

Array sort(Operand x, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("sort", x);
    const std::int64_t dim = detail::checked_axis("sort", axis, v.rank(), detail::describe(v));
    return emit("sort", {v}, {{"dim", dim}});
  });
}

std::pair<Array, Array> sort_by(Operand keys, Operand values, std::int64_t axis) {
  const std::vector<Array> sorted = detail::public_ops(keys.where, [&] {
    const Array k = as_array("sort_by", keys);
    const Array v = as_array("sort_by", values);
    if (k.shape() != v.shape()) {
      detail::fail("sort_by", "keys and values differ in shape",
                   detail::describe(k) + " and " + detail::describe(v), "the same shape",
                   "broadcast one of them first");
    }
    const std::int64_t dim = detail::checked_axis("sort_by", axis, k.rank(), detail::describe(k));
    return detail::emit_all("sort", {k, v}, {{"dim", dim}});
  });
  return {sorted[0], sorted[1]};
}

Array argsort(Operand x, std::int64_t axis) {
  return public_op(x.where, [&] {
    const Array v = as_array("argsort", x);
    const std::int64_t dim = detail::checked_axis("argsort", axis, v.rank(), detail::describe(v));
    return sort_by(v, iota(v.shape(), dim), dim).second;
  });
}

}  // namespace tessera
