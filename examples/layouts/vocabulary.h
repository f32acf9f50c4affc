// An embedding table and a cross-entropy whose vocabulary is split over an axis: devices look up
// the rows that they hold, and exchange rows, maxima and sums of tokens instead of tables and
// logits. Nothing here says so: where the table and the head are placed decides it.
#pragma once

#include <tessera/tessera.h>

namespace layouts {

using namespace tessera;

/// Mean cross-entropy in nats of targets i32 [B,T] for ids i32 [B,T], whose rows of a table [V,F],
/// split by rows, meet a head [F,V] that is split by columns.
inline Array vocabulary_loss(const Array& table, const Array& head, const Array& ids,
                             const Array& targets) {
  const Array log_p = log_softmax(dot(take(table, ids), head));
  return -mean(take_along_axis(log_p, expand_dims(targets, 2)));
}

}  // namespace layouts
