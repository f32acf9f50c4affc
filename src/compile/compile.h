// IR -> executable for the host engine: fuse, lower to kernels, plan memory.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/dot_unit.h"
#include "ir/ir.h"
#include "ir/pass.h"
#include "run/executable.h"
#include "run/target.h"

namespace tessera::compile {

class BodyPool;

struct CompileOptions {
  std::vector<bool> is_donated;   // per input
  std::vector<int> output_alias;  // per output: donated input whose buffers it reuses, or -1
  /// With a transport, inputs and outputs have the tiles of the devices of this process. In a
  /// function of several groups (ops/control/mpmd.h), inputs that this group does not read and
  /// outputs that it does not make have no tiles.
  run::Target target = {};
  DotUnit dot_unit = DotUnit::portable;  // must be one that this machine has
  BodyPool* bodies = nullptr;            // for nested functions: that of the outer compilation
};

/// The passes that run before a partitioned function is compiled, in order.
std::vector<ir::Pass> passes();

/// Compiles a partitioned function: every value has a sharding over function.mesh. Throws UserError
/// for a dtype or size that the host engine does not support.
std::shared_ptr<const run::Executable> compile(const ir::Function& function,
                                               const CompileOptions& options);

/// The instruction set that the host kernels use.
std::string_view instruction_set();
/// The dot units of this machine, the slowest first.
std::vector<DotUnit> dot_units();
/// The last and best of them.
DotUnit best_dot_unit();

}  // namespace tessera::compile
