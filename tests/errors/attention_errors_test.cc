// Operands of attention that do not fit each other.
#include <gtest/gtest.h>

#include <tessera/functions.h>
#include <tessera/nn.h>

#include "ir/text.h"
#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(AttentionErrors, OfIntegers) {
  const Array x = zeros({2, 4, 2, 8}, DType::i32);
  const Caught error = caught([&] { attention(x, x, x); });
  EXPECT_EQ(error.text,
            "attention: does not support operands of dtype i32\n"
            "  where:  <this line>\n"
            "  found:  i32[2,4,2,8], i32[2,4,2,8], i32[2,4,2,8]\n"
            "  wanted: dtypes f16, bf16, f32, f64\n"
            "  cure:   convert the operand, for example astype(x, DType::f32)");
}

TEST(AttentionErrors, WithoutHeads) {
  const Array x = ones({4, 8});
  const Caught error = caught([&] { attention(x, x, x); });
  EXPECT_EQ(
      error.text,
      "attention: q, k and v do not have the same rank of at least 3\n"
      "  where:  <this line>\n"
      "  found:  f32[4,8], f32[4,8], f32[4,8]\n"
      "  wanted: q [batch..,T,H,D], k [batch..,S,K,D] and v [batch..,S,K,E], where K divides H\n"
      "  cure:   split features into heads: reshape(q, {batch, length, heads, features / "
      "heads})");
}

TEST(AttentionErrors, HeadsDoNotDivide) {
  const Array q = ones({4, 3, 8});
  const Array k = ones({4, 2, 8});
  const Caught error = caught([&] { attention(q, k, k); });
  EXPECT_EQ(
      error.text,
      "attention: the shapes of q, k and v do not match\n"
      "  where:  <this line>\n"
      "  found:  f32[4,3,8], f32[4,2,8], f32[4,2,8]\n"
      "  wanted: q [batch..,T,H,D], k [batch..,S,K,D] and v [batch..,S,K,E], where K divides H\n"
      "  cure:   the order of dimensions is length, heads, features of a head");
}

TEST(AttentionErrors, BiasOfAnotherLength) {
  const Array x = ones({2, 4, 1, 8});
  const AttentionMask mask{.bias = ones({2, 1, 4, 5})};
  const Caught error = caught([&] { attention(x, x, x, mask); });
  EXPECT_EQ(error.text,
            "attention: the bias does not match the scores\n"
            "  where:  <this line>\n"
            "  found:  f32[2,4,1,8], f32[2,4,1,8], f32[2,4,1,8], f32[2,1,4,5]\n"
            "  wanted: f32[2,1,4,4], where any size may be 1\n"
            "  cure:   reshape the bias so that it has the dimensions batch, heads, queries, keys");
}

TEST(AttentionErrors, LengthsOfAnotherBatch) {
  const Array x = ones({2, 4, 1, 8});
  const AttentionMask mask{.lengths = ones({3}, DType::i32)};
  const Caught error = caught([&] { attention(x, x, x, mask); });
  EXPECT_EQ(error.text,
            "attention: the lengths do not match the batch\n"
            "  where:  <this line>\n"
            "  found:  f32[2,4,1,8], f32[2,4,1,8], f32[2,4,1,8], i32[3]\n"
            "  wanted: i32[2]\n"
            "  cure:   give the number of keys of each element of the batch");
}

TEST(AttentionErrors, WindowOfANegativeSize) {
  const Array x = ones({4, 1, 8});
  const Caught error = caught([&] { attention(x, x, x, {.before = -3}); });
  EXPECT_EQ(error.text,
            "attention: before = -3\n"
            "  where:  <this line>\n"
            "  found:  f32[4,1,8], f32[4,1,8], f32[4,1,8]\n"
            "  wanted: a number of keys, or -1 for no limit\n"
            "  cure:   count keys from the position of the query");
}

TEST(AttentionErrors, RateOfOne) {
  const Array x = ones({4, 1, 8});
  const AttentionMask mask{.dropout = AttentionDropout{1.0, Key(1)}};
  const Caught error = caught([&] { attention(x, x, x, mask); });
  EXPECT_EQ(error.text,
            "attention: drop_rate = 1\n"
            "  where:  <this line>\n"
            "  found:  f32[4,1,8], f32[4,1,8], f32[4,1,8], u32[2]\n"
            "  wanted: 0 <= drop_rate < 1\n"
            "  cure:   give the probability that an attention weight is dropped, for example 0.1");
}

TEST(AttentionErrors, KeysOfAnotherBatch) {
  const Caught error = caught([&] {
    ir::parse(
        "function f[mesh=\"data=2\", grains=8](%0: f32[3,4,1,8], %1: u32[2]) {\n"
        "  %2: f32[3,4,1,8], %3: f32[3,4,1] = attention[after=-1, before=-1, drop_rate=0.5, "
        "has_bias=false, has_lengths=false, scale=1.0] %0, %0, %0, %1\n"
        "  return %2\n}\n");
  });
  EXPECT_EQ(error.text,
            "parse: line 2: attention: the keys of dropout do not match the batch\n"
            "  found:  f32[3,4,1,8], f32[3,4,1,8], f32[3,4,1,8], u32[2] in "
            "'%2: f32[3,4,1,8], %3: f32[3,4,1] = attention[after=-1, before=-1, drop_rate=0.5, "
            "has_bias=false, has_lengths=false, scale=1.0] %0, %0, %0, %1'\n"
            "  wanted: u32[3,2]\n"
            "  cure:   give a key for each element of the batch");
}

TEST(AttentionErrors, CotangentOfAnotherAttention) {
  const Caught error = caught([&] {
    ir::parse(
        "function f[mesh=\"data=2\", grains=8](%0: f32[4,1,8], %1: f32[5,1,8], %2: f32[4,1]) {\n"
        "  %3: f32[4,1,8] = attention_grad_q[after=-1, before=-1, drop_rate=0.0, "
        "has_bias=false, has_lengths=false, scale=1.0] %0, %1, %1, %1, %2, %2\n"
        "  return %3\n}\n");
  });
  EXPECT_EQ(error.text,
            "parse: line 2: attention_grad_q: the cotangent of the output, lse or delta does not "
            "match the queries\n"
            "  found:  f32[4,1,8], f32[5,1,8], f32[5,1,8], f32[5,1,8], f32[4,1], f32[4,1] in "
            "'%3: f32[4,1,8] = attention_grad_q[after=-1, before=-1, drop_rate=0.0, "
            "has_bias=false, has_lengths=false, scale=1.0] %0, %1, %1, %1, %2, %2'\n"
            "  wanted: f32[4,1,8], f32[4,1] and f32[4,1]\n"
            "  cure:   take them from an attention of the same operands");
}

TEST(AttentionErrors, RotaryOfOddFeatures) {
  const Array x = ones({2, 4, 1, 7});
  const Caught error = caught([&] { nn::rotary_embedding(x, array({0, 1, 2, 3})); });
  EXPECT_EQ(error.text,
            "rotary_embedding: the options are not valid\n"
            "  where:  <this line>\n"
            "  found:  features = 0, base = 10000 for f32[2,4,1,7]\n"
            "  wanted: an even number of features up to 7, a base above 0\n"
            "  cure:   set features, such as {.features = 6}; the others are not rotated");
}

TEST(AttentionErrors, RotaryOfOtherPositions) {
  const Array x = ones({2, 4, 1, 8});
  const Caught error = caught([&] { nn::rotary_embedding(x, array({0, 1, 2})); });
  EXPECT_EQ(error.text,
            "rotary_embedding: the positions do not match x\n"
            "  where:  <this line>\n"
            "  found:  i32[3] for f32[2,4,1,8]\n"
            "  wanted: integers [4] or [2,4]\n"
            "  cure:   write for example iota({x.dim(-3)}, 0)");
}

TEST(AttentionErrors, RotaryWithoutHeads) {
  const Array x = ones({4, 8});
  const Caught error = caught([&] { nn::rotary_embedding(x, array({0, 1, 2, 3})); });
  EXPECT_EQ(error.text,
            "rotary_embedding: the input has too few dimensions\n"
            "  where:  <this line>\n"
            "  found:  f32[4,8]\n"
            "  wanted: floats [.., T, H, D]\n"
            "  cure:   add the missing dimensions with expand_dims or reshape");
}

TEST(AttentionErrors, RotaryOfIntegers) {
  const Array x = ones({1, 1, 8}, DType::i32);
  const Caught error = caught([&] { nn::rotary_embedding(x, array({0})); });
  EXPECT_EQ(error.text,
            "rotary_embedding: the input is not floats\n"
            "  where:  <this line>\n"
            "  found:  i32[1,1,8]\n"
            "  wanted: floats [.., T, H, D]\n"
            "  cure:   convert it, for example astype(x, DType::f32)");
}

}  // namespace
}  // namespace tessera
