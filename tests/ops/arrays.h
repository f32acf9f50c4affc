// Small arrays and expressions on the reference engine, for tests.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "compile/reference/interpret.h"
#include "ir/builder.h"

namespace tessera::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::uint32_t>) return DType::u32;
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  return DType::f64;
}

template <typename T>
ops::HostArray array(std::vector<T> values, Shape shape) {
  ops::HostArray result({.dtype = dtype_of<T>(), .shape = std::move(shape)});
  EXPECT_EQ(result.data<T>().size(), values.size());
  std::copy(values.begin(), values.end(), result.data<T>().begin());
  return result;
}

template <typename T>
ops::HostArray array(std::vector<T> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return array(std::move(values), {size});
}

template <typename T>
std::vector<T> elements(const ops::HostArray& array_read) {
  EXPECT_EQ(array_read.type().dtype, dtype_of<T>());
  const auto data = array_read.data<T>();
  return {data.begin(), data.end()};
}

/// Expects equal bits, except that all NaNs are equal.
template <typename T>
void expect_elements(const std::vector<T>& found, const std::vector<T>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(wanted[i])) {
      EXPECT_TRUE(std::isnan(found[i])) << "element " << i << " is " << found[i];
    } else {
      EXPECT_EQ(0, std::memcmp(&found[i], &wanted[i], sizeof(T)))
          << "element " << i << " is " << found[i] << " and not " << wanted[i];
    }
  }
}

using Emit = std::function<std::vector<ir::ValueId>(ir::Builder&, std::vector<ir::ValueId>)>;
using EmitOne = std::function<ir::ValueId(ir::Builder&, std::vector<ir::ValueId>)>;

inline std::vector<ops::HostArray> evaluate_all(std::vector<ops::HostArray> inputs,
                                                const Emit& emit, std::int64_t grains = 8) {
  ir::Function function;
  function.grains = grains;
  ir::Builder b(function);
  std::vector<ir::ValueId> ids;
  for (const ops::HostArray& input : inputs) ids.push_back(b.add_input(input.type()));
  b.set_outputs(emit(b, ids));
  return compile::interpret(function, std::move(inputs));
}

inline ops::HostArray evaluate(std::vector<ops::HostArray> inputs, const EmitOne& emit,
                               std::int64_t grains = 8) {
  auto emit_all = [&](ir::Builder& b, std::vector<ir::ValueId> ids) {
    return std::vector<ir::ValueId>{emit(b, std::move(ids))};
  };
  return evaluate_all(std::move(inputs), emit_all, grains)[0];
}

}  // namespace tessera::testing
