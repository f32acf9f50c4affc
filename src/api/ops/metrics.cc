// Metrics as sums over batches.
#include <tessera/functions.h>

#include "api/operands.h"

namespace tessera::metrics {

Array in_top_k(Operand logits, Operand labels, std::int64_t k) {
  return detail::public_op(logits.where, [&] {
    const Array all = detail::as_array("in_top_k", logits);
    const Array of = expand_dims(detail::as_array("in_top_k", labels), -1);
    const std::int64_t classes = all.dim(-1);
    const Array is_class = of >= 0 && of < classes;
    const Array logit = take_along_axis(all, where(is_class, of, 0), -1);
    // A NaN counts as greater, so that a model that has diverged is never right.
    const Array num_greater = sum(astype(!(all <= logit), DType::i32), -1, keepdims);
    return squeeze(is_class && num_greater < k, -1);
  });
}

void Mean::update(Operand values, const std::optional<Array>& is_counted) {
  const CallScope scope(values.where);
  const Array all = detail::public_op(
      values.where, [&] { return astype(detail::as_array("Mean", values), DType::f32); });
  if (is_counted && (is_counted->shape() != all.shape() || is_counted->dtype() != DType::boolean)) {
    detail::fail("metrics::Mean", "is_counted does not match the values",
                 detail::describe(*is_counted) + " for " + detail::describe(all),
                 to_string(Type{DType::boolean, all.shape()}),
                 "broadcast it: broadcast_to(is_counted, values.shape())");
  }
  const Array given = is_counted ? where(*is_counted, all, 0) : all;
  const Array number =
      is_counted ? sum(astype(*is_counted, DType::i64)) : full({}, all.size(), DType::i64);
  // Kahan's sum: f32 alone would lose the values of a long run.
  const Array more = sum(given) - rest;
  const Array next = total + more;
  rest = where(is_finite(next), (next - total) - more, 0);  // an infinite sum stays infinite
  total = next;
  count = count + number;
}

Array Mean::value() const { return (total - rest) / astype(count, DType::f32); }

void Confusion::update(Operand predictions, Operand labels) {
  counts = detail::public_op(predictions.where, [&] {
    const Array predicted = detail::as_array("Confusion", predictions);
    const Array actual = detail::as_array("Confusion", labels);
    if (predicted.shape() != actual.shape()) {
      detail::fail("metrics::Confusion", "the labels do not match the predictions",
                   to_string(actual.shape()) + " for " + to_string(predicted.shape()),
                   "two arrays of the same shape", "pass one label for each prediction");
    }
    const std::int64_t classes = counts.dim(0);
    const auto is_class = [&](const Array& x) { return x >= 0 && x < classes; };
    const Array is_counted = is_class(predicted) && is_class(actual);
    const Array cell = where(is_counted, actual * classes + predicted, 0);
    const Array added = scatter_add(zeros({classes * classes}, DType::i64), reshape(cell, {-1}),
                                    reshape(astype(is_counted, DType::i64), {-1}));
    return counts + reshape(added, {classes, classes});
  });
}

}  // namespace tessera::metrics
