// The passes of differentiation, in order.
#include "differentiate/differentiate.h"

namespace tessera::differentiate {

std::vector<ir::Pass> passes(const std::vector<std::size_t>& wrt) {
  return {{.name = "differentiate",
           .doc = "adds the gradients of output 0 with respect to some inputs",
           .run = [wrt](const ir::Function& f) { return value_and_grad(f, wrt); }}};
}

}  // namespace tessera::differentiate
