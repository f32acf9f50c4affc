// The passes of simplification, in order.
#include "ir/simplify.h"

namespace tessera::ir {

std::vector<Pass> simplify_passes() {
  return {{.name = "remove_dead_code",
           .doc = "drops equations that no output needs",
           .run = without_dead_code,
           .is_optional = true},
          {.name = "merge_common_subexpressions",
           .doc = "merges equations that compute the same values from the same operands",
           .run = without_common_subexpressions,
           .is_optional = true}};
}

}  // namespace tessera::ir
