// An embedding table and a cross-entropy whose vocabulary is split over the axis `model`: devices
// look up the rows that they hold, and exchange maxima and sums instead of rows and logits.
#pragma once

#include <tessera/nn.h>
#include <tessera/tessera.h>
#include <tessera/transform.h>

namespace layouts {

using namespace tessera;

/// Rows of a table [V,F] that is split by rows, at ids i32 [B,T] -> [B,T,F].
inline Array vocabulary_lookup(const Array& table, const Array& ids,
                               const std::string& axis = "model") {
  const auto on_device = [&](const Array& rows, const Array& all) {
    const Array place = all - axis_index(axis) * rows.dim(0);
    const Array is_own = logical_and(place >= 0, place < rows.dim(0));
    const Array found = take(rows, where(is_own, place, 0));
    return psum(where(expand_dims(is_own, 2), found, zeros_like(found)), axis);
  };
  return shard_map(on_device, {.in_specs = {P{SpecEntry(axis)}, P{}}, .out_specs = P{}})(table,
                                                                                         ids);
}

/// Mean cross-entropy in nats of targets i32 [B,T] for x [B,T,F] and a head [F,V] that is split by
/// columns: each logit stays where it is computed, without a function per device.
inline Array vocabulary_cross_entropy(const Array& x, const Array& head, const Array& targets) {
  const Array log_p = log_softmax(dot(x, head));
  return -mean(sum(one_hot(targets, head.dim(1)) * log_p, -1));
}

}  // namespace layouts
