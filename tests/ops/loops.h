// Functions that the tests of passes over loops share.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <string_view>

#include "ir/text.h"
#include "ops/record.h"
#include "tests/ops/arrays.h"

namespace tessera::testing {

inline std::size_t count(const ir::Function& f, std::string_view op) {
  return static_cast<std::size_t>(std::ranges::count(
      f.equations, op, [](const ir::Equation& equation) { return *equation.op->name; }));
}

/// The first loop of this kind: `scan` or `while`.
inline const ir::Equation& loop_of(const ir::Function& f, std::string_view op = "scan") {
  return *std::ranges::find(f.equations, op,
                            [](const ir::Equation& equation) { return *equation.op->name; });
}

inline const ir::Function& body_of(const ir::Function& f, std::string_view op = "scan") {
  return loop_of(f, op).attributes.body("body");
}

/// The function after the pass. It must be valid, and running the pass again must not change it.
inline ir::Function changed_by(ir::Function (*pass)(ir::Function), const char* name,
                               const ir::Function& f) {
  ir::Function changed = pass(f);
  ir::verify(changed, name);
  EXPECT_EQ(ir::print(pass(changed)), ir::print(changed));
  return changed;
}

/// Expects the same bits from both functions for random inputs. Integer inputs are 0.
inline void expect_same_bits(const ir::Function& f, const ir::Function& changed) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<ops::HostArray> inputs;
  for (const ir::ValueId id : f.inputs) {
    inputs.emplace_back(f.type(id));
    if (f.type(id).dtype != DType::f32) continue;
    for (float& x : inputs.back().data<float>()) x = normal(random);
  }
  const auto expected = compile::interpret(f, inputs), found = compile::interpret(changed, inputs);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].type().dtype != DType::f32) continue;
    expect_elements(elements<float>(found[i]), elements<float>(expected[i]));
  }
}

}  // namespace tessera::testing
