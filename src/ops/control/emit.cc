// Reads and emits equations with nested functions.
#include <numeric>

#include <tessera/error.h>

#include "ops/control/internal.h"
#include "ops/ops.h"

namespace tessera::ops {

namespace {

std::int64_t signed_size(std::size_t size) { return static_cast<std::int64_t>(size); }

}  // namespace

ir::Bodies bodies(FunctionPtr body) { return {.functions = {std::move(body)}}; }

ScanParts read_scan(const Attributes& attributes) {
  return {
      .length = attributes.integer("length"),
      .num_consts = at(attributes.integer("num_consts")),
      .num_carry = at(attributes.integer("num_carry")),
      .is_reverse = attributes.get<bool>("reverse"),
      .are_microbatches = attributes.has("microbatches") && attributes.get<bool>("microbatches")};
}

Attributes scan_attributes(const ScanParts& parts, FunctionPtr body) {
  Attributes attributes = {{"body", bodies(std::move(body))},
                           {"length", parts.length},
                           {"num_carry", signed_size(parts.num_carry)},
                           {"num_consts", signed_size(parts.num_consts)},
                           {"reverse", parts.is_reverse}};
  if (parts.are_microbatches) attributes.set("microbatches", true);
  return attributes;
}

ScanParts scan_parts(const Equation& equation) { return read_scan(equation.attributes); }

bool is_scan_of_rounds(const Equation& equation) {
  if (equation.op != &scan_op) return false;
  const ScanParts parts = scan_parts(equation);
  return !parts.are_microbatches && parts.length > 1;
}

std::int64_t free_extent(const Type& operand, const Equation& product, const std::string& side) {
  std::int64_t others = 1;
  for (const char* kind : {"_batch", "_contract"}) {
    for (const std::int64_t dim : product.attributes.ints(side + kind))
      others *= operand.shape[static_cast<std::size_t>(dim)];
  }
  return others == 0 ? 0 : num_elements(operand.shape) / others;
}

Function with_replaced(
    Function f,
    const std::function<std::optional<std::vector<ValueId>>(Builder&, Equation&)>& replace) {
  std::vector<Equation> equations = std::move(f.equations);
  f.equations.clear();
  Builder b(f);
  std::vector<ValueId> renamed(f.values.size());
  std::iota(renamed.begin(), renamed.end(), ValueId{0});
  for (Equation& equation : equations) {
    for (ValueId& id : equation.operands) id = renamed[id];
    if (const auto values = replace(b, equation)) {
      for (std::size_t i = 0; i < values->size(); ++i) renamed[equation.results[i]] = (*values)[i];
    } else {
      f.equations.push_back(std::move(equation));
    }
  }
  for (ValueId& id : f.outputs) id = renamed[id];
  return f;
}

std::vector<ValueId> scan(Builder& b, const ScanParts& parts, FunctionPtr body,
                          std::vector<ValueId> operands) {
  return b.emit_all(scan_op, scan_attributes(parts, std::move(body)), std::move(operands));
}

std::vector<ValueId> while_loop(Builder& b, std::size_t num_consts, FunctionPtr condition,
                                FunctionPtr body, std::vector<ValueId> operands) {
  return b.emit_all(while_op,
                    {{"body", bodies(std::move(body))},
                     {"condition", bodies(std::move(condition))},
                     {"num_consts", signed_size(num_consts)}},
                    std::move(operands));
}

std::vector<ValueId> cond(Builder& b, std::vector<FunctionPtr> branches,
                          std::vector<ValueId> operands) {
  return b.emit_all(cond_op, {{"branches", ir::Bodies{.functions = std::move(branches)}}},
                    std::move(operands));
}

std::vector<ValueId> call(Builder& b, std::string name, FunctionPtr body,
                          std::vector<ValueId> operands) {
  return b.emit_all(call_op, {{"body", bodies(std::move(body))}, {"name", std::move(name)}},
                    std::move(operands));
}

std::vector<ValueId> remat(Builder& b, std::string policy, FunctionPtr body,
                           std::vector<ValueId> operands) {
  return b.emit_all(remat_op, {{"body", bodies(std::move(body))}, {"policy", std::move(policy)}},
                    std::move(operands));
}

std::vector<ValueId> custom_vjp(Builder& b, const CustomVjpParts& parts,
                                std::vector<ValueId> operands) {
  return b.emit_all(custom_vjp_op,
                    {{"backward", bodies(parts.backward)},
                     {"forward", bodies(parts.forward)},
                     {"num_args", signed_size(parts.num_args)},
                     {"primal", bodies(parts.primal)}},
                    std::move(operands));
}

CustomVjpParts custom_vjp_parts(const Equation& equation) {
  const ir::Attributes& attributes = equation.attributes;
  return {.primal = attributes.shared_body("primal"),
          .forward = attributes.shared_body("forward"),
          .backward = attributes.shared_body("backward"),
          .num_args = at(attributes.integer("num_args"))};
}

std::vector<ValueId> optimization_barrier(Builder& b, std::vector<ValueId> operands) {
  return b.emit_all(optimization_barrier_op, {}, std::move(operands));
}

double flops_of(const Function& function) {
  double flops = 0;
  for (const Equation& equation : function.equations) {
    flops += (*equation.op->cost)(equation.attributes, ir::operand_types(function, equation),
                                  ir::result_types(function, equation));
  }
  return flops;
}

}  // namespace tessera::ops
