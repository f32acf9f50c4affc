// Attention in StableHLO as calls of cuDNN's kernels, which never hold all scores in memory. Source
// of names, operands and configuration: jax, _src/cudnn/fused_attention_stablehlo.py.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "ops/attention/scores.h"
#include "ops/stablehlo/form.h"

namespace tessera::ops {

namespace {

using hlo::Value;
using hlo::Values;
using ir::Equation;

constexpr std::int64_t kMostFeatures = 128;  // of a head
constexpr std::int64_t kFeatureStep = 8;
const Ints kHeadsSwapped = {0, 2, 1, 3};

/// The kernel's name for this mask; empty if it has no such mask.
std::string mask_of(const KeyWindow& window, const AttentionSizes& s) {
  if (window.before < 0 && window.after < 0) return "NO_MASK";
  return window.after == 0 && s.queries == s.keys ? "CAUSAL" : "";
}

/// The equation that computes a value; null for an input.
const Equation* maker_of(const ir::Function& function, ValueId id) {
  const auto makes = [id](const Equation& equation) {
    return std::ranges::find(equation.results, id) != equation.results.end();
  };
  const auto found = std::ranges::find_if(function.equations, makes);
  return found == function.equations.end() ? nullptr : &*found;
}

/// x, or what it is converted from.
ValueId unconverted(const ir::Function& function, ValueId x) {
  const Equation* maker = maker_of(function, x);
  return maker != nullptr && *maker->op->name == "convert" ? maker->operands[0] : x;
}

/// One equation as a call. The arrays of a call are [B, T, H, D], with one dimension of the batch.
class FusedAttention {
 public:
  explicit FusedAttention(hlo::FormContext& c)
      : c_(c),
        w_(c.w),
        s_(attention_sizes({c.x(0).type, c.x(1).type, c.x(2).type})),
        window_(key_window(c.attributes())),
        mask_(mask_of(window_, s_)),
        batch_(std::accumulate(s_.batch.begin(), s_.batch.end(), std::int64_t{1},
                               std::multiplies<>())) {}

  bool is_possible() const {
    const Attributes& attributes = c_.attributes();
    const bool has_sizes = batch_ > 0 && s_.heads > 0 && s_.queries > 1 && s_.keys > 1;
    return c_.fuses_attention && is_half(c_.x().type.dtype) && has_sizes && !mask_.empty() &&
           s_.group() == 1 && s_.depth == s_.value_depth && s_.depth > 0 &&
           s_.depth % kFeatureStep == 0 && s_.depth <= kMostFeatures &&
           !attributes.get<bool>("has_bias") && !attributes.get<bool>("has_lengths") &&
           !drop_rule(attributes) && is_whole(0) && is_whole(1) && is_whole(2);
  }

  Values forward() {
    const Values results = call("__cudnn$fmhaSoftmax", {q(), k(), v()},
                                {heads_first(s_.queries), statistics()}, forward_products());
    const Value rows = w_.transpose(results[1], {0, 2, 1});
    return {unpacked(results[0], s_.queries), w_.reshape(rows, c_.results[1].shape)};
  }

  /// dq, dk and dv. `output` is that of the forward op.
  Values backward(const Value& output) {
    const Value lse = w_.transpose(packed_rows(c_.x(4)), {0, 2, 1});
    const Type dq = heads_first(s_.queries);
    const Type dk = heads_first(s_.keys);
    const Values results =
        call("__cudnn$fmhaSoftmaxBackward",
             {q(), k(), v(), lse, packed(c_.x(3), s_.queries), packed(output, s_.queries)},
             {dq, dk, dk}, backward_products());
    return {unpacked(results[0], s_.queries), unpacked(results[1], s_.keys),
            unpacked(results[2], s_.keys)};
  }

 private:
  /// Devices hold all positions of an operand.
  bool is_whole(std::size_t operand) const {
    const std::size_t dim = s_.batch.size();
    return !c_.is_split(c_.equation.operands[operand], dim) && !has_window(c_, operand, dim);
  }

  Value packed(const Value& x, std::int64_t length) const {
    return w_.reshape(x, {batch_, length, s_.heads, s_.depth});
  }
  Value packed_rows(const Value& x) const { return w_.reshape(x, {batch_, s_.queries, s_.heads}); }
  Value q() const { return packed(c_.x(0), s_.queries); }
  Value k() const { return packed(c_.x(1), s_.keys); }
  Value v() const { return packed(c_.x(2), s_.keys); }
  Value unpacked(const Value& x, std::int64_t length) const {
    return w_.reshape(w_.transpose(x, kHeadsSwapped),
                      with_batch(s_.batch, {length, s_.heads, s_.depth}));
  }
  Type heads_first(std::int64_t length) const {
    return {c_.x().type.dtype, {batch_, s_.heads, length, s_.depth}};
  }
  Type statistics() const { return {DType::f32, {batch_, s_.heads, s_.queries}}; }

  /// `results`: without the kernel's workspace.
  Values call(const std::string& name, const Values& operands, std::vector<Type> results,
              const std::string& products) const {
    std::vector<std::string> operand_layouts;
    std::vector<std::string> result_layouts;
    for (const Value& x : operands) operand_layouts.push_back(layout(x.type.rank(), false));
    for (const Type& type : results) result_layouts.push_back(layout(type.rank(), true));
    result_layouts.emplace_back("dense<0> : tensor<1xindex>");
    results.push_back({DType::u8, {0}});
    Values all = w_.ops(
        fmt::format("stablehlo.custom_call @{}({}) {{api_version = 2 : i32, backend_config = {}, "
                    "operand_layouts = [{}], result_layouts = [{}]}} : ({}) -> ({})",
                    name, hlo::names_text(operands), hlo::quoted(configuration(products)),
                    fmt::join(operand_layouts, ", "), fmt::join(result_layouts, ", "),
                    hlo::types_text(operands), hlo::types_text(results)),
        results);
    all.pop_back();
    return all;
  }

  /// From minor to major. Results [B, H, T, D] are laid out in memory as [B, T, H, D].
  static std::string layout(std::int64_t rank, bool is_result) {
    if (rank == 3) return "dense<[2, 1, 0]> : tensor<3xindex>";
    return fmt::format("dense<[3, {}, 0]> : tensor<4xindex>", is_result ? "1, 2" : "2, 1");
  }

  std::string configuration(const std::string& products) const {
    const std::string scores = fmt::format(
        R"("intermediate_tensor_shape": {{"element_type": "{}", "dimensions": ["{}", "{}", "{}", )"
        R"("{}"], "tuple_shapes": [], "layout": {{"dim_level_types": [], "dim_unique": [], )"
        R"("dim_ordered": [], "minor_to_major": ["3", "2", "1", "0"], "tiles": [], )"
        R"("element_size_in_bits": "0", "memory_space": "0", )"
        R"("index_primitive_type": "PRIMITIVE_TYPE_INVALID", )"
        R"("pointer_primitive_type": "PRIMITIVE_TYPE_INVALID", )"
        R"("dynamic_shape_metadata_prefix_bytes": "0"}}, )"
        R"("is_dynamic_dimension": [false, false, false, false]}})",
        c_.x().type.dtype == DType::bf16 ? "BF16" : "F16", batch_, s_.heads, s_.queries, s_.keys);
    const std::int64_t window = window_.before < 0 ? 0 : window_.before + 1;
    return fmt::format(
        R"({{"operation_queue_id": "0", "cudnn_fmha_backend_config": {{"algorithm": )"
        R"({{"algo_id": "0", "math_type": "TENSOR_OP_MATH", "tuning_knobs": {{"17": "1", )"
        R"("24": "0"}}, "is_cudnn_frontend": true, "workspace_size": "0"}}, "fmha_scale": {}, {}, )"
        R"("is_flash_attention": true, "mask_type": "{}", {}, "dropout_rate": 0.0, "seed": 42, )"
        R"("sliding_window_length": {}, "max_seg_per_batch": 1, "is_paged_attention": false}}}})",
        c_.attributes().get<double>("scale"), scores, mask_, products, window);
  }

  /// One product of the kernel: its contracted dimensions and those of the batch.
  static std::string product(const char* name, int lhs, int rhs, int lhs_heads, int rhs_heads) {
    return fmt::format(
        R"("{}_dot_dimension_numbers": {{"lhs_contracting_dimensions": ["{}"], )"
        R"("rhs_contracting_dimensions": ["{}"], "lhs_batch_dimensions": ["0", "{}"], )"
        R"("rhs_batch_dimensions": ["0", "{}"]}})",
        name, lhs, rhs, lhs_heads, rhs_heads);
  }
  static std::string forward_products() {
    return product("bmm1", 3, 3, 2, 2) + ", " + product("bmm2", 3, 1, 1, 2);
  }
  static std::string backward_products() {
    return product("bmm1_grad_gemm1", 2, 1, 1, 2) + ", " + product("bmm1_grad_gemm2", 3, 1, 1, 2) +
           ", " + product("bmm2_grad_gemm1", 2, 1, 1, 2) + ", " +
           product("bmm2_grad_gemm2", 3, 3, 2, 2);
  }

  hlo::FormContext& c_;
  hlo::Writer& w_;
  AttentionSizes s_;
  KeyWindow window_;
  std::string mask_;
  std::int64_t batch_;
};

/// The output of the attention that this equation is a derivative of. The kernel computes delta
/// from it, so delta must be just the sum of d_output * output. kNoValue if the function does not
/// show that it is.
ValueId output_of_forward(const hlo::FormContext& c) {
  const ir::Function& function = c.function;
  const std::vector<ValueId>& ids = c.equation.operands;
  const Equation* forward = maker_of(function, ids[4]);
  if (forward == nullptr || *forward->op->name != "attention") return ir::kNoValue;
  const ValueId output = forward->results[0];
  const bool has_same_operands =
      std::equal(ids.begin(), ids.begin() + 3, forward->operands.begin());
  const Equation* delta = maker_of(function, ids[5]);
  if (!has_same_operands || forward->attributes != c.attributes() || delta == nullptr ||
      *delta->op->name != "reduce_sum") {
    return ir::kNoValue;
  }
  const Equation* products = maker_of(function, delta->operands[0]);
  if (products == nullptr || *products->op->name != "mul") return ir::kNoValue;
  const ValueId x = unconverted(function, products->operands[0]);
  const ValueId y = unconverted(function, products->operands[1]);
  const bool is_delta = (x == ids[3] && y == output) || (x == output && y == ids[3]);
  return is_delta ? output : ir::kNoValue;
}

}  // namespace

std::optional<Values> fused_attention(hlo::FormContext& c) {
  FusedAttention fused(c);
  if (!fused.is_possible()) return std::nullopt;
  return fused.forward();
}

std::optional<Values> fused_attention_grad(hlo::FormContext& c, AttentionGradient kind) {
  FusedAttention fused(c);
  if (kind == AttentionGradient::bias || !fused.is_possible()) return std::nullopt;
  const ValueId output = output_of_forward(c);
  if (output == ir::kNoValue) return std::nullopt;
  Values all = fused.backward(c.value(output));
  // Both derivatives make the same call; the compiler keeps one of the two.
  if (kind == AttentionGradient::q) return Values{all[0]};
  if (kind == AttentionGradient::kv) return Values{all[1], all[2]};
  return all;
}

}  // namespace tessera::ops
