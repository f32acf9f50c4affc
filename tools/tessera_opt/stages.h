// The stages of the compiler that transform IR, with their passes in order.
#pragma once

#include <string>
#include <vector>

#include "ir/pass.h"
#include "partition/partition.h"

namespace tessera::opt {

struct Stage {
  std::string name;
  std::vector<ir::Pass> passes;
};

/// The inputs of stages besides the program.
struct StageOptions {
  std::vector<std::size_t> wrt;  // inputs to differentiate with respect to
  partition::PartitionOptions partition;
};

/// All stages in order. The passes refer to `options`, which must outlive them.
std::vector<Stage> stages(const StageOptions& options);

/// The passes of all stages in order.
std::vector<ir::Pass> passes_of(const std::vector<Stage>& all);
/// Stages and passes as a table.
std::string list_text(const std::vector<Stage>& all);

/// The passes with these names, in the order of the names. Throws UserError for an unknown name.
std::vector<ir::Pass> named_passes(const std::vector<Stage>& all,
                                   const std::vector<std::string>& names);
/// The passes from the first pass of `from` to the last pass of `to`, which name a stage or a pass.
/// If `from` is empty, starts with the first pass of all; if `to` is empty, ends with the last one.
/// Throws UserError for an unknown name and if `to` comes before `from`.
std::vector<ir::Pass> passes_between(const std::vector<Stage>& all, const std::string& from,
                                     const std::string& to);

}  // namespace tessera::opt
