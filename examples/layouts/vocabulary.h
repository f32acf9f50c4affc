// An embedding table and a cross-entropy whose vocabulary is split over an axis. Devices look up
// the rows that they hold. They exchange rows and per-token maxima and sums, not tables and logits.
// Nothing in this code says so; it follows from the shardings of the table and the head.
#pragma once

#include <tessera/tessera.h>

namespace layouts {

using namespace tessera;

/// Mean cross-entropy in nats of targets i32 [B,T] for ids i32 [B,T]. The table [V,F] is split by
/// rows, the head [F,V] by columns.
inline Array vocabulary_loss(const Array& table, const Array& head, const Array& ids,
                             const Array& targets) {
  const Array log_p = log_softmax(dot(take(table, ids), head));
  return -mean(take_along_axis(log_p, expand_dims(targets, 2)));
}

}  // namespace layouts
