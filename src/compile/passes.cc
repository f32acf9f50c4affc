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

}  // namespace

std::vector<ir::Pass> passes() {
  return {
      {.name = "join_attention_gradients",
       .doc = "computes the scores of an attention once for the gradients of q, k and v",
       .run =
           [](ir::Function f) {
             return join_attention_gradients(
                 ir::with_changed_bodies(std::move(f), join_attention_gradients));
           },
       .is_optional = true,
       .takes = verify_split,
       .gives = verify_split},
      {.name = "read_scanned_arrays",
       .doc = "reads a scanned array instead of the copy of it that a loop stacks",
       .run =
           [](ir::Function f) {
             return read_scanned_arrays(ir::with_changed_bodies(std::move(f), read_scanned_arrays));
           },
       .is_optional = true,
       .takes = verify_split,
       .gives = verify_split},
      {.name = "sink_into_loops",
       .doc = "moves elementwise work on the stacked results of a loop into its iterations",
       .run =
           [](ir::Function f) {
             return sink_into_loops(ir::with_changed_bodies(std::move(f), sink_into_loops));
           },
       .is_optional = true,
       .takes = verify_split,
       .gives = verify_split},
      {.name = "recompute_cheap_values",
       .doc = "recomputes cheap values instead of holding them through a peak of memory use",
       .run =
           [](ir::Function f) {
             const auto change = [](ir::Function body) { return recompute(std::move(body)); };
             return change(ir::with_changed_bodies(std::move(f), change));
           },
       .is_optional = true,
       .takes = verify_split,
       .gives = verify_split}};
}

}  // namespace tessera::compile
