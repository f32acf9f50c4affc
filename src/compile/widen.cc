#include "compile/widen.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compile/host/lower.h"
#include "ops/record.h"

namespace tessera::compile {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

class Widening {
 public:
  Widening(Function function, DotUnit unit) : result_(std::move(function)), unit_(unit) {}

  Function run() {
    for (Equation& equation : std::exchange(result_.equations, {})) {
      if (is_wide(equation)) {
        widen(std::move(equation));
      } else {
        if (is_view(equation)) views_[equation.results[0]] = equation;
        result_.equations.push_back(std::move(equation));
      }
    }
    return std::move(result_);
  }

 private:
  /// The portable unit multiplies and adds as f32 does.
  bool is_wide(const Equation& equation) const {
    const bool is_conv = *equation.op->host == "conv";
    return is_conv ? unit_ == DotUnit::portable : host::widens_bf16(equation);
  }

  bool is_bf16(ValueId id) const { return result_.type(id).dtype == DType::bf16; }

  void widen(Equation equation) {
    for (ValueId& id : equation.operands) {
      if (is_bf16(id)) id = wide_of(id, equation.span);
    }
    std::vector<std::pair<ValueId, ValueId>> narrowed;  // from, to
    for (ValueId& id : equation.results) {
      if (!is_bf16(id)) continue;
      const ValueId wide = add_wide(id);
      narrowed.emplace_back(wide, id);
      id = wide;
    }
    const Span span = equation.span;
    result_.equations.push_back(std::move(equation));
    for (const auto& [from, to] : narrowed) convert(from, to, span);
  }

  /// Views that show most of their operand.
  static bool is_view(const Equation& equation) {
    const std::string& name = *equation.op->host;
    return ops::is_view(equation) && name != "bitcast" && name != "slice";
  }

  /// The value as f32, converted where it is first needed. For a view, the base is converted, since
  /// kernels read views in place.
  ValueId wide_of(ValueId id, const Span& span) {
    const auto known = wide_.find(id);
    if (known != wide_.end()) return known->second;
    const auto view = views_.find(id);
    const ValueId from =
        view == views_.end() ? ir::kNoValue : wide_of(view->second.operands[0], span);
    const ValueId wide = add_wide(id);
    wide_.emplace(id, wide);
    if (view == views_.end()) {
      convert(id, wide, span);
    } else {
      Equation equation = view->second;
      equation.operands = {from};
      equation.results = {wide};
      result_.equations.push_back(std::move(equation));
    }
    return wide;
  }

  ValueId add_wide(ValueId id) {
    ir::Value value = result_.values[id];
    value.type.dtype = DType::f32;
    return result_.add_value(std::move(value));
  }

  void convert(ValueId from, ValueId to, const Span& span) {
    result_.equations.push_back({.op = &ir::op_named("convert"),
                                 .attributes = {{"dtype", result_.type(to).dtype}},
                                 .operands = {from},
                                 .results = {to},
                                 .span = span});
  }

  Function result_;
  DotUnit unit_;
  std::map<ValueId, ValueId> wide_;
  std::map<ValueId, Equation> views_;  // by their results
};

}  // namespace

Function with_wide_operands(Function function, DotUnit unit) {
  const bool has_bf16 =
      std::any_of(function.values.begin(), function.values.end(),
                  [](const ir::Value& value) { return value.type.dtype == DType::bf16; });
  return has_bf16 ? Widening(std::move(function), unit).run() : std::move(function);
}

}  // namespace tessera::compile
