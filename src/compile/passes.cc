// The passes between partitioning and lowering, in order.
#include <algorithm>

#include <tessera/error.h>

#include "compile/compile.h"
#include "compile/join_attention.h"
#include "compile/recompute.h"
#include "compile/scanned_copies.h"
#include "compile/sink.h"

namespace tessera::compile {

namespace {

void verify_split(const ir::Function& function, std::string_view after) {
  ir::verify(function, after);
  const bool is_split =
      std::all_of(function.values.begin(), function.values.end(),
                  [](const ir::Value& value) { return value.sharding.has_value(); });
  if (!is_split) {
    throw InternalError("a value has no sharding, after " + std::string(after));
  }
}

/// An optional pass that changes nested functions first, then the function itself.
ir::Pass in_all_functions(std::string name, std::string doc, ir::Function (*change)(ir::Function)) {
  return {
      .name = std::move(name),
      .doc = std::move(doc),
      .run = [change](
                 ir::Function f) { return change(ir::with_changed_bodies(std::move(f), change)); },
      .is_optional = true,
      .takes = verify_split,
      .gives = verify_split};
}

}  // namespace

std::vector<ir::Pass> passes() {
  return {
      in_all_functions("join_attention_gradients",
                       "computes the scores of an attention once for the gradients of q, k and v",
                       join_attention_gradients),
      in_all_functions("read_scanned_arrays",
                       "reads a scanned array instead of the copy of it that a loop stacks",
                       read_scanned_arrays),
      in_all_functions(
          "sink_into_loops",
          "moves elementwise work on the stacked results of a loop into its iterations",
          sink_into_loops),
      in_all_functions(
          "recompute_cheap_values",
          "recomputes cheap values instead of holding them through a peak of memory use",
          [](ir::Function f) { return recompute(std::move(f)); })};
}

}  // namespace tessera::compile
