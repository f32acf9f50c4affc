#include "compile/host/dense/window_padding.h"

#include <cmath>
#include <limits>

#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

bool is_window_op(const ir::Equation& equation) {
  return *equation.op->host == "reduce_window" || *equation.op->host == "find_in_windows";
}

}  // namespace

std::map<ir::ValueId, std::vector<const ir::Equation*>> paddings_of_windows(
    const ir::Function& function) {
  std::map<ir::ValueId, std::vector<const ir::Equation*>> readers;
  for (const ir::Equation& equation : function.equations) {
    for (std::size_t i = 0; i < equation.operands.size(); ++i) {
      const auto padded = readers.find(equation.operands[i]);
      if (padded == readers.end()) continue;
      if (is_window_op(equation) && i == 0) {
        padded->second.push_back(&equation);
      } else {
        readers.erase(padded);
      }
    }
    if (equation.op == &ops::pad_op && function.type(equation.results[0]).dtype == DType::f32)
      readers.emplace(equation.results[0], std::vector<const ir::Equation*>());
  }
  for (const ir::ValueId id : function.outputs) readers.erase(id);
  return readers;
}

bool may_leave_out(const ir::Equation& reader, double fill) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (ops::is(reader, ops::reduce_window_sum_op)) return fill == 0 && !std::signbit(fill);
  if (ops::is(reader, ops::reduce_window_max_op)) return fill == -kInf;
  if (ops::is(reader, ops::reduce_window_min_op)) return fill == kInf;
  return std::abs(fill) == kInf;
}

}  // namespace tessera::compile::host
