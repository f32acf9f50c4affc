// The reference engine: runs one equation after another by the reference loops of the ops. It
// ignores shardings: every value is whole. All other engines are tested against it.
#pragma once

#include <vector>

#include "base/dot_unit.h"
#include "ir/ir.h"
#include "ops/host_array.h"

namespace tessera::compile {

/// Sees what is computed, and may compute it instead. Nested functions begin and end before the
/// equation that calls them is visited.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void begin(const ir::Function& function, const std::vector<ops::HostArray>& inputs) = 0;
  /// The results of an equation, or none to have the reference of its op compute them.
  virtual std::vector<ops::HostArray> evaluate(
      const ir::Function& /*function*/, const ir::Equation& /*equation*/,
      const std::vector<const ops::HostArray*>& /*operands*/) {
    return {};
  }
  virtual void visit(const ir::Equation& equation, const std::vector<ops::HostArray>& results) = 0;
  virtual void end() = 0;
};

/// The outputs of `function`. Throws InternalError if the inputs have other types. A value is freed
/// after its last use. Products of bf16 can have the bits of any unit, on every machine.
std::vector<ops::HostArray> interpret(const ir::Function& function,
                                      std::vector<ops::HostArray> inputs,
                                      DotUnit dot_unit = DotUnit::portable,
                                      Watcher* watcher = nullptr);

}  // namespace tessera::compile
