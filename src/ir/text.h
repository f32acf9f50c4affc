// The text form of the IR: print, parse back, verify.
#pragma once

#include "ir/ir.h"

namespace tessera::ir {

struct PrintOptions {
  bool spans = true;  // end equations with `# file:line`
};

std::string print(const Function& function, PrintOptions options = {});
std::string print(const Function& function, const Equation& equation, PrintOptions options = {});
std::string to_string(const Mesh& mesh, const Attribute& attribute);

/// Parses a function. Throws UserError with the line of the text.
Function parse(std::string_view text);

/// Throws InternalError unless every value is defined once and before its use, types are the ones
/// that the ops infer, attributes are complete, and shardings have the right rank and use each atom
/// at most once. `after` names the last pass.
void verify(const Function& function, std::string_view after);

}  // namespace tessera::ir
