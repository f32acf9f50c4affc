// The stages of the compiler that take and give IR, with their passes in order.
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

/// What stages need to know besides the program.
struct StageOptions {
  std::vector<std::size_t> wrt;  // inputs to differentiate by
  partition::PartitionOptions partition;
};

/// Every stage in order; passes refer to `options`.
std::vector<Stage> stages(const StageOptions& options);

/// The passes of all stages.
std::vector<ir::Pass> passes_of(const std::vector<Stage>& all);
/// Stages and passes as a table.
std::string list_text(const std::vector<Stage>& all);

/// The passes named, in the order of the names. Throws UserError for an unknown name.
std::vector<ir::Pass> named_passes(const std::vector<Stage>& all,
                                   const std::vector<std::string>& names);
/// The passes from the first of `from` to the last of `to`, each a stage or a pass; an empty name
/// leaves that end open. Throws UserError for an unknown name and when `to` comes before `from`.
std::vector<ir::Pass> passes_between(const std::vector<Stage>& all, const std::string& from,
                                     const std::string& to);

}  // namespace tessera::opt
