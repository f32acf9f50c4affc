// Cross-entropies with derivatives of their own. Per row,
//   loss = lse - logit of the label,  d logits = (softmax - one_hot(label)) d loss,
// so that logits and lse are all that the derivative reads, and it may write where the logits lie.
// Classes are read in blocks, in both functions the same ones: regions compute whole rows of a
// block in one pass, and a block can be made again.
#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include <tessera/ops.h>
#include <tessera/transform.h>

#include "api/operands.h"

namespace tessera {

using detail::as_array;

namespace {

/// The number of classes in a block, at most.
constexpr std::int64_t kBlock = 4096;

/// A run of classes.
struct Classes {
  std::int64_t first;
  std::int64_t last;
};

/// The labels [..] of rows, and how their classes are cut into blocks.
class Labels {
 public:
  Labels(Array labels, std::int64_t num_classes)
      : labels_(std::move(labels)),
        num_classes_(num_classes),
        num_blocks_(std::max<std::int64_t>(1, (num_classes + kBlock - 1) / kBlock)) {}

  std::vector<Classes> blocks() const {
    std::vector<Classes> blocks;
    for (std::int64_t i = 0; i < num_blocks_; ++i) {
      blocks.push_back({i * num_classes_ / num_blocks_, (i + 1) * num_classes_ / num_blocks_});
    }
    return blocks;
  }
  Classes all() const { return {.first = 0, .last = num_classes_}; }

  struct Losses {
    Array loss;
    Array lse;  // log(sum(exp(logits)))
  };
  /// `logits_of` gives the logits of some classes.
  Losses losses(const std::function<Array(const Classes&)>& logits_of) const {
    std::vector<Array> maxima, sums, found, holders;  // [..,1] of each block
    for (const Classes& classes : blocks()) {
      const Array s = astype(logits_of(classes), DType::f32);
      const Array top = max(s, -1, keepdims);
      const Array shifted = s - finite(top);
      maxima.push_back(top);
      sums.push_back(sum(exp(shifted), -1, keepdims));
      found.push_back(sum(where(is_label(classes, s.shape()), shifted, 0), -1, keepdims));
      holders.push_back(expand_dims(is_within(classes), -1));
    }
    const Array highest = concatenate(maxima, -1);
    const Array base = finite(max(highest, -1, keepdims));
    const Array log_sum = log(sum(concatenate(sums, -1) * exp(highest - base), -1, keepdims));
    const Array losses = log_sum + (base - finite(highest)) - concatenate(found, -1);
    return {.loss = sum(where(concatenate(holders, -1), losses, 0), -1),
            .lse = squeeze(log_sum + base, -1)};
  }

  /// The cotangent of the logits of some classes.
  Array logits_cotangent(const Array& logits, const Classes& classes, const Array& lse,
                         const Array& cotangent) const {
    const Array s = astype(logits, DType::f32);
    const Array one_hot = astype(is_label(classes, s.shape()), DType::f32);
    const Array scale = where(is_within(all()), cotangent, 0);
    const Array d = (exp(s - expand_dims(lse, -1)) - one_hot) * expand_dims(scale, -1);
    return astype(d, logits.dtype());
  }

 private:
  /// bool [.., classes]
  Array is_label(const Classes& classes, const Shape& shape) const {
    return equal(expand_dims(labels_ - classes.first, -1), iota(shape, -1, DType::i32));
  }
  /// bool [..]
  Array is_within(const Classes& classes) const {
    return logical_and(greater_equal(labels_, classes.first), less(labels_, classes.last));
  }
  /// Infinite maxima would give inf - inf.
  static Array finite(const Array& x) { return where(is_finite(x), x, 0); }

  Array labels_;
  std::int64_t num_classes_;
  std::int64_t num_blocks_;
};

Array checked_labels(const char* op, const Operand& labels, const Array& rows) {
  const Array list = as_array(op, labels);
  const Shape wanted(rows.shape().begin(), rows.shape().end() - (rows.rank() == 0 ? 0 : 1));
  if (rows.rank() == 0 || list.dtype() != DType::i32 || list.shape() != wanted) {
    detail::fail(op, "the labels do not match the rows",
                 detail::describe(list) + " for " + detail::describe(rows),
                 "i32 labels with the dimensions in front of the last",
                 "give the index of the right class of each row");
  }
  return list;
}

void check_kernel(const char* op, const Array& kernel, const Array& rows) {
  if (kernel.rank() == 2 && kernel.dim(0) == rows.dim(-1)) return;
  detail::fail(op, "the kernel does not match the rows",
               detail::describe(kernel) + " for " + detail::describe(rows),
               "rows [..,F] and a kernel [F,C]", "transpose a table [C,F] first");
}

/// Copies that no pass takes for the originals: what is made of them is made again, and after all
/// that stands in front.
std::vector<Array> again(const std::vector<Array>& arrays) {
  return detail::emit_all("optimization_barrier", arrays);
}

/// Logits x kernel and their derivatives, a block of classes at a time.
struct LinearLogits {
  Array x;       // [..,F]
  Array kernel;  // [F,C]

  Array kernel_of(const Classes& classes) const {
    return kernel.slice(1, classes.first, classes.last);
  }
  Array operator()(const Classes& classes) const { return dot(x, kernel_of(classes)); }
  /// Of x and kernel.
  std::tuple<Array, Array> cotangents(const Labels& labels, const Array& lse,
                                      const Array& cotangent) const {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i + 1 < x.rank(); ++i) rows.push_back(i);
    std::vector<Array> of_x;
    std::vector<Array> of_kernel;
    for (const Classes& classes : labels.blocks()) {
      const Array d = labels.logits_cotangent((*this)(classes), classes, lse, cotangent);
      const Array term = dot_general(d, kernel_of(classes), {{x.rank() - 1}, {1}});
      of_x.push_back(of_x.empty() ? term : of_x.back() + term);
      of_kernel.push_back(dot_general(x, d, {rows, rows}));
    }
    return {of_x.back(), concatenate(of_kernel, 1)};
  }
};

}  // namespace

Array cross_entropy(Operand logits, Operand labels) {
  return detail::public_op(logits.where, [&] {
    const char* const name = "cross_entropy";
    const Array rows = as_array(name, logits);
    const Labels of_rows(checked_labels(name, labels, rows), rows.dim(-1));
    const auto forward = [=](const Array& x) {
      const auto [loss, lse] = of_rows.losses(
          [&](const Classes& classes) { return x.slice(-1, classes.first, classes.last); });
      return std::pair(loss, std::tuple(x, lse));
    };
    const auto backward = [=](const std::tuple<Array, Array>& saved, const Array& cotangent) {
      const auto& [x, lse] = saved;
      return of_rows.logits_cotangent(x, of_rows.all(), lse, cotangent);
    };
    return custom_vjp([=](const Array& x) { return forward(x).first; }, forward, backward)(rows);
  });
}

Array linear_cross_entropy(Operand x, Operand kernel, Operand labels) {
  return detail::public_op(x.where, [&] {
    const char* const name = "linear_cross_entropy";
    const DType dtype = detail::common_dtype(name, {x, kernel});
    const Array rows = as_array(name, x, dtype);
    const Array matrix = as_array(name, kernel, dtype);
    const Array list = checked_labels(name, labels, rows);
    check_kernel(name, matrix, rows);
    const Labels of_rows(list, matrix.dim(1));
    const auto forward = [=](const Array& a, const Array& b) {
      const auto [loss, lse] = of_rows.losses(LinearLogits{a, b});
      return std::pair(loss, std::tuple(a, b, lse));
    };
    const auto backward = [=](const std::tuple<Array, Array, Array>& saved,
                              const Array& cotangent) {
      const auto& [a, b, lse] = saved;
      const std::vector<Array> late = again({a, b, lse, cotangent});
      return LinearLogits{late[0], late[1]}.cotangents(of_rows, late[2], late[3]);
    };
    const auto primal = [=](const Array& a, const Array& b) { return forward(a, b).first; };
    return custom_vjp(primal, forward, backward)(rows, matrix);
  });
}

}  // namespace tessera
