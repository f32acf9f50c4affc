// Passes: named rewrites of a program, which can be timed, shown, verified and disabled.
//
//   function = run_passes(simplify_passes(), function, {.observe = [](const PassEvent& e) {...}});
//
// Every stage lists its passes in order in its passes.cc; a new pass is one file and one line
// there. Anything else that a pass needs besides the program is bound into its `run`.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/ir.h"
#include "ir/text.h"

namespace tessera::ir {

/// Throws InternalError if a function breaks a rule. The message names the pass that ran last.
using Verifier = void (*)(const Function& function, std::string_view after);

struct Pass {
  std::string name;  // a verb phrase, unique among all stages
  std::string doc;   // one line
  std::function<Function(Function)> run;
  /// The program means the same without this pass, and later passes still work.
  bool is_optional = false;
  Verifier takes = verify;  // what must hold before it
  Verifier gives = verify;  // what must hold after it
};

/// What an observer learns about a pass that has run.
struct PassEvent {
  const Pass& pass;
  const Function& before;
  const Function& after;
  double seconds;
};

struct PassOptions {
  std::vector<std::string> disabled = {};  // names of optional passes to skip
  bool verify = false;                     // checks `takes` before and `gives` after each pass
  std::function<void(const PassEvent&)> observe = {};
};

/// Runs the passes in order. Throws UserError if a disabled pass of the list is not optional. Names
/// that are not in the list have no effect.
Function run_passes(const std::vector<Pass>& passes, Function function, const PassOptions& options);

/// Throws UserError unless each name is the name of an optional pass of the list.
void check_disabled(const std::vector<std::string>& names, const std::vector<Pass>& passes,
                    const std::string& subject);

}  // namespace tessera::ir
