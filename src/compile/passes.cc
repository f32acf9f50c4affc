// The passes between partitioning and lowering, in order.
#include "compile/compile.h"
#include "compile/recompute.h"

namespace tessera::compile {

std::vector<ir::Pass> passes() {
  return {{.name = "recompute_cheap_values",
           .doc = "computes cheap values again instead of holding them over a peak of memory",
           .run =
               [](const ir::Function& f) {
                 const auto change = [](const ir::Function& body) { return recompute(body); };
                 return change(ir::with_changed_bodies(f, change));
               },
           .is_optional = true}};
}

}  // namespace tessera::compile
