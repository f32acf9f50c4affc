// Programs with control flow for tests: read from text, and run against the reference.
#pragma once

#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "ir/text.h"
#include "ops/ops.h"
#include "run/engine.h"
#include "tests/fuzz/run_sharded.h"

namespace tessera::compile::testing {

using ir::Function;
using ops::HostArray;
using tessera::testing::Arrays;
using tessera::testing::first_difference;
using tessera::testing::run_partitioned;
using tessera::testing::run_reference;

inline Type f32(Shape shape) { return {DType::f32, std::move(shape)}; }
inline Type i32(Shape shape) { return {DType::i32, std::move(shape)}; }

inline Function parsed(const std::string& mesh, const std::string& text) {
  Function function = ir::parse("function main[mesh=\"" + mesh + "\", grains=8]" + text);
  ir::verify(function, "the test");
  return function;
}

/// Every value whole, in nested functions too.
inline Function on_one_device(const Function& function) {
  const auto whole = [](Function f) {
    for (ir::Value& value : f.values) value.sharding = replicated_sharding(value.type.rank());
    return f;
  };
  return ir::with_mesh(whole(ir::with_changed_bodies(function, whole)), Mesh());
}

inline HostArray i32_array(std::int32_t value) {
  HostArray array(i32({}));
  array.data<std::int32_t>()[0] = value;
  return array;
}

/// Random values of the type; integers and floats lie between -2 and 2, unsigned ones up to 2.
inline HostArray random_array(const Type& type, std::uint32_t seed) {
  std::minstd_rand random(seed + 1);
  HostArray array(type);
  const auto draw = [&] { return static_cast<float>(random() % 4097) / 1024.0F - 2.0F; };
  ops::dispatch(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (T& value : array.data<T>()) {
      const float drawn = draw();
      value = static_cast<T>(std::is_unsigned_v<T> ? std::fabs(drawn) : drawn);
    }
  });
  return array;
}

/// `fixed` for the first inputs, random arrays for the others.
inline Arrays inputs_of(const Function& function, Arrays fixed = {}) {
  for (std::size_t i = fixed.size(); i < function.inputs.size(); ++i) {
    fixed.push_back(random_array(function.type(function.inputs[i]), static_cast<std::uint32_t>(i)));
  }
  return fixed;
}

/// The function as written and on one device, by several threads, with and without donated inputs.
inline void check(const Function& function, const Arrays& inputs, std::vector<int> alias = {}) {
  const Arrays wanted = run_reference(function, inputs);
  for (const Function& f : {function, on_one_device(function)}) {
    for (int threads : {1, 2, 3}) {
      run::Engine::instance().set_num_threads(threads);
      for (const std::vector<int>& donated : {std::vector<int>{}, alias}) {
        const Arrays found = run_partitioned(f, donated, inputs);
        EXPECT_EQ(first_difference(found, wanted), std::nullopt) << threads << " threads\n"
                                                                 << ir::print(f);
      }
    }
  }
}

inline std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    text.replace(at, word.size(), by);
    at += by.size();
  }
  return text;
}

}  // namespace tessera::compile::testing
