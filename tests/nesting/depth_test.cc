// Functions that are traced inside each other too deeply are an error, and never overflow the
// stack.
#include "trace/depth.h"

#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <string>

#include <tessera/control.h>
#include <tessera/debug.h>
#include <tessera/grad.h>
#include <tessera/jit.h>
#include <tessera/ops.h>
#include <tessera/transform.h>

#include "base/sanitized.h"
#include "tests/cases/with_stack.h"

namespace tessera::nesting {
namespace {

using testing::with_stack;

using DeepFunction = std::function<Array(const Array&, std::size_t)>;

Array jits(const Array& x, std::size_t depth) {
  if (depth == 0) return sin(x);
  return jit([=](Array v) { return jits(v, depth - 1) * 0.5F; })(x);
}

Array gradients(const Array& x, std::size_t depth) {
  if (depth == 0) return sin(x);
  return grad([=](const Array& v) { return gradients(v, depth - 1); })(x);
}

Array batches(const Array& x, std::size_t depth) {
  if (depth == 0) return sin(x);
  return sum(vmap([=](Array v) { return batches(v, depth - 1); })(expand_dims(x, 0)));
}

Array remats(const Array& x, std::size_t depth) {
  if (depth == 0) return sin(x);
  return remat([=](Array v) { return remats(v, depth - 1) * 0.5F; })(x);
}

Array conds(const Array& x, std::size_t depth) {
  if (depth == 0) return sin(x);
  return cond(
      x > 0.0F, [=](Array v) { return conds(v, depth - 1) * 0.5F; },
      [](Array v) { return v + 1.0F; }, x);
}

Array scans(const Array& x, std::size_t depth) {
  if (depth == 0) return sin(x);
  const auto step = [=](Array carry, Array row) {
    return std::pair(scans(carry, depth - 1) + row, carry);
  };
  return scan(step, x, ones({1})).first;
}

Array whiles(const Array& x, std::size_t depth) {
  if (depth == 0) return sin(x);
  return while_loop([](Array v) { return v > 0.5F; },
                    [=](Array v) { return whiles(v, depth - 1) * 0.25F; }, x);
}

const std::map<std::string, DeepFunction> kFunctions = {
    {"jit", jits},   {"grad", gradients}, {"vmap", batches}, {"remat", remats},
    {"cond", conds}, {"scan", scans},     {"while", whiles}};

/// The text of the error of a call of `f` inside of jit; empty if it succeeds.
std::string error_of(const DeepFunction& f, std::size_t depth) {
  try {
    jit([&](Array x) { return f(x, depth); })(ones({})).item<float>();
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

class Depth : public ::testing::TestWithParam<std::string> {};

TEST_P(Depth, ThousandsOfLevelsAreAnError) {
  with_stack(std::size_t{64} << 20, [&] {
    const std::string error = error_of(kFunctions.at(GetParam()), 4000);
    EXPECT_NE(error.find("too many functions are traced inside each other\n"), std::string::npos)
        << error;
    EXPECT_NE(error.find("  found:  257\n"
                         "  wanted: at most 256\n"
                         "  cure:   replace the recursion by a loop such as scan(), or call the "
                         "inner functions directly, without jit and other transformations"),
              std::string::npos)
        << error;
  });
}

TEST_P(Depth, SmallStacksHoldWhatIsAllowed) {
  const std::size_t bytes = std::size_t{kIsSanitized ? 2048U : 512U} << 10;
  with_stack(bytes, [&] {
    const DeepFunction& f = kFunctions.at(GetParam());
    std::size_t depth = 1;
    while (error_of(f, depth).empty() && depth < trace::kMostDepth) ++depth;
    EXPECT_GT(depth, 15U);
    EXPECT_LT(depth, 30U);
    const std::string error = error_of(f, depth);
    EXPECT_NE(error.find(" with the stack that this thread has left\n"), std::string::npos)
        << error;
    EXPECT_NE(error.find("; or call the outermost function on a thread with more stack"),
              std::string::npos)
        << error;
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, Depth,
                         ::testing::Values("jit", "grad", "vmap", "remat", "cond", "scan",
                                           "while"));

TEST(Deepest, TheDeepestAllowedFunctionHasAGradient) {
  with_stack(std::size_t{64} << 20, [] {
    const std::size_t depth = trace::kMostDepth - 2;  // besides jit and grad
    const auto f = [&](const Array& x) { return grad([&](Array v) { return jits(v, depth); })(x); };
    EXPECT_EQ(error_of([&](const Array& x, std::size_t) { return f(x); }, 0), "");
  });
}

Array with_large_frames(const Array& x, std::size_t depth) {
  if (depth == 0) return sin(x);
  volatile char frame[std::size_t{32} << 10];
  frame[0] = 1;
  return jit([=](Array v) { return with_large_frames(v, depth - 1); })(x) *
         static_cast<float>(frame[0]);
}

TEST(Deepest, FunctionsMayNeedMoreStackThanTheStages) {
  with_stack(std::size_t{8} << 20, [] {
    EXPECT_EQ(error_of(with_large_frames, 50), "");
    const std::string error = error_of(with_large_frames, 255);
    EXPECT_NE(error.find(" with the stack that this thread has left\n"), std::string::npos)
        << error;
  });
}

/// Lowering a function does not record into the function that is being traced.
Array lowered(const Array& x, std::size_t depth, const Array& example) {
  if (depth == 0) return sin(x);
  jit([=](Array v) { return lowered(v, depth - 1, example); }).lower(example);
  return x;
}

TEST(Deepest, CountsFunctionsThatAreLowered) {
  with_stack(std::size_t{64} << 20, [] {
    const Array example = ones({});
    const auto f = [&](const Array& x, std::size_t depth) { return lowered(x, depth, example); };
    EXPECT_EQ(error_of(f, 50), "");
    EXPECT_NE(error_of(f, 4000).find("  wanted: at most 256\n"), std::string::npos);
  });
}

TEST(Deepest, CountsFunctionsThatRunOpByOp) {
  with_stack(std::size_t{64} << 20, [] {
    const disable_jit scope;
    EXPECT_EQ(error_of(jits, 50), "");
    EXPECT_NE(error_of(jits, 4000).find("  wanted: at most 256\n"), std::string::npos);
  });
}

}  // namespace
}  // namespace tessera::nesting
