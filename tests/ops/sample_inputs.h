// Test cases from the op table: every sample of every record, with random operands.
//
// Values depend only on the seed, the op and the sample. TESSERA_TEST_SEED sets the seed, and
// failing tests print it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ops/host_array.h"
#include "ops/record.h"

namespace tessera::testing {

/// One sample of one op.
struct Case {
  const ops::OpRecord* op;
  std::size_t number;

  const ops::Sample& sample() const { return (*op->samples)[number]; }
  std::string name() const { return *op->name + "_" + std::to_string(number); }
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name(); }
};

inline std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const ops::OpRecord* op : ops::all_ops()) {
    for (std::size_t i = 0; i < op->samples->size(); ++i) cases.push_back({op, i});
  }
  return cases;
}

inline std::uint64_t test_seed() {
  const char* text = std::getenv("TESSERA_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

/// A generator for one case; `use` distinguishes several draws for the same case.
inline std::mt19937_64 generator_for(const Case& c, std::uint64_t use = 0) {
  std::uint64_t hash = test_seed() * 1000003 + use;
  for (char letter : c.name()) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  return std::mt19937_64(hash);
}

/// In [0, 1), the same on every platform.
inline double draw_unit(std::mt19937_64& generator) {
  return static_cast<double>(generator() >> 11U) * 0x1p-53;
}

enum class Values {
  ordinary,  // within the sample's range
  special,   // a fifth of the floats are -0, 0, denormal, infinite or NaN
};

template <typename T>
T draw_element(std::mt19937_64& generator, const ops::SampleOperand& operand, Values values) {
  if constexpr (detail::kIsHalf<T>) {
    return T(draw_element<float>(generator, operand, values));
  } else {
    const double unit = draw_unit(generator);
    if constexpr (std::is_floating_point_v<T>) {
      const T infinity = std::numeric_limits<T>::infinity();
      const T special[] = {T{-0.0},   T{0.0},    std::numeric_limits<T>::denorm_min(),
                           infinity,  -infinity, std::numeric_limits<T>::quiet_NaN(),
                           T(-1e-40), T(1e-40)};
      const std::uint64_t pick = generator();
      if (values == Values::special && pick % 5 == 0) return special[pick / 5 % std::size(special)];
      return static_cast<T>(operand.low + unit * (operand.high - operand.low));
    } else {
      // Includes both ends.
      const double whole = std::floor(operand.low + unit * (operand.high - operand.low + 1.0));
      // Negative samples of unsigned operands wrap around.
      return static_cast<T>(static_cast<std::int64_t>(std::min(whole, operand.high)));
    }
  }
}

/// Adds `diagonal` to the elements [.., i, i], once for i = 0, twice for i = 1, ...
template <typename T>
void add_to_diagonals(std::span<T> elements, const Shape& shape, double diagonal) {
  const auto rows = static_cast<std::size_t>(shape[shape.size() - 2]);
  const auto cols = static_cast<std::size_t>(shape[shape.size() - 1]);
  for (std::size_t n = 0; n < elements.size(); ++n) {
    const std::size_t row = n / cols % rows;
    if (row != n % cols) continue;
    elements[n] += static_cast<T>(diagonal * static_cast<double>(row + 1));
  }
}

inline ops::HostArray random_array(std::mt19937_64& generator, const ops::SampleOperand& operand,
                                   Values values = Values::ordinary) {
  ops::HostArray array(operand.type);
  ops::dispatch(operand.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (T& element : array.data<T>()) element = draw_element<T>(generator, operand, values);
    if constexpr (std::is_floating_point_v<T>) {
      if (operand.diagonal == 0.0) return;
      add_to_diagonals(array.data<T>(), operand.type.shape, operand.diagonal);
    }
  });
  return array;
}

inline std::vector<ops::HostArray> random_inputs(const Case& c, Values values = Values::ordinary) {
  std::mt19937_64 generator = generator_for(c);
  std::vector<ops::HostArray> inputs;
  for (const ops::SampleOperand& operand : c.sample().operands) {
    inputs.push_back(random_array(generator, operand, values));
  }
  return inputs;
}

/// Maps a dtype to the one that replaces it.
using DTypeMap = DType (*)(DType);

inline ir::Attributes with_dtypes(const ir::Attributes& attributes, DTypeMap map);

inline ir::Function with_dtypes(ir::Function function, DTypeMap map) {
  for (ir::Value& value : function.values) value.type.dtype = map(value.type.dtype);
  for (ir::Equation& equation : function.equations) {
    equation.attributes = with_dtypes(equation.attributes, map);
  }
  return function;
}

inline ir::Attributes with_dtypes(const ir::Attributes& attributes, DTypeMap map) {
  ir::Attributes result = ir::with_replaced_bodies(
      attributes, [map](const ir::Function& body) { return with_dtypes(body, map); });
  for (const auto& [name, value] : attributes.items()) {
    const DType* dtype = std::get_if<DType>(&value);
    if (dtype != nullptr) result.set(name, map(*dtype));
  }
  return result;
}

inline ops::Sample with_dtypes(ops::Sample sample, DTypeMap map) {
  for (ops::SampleOperand& operand : sample.operands) {
    operand.type.dtype = map(operand.type.dtype);
  }
  sample.attributes = with_dtypes(sample.attributes, map);
  return sample;
}

/// f64 in place of f32 and bf16.
inline DType in_double(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 ? DType::f64 : dtype;
}

/// A function whose inputs are the sample's operands and whose outputs are the op's results.
inline ir::Function function_of(const ops::OpRecord& op, const ops::Sample& sample) {
  ir::Function function;
  ir::Builder b(function);
  std::vector<ir::ValueId> operands;
  for (const ops::SampleOperand& operand : sample.operands) {
    operands.push_back(b.add_input(operand.type));
  }
  b.set_outputs(b.emit_all(op, sample.attributes, operands));
  return function;
}

}  // namespace tessera::testing
