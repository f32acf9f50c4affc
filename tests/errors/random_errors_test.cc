// Mistakes in keys and random numbers.
#include <gtest/gtest.h>

#include <tessera/ops.h>
#include <tessera/random.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(RandomErrors, KeyOfFloats) {
  const Array words = ones({2});
  const Caught error = caught([&] { Key::from_data(words); });
  EXPECT_EQ(error.text,
            "Key::from_data: the data is not a key\n"
            "  where:  <this line>\n"
            "  found:  f32[2]\n"
            "  wanted: u32[2]\n"
            "  cure:   make keys with Key(seed), split and fold_in; scan and vmap take "
            "split_data(key, n), whose slices are keys");
}

TEST(RandomErrors, FewerThanNoKeys) {
  const Key key(0);
  const Caught error = caught([&] { random::split(key, -1); });
  EXPECT_EQ(error.text,
            "split: the number of keys is negative\n"
            "  where:  <this line>\n"
            "  found:  -1\n"
            "  wanted: 0 or more\n"
            "  cure:   pass the number of keys that you need");
}

TEST(RandomErrors, FoldInAFloat) {
  const Key key(0);
  const Array step = scalar(1.0F);
  const Caught error = caught([&] { random::fold_in(key, step); });
  EXPECT_EQ(error.text,
            "fold_in: the number is not an integer scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: i32[] or u32[]\n"
            "  cure:   convert it: astype(x, DType::u32)");
}

TEST(RandomErrors, FoldInAList) {
  const Key key(0);
  const Array steps = array({1, 2});
  const Caught error = caught([&] { random::fold_in(key, steps); });
  EXPECT_EQ(error.text,
            "fold_in: the number is not an integer scalar\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: i32[] or u32[]\n"
            "  cure:   convert it: astype(x, DType::u32)");
}

TEST(RandomErrors, BoundsAreSwapped) {
  const Key key(0);
  const Caught error = caught([&] { random::truncated_normal(key, 2.0F, -2.0F, {4}); });
  EXPECT_EQ(error.text,
            "truncated_normal: the lower bound is not below the upper bound\n"
            "  where:  <this line>\n"
            "  found:  (2, -2)\n"
            "  wanted: lower < upper\n"
            "  cure:   swap the bounds");
}

TEST(RandomErrors, NegativeSize) {
  const Key key(0);
  const Caught error = caught([&] { random::normal(key, {2, -1}); });
  EXPECT_EQ(error.text,
            "normal: the shape has a negative size\n"
            "  where:  <this line>\n"
            "  found:  [2,-1]\n"
            "  wanted: sizes of 0 or more\n"
            "  cure:   write every size out; only reshape takes -1");
}

TEST(RandomErrors, ChoiceOfTooMany) {
  const Key key(0);
  const Caught error = caught([&] { random::choice(key, 3, {2, 2}, {.replace = false}); });
  EXPECT_EQ(error.text,
            "choice: there are too few numbers to choose from\n"
            "  where:  <this line>\n"
            "  found:  4 of 3\n"
            "  wanted: at most as many as there are\n"
            "  cure:   draw fewer, or draw with replacement");
}

TEST(RandomErrors, ChoiceWithOtherProbabilities) {
  const Key key(0);
  const Array p = ones({2});
  const Caught error = caught([&] { random::choice(key, 3, {}, {.p = p}); });
  EXPECT_EQ(error.text,
            "choice: the probabilities do not match the numbers to choose from\n"
            "  where:  <this line>\n"
            "  found:  f32[2]\n"
            "  wanted: f32[3]\n"
            "  cure:   pass one probability per number");
}

TEST(RandomErrors, RatesOfIntegers) {
  const Key key(0);
  const Array rate = array({1, 2});
  const Caught error = caught([&] { random::poisson(key, rate); });
  EXPECT_EQ(error.text,
            "poisson: the rates have the wrong dtype\n"
            "  where:  <this line>\n"
            "  found:  i32[2]\n"
            "  wanted: f32\n"
            "  cure:   convert them: astype(rate, DType::f32)");
}

TEST(RandomErrors, ExponentialIntegers) {
  const Key key(0);
  const Caught error = caught([&] { random::exponential(key, {2}, DType::i32); });
  EXPECT_EQ(error.text,
            "exponential: the dtype is not a float type\n"
            "  where:  <this line>\n"
            "  found:  i32\n"
            "  wanted: f16, bf16, f32 or f64\n"
            "  cure:   convert the numbers with astype");
}

TEST(RandomErrors, DirichletOfAScalar) {
  const Key key(0);
  const Array alpha = scalar(1.0F);
  const Caught error = caught([&] { random::dirichlet(key, alpha); });
  EXPECT_EQ(error.text,
            "dirichlet: alpha is a scalar\n"
            "  where:  <this line>\n"
            "  found:  f32[]\n"
            "  wanted: an array [.., k]\n"
            "  cure:   pass one parameter for each of the k numbers that have the sum 1");
}

}  // namespace
}  // namespace tessera
