// Attention in StableHLO: products that hold all scores in memory, or a call of a kernel that does
// not.
#include "ops/stablehlo/form.h"

#include <limits>

#include "ops/attention/scores.h"

namespace tessera::ops {

AttentionSizes whole_sizes(const hlo::FormContext& c) {
  std::vector<Type> types;
  for (const ValueId id : c.equation.operands) types.push_back(c.function.type(id));
  return attention_sizes(types);
}

AttentionSizes sizes_for_dropout(const hlo::FormContext& c) {
  const AttentionSizes s = whole_sizes(c);
  if (s.heads * s.queries * s.keys > std::int64_t{1} << 32) {
    c.fail("dropout over more than 2^32 scores of one batch element",
           "turn dropout off, or split the heads over several calls");
  }
  return s;
}

bool has_window(const hlo::FormContext& c, std::size_t operand, std::size_t dim) {
  return c.tiles != nullptr &&
         window_of(c.function.sharding(c.equation.operands[operand]), dim) != nullptr;
}

namespace {

using Emit = std::vector<ValueId> (*)(Builder&, const AttentionScores&, const std::vector<ValueId>&,
                                      AttentionGradient);

std::vector<ValueId> forward(Builder& b, const AttentionScores& scores,
                             const std::vector<ValueId>& /*operands*/, AttentionGradient /*kind*/) {
  const ValueId s = scores.scores();
  const ValueId none = full_like(b, -std::numeric_limits<double>::infinity(), s);
  const ValueId max = scores.max_of_keys(select(b, scores.is_seen(), s, none));
  const ValueId p = scores.shares(max);
  const ValueId sum = scores.sum_of_keys(p);
  const ValueId zero = full_like(b, 0.0, sum);
  const ValueId is_empty = compare(b, "eq", sum, zero);
  const ValueId divisor = select(b, is_empty, full_like(b, 1.0, sum), sum);
  const ValueId shares = div(b, p, scores.of_queries(divisor));
  return {scores.over_keys(scores.dropped(shares), scores.of_all_heads(2)),
          add(b, max, log(b, divisor))};
}

std::vector<ValueId> backward(Builder& b, const AttentionScores& scores,
                              const std::vector<ValueId>& operands, AttentionGradient kind) {
  const ValueId d_output = scores.operand(3);
  const ValueId p = scores.shares(operands[4]);
  const ValueId delta = scores.of_queries(operands[5]);
  const ValueId products = scores.products(d_output, scores.of_all_heads(2));
  const ValueId e = sub(b, scores.dropped(products), delta);
  const ValueId ds = mul(b, p, e);
  if (kind == AttentionGradient::bias) return {ds};
  std::vector<ValueId> results;
  if (kind != AttentionGradient::kv) {
    results.push_back(scores.scaled(scores.over_keys(ds, scores.of_all_heads(1))));
  }
  if (kind == AttentionGradient::q) return results;
  results.push_back(scores.scaled(scores.over_queries(ds, scores.operand(0))));
  results.push_back(scores.over_queries(scores.dropped(p), d_output));
  return results;
}

/// Writes what `emit` makes of the tiles that a device holds.
hlo::Values written(hlo::FormContext& c, std::size_t first, Emit emit, AttentionGradient kind) {
  ir::Function body;
  Builder b(body);
  b.set_span(c.equation.span);
  AttentionScores::Operands operands{
      .all = {}, .first = first, .narrows_products = !c.widens_products};
  hlo::Values inputs;
  const std::size_t length = c.x().type.shape.size() - 3;  // the dimension
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    operands.all.push_back(b.add_input(c.x(i).type));
    const bool is_window = i < first && has_window(c, i, length);
    operands.has_windows |= is_window;
    // Elements after the end of a window may be NaN, which would remain NaN when multiplied by 0.
    inputs.push_back(is_window ? c.masked_operand(i, {static_cast<std::int64_t>(length)}, 0.0)
                               : c.x(i));
  }
  if (operands.has_windows) operands.whole = whole_sizes(c);
  const auto start = [&](std::size_t operand, std::size_t from_end) {
    const std::size_t dim = c.x(operand).type.shape.size() - from_end;
    const ValueId id = c.equation.operands[operand];
    if (!c.is_split(id, dim)) return ir::kNoValue;
    inputs.push_back(c.start(id, dim));
    return b.add_input({DType::i32, {}});
  };
  operands.query_start = start(0, 3);
  operands.key_start = start(1, 3);
  if (drop_rule(c.attributes())) {
    operands.head_start = start(0, 2);
    operands.whole = sizes_for_dropout(c);
  }
  const AttentionScores scores(b, c.attributes(), operands);
  std::vector<ValueId> results = emit(b, scores, operands.all, kind);
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i] = convert(b, results[i], c.results[i].dtype);
  }
  b.set_outputs(std::move(results));
  return c.call(c.w, body, inputs);
}

}  // namespace

StableHloRule attention_form() {
  return [](hlo::FormContext& c) {
    if (std::optional<hlo::Values> fused = fused_attention(c)) return *fused;
    return written(c, kAttentionOperands, forward, AttentionGradient::all);
  };
}

StableHloRule attention_grad_form(AttentionGradient kind) {
  return [kind](hlo::FormContext& c) {
    if (std::optional<hlo::Values> fused = fused_attention_grad(c, kind)) return *fused;
    return written(c, kAttentionGradOperands, backward, kind);
  };
}

}  // namespace tessera::ops
