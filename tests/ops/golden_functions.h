// Compares functions of arrays with what JAX printed for them, and their bits on a mesh with those
// without one.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
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
/// `dtype` is that of the sum and the cosines.
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

/// The values that evaluate() should return.
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

inline Array array_of(const Json& json, DType dtype) {
  return astype(array(json["values"].get<std::vector<double>>(), json["shape"].get<Shape>()),
                dtype);
}

/// `tolerance` is relative to the largest element.
inline void expect_near(const Array& found, const Json& wanted, double tolerance) {
  ASSERT_EQ(found.shape(), wanted["shape"].get<Shape>());
  const std::vector<double> values = astype(found, DType::f64).to_vector<double>();
  const auto numbers = wanted["values"].get<std::vector<double>>();
  double largest = 1.0;
  for (double number : numbers) largest = std::max(largest, std::abs(number));
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], numbers[i], tolerance * largest) << "element " << i;
  }
}

/// Expects the values and gradients of the case, and bits that do not depend on the mesh.
inline void check_case(const Function& function, const Json& c, DType dtype, double tolerance) {
  SCOPED_TRACE(c["name"].dump() + " " + c["arguments"].dump() + " " + std::string(name(dtype)));
  Arrays inputs;
  for (const Json& input : c["inputs"]) inputs.push_back(array_of(input, dtype));
  const Arrays found = evaluate(function, c, inputs, dtype);
  const Json wanted = wanted_of(c);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) expect_near(found[i], wanted[i], tolerance);

  const use_mesh scope(make_mesh({{"a", 2}, {"b", 2}}));
  const Arrays on_mesh = evaluate(function, c, placed(inputs), dtype);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(array_equal(found[i], on_mesh[i]));
}

}  // namespace tessera
