// Samples of ops with nested functions, whose bodies are written as text.
#include "ir/text.h"
#include "ops/control/internal.h"

namespace tessera::ops {

FunctionPtr body_from(const std::string& text) {
  return std::make_shared<const Function>(
      ir::parse("function body[mesh=\"none\", grains=8]" + text));
}

Samples call_samples() {
  const Attributes scaled = {{"body", bodies(body_from(R"((%0: f32[5,6], %1: f32[5,6]) {
  %2: f32[5,6] = mul %0, %1
  %3: f32[5,6] = sub %2, %0
  return %3, %2
  })"))},
                             {"name", std::string("scaled")}};
  const Attributes negated = {{"body", bodies(body_from(R"((%0: i32[10,1]) {
  %1: i32[10,1] = neg %0
  return %1
  })"))},
                              {"name", std::string("negated")}};
  return {{.operands = {{f32({5, 6})}, {f32({5, 6})}}, .attributes = scaled},
          {.operands = {{i32({10, 1})}}, .attributes = negated}};
}

Samples remat_samples() {
  const FunctionPtr layer = body_from(R"((%0: f32[5,6], %1: f32[6,3]) {
  %2: f32[5,3] = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]] %0, %1
  %3: f32[5,3] = mul %2, %2
  return %3
  })");
  const FunctionPtr product = body_from(R"((%0: f32[12,1], %1: f32[12,1]) {
  %2: f32[12,1] = mul %0, %1
  %3: f32[12,1] = mul %2, %1
  return %3, %2
  })");
  return {{.operands = {{f32({5, 6})}, {f32({6, 3})}},
           .attributes = {{"body", bodies(layer)}, {"policy", std::string("dots_saveable")}}},
          {.operands = {{f32({12, 1})}, {f32({12, 1})}},
           .attributes = {{"body", bodies(product)}, {"policy", std::string("nothing_saveable")}}}};
}

Samples scan_samples() {
  const FunctionPtr recurrence = body_from(R"((%0: f32[3], %1: f32[3], %2: f32[3]) {
  %3: f32[3] = mul %0, %1
  %4: f32[3] = add %3, %2
  %5: f32[3] = mul %4, %2
  return %4, %5
  })");
  const FunctionPtr layers = body_from(R"((%0: f32[4,6], %1: i32[], %2: f32[6,6], %3: f32[6]) {
  %4: f32[4,6] = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]] %0, %2
  %5: f32[4,6] = broadcast_in_dim[dims=[1], shape=[4,6]] %3
  %6: f32[4,6] = add %4, %5
  %7: f32[] = reduce_sum[dims=[0,1]] %6
  %8: i32[] = constant[dtype=i32, shape=[], value=1.0]
  %9: i32[] = add %1, %8
  return %6, %9, %7
  })");
  const FunctionPtr swapped = body_from(R"((%0: f32[10,1], %1: f32[10,1]) {
  return %1, %0
  })");
  return {
      {.operands = {{f32({3})}, {f32({3})}, {f32({5, 3})}},
       .attributes = scan_attributes({.length = 5, .num_consts = 1, .num_carry = 1}, recurrence)},
      {.operands = {{f32({4, 6})}, {i32({})}, {f32({3, 6, 6})}, {f32({3, 6})}},
       .attributes = scan_attributes({.length = 3, .num_carry = 2, .is_reverse = true}, layers)},
      {.operands = {{f32({10, 1})}, {f32({10, 1})}},
       .attributes =
           scan_attributes({.length = 3, .num_carry = 2, .are_microbatches = true}, swapped)},
      {.operands = {{f32({10, 1})}, {f32({10, 1})}},
       .attributes = scan_attributes({.length = 0, .num_carry = 2}, swapped)}};
}

Samples while_samples() {
  const FunctionPtr below = body_from(R"((%0: i32[], %1: i32[], %2: f32[5,6]) {
  %3: bool[] = compare[direction="lt"] %1, %0
  return %3
  })");
  const FunctionPtr doubled = body_from(R"((%0: i32[], %1: i32[], %2: f32[5,6]) {
  %3: i32[] = constant[dtype=i32, shape=[], value=1.0]
  %4: i32[] = add %1, %3
  %5: f32[5,6] = add %2, %2
  return %4, %5
  })");
  const FunctionPtr is_small = body_from(R"((%0: f32[12,1]) {
  %1: f32[] = reduce_max[dims=[0,1]] %0
  %2: f32[] = constant[dtype=f32, shape=[], value=10.0]
  %3: bool[] = compare[direction="lt"] %1, %2
  return %3
  })");
  const FunctionPtr grown = body_from(R"((%0: f32[12,1]) {
  %1: f32[12,1] = constant[dtype=f32, shape=[12,1], value=1.5]
  %2: f32[12,1] = add %0, %1
  return %2
  })");
  const auto loop = [](const FunctionPtr& condition, const FunctionPtr& body, std::int64_t consts) {
    return Attributes{
        {"body", bodies(body)}, {"condition", bodies(condition)}, {"num_consts", consts}};
  };
  return {{.operands = {{i32({}), 0.0, 5.0}, {i32({}), 0.0, 3.0}, {f32({5, 6})}},
           .attributes = loop(below, doubled, 1)},
          {.operands = {{f32({12, 1})}}, .attributes = loop(is_small, grown, 0)}};
}

Samples cond_samples() {
  const FunctionPtr sum = body_from(R"((%0: f32[5,6], %1: f32[5,6]) {
  %2: f32[5,6] = add %0, %1
  return %2
  })");
  const FunctionPtr product = body_from(R"((%0: f32[5,6], %1: f32[5,6]) {
  %2: f32[5,6] = mul %0, %1
  %3: f32[5,6] = mul %2, %1
  return %3
  })");
  const FunctionPtr second = body_from(R"((%0: f32[5,6], %1: f32[5,6]) {
  return %1
  })");
  const FunctionPtr whole = body_from(R"((%0: f32[10,1]) {
  %1: f32[] = reduce_sum[dims=[0,1]] %0
  return %0, %1
  })");
  return {{.operands = {{i32({}), -1.0, 3.0}, {f32({5, 6})}, {f32({5, 6})}},
           .attributes = {{"branches", ir::Bodies{{sum, product, second}}}}},
          {.operands = {{i32({}), 0.0, 0.0}, {f32({10, 1})}},
           .attributes = {{"branches", ir::Bodies{{whole}}}}}};
}

Samples custom_vjp_samples() {
  const FunctionPtr primal = body_from(R"((%0: f32[5,6], %1: f32[5,6]) {
  %2: f32[5,6] = mul %0, %0
  %3: f32[5,6] = mul %2, %1
  return %3
  })");
  const FunctionPtr forward = body_from(R"((%0: f32[5,6], %1: f32[5,6]) {
  %2: f32[5,6] = mul %0, %0
  %3: f32[5,6] = mul %2, %1
  return %3, %0, %1
  })");
  const FunctionPtr backward = body_from(R"((%0: f32[5,6], %1: f32[5,6], %2: f32[5,6]) {
  %3: f32[5,6] = add %0, %0
  %4: f32[5,6] = mul %3, %1
  %5: f32[5,6] = mul %4, %2
  %6: f32[5,6] = mul %0, %0
  %7: f32[5,6] = mul %6, %2
  return %5, %7
  })");
  const FunctionPtr rounded = body_from(R"((%0: i32[12,1]) {
  return %0
  })");
  const FunctionPtr without = body_from(R"((%0: i32[12,1]) {
  return %0
  })");
  const auto attributes = [](const CustomVjpParts& parts) {
    return Attributes{{"backward", bodies(parts.backward)},
                      {"forward", bodies(parts.forward)},
                      {"num_args", static_cast<std::int64_t>(parts.num_args)},
                      {"primal", bodies(parts.primal)}};
  };
  return {{.operands = {{f32({5, 6})}, {f32({5, 6})}},
           .attributes = attributes({primal, forward, backward, 2})},
          {.operands = {{i32({12, 1})}}, .attributes = attributes({rounded, rounded, without, 1})}};
}

}  // namespace tessera::ops
