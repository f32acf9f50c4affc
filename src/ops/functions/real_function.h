// Records of functions of one real variable.
#pragma once

#include "ops/record.h"

namespace tessera::ops {

/// The parts in which the records of such functions differ.
struct RealFunction {
  std::string name;
  std::string doc;
  std::string source;
  StableHloRule stablehlo;
  ValueId (*slope)(VjpContext&);  // the derivative at the operand; may use the result
  double (*value)(double);
  double low;  // samples are drawn from [low, high]
  double high;
  std::string_view hlo = {};  // as in OpRecord
};
/// The host kernel must have the same name as the function.
OpRecord record_of(RealFunction function);

}  // namespace tessera::ops
