// Attention as calls of cuDNN's kernels. The texts of JAX are in cudnn_attention.txt.
#include <fstream>
#include <gtest/gtest.h>
#include <regex>

#include <tessera/tessera.h>

#include "ir/text.h"
#include "stablehlo/stablehlo.h"
#include "tests/cases/source_dir.h"

namespace tessera::testing {
namespace {

using Operands = std::tuple<Array, Array, Array>;

struct Sizes {
  std::int64_t queries = 128;
  std::int64_t keys = 128;
  std::int64_t key_heads = 4;
  std::int64_t depth = 64;
  DType dtype = DType::bf16;
};

Operands operands_of(const Sizes& s) {
  const Array keys = zeros({2, s.keys, s.key_heads, s.depth}, s.dtype);
  return {zeros({2, s.queries, 4, s.depth}, s.dtype), keys, keys};
}

template <typename F>
std::vector<std::string> calls_in(F step, const Operands& operands) {
  const auto lowered = jit(step).lower(operands);
  std::istringstream text(
      stablehlo::emit(ir::parse(lowered.partitioned_ir()), {.fuses_attention = true}));
  std::vector<std::string> calls;
  for (std::string line; std::getline(text, line);) {
    if (line.find("custom_call") == std::string::npos) continue;
    line = line.substr(line.find("= ") + 2, line.find(" loc(") - line.find("= ") - 2);
    line = std::regex_replace(line, std::regex(R"(%\w+(#\d+)?)"), "%");
    calls.push_back(std::regex_replace(line, std::regex(R"(\\22)"), "\""));
  }
  return calls;
}

Array attended(const Operands& x, const AttentionMask& mask) {
  return attention(std::get<0>(x), std::get<1>(x), std::get<2>(x), mask);
}

/// The calls in the derivative of a sum over the output.
std::vector<std::string> calls_in_gradient(const Sizes& sizes, const AttentionMask& mask) {
  return calls_in(
      [&mask](const Operands& operands) {
        return grad([&mask](const Operands& x) {
          const Array output = astype(attended(x, mask), DType::f32);
          return sum(output * output);
        })(operands);
      },
      operands_of(sizes));
}

TEST(CudnnAttention, IsCalledAsJaxDoes) {
  std::ifstream file(source_dir() / "tests/stablehlo/cudnn_attention.txt");
  std::string forward;
  std::string backward;
  std::getline(file, forward);
  std::getline(file, backward);
  const std::vector<std::string> calls = calls_in_gradient({}, {.is_causal = true});
  // dq, then dk and dv; the compiler keeps one of the two calls.
  EXPECT_EQ(calls, (std::vector<std::string>{forward, backward, backward}));
}

TEST(CudnnAttention, IsCalledForMasksThatItHas) {
  const auto has = [](const std::vector<std::string>& calls, const std::string& text) {
    EXPECT_EQ(calls.size(), 3);
    for (const std::string& call : calls) EXPECT_NE(call.find(text), std::string::npos) << call;
  };
  has(calls_in_gradient({.keys = 100}, {}), R"("mask_type": "NO_MASK")");
  has(calls_in_gradient({.dtype = DType::f16}, {}), R"("element_type": "F16")");
  has(calls_in_gradient({}, {.before = 3, .after = 0}), R"("sliding_window_length": 4)");
  has(calls_in_gradient({}, {.scale = 0.3}), R"("fmha_scale": 0.3)");
}

TEST(CudnnAttention, IsNotCalledOtherwise) {
  const Array lengths = zeros({2}, DType::i32);
  const Array bias = zeros({1, 1, 128, 128});
  const std::vector<std::pair<Sizes, AttentionMask>> others = {
      {{.dtype = DType::f32}, {}},
      {{.depth = 136}, {}},
      {{.depth = 12}, {}},
      {{.key_heads = 2}, {}},
      {{.keys = 100}, {.is_causal = true}},
      {{}, {.after = 2}},
      {{}, {.before = 2}},
      {{}, {.lengths = lengths}},
      {{}, {.bias = bias}},
      {{}, {.dropout = AttentionDropout{.rate = 0.5, .key = Key(1)}}}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    EXPECT_TRUE(calls_in_gradient(others[i].first, others[i].second).empty()) << i;
  }
}

}  // namespace
}  // namespace tessera::testing
