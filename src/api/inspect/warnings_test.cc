// Warnings: a static number that changes is reported once, to the handler or on standard error.
#include <gtest/gtest.h>
#include <thread>

#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera {
namespace {

/// Collects warnings during its lifetime.
class Collected {
 public:
  Collected() {
    set_warning_handler([this](const Warning& warning) {
      const std::lock_guard<std::mutex> lock(mutex_);
      all_.push_back(warning);
    });
  }
  ~Collected() { reset_warning_handler(); }
  Collected(const Collected&) = delete;
  Collected& operator=(const Collected&) = delete;

  const std::vector<Warning>& all() const { return all_; }

 private:
  std::mutex mutex_;
  std::vector<Warning> all_;
};

Array scaled(const Array& x, double rate) { return x * rate; }
Array shifted(const Array& x, int by) { return x + by; }

TEST(Warnings, ANumberThatChangesIsNamedOnce) {
  const Collected warnings;
  const auto step = jit(scaled, {.name = "scaled"});
  const Array x = ones({2});
  step(x, 0.5);
  EXPECT_TRUE(warnings.all().empty());
  const std::uint32_t line = std::source_location::current().line() + 1;
  step(x, 0.25);
  ASSERT_EQ(warnings.all().size(), 1U);
  EXPECT_EQ(warnings.all()[0].where.line, line);
  EXPECT_EQ(to_string(warnings.all()[0]),
            "jit(scaled): the function is compiled again for each value of a number\n"
            "  where:  " +
                to_string(warnings.all()[0].where) +
                "\n"
                "  found:  static value 1: 0.5 before, 0.25 now\n"
                "  cure:   make it a Scalar, so that one program takes any value; or wrap it in "
                "Static, if each value should have its own program");
  for (const double rate : {0.1, 0.2, 0.3}) step(x, rate);
  EXPECT_EQ(warnings.all().size(), 1U);
  EXPECT_EQ(step.num_traces(), 5);
  const auto other = jit(scaled);
  other(x, 1.5);
  other(x, 2.5);
  EXPECT_EQ(warnings.all().size(), 2U);
}

struct Settings {
  Array value;
  std::vector<double> rates;
  TESSERA_TREE(value, rates)
};

TEST(Warnings, TheNumberHasItsPathInATree) {
  const Collected warnings;
  const auto step = jit([](Settings all) { return all.value * all.rates[1]; });
  step({ones({2}), {1.0, 0.5}});
  step({ones({2}), {1.0, 0.75}});
  ASSERT_EQ(warnings.all().size(), 1U);
  EXPECT_EQ(warnings.all()[0].found, "static value 0/rates/1: 0.5 before, 0.75 now");
}

TEST(Warnings, TwoIntegersMayBeModes) {
  const Collected warnings;
  const auto step = jit(shifted);
  const Array x = ones({2});
  for (int round = 0; round < 3; ++round) {
    step(x, 1);
    step(x, 2);
  }
  EXPECT_TRUE(warnings.all().empty());
  step(x, -7);
  ASSERT_EQ(warnings.all().size(), 1U);
  EXPECT_EQ(warnings.all()[0].found, "static value 1: 1 before, -7 now");
}

TEST(Warnings, OtherReasonsToTraceAreNone) {
  const Collected warnings;
  // All values of a Scalar share one program.
  const auto dynamic = jit([](Array x, const Scalar& rate) { return x * rate; });
  for (const double rate : {0.1, 0.2, 0.3}) dynamic(ones({2}), rate);
  EXPECT_EQ(dynamic.num_traces(), 1);
  // Each number comes with its own shape.
  const auto step = jit(scaled);
  for (const int size : {1, 2, 3}) step(ones({size}), 0.5 * size);
  const auto flagged = jit([](Array x, bool is_negative) { return is_negative ? -x : x; });
  for (const bool is_negative : {true, false}) flagged(ones({2}), is_negative);
  const auto named = jit([](Array x, const std::string& name) { return x + std::ssize(name); });
  for (const char* name : {"a", "bb", "ccc", "0.5"}) named(ones({2}), name);
  const auto meant = jit([](Array x, const Static<double>& rate) { return x * *rate; });
  for (const double rate : {0.1, 0.2, 0.3}) {
    meant(ones({2}), Static<double>{rate});
  }
  const auto both = jit([](Array x, double a, double b) { return x * a + b; });
  both(ones({2}), 0.5, 0.5);
  both(ones({2}), 1.5, 2.5);
  EXPECT_TRUE(warnings.all().empty());
}

TEST(Warnings, ThreadsWarnOnceTogether) {
  const Collected warnings;
  const auto step = jit(scaled);
  const Array x = ones({2});
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] { step(x, 0.5 + i); });
    }
  }
  EXPECT_EQ(warnings.all().size(), 1U);
  EXPECT_EQ(step.num_traces(), 4);
}

TEST(Warnings, WithoutAHandlerTheyArePrinted) {
  reset_warning_handler();
  const auto step = jit(scaled, {.name = "scaled"});
  ::testing::internal::CaptureStderr();
  for (const double rate : {0.1, 0.2, 0.3}) step(ones({2}), rate);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("warning: jit(scaled): the function is compiled again"));
  EXPECT_NE(text.find("  found:  static value 1: 0.1 before, 0.2 now\n"), std::string::npos);
  EXPECT_EQ(text.find("0.3"), std::string::npos);
}

}  // namespace
}  // namespace tessera
