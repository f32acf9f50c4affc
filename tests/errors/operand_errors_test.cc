// Mistakes in dtypes and numbers.
#include <gtest/gtest.h>

#include <tessera/nn.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(OperandErrors, DifferentDtypes) {
  const Param kernel(ones({2}), "head/kernel");
  const Array ids = array({1, 2});
  const Caught error = caught([&] { kernel* ids; });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, FractionMeetsIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { ids + 0.5; });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, NumberMeetsBool) {
  const Array mask = array({true, false});
  const Caught error = caught([&] { where(mask, mask, 3); });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, NumberOutOfRange) {
  const Array words = array({1U, 2U});
  const Caught error = caught([&] { words + -1; });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, FullOfAFraction) {
  const Caught error = caught([] { full({2}, 1.5, DType::i32); });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, ExpOfIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { exp(ids); });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, MeanOfIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { mean(ids); });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, AnyOfIntegers) {
  const Array ids = array({1, 2});
  const Caught error = caught([&] { any(ids); });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, TakeByFloats) {
  const nn::Embed embed(nn::Scope(Key(0)) / "tok_emb", 8, 4);
  const Array ids = array({0.0F, 1.0F});
  const Caught error = caught([&] { embed(ids); });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, WhereByIntegers) {
  const Array ids = array({0, 1});
  const Caught error = caught([&] { where(ids, 1.0, 2.0); });
  EXPECT_EQ(error.text, WANT);
}

TEST(OperandErrors, ArangeStandsStill) {
  const Caught error = caught([] { arange(0, 4, 0); });
  EXPECT_EQ(error.text, WANT);
}

}  // namespace
}  // namespace tessera
