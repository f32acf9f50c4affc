// Functions of arrays beside what JAX printed for them: values, gradients and bits on a mesh.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "tests/peers/golden.h"

namespace tessera {

using Json = nlohmann::json;
using Arrays = std::vector<Array>;
using Function = std::function<Arrays(const Json& arguments, const Arrays& inputs)>;
using Functions = std::map<std::string, Function>;

/// Results, then gradients of sum(result * cos(0, 1, 2, ..)) for all inputs, if the case has any.
/// `dtype`: of the sum and the cosines.
inline Arrays evaluate(const Function& function, const Json& c, const Arrays& inputs, DType dtype) {
  const Json& arguments = c["arguments"];
  const auto run = jit([&](const Arrays& given) {
    Arrays all = function(arguments, given);
    if (!c.contains("gradients")) return all;
    const auto loss = [&](const Arrays& in) {
      Array total = zeros({}, dtype);
      for (const Array& y : function(arguments, in)) {
        total += sum(reshape(y, {-1}) * cos(astype(arange(y.size()), dtype)));
      }
      return total;
    };
    for (const Array& gradient : grad(loss)(given)) all.push_back(gradient);
    return all;
  });
  return run(inputs);
}

/// What evaluate() should give.
inline Json wanted_of(const Json& c) {
  Json wanted = c["outputs"];
  if (c.contains("gradients")) {
    wanted.insert(wanted.end(), c["gradients"].begin(), c["gradients"].end());
  }
  return wanted;
}

/// Splits the first two dimensions over the axes a and b of the mesh.
inline Arrays placed(const Arrays& inputs) {
  Arrays result;
  for (const Array& x : inputs) {
    std::vector<SpecEntry> entries;
    if (x.rank() > 0) entries.emplace_back("a");
    if (x.rank() > 1) entries.emplace_back("b");
    result.push_back(device_put(x, PartitionSpec(entries)));
  }
  return result;
}

}  // namespace tessera
