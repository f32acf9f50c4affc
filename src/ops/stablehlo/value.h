// A value of a StableHLO function.
#pragma once

#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera::ops::hlo {

struct Value {
  std::string name;  // `%3`
  Type type;
};
using Values = std::vector<Value>;

}  // namespace tessera::ops::hlo
