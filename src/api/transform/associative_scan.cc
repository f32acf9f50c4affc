// Partial results of an associative function, as jax.lax.associative_scan joins them: neighbours in
// pairs, the partial results of these, and between them those of the other positions.
#include <fmt/format.h>

#include <tessera/control.h>
#include <tessera/error.h>
#include <tessera/ops.h>

#include "api/operands.h"

namespace tessera::detail {

namespace {

using Leaves = std::vector<Array>;

class Scanning {
 public:
  Scanning(const JoinLeaves& join, std::vector<std::int64_t> axes, Span where)
      : join_(join), axes_(std::move(axes)), where_(std::move(where)) {}

  Leaves scan(const Leaves& x) const {
    const std::int64_t count = size(x);
    if (count < 2) return x;
    const Leaves odd = scan(joined(every_second(x, 0, count - 1), every_second(x, 1, count)));
    const std::int64_t num_pairs = size(odd);
    const Leaves before = part(odd, 0, count % 2 == 0 ? num_pairs - 1 : num_pairs);
    const Leaves first = part(x, 0, 1);
    const Leaves even = count == 2 ? first : with(first, joined(before, every_second(x, 2, count)));
    return in_turn(even, odd);
  }

 private:
  std::int64_t size(const Leaves& x) const { return x[0].dim(axes_[0]); }

  template <typename Change>
  Leaves each(const Leaves& x, const Change& change) const {
    Leaves result;
    for (std::size_t i = 0; i < x.size(); ++i) result.push_back(change(x[i], axes_[i], i));
    return result;
  }
  Leaves every_second(const Leaves& x, std::int64_t start, std::int64_t limit) const {
    return each(x, [&](const Array& leaf, std::int64_t axis, std::size_t) {
      return slice(leaf, axis, start, limit, 2);
    });
  }
  Leaves part(const Leaves& x, std::int64_t start, std::int64_t limit) const {
    return each(x, [&](const Array& leaf, std::int64_t axis, std::size_t) {
      return slice(leaf, axis, start, limit);
    });
  }
  Leaves with(const Leaves& x, const Leaves& y) const {
    return each(x, [&](const Array& leaf, std::int64_t axis, std::size_t i) {
      return concatenate({leaf, y[i]}, axis);
    });
  }
  /// even[0], odd[0], even[1], ..; there may be one more even element.
  Leaves in_turn(const Leaves& even, const Leaves& odd) const {
    return each(even, [&](const Array& leaf, std::int64_t axis, std::size_t i) {
      const std::int64_t count = odd[i].dim(axis);
      const Array pairs = stack({slice(leaf, axis, 0, count), odd[i]}, axis + 1);
      Shape shape = odd[i].shape();
      shape[static_cast<std::size_t>(axis)] = 2 * count;
      const Array all = reshape(pairs, shape);
      return leaf.dim(axis) == count ? all : concatenate({all, slice(leaf, axis, count)}, axis);
    });
  }
  Leaves joined(const Leaves& a, const Leaves& b) const {
    Leaves result = join_(a, b);
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (result[i].type() == a[i].type()) continue;
      throw UserError(
          {.what = "associative_scan: the function does not return the type of its arguments",
           .where = where_,
           .found = fmt::format("leaf {}: {}", i, to_string(result[i].type())),
           .wanted = to_string(a[i].type()),
           .cure = "join the elements of both trees slice by slice along the axis, and "
                   "return their type"});
    }
    return result;
  }

  const JoinLeaves& join_;
  std::vector<std::int64_t> axes_;  // of each leaf, from 0 on
  Span where_;
};

}  // namespace

std::vector<Array> associative_scan(const JoinLeaves& join, const std::vector<Array>& leaves,
                                    std::int64_t axis, bool reverse,
                                    const std::source_location& where) {
  const CallScope scope(where);
  constexpr const char* kName = "associative_scan";
  std::vector<std::int64_t> axes;
  for (const Array& leaf : leaves) {
    axes.push_back(checked_axis(kName, axis, leaf.rank(where), describe(leaf)));
    if (leaf.dim(axes.back()) == leaves[0].dim(axes[0])) continue;
    fail(kName, "the leaves have different sizes along the axis",
         describe(leaves[0]) + " and " + describe(leaf), "the same size along the axis",
         "broadcast or slice one of them first");
  }
  if (leaves.empty()) return leaves;
  const auto turned = [&](std::vector<Array> x) {
    if (!reverse) return x;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = tessera::reverse(x[i], axes[i]);
    return x;
  };
  return turned(Scanning(join, axes, call_span()).scan(turned(leaves)));
}

}  // namespace tessera::detail
