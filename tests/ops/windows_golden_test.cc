// Convolutions and pools of random shapes, with their gradients, have the numbers that PyTorch
// printed. All sums are exact, so the numbers are equal.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/tessera.h>

#include "tests/peers/golden.h"

namespace tessera {
namespace {

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;
using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Element i is ((i * factor) mod 19 - 9) / 8.
Array elements(const Shape& shape, std::int64_t factor) {
  Floats values;
  for (std::int64_t i = 0; i < num_elements(shape); ++i)
    values.push_back(static_cast<float>(i * factor % 19 - 9) / 8.0f);
  return array(values, shape);
}

Padding padding_of(const nlohmann::json& c) {
  Pairs pairs;
  for (const std::int64_t width : c["padding"].get<Ints>()) pairs.emplace_back(width, width);
  return pairs;
}

Array apply(const nlohmann::json& c, const Array& x, const Array& kernel) {
  const auto strides = c["strides"].get<Ints>();
  if (c["kind"] == "max_pool") return max_pool(x, c["window"], strides, padding_of(c));
  if (c["kind"] == "avg_pool") return avg_pool(x, c["window"], strides, padding_of(c));
  return conv(x, kernel,
              {.strides = strides,
               .padding = padding_of(c),
               .input_dilation = c["spread"].get<Ints>(),
               .kernel_dilation = c["dilation"].get<Ints>(),
               .feature_group_count = c["groups"].get<std::int64_t>()});
}

void expect_numbers(const nlohmann::json& c) {
  const bool has_kernel = c["kind"] == "conv";
  const Array x = elements(c["image"].get<Shape>(), 7);
  const Array kernel = has_kernel ? elements(c["kernel"].get<Shape>(), 11) : zeros({1});
  const Array y = apply(c, x, kernel);
  EXPECT_EQ(y.to_vector<float>(), c["y"].get<Floats>());
  const Array cotangent = elements(y.shape(), 5);
  const auto loss = [&](const Array& a, const Array& b) { return sum(apply(c, a, b) * cotangent); };
  EXPECT_EQ(grad<0>(loss)(x, kernel).to_vector<float>(), c["dx"].get<Floats>());
  if (!has_kernel) return;
  EXPECT_EQ(grad<1>(loss)(x, kernel).to_vector<float>(), c["dw"].get<Floats>());
}

TEST(WindowsGolden, AreThoseOfPyTorch) {
  const nlohmann::json golden = read_golden("conv.json");
  ASSERT_GE(golden["cases"].size(), 50U);
  for (const nlohmann::json& c : golden["cases"]) {
    nlohmann::json shown = c;
    for (const char* list : {"y", "dx", "dw"}) shown.erase(list);
    SCOPED_TRACE(shown.dump());
    expect_numbers(c);
  }
}

}  // namespace
}  // namespace tessera
