// Records of functions of one real number.
#pragma once

#include "ops/record.h"

namespace tessera::ops {

/// What distinguishes one function from another.
struct RealFunction {
  std::string name;
  std::string doc;
  std::string source;
  ValueId (*slope)(VjpContext&);  // the derivative where it is taken; may use the result
  double (*value)(double);
  double low;  // samples are drawn from [low, high]
  double high;
  std::string_view hlo = {};  // as in OpRecord
};
/// The host's kernel has the name of the function.
OpRecord record_of(RealFunction function);

}  // namespace tessera::ops
