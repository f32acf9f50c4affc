// unique: the distinct elements, by sorting.
#include <fmt/format.h>

#include <tessera/statistics.h>

#include "api/inspect/index_checks.h"
#include "api/operands.h"

namespace tessera {

namespace {

/// Where each element of a sorted array is not equal to the one before it.
Array begins_run(const Array& sorted) {
  const std::int64_t size = sorted.size();
  const Array here = slice(sorted, 0, 1);
  const Array before = slice(sorted, 0, 0, size - 1);
  Array differs = not_equal(here, before);
  if (is_float(sorted.dtype())) differs = differs && !(is_nan(here) && is_nan(before));
  return concatenate({full({1}, true, DType::boolean), differs});
}

}  // namespace

Unique unique(Operand x, std::int64_t size, std::optional<Operand> fill) {
  const std::vector<Array> parts = detail::public_ops(x.where, [&]() -> std::vector<Array> {
    const Array whole = detail::as_array("unique", x);
    const std::int64_t count = whole.size();
    if (size < 0 || (count == 0 && size > 0 && !fill)) {
      detail::fail(
          "unique", size < 0 ? "the size is negative" : "there is no fill value",
          fmt::format("{} of {}", size, detail::describe(whole)), "a size of 0 or more",
          "pass the maximum number of distinct elements, and a fill value if the array is empty");
    }
    const Array flat = reshape(whole, {count});
    if (count == 0) {
      const Array zeros_of_size = full({size}, 0, DType::i32);
      const Array filled =
          size == 0 ? flat : broadcast_to(detail::as_array("unique", *fill, whole.dtype()), {size});
      return {filled, zeros_of_size, reshape(astype(flat, DType::i32), whole.shape()),
              zeros_of_size};
    }
    const auto [sorted, order] = sort_by(flat, arange(count), 0);
    const Array is_first = begins_run(sorted);
    const Array place = cumsum(astype(is_first, DType::i32), 0) - 1;
    // Other elements of a run go to a place that does not exist.
    const detail::UncheckedIndices unchecked;
    const Array target = where(is_first, place, static_cast<std::int32_t>(size));
    const Array first = slice(sorted, 0, 0, 1);
    const Array rest = fill ? detail::as_array("unique", *fill, whole.dtype()) : first;
    const Array values = scatter(broadcast_to(rest, {size}), target, sorted);
    const Array indices = scatter(broadcast_to(slice(order, 0, 0, 1), {size}), target, order);
    const Array inverse = scatter(full({count}, 0, DType::i32), order, place);
    const Array counts =
        scatter_add(full({size}, 0, DType::i32), place, full({count}, 1, DType::i32));
    return {values, indices, reshape(inverse, whole.shape()), counts};
  });
  return {.values = parts[0], .indices = parts[1], .inverse = parts[2], .counts = parts[3]};
}

}  // namespace tessera
