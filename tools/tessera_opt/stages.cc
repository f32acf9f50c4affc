#include "stages.h"

#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

#include "compile/compile.h"
#include "differentiate/differentiate.h"
#include "ops/control/control.h"

namespace tessera::opt {

namespace {

/// The positions [begin, end) of a stage or a pass in the list of all passes.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::string names_of(const std::vector<Stage>& all, bool with_stages) {
  std::string text;
  auto add = [&](const std::string& name) { text += (text.empty() ? "" : ", ") + name; };
  for (const Stage& stage : all) {
    if (with_stages) add(stage.name);
    for (const ir::Pass& pass : stage.passes) {
      if (!with_stages || pass.name != stage.name) add(pass.name);
    }
  }
  return text;
}

Range range_of(const std::vector<Stage>& all, const std::string& flag, const std::string& name) {
  std::size_t next = 0;
  for (const Stage& stage : all) {
    if (stage.name == name) return {next, next + stage.passes.size()};
    for (const ir::Pass& pass : stage.passes) {
      if (pass.name == name) return {next, next + 1};
      ++next;
    }
  }
  throw UserError({.what = flag + ": there is no such stage or pass",
                   .found = name,
                   .wanted = "one of " + names_of(all, true),
                   .cure = "`tessera-opt --list` explains them"});
}

}  // namespace

std::vector<Stage> stages(const StageOptions& options) {
  return {{"differentiate", differentiate::passes(options.wrt)},
          {"simplify", ops::simplify_passes()},
          {"partition", partition::passes(options.partition)},
          {"compile", compile::passes()}};
}

std::vector<ir::Pass> passes_of(const std::vector<Stage>& all) {
  std::vector<ir::Pass> passes;
  for (const Stage& stage : all) {
    passes.insert(passes.end(), stage.passes.begin(), stage.passes.end());
  }
  return passes;
}

std::string list_text(const std::vector<Stage>& all) {
  std::string text;
  for (const Stage& stage : all) {
    text += stage.name + "\n";
    for (const ir::Pass& pass : stage.passes) {
      text += fmt::format("  {:<28} {}{}\n", pass.name, pass.doc,
                          pass.is_optional ? "" : " (cannot be disabled)");
    }
  }
  return text;
}

std::vector<ir::Pass> named_passes(const std::vector<Stage>& all,
                                   const std::vector<std::string>& names) {
  std::vector<ir::Pass> chosen;
  const std::vector<ir::Pass> passes = passes_of(all);
  for (const std::string& name : names) {
    const auto found = std::find_if(passes.begin(), passes.end(),
                                    [&](const ir::Pass& pass) { return pass.name == name; });
    if (found == passes.end()) {
      throw UserError({.what = "--passes: there is no such pass",
                       .found = name.empty() ? "an empty name" : name,
                       .wanted = "some of " + names_of(all, false),
                       .cure = "`tessera-opt --list` explains them"});
    }
    chosen.push_back(*found);
  }
  return chosen;
}

std::vector<ir::Pass> passes_between(const std::vector<Stage>& all, const std::string& from,
                                     const std::string& to) {
  std::vector<ir::Pass> passes = passes_of(all);
  const Range first = from.empty() ? Range{} : range_of(all, "--from", from);
  const Range last = to.empty() ? Range{0, passes.size()} : range_of(all, "--to", to);
  if (first.begin >= last.end) {
    throw UserError(
        {.what = "--to: the stage or pass comes before --from",
         .found = "--from " + from + " --to " + to,
         .wanted = "the order of " + names_of(all, true),
         .cure = "swap them, or list the passes with --passes in the order that you want"});
  }
  passes.erase(passes.begin() + static_cast<std::ptrdiff_t>(last.end), passes.end());
  passes.erase(passes.begin(), passes.begin() + static_cast<std::ptrdiff_t>(first.begin));
  return passes;
}

}  // namespace tessera::opt
