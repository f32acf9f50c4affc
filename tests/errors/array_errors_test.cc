// Arrays that cannot be read or used as asked.
#include <gtest/gtest.h>
#include <thread>

#include <tessera/grad.h>
#include <tessera/jit.h>
#include <tessera/ops.h>

#include "tests/errors/caught.h"

namespace tessera {
namespace {

TEST(ArrayErrors, EmptyArray) {
  const Array x;
  Array given = ones({2});
  const Array taken = std::move(given);
  EXPECT_EQ(caught([&] { given.to_vector<float>(); }).text, caught([&] { x.shape(); }).text);
  const Caught error = caught([&] { x + 1; });
  EXPECT_EQ(error.text,
            "an empty Array was used\n"
            "  where:  <this line>\n"
            "  found:  a default-constructed or moved-from handle\n"
            "  wanted: an array\n"
            "  cure:   assign an array to it first; use std::move only on handles that are no "
            "longer needed");
}

TEST(ArrayErrors, ItemOfSeveral) {
  const Array x = ones({2});
  const Caught error = caught([&] { x.item<float>(); });
  EXPECT_EQ(error.text,
            "item: the array does not have exactly one element\n"
            "  where:  <this line>\n"
            "  found:  f32[2]\n"
            "  wanted: an array of size 1\n"
            "  cure:   reduce it first, or read it with to_vector");
}

TEST(ArrayErrors, ValueOfATracedArray) {
  std::string line;
  auto f = jit([&](Array x) {
    line = line_of(1);
    return x.item<float>() > 0 ? x : -x;
  });
  const Caught error = caught([&] { f(scalar(1.0F)); });
  EXPECT_EQ(
      error.text,
      "the values of a traced array are not known\n"
      "  where:  " +
          line +
          "\n"
          "  found:  a traced f32[]\n"
          "  wanted: a concrete array\n"
          "  cure:   return the array from the traced function and read it outside; inside it, use "
          "where() for choices and dynamic_slice for positions that depend on values");
}

TEST(ArrayErrors, ValueOfAnAbstractArray) {
  const Array shape = eval_shape([](Array x) { return x * 2; }, ones({4}));
  const Caught error = caught([&] { shape.to_vector<float>(); });
  EXPECT_EQ(error.text,
            "an abstract array has no values\n"
            "  where:  <this line>\n"
            "  found:  an abstract f32[4]\n"
            "  wanted: a concrete array\n"
            "  cure:   eval_shape returns types only; call the function to get arrays");
}

TEST(ArrayErrors, TracedArrayAfterItsFunction) {
  Array kept;
  auto f = jit([&](Array x) {
    kept = x * 2;
    return x;
  });
  f(ones({2}));
  const Caught error = caught([&] { kept + 1; });
  EXPECT_EQ(error.text,
            "a traced array was used after its function had been traced\n"
            "  where:  <this line>\n"
            "  found:  a traced f32[2] of a function that has returned\n"
            "  wanted: an array of the function that is being traced, or a concrete array\n"
            "  cure:   return the array from the traced function; do not store it in a variable "
            "declared outside");
}

TEST(ArrayErrors, TracedArrayInALaterFunction) {
  Array kept;
  auto first = jit([&](Array x) {
    kept = x * 2;
    return x;
  });
  first(ones({5}));
  std::string line;
  auto second = jit([&](Array x) {
    line = line_of(1);
    return x + kept;
  });
  const Caught error = caught([&] { second(ones({5})); });
  EXPECT_EQ(error.text,
            "a traced array was used after its function had been traced\n"
            "  where:  " +
                line +
                "\n"
                "  found:  a traced f32[5] of a function that has returned\n"
                "  wanted: an array of the function that is being traced, or a concrete array\n"
                "  cure:   return the array from the traced function; do not store it in a "
                "variable declared outside");
}

TEST(ArrayErrors, TracedArrayOnAnotherThread) {
  Caught eager, traced;
  jit([&](Array x) {
    std::thread([&] {
      eager = caught([&] { x + 1; });
      traced = caught([&] { jit([&](Array y) { return y + 1; })(x); });
    }).join();
    return x;
  })(ones({2}));
  const std::string wanted =
      "a traced array was used on another thread\n"
      "  where:  <this line>\n"
      "  found:  a traced f32[2] of a function that another thread is tracing\n"
      "  wanted: ops on the thread that began the trace\n"
      "  cure:   call all ops of a traced function on the thread that called it; to use several "
      "threads, call jitted functions from each of them";
  EXPECT_EQ(eager.text, wanted);
  EXPECT_EQ(traced.text, wanted);
}

TEST(ArrayErrors, TracedArrayInALoweredFunction) {
  Caught error;
  jit([&](Array x) {
    const auto inner = jit([](Array y) { return y + 1; });
    error = caught([&] { inner.lower(x); });
    return inner(x);
  })(ones({2}));
  EXPECT_EQ(error.text,
            "a traced array was used by a function that is lowered on its own\n"
            "  where:  <this line>\n"
            "  found:  a traced f32[2] of a function that is still being traced\n"
            "  wanted: a concrete or abstract array\n"
            "  cure:   call the jitted function instead of lower() or compile(), or lower it "
            "outside of the traced function");
}

}  // namespace
}  // namespace tessera
