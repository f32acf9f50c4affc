#include "ir/pass.h"

#include <algorithm>
#include <chrono>

#include <tessera/error.h>

namespace tessera::ir {

namespace {

std::string optional_names(const std::vector<Pass>& passes) {
  std::string text;
  for (const Pass& pass : passes) {
    if (pass.is_optional) text += (text.empty() ? "" : ", ") + pass.name;
  }
  return text.empty() ? "none: no pass is optional here" : text;
}

[[noreturn]] void cannot_disable(const std::string& name, const std::string& reason,
                                 const std::vector<Pass>& passes, const std::string& subject) {
  throw UserError({.what = subject + ": the pass " + name + " " + reason,
                   .found = name,
                   .wanted = optional_names(passes),
                   .cure = "remove it from the disabled passes"});
}

}  // namespace

Function run_passes(const std::vector<Pass>& passes, Function function,
                    const PassOptions& options) {
  for (const Pass& pass : passes) {
    const auto& disabled = options.disabled;
    if (std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end()) {
      if (pass.is_optional) continue;
      cannot_disable(pass.name, "cannot be disabled", passes, "passes");
    }
    if (options.verify) pass.takes(function, "what comes before " + pass.name);
    const Function before = options.observe ? function : Function();
    const auto start = std::chrono::steady_clock::now();
    function = pass.run(std::move(function));
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (options.verify) pass.gives(function, pass.name);
    if (options.observe) options.observe({pass, before, function, passed.count()});
  }
  return function;
}

void check_disabled(const std::vector<std::string>& names, const std::vector<Pass>& passes,
                    const std::string& subject) {
  for (const std::string& name : names) {
    const auto found = std::find_if(passes.begin(), passes.end(),
                                    [&](const Pass& pass) { return pass.name == name; });
    if (found == passes.end()) cannot_disable(name, "does not exist", passes, subject);
    if (!found->is_optional) cannot_disable(name, "cannot be disabled", passes, subject);
  }
}

}  // namespace tessera::ir
