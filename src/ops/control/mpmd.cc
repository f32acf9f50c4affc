// Tasks of groups of devices, and transfers between the groups.

#include "ops/control/mpmd.h"

#include <algorithm>

#include "ops/control/internal.h"
#include "ops/ops.h"

namespace tessera::ops {

namespace {

Attributes task_attributes(const TaskParts& parts, FunctionPtr body) {
  return {{"body", bodies(std::move(body))}, {"group", parts.group},
          {"microbatch", parts.microbatch},  {"name", parts.name},
          {"shares", parts.shares},          {"stage", parts.stage}};
}

void expect_number(const ShapeContext& c, std::string_view attribute, std::int64_t least) {
  const std::int64_t value = integer_of(c, attribute);
  if (value >= least) return;
  const std::string name(attribute);
  c.fail(name + " = " + std::to_string(value), name + " of " + std::to_string(least) + " or more",
         least < 0 ? "write " + name + "=-1 for none" : "count from 0");
}

void expect_shares(const ShapeContext& c, const std::vector<Type>& results) {
  const Ints& shares = ints_of(c, "shares");
  if (shares.size() != results.size()) {
    c.fail("shares has " + std::to_string(shares.size()) + " entries for " +
               std::to_string(results.size()) + " results",
           "an operand or -1 for each result", "write -1 for results with memory of their own");
  }
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] == -1) continue;
    const bool is_operand = shares[i] >= 0 && at(shares[i]) < c.operands.size();
    if (!is_operand || c.operands[at(shares[i])] != results[i]) {
      c.fail("result " + std::to_string(i) + " shares the memory of operand " +
                 std::to_string(shares[i]),
             "an operand of type " + tessera::to_string(results[i]), "write -1 instead");
    }
    if (std::count(shares.begin(), shares.end(), shares[i]) > 1) {
      c.fail("several results share the memory of operand " + std::to_string(shares[i]),
             "at most one result for each operand", "write -1 for the others");
    }
  }
}

std::vector<Type> task_shape(const ShapeContext& c) {
  string_of(c, "name");
  expect_number(c, "group", 0);
  expect_number(c, "stage", -1);
  expect_number(c, "microbatch", -1);
  std::vector<Type> results = call_shape(c);
  if (results.empty()) c.fail("the task has no results", "at least one result", "remove the task");
  expect_shares(c, results);
  return results;
}

std::vector<Type> transfer_shape(const ShapeContext& c) {
  expect_operands(c, 1);
  expect_number(c, "from", 0);
  expect_number(c, "to", 0);
  if (integer_of(c, "from") == integer_of(c, "to")) {
    c.fail("a transfer from group " + std::to_string(integer_of(c, "to")) + " to itself",
           "two different groups", "use the operand itself");
  }
  return c.operands;
}

std::vector<HostArray> transfer_reference(const ReferenceContext& c) { return {*c.operands[0]}; }

Samples task_samples() {
  const FunctionPtr update = body_from(R"((%0: f32[5,6], %1: f32[5,6]) {
  %2: f32[5,6] = mul %0, %1
  %3: f32[5,6] = add %2, %1
  return %3, %2
  })");
  const FunctionPtr swapped = body_from(R"((%0: i32[10,1], %1: i32[10,1]) {
  return %1, %0
  })");
  const FunctionPtr sums = body_from(R"((%0: f32[3,5], %1: f32[]) {
  %2: f32[] = reduce_sum[dims=[0,1]] %0
  %3: f32[] = add %1, %2
  return %3
  })");
  return {
      {.operands = {{f32({5, 6})}, {f32({5, 6})}},
       .attributes = task_attributes(
           {.name = "fwd_2", .group = 1, .stage = 3, .microbatch = 2, .shares = {1, -1}}, update)},
      {.operands = {{i32({10, 1})}, {i32({10, 1})}},
       .attributes = task_attributes({.name = "before_loop_0", .shares = {0, 1}}, swapped)},
      {.operands = {{f32({3, 5})}, {f32({})}},
       .attributes =
           task_attributes({.name = "bwd_0", .stage = 0, .microbatch = 0, .shares = {1}}, sums)}};
}

Samples transfer_samples() {
  const Attributes there = {{"from", std::int64_t{0}}, {"to", std::int64_t{1}}};
  const Attributes back = {{"from", std::int64_t{2}}, {"to", std::int64_t{0}}};
  return {{.operands = {{f32({5, 6})}}, .attributes = there},
          {.operands = {{bf16({12, 1})}}, .attributes = back},
          {.operands = {{i32({3, 6}), -9.0, 9.0}}, .attributes = there}};
}

/// The operand whose memory a result takes over may have been removed.
Attributes kept_of_task(const Attributes& attributes, const ir::Kept& kept) {
  const Ints& shares = attributes.ints("shares");
  Ints left;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (!kept.results[i]) continue;
    const bool is_left = shares[i] >= 0 && kept.operands[at(shares[i])];
    const auto first = kept.operands.begin();
    left.push_back(is_left ? std::count(first, first + shares[i], true) : -1);
  }
  Attributes result = attributes;
  result.set("shares", std::move(left));
  return result;
}

const BodyRules kTaskRules{.flow = call_flow, .kept = kept_of_task};

}  // namespace

TaskParts task_parts(const Equation& equation) {
  const Attributes& attributes = equation.attributes;
  return {.name = attributes.get<std::string>("name"),
          .group = attributes.integer("group"),
          .stage = attributes.integer("stage"),
          .microbatch = attributes.integer("microbatch"),
          .shares = attributes.ints("shares")};
}

std::vector<ValueId> task(Builder& b, const TaskParts& parts, FunctionPtr body,
                          std::vector<ValueId> operands) {
  std::vector<ValueId> results =
      b.emit_all(task_op, task_attributes(parts, body), std::move(operands));
  for (std::size_t i = 0; i < results.size(); ++i) {
    b.function().values[results[i]].sharding = body->values[body->outputs[i]].sharding;
  }
  return results;
}

ValueId transfer(Builder& b, ValueId x, std::int64_t from, std::int64_t to) {
  const ValueId result = b.emit(transfer_op, {{"from", from}, {"to", to}}, {x});
  b.function().values[result].sharding = b.function().values[x].sharding;
  return result;
}

bool is_task(const Equation& equation) { return equation.op == &task_op; }
bool is_transfer(const Equation& equation) { return equation.op == &transfer_op; }

const OpRecord task_op{
    .name = "task",
    .doc =
        "The nested function applied to the operands by device group `group`, as task `name` of a "
        "stage and a microbatch (-1 for none). Result i reuses the memory of operand `shares[i]` "
        "(-1 for none) if nothing reads that operand afterwards.",
    .source = "JaxPP, task of an MPMD program",
    .hlo = "call",
    .attributes = AttributeNames{"body", "group", "microbatch", "name", "shares", "stage"},
    .types = TypeSet::any,
    .shape = task_shape,
    .vjp = not_differentiable("inserted after differentiation"),
    .batch = not_batched("inserted after batching"),
    .factors = whole_factors,
    .pattern = Pattern::control,
    .host = "task",
    .stablehlo = not_in_stablehlo("a task runs on one of several groups of devices",
                                  "emit the step without a pipeline"),
    .reference = call_reference,
    .cost = call_cost,
    .samples = task_samples,
    .bodies = &kTaskRules,
};

const OpRecord transfer_op{
    .name = "transfer",
    .doc = "The operand, sent from the devices of group `from` to those of group `to`.",
    .source = "JaxPP, send and receive of an MPMD program",
    .hlo = "copy",
    .attributes = AttributeNames{"from", "to"},
    .types = TypeSet::any,
    .shape = transfer_shape,
    .vjp = not_differentiable("inserted after differentiation"),
    .batch = not_batched("inserted after batching"),
    .factors = elementwise_factors,
    .pattern = Pattern::view,
    .host = "transfer",
    .stablehlo = not_in_stablehlo("it sends data between groups of devices",
                                  "emit the step without a pipeline"),
    .reference = transfer_reference,
    .cost = no_flops,
    .samples = transfer_samples,
};

OpFamily mpmd_ops() { return {&task_op, &transfer_op}; }

}  // namespace tessera::ops
