#include "ir/pass.h"

#include <gtest/gtest.h>

#include <tessera/error.h>

#include "ir/simplify.h"

namespace tessera::ir {
namespace {

Function program() {
  return parse(R"(function main[mesh="none", grains=8](%0: f32[4]) {
  %1: f32[4] = mul %0, %0
  %2: f32[4] = mul %0, %0
  %3: f32[4] = tanh %0
  %4: f32[4] = add %1, %2
  return %4
}
)");
}

TEST(Passes, RunInOrderAndAreObserved) {
  std::vector<std::string> names;
  std::vector<std::size_t> sizes;
  const Function result =
      run_passes(simplify_passes(), program(),
                 {.disabled = {}, .verify = true, .observe = [&](const PassEvent& event) {
                    names.push_back(event.pass.name);
                    sizes.push_back(event.before.equations.size());
                    sizes.push_back(event.after.equations.size());
                    EXPECT_GE(event.seconds, 0);
                  }});
  EXPECT_EQ(names, (std::vector<std::string>{"remove_dead_code", "merge_common_subexpressions"}));
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 3, 3, 2}));
  EXPECT_EQ(result.equations.size(), 2U);
}

TEST(Passes, AreSwitchedOffByName) {
  const Function result = run_passes(
      simplify_passes(), program(),
      {.disabled = {"merge_common_subexpressions", "of_another_stage"}, .verify = false});
  EXPECT_EQ(result.equations.size(), 3U);
}

TEST(Passes, ThatAreNeededCannotBeSwitchedOff) {
  const Pass needed{.name = "split", .doc = "", .run = [](const Function& f) { return f; }};
  try {
    run_passes({needed}, program(), {.disabled = {"split"}});
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "passes: the pass split cannot be disabled\n"
                 "  found:  split\n"
                 "  wanted: none: no pass is optional here\n"
                 "  cure:   remove it from the disabled passes");
  }
}

TEST(Passes, AreVerifiedAndNamed) {
  const Pass broken{.name = "break_types", .doc = "", .run = [](const Function& f) {
                      Function result = f;
                      result.values[4].type.dtype = DType::i32;
                      return result;
                    }};
  EXPECT_NO_THROW(run_passes({broken}, program(), {}));
  try {
    run_passes({broken}, program(), {.verify = true});
    FAIL() << "nothing was thrown";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("after break_types"), std::string::npos)
        << error.what();
  }
}

TEST(Passes, UnknownNamesAreMistakes) {
  EXPECT_THROW(check_disabled({"remove_everything"}, simplify_passes(), "test"), UserError);
  EXPECT_NO_THROW(check_disabled({"remove_dead_code"}, simplify_passes(), "test"));
}

}  // namespace
}  // namespace tessera::ir
