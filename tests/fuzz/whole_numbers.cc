#include "tests/fuzz/whole_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "ops/control/control.h"
#include "ops/ops.h"

namespace tessera::fuzz {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr double kMostExact = 1 << 24;
constexpr double kMostExactInBf16 = 1 << 8;
constexpr double kInput = 3;

enum class Growth { same, sum, product, terms, contraction };

const std::map<std::string, Growth>& growths() {
  static const std::map<std::string, Growth> table = [] {
    std::map<std::string, Growth> result{
        {"add", Growth::sum},          {"sub", Growth::sum},
        {"mul", Growth::product},      {"cumsum", Growth::terms},
        {"reduce_sum", Growth::terms}, {"scatter_add", Growth::terms},
        {"conv", Growth::contraction}, {"dot_general", Growth::contraction}};
    for (const char* name : {"abs",
                             "broadcast_in_dim",
                             "clamp",
                             "concatenate",
                             "convert",
                             "cummax",
                             "cummin",
                             "dynamic_slice",
                             "dynamic_update_slice",
                             "gather",
                             "gather_along",
                             "max",
                             "min",
                             "neg",
                             "pad",
                             "permute",
                             "reduce_max",
                             "reduce_min",
                             "reshape",
                             "reverse",
                             "select",
                             "sharding_constraint",
                             "slice",
                             "sort",
                             "stop_gradient",
                             "transpose"}) {
      result[name] = Growth::same;
    }
    return result;
  }();
  return table;
}

/// Upper bounds of the absolute values of a function's values; infinite where none is known.
class Bounds {
 public:
  explicit Bounds(const Function& function)
      : f_(function), bounds_(function.values.size(), kUnknown) {}

  std::vector<double> run(const std::vector<double>& inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) bounds_[f_.inputs[i]] = inputs[i];
    for (const Equation& equation : f_.equations) visit(equation);
    std::vector<double> outputs;
    for (ValueId id : f_.outputs) outputs.push_back(bounds_[id]);
    return outputs;
  }

 private:
  void visit(const Equation& equation) {
    if (equation.op == &ops::scan_op) return visit_scan(equation);
    for (ValueId id : equation.results) {
      const double bound = bound_of(equation, f_.type(id));
      const double most = is_half(f_.type(id).dtype) ? kMostExactInBf16 : kMostExact;
      bounds_[id] = bound < most ? bound : kUnknown;
    }
  }

  double bound_of(const Equation& equation, const Type& result) const {
    if (equation.op == &ops::constant_op) {
      const double value = equation.attributes.get<double>("value");
      return std::trunc(value) == value ? std::abs(value) : kUnknown;
    }
    const auto growth = growths().find(*equation.op->name);
    if (growth == growths().end() || equation.operands.empty()) return kUnknown;
    double most = 0;
    double sum = 0;
    double product = 1;
    double terms = 1;
    for (ValueId id : equation.operands) {
      most = std::max(most, bounds_[id]);
      sum += bounds_[id];
      product *= bounds_[id];
      terms = std::max(terms, static_cast<double>(num_elements(f_.type(id).shape)));
    }
    if (result.dtype == DType::boolean) return most < kUnknown ? 1 : kUnknown;
    switch (growth->second) {
      case Growth::same:
        return most;
      case Growth::sum:
        return sum;
      case Growth::product:
        return product;
      case Growth::terms:
        return most * terms;
      case Growth::contraction:
        return product * terms;
    }
    return kUnknown;
  }

  void visit_scan(const Equation& equation) {
    const ops::ScanParts parts = ops::scan_parts(equation);
    std::vector<double> inputs;
    for (ValueId id : equation.operands) inputs.push_back(bounds_[id]);
    std::vector<double> most(equation.results.size(), 0);
    for (std::int64_t i = 0; i < parts.length; ++i) {
      const std::vector<double> outputs = Bounds(equation.attributes.body("body")).run(inputs);
      for (std::size_t k = 0; k < outputs.size(); ++k) most[k] = std::max(most[k], outputs[k]);
      std::copy_n(outputs.begin(), parts.num_carry,
                  inputs.begin() + static_cast<std::ptrdiff_t>(parts.num_consts));
    }
    for (std::size_t i = 0; i < parts.num_carry; ++i) {
      most[i] = std::max(most[i], bounds_[equation.operands[parts.num_consts + i]]);
    }
    for (std::size_t i = 0; i < most.size(); ++i) bounds_[equation.results[i]] = most[i];
  }

  const Function& f_;
  std::vector<double> bounds_;
};

}  // namespace

testing::Arrays whole_numbers(const testing::Arrays& inputs) {
  testing::Arrays result = inputs;
  for (ops::HostArray& array : result) {
    if (array.type().dtype != DType::f32) continue;
    for (float& x : array.data<float>()) {
      x = std::isfinite(x) ? std::trunc(std::fmod(x * 2, 4.0F)) : 1.0F;
    }
  }
  return result;
}

std::vector<bool> whole_outputs(const Function& function) {
  std::vector<double> inputs;
  for (ValueId id : function.inputs) {
    const DType dtype = function.type(id).dtype;
    inputs.push_back(dtype == DType::f32 ? kInput
                     : is_float(dtype)   ? kUnknown
                     : is_integer(dtype) ? kMostExact / 2
                                         : 1);
  }
  std::vector<bool> result;
  for (double bound : Bounds(function).run(inputs)) result.push_back(bound < kUnknown);
  return result;
}

}  // namespace tessera::fuzz
