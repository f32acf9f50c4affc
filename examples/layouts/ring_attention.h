// Attention over a sequence that is split over devices. Keys and values go around the ring of
// devices; each device accumulates the results of its queries with a running maximum (online
// softmax).
#pragma once

#include <cmath>
#include <limits>

#include <tessera/control.h>
#include <tessera/tessera.h>
#include <tessera/transform.h>

namespace layouts {

using namespace tessera;

/// The state of a device's queries so far: unscaled results [B,H,T,D], maxima and sums [B,H,T,1].
struct Seen {
  Array result, maximum, sum;
  TESSERA_TREE(result, maximum, sum)
};

/// Adds one block of keys and values: q [B,T,H,D] is already scaled, kv [2,B,T,H,D] is from
/// device `source`.
inline Seen attend(const Seen& seen, const Array& q, const Array& kv, const Array& own,
                   const Array& source, bool is_causal) {
  Array scores = einsum("bqhd,bkhd->bhqk", q, kv[0]);
  if (is_causal) {
    const std::int64_t length = q.dim(1);
    const Array rows = own * length + iota({length, length}, 0);
    const Array columns = source * length + iota({length, length}, 1);
    scores = where(rows >= columns, scores, std::numeric_limits<float>::lowest());
  }
  const Array highest = stop_gradient(maximum(seen.maximum, max(scores, -1, keepdims)));
  const Array weights = exp(scores - highest);
  const Array shrink = exp(seen.maximum - highest);
  return {.result = seen.result * shrink + einsum("bhqk,bkhd->bhqd", weights, kv[1]),
          .maximum = highest,
          .sum = seen.sum * shrink + sum(weights, -1, keepdims)};
}

/// softmax(q k^T / sqrt(D)) v, within a function that is mapped over `axis`. q, k and v [B,T,H,D]
/// are this device's part of the sequence. Keys and values move once per iteration.
inline Array ring_attention(const Array& q, const Array& k, const Array& v, const std::string& axis,
                            bool is_causal) {
  const std::int64_t count = axis_size(axis);
  const Array own = axis_index(axis);
  const Array scaled = q / std::sqrt(static_cast<double>(q.dim(3)));
  std::vector<std::pair<std::int64_t, std::int64_t>> next;
  for (std::int64_t i = 0; i < count; ++i) next.emplace_back(i, (i + 1) % count);

  const Shape per_query{q.dim(0), q.dim(2), q.dim(1), 1};
  const Seen nothing{.result = zeros({q.dim(0), q.dim(2), q.dim(1), q.dim(3)}),
                     .maximum = full(per_query, std::numeric_limits<float>::lowest()),
                     .sum = zeros(per_query)};
  const auto round = [&](const std::pair<Seen, Array>& carry, const Array& number) {
    const Array kv = ppermute(carry.second, axis, next);
    const Array source = rem(own - number + count, Operand(count));
    return std::pair(std::pair(attend(carry.first, scaled, kv, own, source, is_causal), kv),
                     std::tuple<>());
  };
  const Array kv = stack({k, v});
  const Seen first = attend(nothing, scaled, kv, own, own, is_causal);
  const Seen all = scan(round, std::pair(first, kv), arange(count - 1) + 1).first.first;
  return transpose(all.result / all.sum, {0, 2, 1, 3});
}

}  // namespace layouts
