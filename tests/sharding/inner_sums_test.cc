// Sums over two dimensions of which the second is split, for random shapes, meshes and grains. The
// values make the order of the sum, and the sign of zero, matter. The bits are those of the
// reference engine, and of one device.
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "api/test_support.h"

namespace tessera::testing {
namespace {

using Ints = std::vector<std::int64_t>;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  template <typename T>
  T one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, std::ssize(list) - 1))];
  }
  /// Values of very different magnitudes, so that sums round and products vanish; some are -0. In
  /// one out of four arrays all products vanish, which leaves only signs of zero to be added.
  Array numbers(const Shape& shape) {
    const bool is_tiny = between(0, 3) == 0;
    std::vector<float> values(static_cast<std::size_t>(num_elements(shape)));
    for (float& x : values) {
      const std::int64_t exponent = is_tiny || between(0, 3) == 0 ? between(-90, -80) : 0;
      const auto significand = static_cast<float>(between(-(1 << 24), 1 << 24));
      x = between(0, 9) == 0 ? -0.0F : std::ldexp(significand, static_cast<int>(exponent) - 24);
    }
    return array(values, shape);
  }

 private:
  std::mt19937 engine_;
};

/// A sum of arrays, and how each of them is split: dimensions of the sum by x and y.
struct Case {
  std::string text;
  std::vector<Array> arrays;
  std::vector<P> specs;
  std::function<Array(const std::vector<Array>&)> sum;
};

/// A spec with these entries; empty ones are not split.
P spec_of(const std::vector<std::vector<std::string>>& entries) {
  std::vector<SpecEntry> list;
  for (const std::vector<std::string>& axes : entries) {
    list.emplace_back(none);
    list.back().axes = axes;
  }
  return P(std::move(list));
}

struct Splits {
  std::vector<std::string> first, second;
};

Splits random_splits(Random& random) {
  if (random.between(0, 1) == 0) return {{"x"}, {"y"}};
  return {{}, random.one_of<std::vector<std::string>>({{"y"}, {"x", "y"}, {"y", "x"}})};
}

Case product_of(Random& random) {
  const std::int64_t first = random.one_of<std::int64_t>({1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32});
  const std::int64_t second = random.one_of<std::int64_t>({30, 64, 96, 128, 256});
  const std::int64_t rows = random.between(1, 6), columns = random.between(1, 6);
  const Splits splits = random_splits(random);
  return {
      .text = fmt::format("[{},{},{}] times [.., {}]", rows, first, second, columns),
      .arrays = {random.numbers({rows, first, second}), random.numbers({first, second, columns})},
      .specs = {spec_of({{}, splits.first, splits.second}),
                spec_of({splits.first, splits.second, {}})},
      .sum = [](const std::vector<Array>& in) { return einsum("mab,abn->mn", in[0], in[1]); }};
}

Case reduction_of(Random& random) {
  const std::int64_t first = random.one_of<std::int64_t>({1, 2, 3, 4, 6, 8, 16, 24});
  const std::int64_t second = random.one_of<std::int64_t>({64, 96, 256});
  const Splits splits = random_splits(random);
  const std::int64_t place = random.between(0, 2);  // of the dimension that is kept
  Shape shape = {first, second};
  std::vector<std::vector<std::string>> entries = {splits.first, splits.second};
  shape.insert(shape.begin() + place, random.between(1, 8));
  entries.insert(entries.begin() + place, std::vector<std::string>());
  Ints dims;
  for (std::int64_t dim = 0; dim < 3; ++dim) {
    if (dim != place) dims.push_back(dim);
  }
  return {.text = "the sum of " + to_string(Type{DType::f32, shape}),
          .arrays = {random.numbers(shape)},
          .specs = {spec_of(entries)},
          .sum = [dims](const std::vector<Array>& in) {
            return sum(in[0], {dims[0], dims[1]});
          }};
}

std::vector<std::uint32_t> bits_of(const Array& x) {
  const std::vector<float> values = x.to_vector<float>();
  std::vector<std::uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

/// Returns whether the plan keeps the sums of grains apart.
bool expect_bits_of_one_device(Random& random, const Case& c) {
  const Mesh mesh = make_mesh(random.one_of<std::vector<MeshAxis>>({{{"x", 2}, {"y", 2}},
                                                                    {{"x", 2}, {"y", 4}},
                                                                    {{"x", 4}, {"y", 2}},
                                                                    {{"x", 3}, {"y", 2}},
                                                                    {{"x", 1}, {"y", 8}}}));
  const use_context own{Context()};
  set_grains(random.one_of<std::int64_t>({4, 8, 12, 16}));
  SCOPED_TRACE(fmt::format("{} with {} grains on {}, split as {}", c.text, grains(),
                           to_string(mesh), to_string(c.specs[0])));
  const std::vector<std::uint32_t> wanted = bits_of(c.sum(c.arrays));
  {
    const use_context reference{Context()};
    set_engine("reference");
    EXPECT_EQ(bits_of(c.sum(c.arrays)), wanted);
  }
  std::vector<Array> placed;
  for (std::size_t i = 0; i < c.arrays.size(); ++i) {
    placed.push_back(device_put(c.arrays[i], NamedSharding(mesh, c.specs[i])));
  }
  const auto f =
      jit([&](const std::vector<Array>& in) { return c.sum(in); }, {.passes = {.verify = true}});
  EXPECT_EQ(bits_of(f(placed)), wanted);
  return f.lower(placed).partitioned_ir().find("grains=[") != std::string::npos;
}

constexpr int kCases = 300;

TEST(InnerSums, OfProductsHaveTheBitsOfOneDevice) {
  Random random(1);
  int kept = 0;
  for (int i = 0; i < kCases; ++i) {
    kept += expect_bits_of_one_device(random, product_of(random)) ? 1 : 0;
  }
  EXPECT_GT(kept, kCases / 4) << "too few of the plans are those that this tests";
}

TEST(InnerSums, OfReductionsHaveTheBitsOfOneDevice) {
  Random random(2);
  int kept = 0;
  for (int i = 0; i < kCases; ++i) {
    kept += expect_bits_of_one_device(random, reduction_of(random)) ? 1 : 0;
  }
  EXPECT_GT(kept, kCases / 4) << "too few of the plans are those that this tests";
}

}  // namespace
}  // namespace tessera::testing
