// NumPy's legacy random numbers, for data sets equal to those of Python programs.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <source_location>
#include <span>

namespace tessera {

/// Draws the numbers of numpy.random.RandomState(seed). Not thread-safe.
class NumpyRandomState {
 public:
  // The C++ standard seeds mt19937 exactly as NumPy seeds it from a scalar (init_genrand).
  explicit NumpyRandomState(std::uint32_t seed) : engine_(seed) {}

  std::uint32_t next_u32() { return static_cast<std::uint32_t>(engine_()); }

  /// Fills `out` like randint(low, high, size=out.size(), dtype=int32): values in [low, high), by
  /// masked rejection. Throws UserError unless low < high <= 2^31.
  void randint_i32(std::int32_t low, std::int64_t high, std::span<std::int32_t> out,
                   std::source_location where = std::source_location::current());
  /// Fills `out` like standard_normal(size=out.size()), by Marsaglia's polar method in f64.
  void standard_normal(std::span<double> out);

 private:
  double next_double();  // in [0, 1), 53 bits
  double next_normal();

  std::mt19937 engine_;
  std::optional<double> second_normal_;  // the polar method makes two numbers at a time
};

}  // namespace tessera
