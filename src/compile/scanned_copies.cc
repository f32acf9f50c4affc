#include "compile/scanned_copies.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/control/control.h"
#include "ops/ops.h"
#include "ops/record.h"

namespace tessera::compile {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

/// Whether the result has the elements of the operand in the same order.
bool keeps_elements(const Function& f, const Equation& equation) {
  if (*equation.op->name == "reshape") return true;
  return equation.op == &ops::broadcast_in_dim_op &&
         num_elements(f.type(equation.operands[0]).shape) ==
             num_elements(f.type(equation.results[0]).shape);
}

/// Per value, the first value that has the same elements in the same order.
std::vector<ValueId> sources_of(const Function& f) {
  std::vector<ValueId> source(f.values.size());
  std::iota(source.begin(), source.end(), ValueId{0});
  for (const Equation& equation : f.equations) {
    if (keeps_elements(f, equation)) source[equation.results[0]] = source[equation.operands[0]];
  }
  return source;
}

bool are_alike(const ir::Value& a, const ir::Value& b) {
  return a.type == b.type && a.sharding == b.sharding;
}

/// Renames the results of the scan that are copies. Returns whether there are any.
bool rename_copies(const Function& f, const Equation& scan, std::vector<ValueId>& renamed) {
  const ops::ScanParts parts = ops::scan_parts(scan);
  // A pipeline may run a loop over microbatches in stages, and hand over what each round stacks.
  if (parts.are_microbatches) return false;
  const Function& body = *scan.attributes.shared_body("body");
  const std::vector<ValueId> source = sources_of(body);
  bool is_changed = false;
  for (std::size_t i = parts.num_carry; i < scan.results.size(); ++i) {
    const auto scanned = body.inputs.begin() + static_cast<std::ptrdiff_t>(parts.first_scanned());
    const auto input = std::find(scanned, body.inputs.end(), source[body.outputs[i]]);
    if (input == body.inputs.end()) continue;
    const ValueId copied = scan.operands[static_cast<std::size_t>(input - body.inputs.begin())];
    if (!are_alike(f.values[copied], f.values[scan.results[i]])) continue;
    renamed[scan.results[i]] = copied;
    is_changed = true;
  }
  return is_changed;
}

}  // namespace

Function read_scanned_arrays(Function f) {
  std::vector<ValueId> renamed(f.values.size());
  std::iota(renamed.begin(), renamed.end(), ValueId{0});
  bool is_changed = false;
  for (Equation& equation : f.equations) {
    for (ValueId& id : equation.operands) id = renamed[id];
    if (equation.op == &ops::scan_op) is_changed |= rename_copies(f, equation, renamed);
  }
  if (!is_changed) return f;
  for (ValueId& id : f.outputs) id = renamed[id];
  return ir::without_dead_code(std::move(f));
}

}  // namespace tessera::compile
