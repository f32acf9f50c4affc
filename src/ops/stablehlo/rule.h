// How a record says how its op is written in StableHLO.
//
// Most records have a template: `{0}` is operand 0, `{type0}` its type, `{type}` the type of the
// result, and any other name in braces is an attribute, written as StableHLO writes lists. Other
// records have a function of a FormContext (ops/stablehlo/form.h) that returns the results.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <vector>

#include "ops/stablehlo/value.h"

namespace tessera::ops {

namespace hlo {
struct FormContext;
}  // namespace hlo

class StableHloRule {
 public:
  using Form = std::function<hlo::Values(hlo::FormContext&)>;

  StableHloRule() = delete;
  StableHloRule(const char* form)  // NOLINT(google-explicit-constructor)
      : StableHloRule(std::string(form)) {}
  StableHloRule(std::string form)  // NOLINT(google-explicit-constructor)
      : template_(std::move(form)) {}
  template <typename F>
  requires std::is_invocable_r_v<hlo::Values, F, hlo::FormContext&> StableHloRule(F form)
      : form_(std::move(form)) {}  // NOLINT(google-explicit-constructor)

  friend StableHloRule not_in_stablehlo(std::string why, std::string cure);
  /// The results of the equation. Throws UserError, naming op and line, if it has no form.
  hlo::Values operator()(hlo::FormContext& context) const;
  bool has_form() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }

 private:
  std::string template_;
  Form form_;
  std::string why_not_;
  std::string cure_;
};
/// For ops that a StableHLO program cannot express; `cure` says what to do instead.
StableHloRule not_in_stablehlo(std::string why, std::string cure);
/// For ops that return their operands.
StableHloRule stablehlo_operands();

}  // namespace tessera::ops
