#include "compile/widen.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/conv_unit.h"
#include "compile/host/lower.h"
#include "ops/ops.h"
#include "ops/record.h"
#include "ops/stablehlo/writer.h"

namespace tessera::compile {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

/// The dtype in which kernels compute values stored as `dtype`. When 32-bit integers are narrowed,
/// they wrap to what narrower arithmetic would give.
DType wide_dtype(DType dtype) {
  if (is_half(dtype)) return DType::f32;
  if (!is_integer(dtype) || size_bytes(dtype) >= 4) return dtype;
  return is_signed(dtype) ? DType::i32 : DType::u32;
}

class Widening {
 public:
  Widening(Function function, DotUnit unit) : result_(std::move(function)), unit_(unit) {}

  Function run() {
    for (Equation& equation : std::exchange(result_.equations, {})) {
      if (has_narrow(equation)) {
        widen(std::move(equation));
      } else {
        if (is_view(equation)) views_[equation.results[0]] = equation;
        result_.equations.push_back(std::move(equation));
      }
    }
    return std::move(result_);
  }

 private:
  /// Whether the kernel of the equation has to get the value in a wider dtype. The portable unit
  /// multiplies and adds bf16 just as f32.
  bool is_narrow(const Equation& equation, ValueId id) const {
    const DType dtype = result_.type(id).dtype;
    if (wide_dtype(dtype) == dtype) return false;
    const host::Arithmetic arithmetic = host::arithmetic_of(equation);
    if (arithmetic == host::Arithmetic::integers) return is_half(dtype) && !has_halves(equation);
    if (arithmetic != host::Arithmetic::bf16) return arithmetic == host::Arithmetic::wide;
    if (dtype != DType::bf16) return true;
    if (*equation.op->host != "conv") return false;
    const std::int64_t features = result_.type(equation.results[0]).shape.back();
    return unit_of_convolution(unit_, features) == DotUnit::portable;
  }

  /// Whether the kernel of a reduction takes f16 and bf16. It does for extremes. Extremes of rows
  /// are widened nevertheless, because an f32 reduction joins the elementwise work around it.
  bool has_halves(const Equation& equation) const {
    if (!ops::is(equation, ops::reduce_max_op) && !ops::is(equation, ops::reduce_min_op)) {
      return false;
    }
    const std::int64_t last = result_.type(equation.operands[0]).rank() - 1;
    return equation.attributes.ints("dims") != ir::Ints{last};
  }

  bool has_narrow(const Equation& equation) const {
    const auto is_any = [&](const std::vector<ValueId>& ids) {
      return std::any_of(ids.begin(), ids.end(),
                         [&](ValueId id) { return is_narrow(equation, id); });
    };
    return is_any(equation.operands) || is_any(equation.results);
  }

  void widen(Equation equation) {
    for (ValueId& id : equation.operands) {
      if (is_narrow(equation, id)) id = wide_of(id, equation.span);
    }
    std::vector<std::pair<ValueId, ValueId>> narrowed;  // from, to
    for (ValueId& id : equation.results) {
      if (!is_narrow(equation, id)) continue;
      const ValueId wide = add_wide(id);
      narrowed.emplace_back(wide, id);
      id = wide;
    }
    const bool is_max = ops::is(equation, ops::scatter_max_op);
    const bool is_extreme = is_max || ops::is(equation, ops::scatter_min_op);
    const Span span = equation.span;
    result_.equations.push_back(std::move(equation));
    for (const auto& [from, to] : narrowed) {
      const DType dtype = result_.type(to).dtype;
      const bool is_bounded = is_extreme && is_integer(dtype) && is_signed(dtype);
      convert(is_bounded ? bounded(from, dtype, is_max, span) : from, to, span);
    }
  }

  /// Rows without updates have the lowest or highest integer of the wider dtype, which would wrap.
  ValueId bounded(ValueId wide, DType dtype, bool is_max, const Span& span) {
    const Type type = result_.type(wide);
    const double end = ops::hlo::identity_of(is_max ? "maximum" : "minimum", dtype);
    const ValueId bound = result_.add_value(ir::Value(result_.values[wide]));
    result_.equations.push_back(
        {.op = &ir::op_named("constant"),
         .attributes = {{"dtype", type.dtype}, {"shape", type.shape}, {"value", end}},
         .operands = {},
         .results = {bound},
         .span = span});
    const ValueId result = result_.add_value(ir::Value(result_.values[wide]));
    result_.equations.push_back({.op = &ir::op_named(is_max ? "max" : "min"),
                                 .attributes = {},
                                 .operands = {wide, bound},
                                 .results = {result},
                                 .span = span});
    return result;
  }

  /// Views that show most of their operand.
  static bool is_view(const Equation& equation) {
    const std::string& name = *equation.op->host;
    return ops::is_view(equation) && name != "bitcast" && name != "slice";
  }

  /// The value in the wider dtype, converted where it is first needed. For a view, the base is
  /// converted, since kernels read views in place.
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
    value.type.dtype = wide_dtype(value.type.dtype);
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
  std::map<ValueId, Equation> views_;  // by result
};

}  // namespace

Function with_wide_operands(Function function, DotUnit unit) {
  const bool has_narrow = std::any_of(
      function.values.begin(), function.values.end(),
      [](const ir::Value& value) { return wide_dtype(value.type.dtype) != value.type.dtype; });
  return has_narrow ? Widening(std::move(function), unit).run() : std::move(function);
}

}  // namespace tessera::compile
