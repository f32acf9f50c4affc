// Loops, branches and calls in StableHLO.
#include <fmt/format.h>

#include "ops/control/internal.h"
#include "ops/rules.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

using RegionBody = std::function<hlo::Values(hlo::Writer&, const hlo::Values&)>;

hlo::Values while_loop_form(hlo::Writer& w, const hlo::Values& carry, const RegionBody& condition,
                            const RegionBody& body) {
  std::vector<Type> types;
  for (const hlo::Value& x : carry) types.push_back(x.type);
  const std::string first = w.region(types, condition);
  const std::string second = w.region(types, body);
  return w.ops(
      fmt::format("\"stablehlo.while\"({}) ({}, {}) : ({}) -> ({})", hlo::names_text(carry), first,
                  second, hlo::types_text(carry), hlo::types_text(types)),
      types);
}

hlo::Values joined_values(hlo::Values first, const hlo::Values& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// A loop whose carry begins with the number of the iteration and ends with the stacked results.
class ScanForm {
 public:
  explicit ScanForm(hlo::FormContext& c)
      : c_(c),
        parts_(scan_parts(c.equation)),
        consts_(std::as_const(c.operands).begin(), at_operand(parts_.num_consts)),
        scanned_(at_operand(parts_.first_scanned()), std::as_const(c.operands).end()) {}

  hlo::Values write() {
    hlo::Values carry = {c_.w.scalar(0, DType::i32)};
    carry.insert(carry.end(), at_operand(parts_.num_consts), at_operand(parts_.first_scanned()));
    for (std::size_t i = parts_.num_carry; i < c_.results.size(); ++i) {
      carry.push_back(c_.w.constant(0, c_.results[i]));
    }
    if (parts_.length > 0) {
      carry = while_loop_form(
          c_.w, carry,
          [&](hlo::Writer& w, const hlo::Values& now) -> hlo::Values {
            const auto length = static_cast<double>(parts_.length);
            return {w.compare("lt", now[0], w.scalar(length, DType::i32))};
          },
          [&](hlo::Writer& w, const hlo::Values& now) { return iteration(w, now); });
    }
    return {carry.begin() + 1, carry.end()};
  }

 private:
  hlo::Values::const_iterator at_operand(std::size_t i) const {
    return c_.operands.begin() + static_cast<std::ptrdiff_t>(i);
  }

  hlo::Values iteration(hlo::Writer& w, const hlo::Values& now) const {
    hlo::Value index = now[0];
    if (parts_.is_reverse) {
      const auto last = static_cast<double>(parts_.length - 1);
      index = w.binary("subtract", w.scalar(last, DType::i32), index);
    }
    const auto num_carry = static_cast<std::ptrdiff_t>(parts_.num_carry);
    hlo::Values inputs = joined_values(consts_, {now.begin() + 1, now.begin() + 1 + num_carry});
    for (const hlo::Value& x : scanned_) {
      const Shape slice(x.type.shape.begin() + 1, x.type.shape.end());
      inputs.push_back(w.reshape(w.dynamic_slice_dim(x, 0, index, 1), slice));
    }
    const hlo::Values outputs = c_.call(w, c_.attributes().body("body"), inputs);
    hlo::Values next = {w.binary("add", now[0], w.scalar(1, DType::i32))};
    next.insert(next.end(), outputs.begin(), outputs.begin() + num_carry);
    for (std::size_t i = parts_.num_carry; i < outputs.size(); ++i) {
      Shape row = outputs[i].type.shape;
      row.insert(row.begin(), 1);
      next.push_back(w.dynamic_update_dim(now[i + 1], w.reshape(outputs[i], row), 0, index));
    }
    return next;
  }

  hlo::FormContext& c_;
  ScanParts parts_;
  hlo::Values consts_;
  hlo::Values scanned_;
};

}  // namespace

hlo::Values barrier_form(hlo::FormContext& c) {
  if (c.operands.empty()) return {};
  return c.w.ops(fmt::format("stablehlo.optimization_barrier {} : {}", hlo::names_text(c.operands),
                             hlo::types_text(c.operands)),
                 c.results);
}

StableHloRule call_form(const char* body) {
  return [body](hlo::FormContext& c) { return c.call(c.w, c.attributes().body(body), c.operands); };
}

hlo::Values cond_form(hlo::FormContext& c) {
  const auto& branches = c.attributes().get<ir::Bodies>("branches").functions;
  const auto last = static_cast<double>(branches.size()) - 1;
  const hlo::Value low = c.w.binary("maximum", c.x(0), c.w.scalar(0, DType::i32));
  const hlo::Value index = c.w.binary("minimum", low, c.w.scalar(last, DType::i32));
  const hlo::Values passed(c.operands.begin() + 1, c.operands.end());
  std::string regions;
  for (const FunctionPtr& branch : branches) {
    regions += regions.empty() ? "" : ", ";
    regions += c.w.region(
        {}, [&](hlo::Writer& w, const hlo::Values&) { return c.call(w, *branch, passed); });
  }
  return c.w.ops(fmt::format("\"stablehlo.case\"({}) ({}) : (tensor<i32>) -> ({})", index.name,
                             regions, hlo::types_text(c.results)),
                 c.results);
}

/// Constants are read from outside of the regions.
hlo::Values while_form(hlo::FormContext& c) {
  const hlo::Values& all = c.operands;
  const auto first = all.begin() + c.attributes().integer("num_consts");
  const hlo::Values consts(all.begin(), first);
  const auto call = [&](const char* name) -> RegionBody {
    return [&c, &consts, name](hlo::Writer& w, const hlo::Values& carry) {
      return c.call(w, c.attributes().body(name), joined_values(consts, carry));
    };
  };
  return while_loop_form(c.w, {first, all.end()}, call("condition"), call("body"));
}

hlo::Values scan_form(hlo::FormContext& c) { return ScanForm(c).write(); }

}  // namespace tessera::ops
