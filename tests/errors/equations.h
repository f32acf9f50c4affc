// The errors of equations written as text.
#pragma once

#include <string>

#include "ir/text.h"
#include "tests/errors/caught.h"

namespace tessera {

/// The error of a function with these inputs and one equation, which computes `results`.
inline std::string error_of_equation(const std::string& inputs, const std::string& results,
                                     const std::string& equation) {
  const std::string text = "function f[mesh=\"none\", grains=8](" + inputs + ") {\n  " + results +
                           " = " + equation + "\n  return %9\n}\n";
  return caught([&] { ir::parse(text); }).text;
}

}  // namespace tessera
