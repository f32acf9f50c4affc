#include "compile/widen.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compile/host/lower.h"

namespace tessera::compile {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

class Widening {
 public:
  explicit Widening(const Function& function) : result_(function) {}

  Function run() {
    for (Equation& equation : std::exchange(result_.equations, {})) {
      if (host::widens_bf16(equation)) {
        widen(std::move(equation));
      } else {
        result_.equations.push_back(std::move(equation));
      }
    }
    return std::move(result_);
  }

 private:
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

  /// The value as f32, converted where it is first needed.
  ValueId wide_of(ValueId id, const Span& span) {
    const auto [place, is_new] = wide_.emplace(id, 0);
    if (is_new) {
      place->second = add_wide(id);
      convert(id, place->second, span);
    }
    return place->second;
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
  std::map<ValueId, ValueId> wide_;
};

}  // namespace

Function with_wide_operands(const Function& function) {
  const bool has_bf16 =
      std::any_of(function.values.begin(), function.values.end(),
                  [](const ir::Value& value) { return value.type.dtype == DType::bf16; });
  return has_bf16 ? Widening(function).run() : function;
}

}  // namespace tessera::compile
