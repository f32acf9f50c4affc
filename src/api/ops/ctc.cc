// The CTC loss. Labels are extended with blanks to b l1 b l2 .. b; alpha[s] is the log of the
// probability of all alignments of the frames so far that end in place s.
#include <fmt/format.h>

#include <tessera/control.h>
#include <tessera/functions.h>

#include "api/operands.h"

namespace tessera {

using detail::as_array;

namespace {

/// The log of a probability that counts as 0. Infinities would make NaNs in derivatives.
constexpr double kNever = -1e30;

void check(const Array& logits, const Array& lengths, const Array& labels,
           const Array& label_lengths, std::int64_t blank) {
  const auto wants = [&](bool holds, const Array& x, const char* what, const std::string& type) {
    if (holds) return;
    detail::fail("ctc_loss", what, detail::describe(x), type,
                 "pass logits [B,T,C], lengths i32 [B], labels i32 [B,N], lengths i32 [B]");
  };
  wants(logits.rank() == 3 && is_float(logits.dtype()), logits, "the logits have the wrong type",
        "floats [B,T,C]");
  const std::int64_t batch = logits.dim(0);
  wants(labels.rank() == 2 && labels.dtype() == DType::i32 && labels.dim(0) == batch, labels,
        "the labels have the wrong type", fmt::format("i32[{},N]", batch));
  const Type one_each{DType::i32, {batch}};
  wants(lengths.type() == one_each, lengths, "the lengths of the logits have the wrong type",
        to_string(one_each));
  wants(label_lengths.type() == one_each, label_lengths,
        "the lengths of the labels have the wrong type", to_string(one_each));
  if (blank >= 0 && blank < logits.dim(2)) return;
  detail::fail("ctc_loss", "the blank is not one of the classes", std::to_string(blank),
               fmt::format("a class from 0 to {}", logits.dim(2) - 1),
               "pass the number of the class that stands between labels");
}

/// log(exp(a) + exp(b) + ..).
Array log_add(const std::vector<Array>& terms) { return logsumexp(stack(terms, -1), -1); }

/// The extended labels [B, 2N+1], and where one may be reached past the blank before it.
struct Extended {
  Array classes;
  Array may_skip;
};

Extended extended(const Array& labels, const Array& label_lengths, std::int64_t blank) {
  const std::int64_t batch = labels.dim(0);
  const std::int64_t count = labels.dim(1);
  const auto blanks = static_cast<std::int32_t>(blank);
  // What stands behind the labels may be any number.
  const Array is_label = less(iota(labels.shape(), 1), expand_dims(label_lengths, 1));
  const Array known = where(is_label, labels, blanks);
  const Array gaps = full({batch, count}, blanks, DType::i32);
  const Array pairs = reshape(stack({gaps, known}, 2), {batch, 2 * count});
  const Array classes = concatenate({pairs, full({batch, 1}, blanks, DType::i32)}, 1);
  const std::int64_t size = 2 * count + 1;
  const Array before =
      slice(concatenate({full({batch, 2}, blanks, DType::i32), classes}, 1), 1, 0, size);
  return {classes, not_equal(classes, blanks) && not_equal(classes, before)};
}

Array alphas(const Array& log_probs, const Array& lengths, const Extended& labels,
             const Array& never) {
  const std::int64_t size = labels.classes.dim(1);
  const Array frames = transpose(log_probs, {1, 0, 2});  // [T,B,S]
  const Array places = iota(labels.classes.shape(), 1);
  const Array first = where(less(places, 2), frames[0], never);
  const auto step = [&](const Array& alpha, const std::pair<Array, Array>& slice_of) {
    const auto& [frame, number] = slice_of;
    const Array padded =
        concatenate({slice(never, 1, 0, std::min<std::int64_t>(size, 2)), alpha}, 1);
    const std::int64_t shift = padded.dim(1) - size;
    const Array one = slice(padded, 1, shift - std::min<std::int64_t>(shift, 1), size + shift - 1);
    const Array two = where(labels.may_skip, slice(padded, 1, 0, size), never);
    const Array next = log_add({alpha, one, two}) + frame;
    const Array is_frame = less(number, expand_dims(lengths, 1));
    return std::pair(where(is_frame, maximum(next, kNever), alpha), std::tuple<>());
  };
  const std::int64_t num_frames = frames.dim(0);
  const std::pair<Array, Array> rest(slice(frames, 0, 1), arange(num_frames - 1) + 1);
  return scan(step, first, rest).first;
}

/// The element of each row at these places; `never` where they are negative.
Array at_places(const Array& rows, const Array& places) {
  const Array picked = squeeze(take_along_axis(rows, expand_dims(maximum(places, 0), 1), 1), 1);
  return where(less(places, 0), kNever, picked);
}

}  // namespace

Array ctc_loss(Operand logits, Operand logit_lengths, Operand labels, Operand label_lengths,
               std::int64_t blank) {
  return detail::public_op(logits.where, [&] {
    Array x = as_array("ctc_loss", logits);
    const Array lengths = as_array("ctc_loss", logit_lengths);
    const Array targets = as_array("ctc_loss", labels);
    const Array counts = as_array("ctc_loss", label_lengths);
    check(x, lengths, targets, counts, blank);
    if (x.dtype() != DType::f64) x = detail::with_dtype(x, DType::f32);
    const Extended all = extended(targets, counts, blank);
    const Shape shape = {x.dim(0), x.dim(1), all.classes.dim(1)};
    const Array classes = broadcast_to(expand_dims(all.classes, 1), shape);
    const Array log_probs = take_along_axis(log_softmax(x, -1), classes, 2);
    const Array never = full(all.classes.shape(), kNever, x.dtype());
    const Array unlabelled = where(equal(counts, 0), full(counts.shape(), 0.0, x.dtype()), kNever);
    Array total = unlabelled;
    if (x.dim(1) > 0) {
      const Array last = alphas(log_probs, lengths, all, never);
      const Array ends = log_add({at_places(last, counts * 2), at_places(last, counts * 2 - 1)});
      total = where(greater(lengths, 0), ends, unlabelled);
    }
    const Array is_possible = greater(total, 0.5 * kNever);
    return where(is_possible, neg(total), std::numeric_limits<double>::infinity());
  });
}

}  // namespace tessera
