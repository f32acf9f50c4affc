// Functions shared by the tests of the public interface.
#pragma once

#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include <tessera/array.h>
#include <tessera/error.h>
#include <tessera/random.h>

namespace tessera::testing {

/// The parts of the UserError that `f` throws.
template <typename F>
Mistake mistake_of(F&& f) {
  try {
    f();
  } catch (const UserError& error) {
    return error.mistake();
  }
  ADD_FAILURE() << "no UserError";
  return {.what = "", .cure = ""};
}

inline Array numbers(const Shape& shape, std::int64_t seed = 0) {
  return random::normal(Key(seed), shape);
}

inline void expect_same_bits(const Array& found, const Array& wanted) {
  ASSERT_EQ(to_string(found.type()), to_string(wanted.type()));
  const std::vector<float> x = found.to_vector<float>();
  const std::vector<float> y = wanted.to_vector<float>();
  EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0);
}

}  // namespace tessera::testing
