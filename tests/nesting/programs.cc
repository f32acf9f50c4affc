#include "tests/nesting/programs.h"

#include <memory>

#include "ir/builder.h"
#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::nesting {

namespace {

using ir::Builder;
using ir::Function;
using ir::ValueId;
using Values = std::vector<ValueId>;
using FunctionPtr = ops::FunctionPtr;

const Type kArray{DType::f32, {4, 8}};
constexpr std::size_t kNumArrays = 4;  // w, a, b, c

FunctionPtr shared(Function function) {
  return std::make_shared<const Function>(std::move(function));
}

/// The work of each level itself: adds w * a to c and permutes a, b and c.
Values turned(Builder& b, const Values& x) {
  return {x[0], x[2], ops::add(b, x[3], ops::mul(b, x[0], x[1])), x[1]};
}

std::int64_t rounds_at(const Nest& nest, std::size_t level) {
  return level < nest.rounds.size() ? nest.rounds[level] : 1;
}

Values level(Builder& b, const Nest& nest, std::size_t number, const Values& x);

/// A level, with all levels below it, as a function (w, a, b, c) -> (a, b, c).
Function body_of(const Nest& nest, std::size_t number) {
  Function body;
  body.name = "body";
  Builder b(body);
  for (std::size_t i = 0; i < kNumArrays; ++i) b.add_input(kArray);
  Values y = level(b, nest, number, body.inputs);
  y.erase(y.begin());
  b.set_outputs(std::move(y));
  return body;
}

/// w, followed by the results a, b and c.
Values with_w(ValueId w, const Values& results) {
  Values all = {w};
  all.insert(all.end(), results.begin(), results.end());
  return all;
}

Values in_scan(Builder& b, const Nest& nest, std::size_t number, const Values& x) {
  const ops::ScanParts parts{
      .length = rounds_at(nest, number), .num_consts = 1, .num_carry = kNumArrays - 1};
  return with_w(x[0], ops::scan(b, parts, shared(body_of(nest, number + 1)), x));
}

Values in_loop(Builder& b, const Nest& nest, std::size_t number, const Values& x) {
  const Type count{DType::i32, {}};
  Function condition;
  Builder test(condition);
  for (std::size_t i = 0; i < kNumArrays; ++i) test.add_input(kArray);
  const ValueId at = test.add_input(count);
  const auto rounds = static_cast<double>(rounds_at(nest, number));
  test.set_outputs({ops::compare(test, "lt", at, ops::full(test, rounds, count))});
  Function body;
  Builder step(body);
  for (std::size_t i = 0; i < kNumArrays; ++i) step.add_input(kArray);
  step.add_input(count);
  const Function inner = body_of(nest, number + 1);
  Values outputs = step.inline_function(inner, {body.inputs.begin(), body.inputs.end() - 1});
  outputs.push_back(ops::add(step, body.inputs.back(), ops::full(step, 1.0, count)));
  step.set_outputs(std::move(outputs));
  Values operands = x;
  operands.push_back(ops::full(b, 0.0, count));
  Values results = ops::while_loop(b, 1, shared(std::move(condition)), shared(std::move(body)),
                                   std::move(operands));
  results.pop_back();
  return with_w(x[0], results);
}

Values in_cond(Builder& b, const Nest& nest, std::size_t number, const Values& x) {
  Function other;
  Builder first(other);
  for (std::size_t i = 0; i < kNumArrays; ++i) first.add_input(kArray);
  first.set_outputs({other.inputs[3], other.inputs[1], other.inputs[2]});
  const ValueId sum = ops::reduce_sum(b, ops::abs(b, x[1]), {0, 1});
  const ValueId limit = ops::full(b, -1.0, {DType::f32, {}});
  const ValueId choice = ops::convert(b, ops::compare(b, "gt", sum, limit), DType::i32);
  return with_w(x[0], ops::cond(b, {shared(std::move(other)), shared(body_of(nest, number + 1))},
                                {choice, x[0], x[1], x[2], x[3]}));
}

/// The backward function returns the cotangents of a, b and c times 2, not the true derivative.
Values in_custom_vjp(Builder& b, const Nest& nest, std::size_t number, const Values& x) {
  const FunctionPtr primal = shared(body_of(nest, number + 1));
  Function backward;
  Builder back(backward);
  for (std::size_t i = 0; i < kNumArrays - 1; ++i) back.add_input(kArray);
  Values outputs = {ops::add(back, backward.inputs[0], backward.inputs[1])};
  for (const ValueId id : backward.inputs) outputs.push_back(ops::add(back, id, id));
  back.set_outputs(std::move(outputs));
  return with_w(x[0], ops::custom_vjp(b,
                                      {.primal = primal,
                                       .forward = primal,
                                       .backward = shared(std::move(backward)),
                                       .num_args = kNumArrays},
                                      x));
}

Values around(Builder& b, const Nest& nest, std::size_t number, const Values& x) {
  switch (nest.kinds[number]) {
    case Kind::scan:
      return in_scan(b, nest, number, x);
    case Kind::loop:
      return in_loop(b, nest, number, x);
    case Kind::cond:
      return in_cond(b, nest, number, x);
    case Kind::call:
      return with_w(x[0], ops::call(b, "part", shared(body_of(nest, number + 1)), x));
    case Kind::remat:
      return with_w(x[0], ops::remat(b, "nothing_saveable", shared(body_of(nest, number + 1)), x));
    case Kind::custom_vjp:
      break;
  }
  return in_custom_vjp(b, nest, number, x);
}

Values level(Builder& b, const Nest& nest, std::size_t number, const Values& x) {
  Values y = turned(b, x);
  if (number == nest.kinds.size()) return {y[0], b.emit("tanh", {}, {y[1]}), y[2], y[3]};
  if (!nest.is_flat) return turned(b, around(b, nest, number, y));
  const bool is_loop = nest.kinds[number] == Kind::scan || nest.kinds[number] == Kind::loop;
  const std::int64_t rounds = is_loop ? rounds_at(nest, number) : 1;
  for (std::int64_t i = 0; i < rounds; ++i) y = level(b, nest, number + 1, y);
  return turned(b, y);
}

}  // namespace

Function nested(const Nest& nest) {
  Function function = body_of(nest, 0);
  function.name = "main";
  return function;
}

Function nested_loss(const Nest& nest) {
  Function function = nested(nest);
  Builder b(function);
  ValueId sum = ir::kNoValue;
  for (const ValueId id : Values(function.outputs)) {
    const ValueId term = ops::reduce_sum(b, id, {0, 1});
    sum = sum == ir::kNoValue ? term : ops::add(b, sum, term);
  }
  b.set_outputs({sum});
  return function;
}

std::string to_string(const Nest& nest) {
  static const char* const kNames[] = {"scan", "while", "cond", "call", "remat", "custom_vjp"};
  std::string text;
  for (std::size_t i = 0; i < nest.kinds.size(); ++i) {
    text += (i == 0 ? "" : " ") + std::string(kNames[static_cast<std::size_t>(nest.kinds[i])]);
  }
  return text;
}

}  // namespace tessera::nesting
