// Convolutions and pools of random shapes, with their gradients: the host engine on one device and
// on random meshes has the bits of the reference engine.
#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/tessera.h>

#include "api/test_support.h"
#include "compile/compile.h"

namespace tessera {
namespace {

using Arrays = std::vector<Array>;
using Ints = std::vector<std::int64_t>;
using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <typename T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(between(0, std::ssize(list) - 1))];
  }

 private:
  std::mt19937 engine_;
};

/// A function and its arrays, of which the first is the one that is split.
struct Case {
  std::string text;
  Arrays inputs;
  std::function<Array(const Arrays&)> apply;
};

Case conv_case(Random& random) {
  const std::int64_t space = random.between(1, 3);
  const std::int64_t groups = random.chance(40) ? random.between(2, 20) : 1;
  const bool is_depthwise = random.chance(40);
  const std::int64_t channels = groups * (is_depthwise ? 1 : random.between(1, 9));
  const std::int64_t features = groups * (is_depthwise ? 1 : random.between(1, 9));
  ConvOptions options{.feature_group_count = groups};
  Shape image = {random.between(1, 5)};
  Shape kernel;
  Pairs padding;
  for (std::int64_t i = 0; i < space; ++i) {
    const std::int64_t window = random.between(1, 4);
    const std::int64_t dilation = random.chance(30) ? random.between(2, 3) : 1;
    const std::int64_t spread = random.chance(25) ? random.between(2, 3) : 1;
    const std::int64_t extent = (window - 1) * dilation + 1;
    image.push_back(random.between(1, space == 3 ? 6 : 14));
    padding.emplace_back(random.between(0, 3), random.between(0, 3));
    const std::int64_t room =
        (image.back() - 1) * spread + 1 + padding.back().first + padding.back().second;
    if (room < extent) padding.back().second += extent - room;
    kernel.push_back(window);
    options.strides.push_back(random.chance(40) ? random.between(2, 3) : 1);
    options.kernel_dilation.push_back(dilation);
    options.input_dilation.push_back(spread);
  }
  options.padding = padding;
  image.push_back(channels);
  kernel.insert(kernel.end(), {channels / groups, features});
  const DType dtype = random.chance(15) ? DType::bf16 : DType::f32;
  std::string text = fmt::format(
      "conv {} with {}, {} groups, strides {}, dilation {}, spread {}, {}", to_string(image),
      to_string(kernel), groups, to_string(options.strides), to_string(options.kernel_dilation),
      to_string(options.input_dilation), name(dtype));
  for (const auto& [low, high] : padding) text += fmt::format(", pad {} {}", low, high);
  return {.text = text,
          .inputs = {astype(testing::numbers(image, 1), dtype),
                     astype(testing::numbers(kernel, 2), dtype)},
          .apply = [options](const Arrays& in) { return conv(in[0], in[1], options); }};
}

/// A convolution of bf16 or f16 with so many channels that a grain has several of them, often an
/// even number and sometimes more than a group. It often has enough features for each unit.
Case narrow_case(Random& random) {
  const std::int64_t channels = random.chance(15)
                                    ? random.between(257, 560)
                                    : random.between(1, 4) * (random.chance(60) ? 16 : 9);
  const std::int64_t features = random.chance(50) ? random.between(32, 80) : random.between(1, 31);
  const std::int64_t height = random.between(3, 9), width = random.between(3, 9);
  const Shape image = {random.between(1, 3), height, width, channels};
  const Shape kernel = {random.between(1, 3), random.between(1, 3), channels, features};
  const std::int64_t pad = random.between(0, 1);
  const ConvOptions options{.strides = {random.between(1, 2), 1},
                            .padding = Pairs{{pad, 0}, {0, pad}}};
  const DType dtype = random.chance(25) ? DType::f16 : DType::bf16;
  return {.text = fmt::format("conv {} with {}, strides {}, pad {}, {}", to_string(image),
                              to_string(kernel), to_string(options.strides), pad, name(dtype)),
          .inputs = {astype(testing::numbers(image, 1), dtype),
                     astype(testing::numbers(kernel, 2), dtype)},
          .apply = [options](const Arrays& in) { return conv(in[0], in[1], options); }};
}

/// A convolution of bf16 whose kernel's gradient has a product for each element of the window, and
/// sums over images that are often odd in number.
Case kernel_case(Random& random) {
  const std::int64_t channels = random.chance(50) ? 16 : random.between(8, 36);
  const std::int64_t features = random.chance(35) ? 16 : random.between(1, 48);
  Shape image = {random.chance(50) ? random.between(1, 8) : random.between(14, 33)};
  Shape kernel;
  ConvOptions options;
  Pairs padding;
  for (int i = 0; i < 2; ++i) {
    kernel.push_back(random.between(2, 3));
    options.strides.push_back(random.between(1, 2));
    options.kernel_dilation.push_back(random.chance(30) ? 2 : 1);
    padding.emplace_back(random.between(0, 2), random.between(0, 2));
    image.push_back(random.between(5, 9));
  }
  options.padding = padding;
  image.push_back(channels);
  kernel.insert(kernel.end(), {channels, features});
  std::string text =
      fmt::format("conv {} with {}, strides {}, dilation {}", to_string(image), to_string(kernel),
                  to_string(options.strides), to_string(options.kernel_dilation));
  for (const auto& [low, high] : padding) text += fmt::format(", pad {} {}", low, high);
  return {.text = text,
          .inputs = {astype(testing::numbers(image, 1), DType::bf16),
                     astype(testing::numbers(kernel, 2), DType::bf16)},
          .apply = [options](const Arrays& in) { return conv(in[0], in[1], options); }};
}

Case pool_case(Random& random) {
  const std::int64_t space = random.between(1, 2);
  Shape image = {random.between(1, 4)};
  Ints window, strides;
  Pairs padding;
  for (std::int64_t i = 0; i < space; ++i) {
    window.push_back(random.between(1, 4));
    image.push_back(random.between(4, 14));
    strides.push_back(random.between(1, 4));
    padding.emplace_back(random.between(0, window.back() - 1), random.between(0, 2));
  }
  image.push_back(random.between(1, 70));
  const auto pool =
      random.one_of<Array (*)(Operand, Ints, Ints, const Padding&)>({max_pool, min_pool, avg_pool});
  // Whole numbers, so that there are ties.
  const Array x = astype(random::randint(Key(1), image, -3, 3), DType::f32);
  return {.text = fmt::format("pool {}, window {}, strides {}", to_string(image), to_string(window),
                              to_string(strides)),
          .inputs = {x},
          .apply = [=](const Arrays& in) { return pool(in[0], window, strides, padding); }};
}

/// The result and the gradients of all inputs, with a cotangent that differs between elements.
Arrays results(const Case& c, const Arrays& inputs) {
  const auto loss = [&](const Arrays& in) {
    const Array y = c.apply(in);
    return sum(square(astype(y, DType::f32)));
  };
  const auto program = jit([&](const Arrays& in) {
    Arrays all = grad(loss)(in);
    all.push_back(c.apply(in));
    return all;
  });
  return program(inputs);
}

P random_spec(Random& random, const Shape& shape) {
  std::vector<SpecEntry> entries(shape.size(), none);
  for (const char* axis : {"a", "b"}) {
    const std::int64_t dim = random.between(0, std::ssize(shape) - 1);
    // The second axis may replace the first.
    if (random.chance(80)) entries[static_cast<std::size_t>(dim)] = axis;
  }
  return P(entries);
}

void expect_bits(const Arrays& found, const Arrays& wanted, const std::string& text) {
  const ::testing::ScopedTrace trace(__FILE__, __LINE__, text);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    testing::expect_same_bits(astype(found[i], DType::f32), astype(wanted[i], DType::f32));
}

void check(const Case& c, Random& random, const std::string& text) {
  set_engine("reference");
  const Arrays wanted = results(c, c.inputs);
  set_engine("host");
  expect_bits(results(c, c.inputs), wanted, text + c.text);
  const Mesh mesh = make_mesh({{"a", random.one_of<std::int64_t>({2, 3, 4})}, {"b", 2}});
  const use_mesh scope(mesh);
  Arrays inputs = c.inputs;
  std::string specs;
  for (Array& input : inputs) {
    const P spec = random_spec(random, input.shape());
    specs += to_string(spec) + " ";
    input = device_put(input, spec);
  }
  expect_bits(results(c, inputs), wanted, text + c.text + " on " + to_string(mesh) + specs);
}

unsigned first_seed() {
  const char* seed = std::getenv("TESSERA_SEED");
  return seed == nullptr ? 1 : static_cast<unsigned>(std::atoi(seed));
}

TEST(RandomWindows, HaveTheBitsOfTheReference) {
  const unsigned first = first_seed();
  for (unsigned i = first; i < first + 60 && !HasFailure(); ++i) {
    Random random(i);
    const Case c = random.chance(75) ? conv_case(random) : pool_case(random);
    check(c, random, fmt::format("TESSERA_SEED={}: ", i));
  }
}

TEST(RandomWindows, OfHalfPrecisionHaveTheBitsOfTheUnit) {
  for (const DotUnit unit : compile::dot_units()) {
    set_dot_unit(name(unit));
    for (unsigned i = 0; i < 12 && !HasFailure(); ++i) {
      Random random(i);
      const Case c = narrow_case(random);
      check(c, random, fmt::format("{}, {}: ", name(unit), i));
    }
  }
  set_dot_unit("auto");
}

TEST(RandomWindows, GradientsOfKernelsHaveTheBitsOfTheUnit) {
  for (const DotUnit unit : compile::dot_units()) {
    set_dot_unit(name(unit));
    for (unsigned i = first_seed(); i < first_seed() + 16 && !HasFailure(); ++i) {
      Random random(i);
      const Case c = kernel_case(random);
      check(c, random, fmt::format("TESSERA_SEED={}, {}: ", i, name(unit)));
    }
  }
  set_dot_unit("auto");
}

}  // namespace
}  // namespace tessera
