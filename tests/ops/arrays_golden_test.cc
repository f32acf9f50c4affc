// Functions that move, multiply and compare arrays have the values and gradients that JAX printed
// over random cases, and on a mesh the bits that they have without one.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "tests/ops/golden_functions.h"

namespace tessera {
namespace {

using Positions = std::vector<std::int64_t>;

Array of_i32(const Array& x) { return astype(x, DType::i32); }
Positions positions(const Json& list) { return list.get<Positions>(); }
CloseOptions options_of(const Json& a) { return {.rtol = a["rtol"], .atol = a["atol"]}; }

const Functions& array_functions() {
  static const Functions list = {
      {"moveaxis",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {moveaxis(in[0], Axes(positions(a["source"])), Axes(positions(a["destination"])))};
       }},
      {"meshgrid",
       [](const Json& a, const Arrays& in) {
         return meshgrid(in, a["indexing"] == "xy" ? Indexing::xy : Indexing::ij);
       }},
      {"diff",
       [](const Json& a, const Arrays& in) -> Arrays { return {diff(in[0], a["n"], a["axis"])}; }},
      {"tensordot",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {tensordot(in[0], in[1], a["count"].get<std::int64_t>())};
       }},
      {"tensordot_of_axes",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {tensordot(in[0], in[1], positions(a["axes_a"]), positions(a["axes_b"]))};
       }},
      {"cross",
       [](const Json& a, const Arrays& in) -> Arrays { return {cross(in[0], in[1], a["axis"])}; }},
      {"isclose",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {of_i32(isclose(in[0], in[1], options_of(a)))};
       }},
      {"allclose", [](const Json& a, const Arrays& in) -> Arrays {
         return {of_i32(allclose(in[0], in[1], options_of(a)))};
       }}};
  return list;
}

TEST(ArraysGolden, AreThoseOfJaxOnAnyMesh) {
  const Json golden = read_golden("statistics.json");
  int count = 0;
  for (const Json& c : golden["cases"]) {
    const auto found = array_functions().find(c["name"]);
    if (found == array_functions().end()) continue;
    check_case(found->second, c, DType::f64, 1e-12);
    check_case(found->second, c, DType::f32, 1e-5);
    ++count;
  }
  EXPECT_GE(count, 60);
}

using Floats = std::vector<float>;
using Bools = std::vector<bool>;

TEST(ArrayFunctions, CompareInfinitiesAndNaNs) {
  const float inf = INFINITY;
  const Array a = array({inf, -inf, NAN, 1.0F, inf}), b = array({inf, inf, NAN, inf, 1.0F});
  EXPECT_EQ(isclose(a, b).to_vector<bool>(), (Bools{true, false, false, false, false}));
  EXPECT_EQ(isclose(a, b, {.equal_nan = true}).to_vector<bool>(),
            (Bools{true, false, true, false, false}));
  EXPECT_TRUE(isclose(array({16777217}), array({16777217})).item<bool>());
  EXPECT_FALSE(isclose(16777217, 16777216, {.rtol = 0}).item<bool>());
  EXPECT_TRUE(allclose(zeros({0}), zeros({0})).item<bool>());
  EXPECT_TRUE(allclose(array({true}), array({true})).item<bool>());
}

TEST(ArrayFunctions, ReplaceWhatIsNoNumber) {
  const float inf = INFINITY;
  const Array x = array({NAN, inf, -inf, -2.0F});
  EXPECT_EQ(nan_to_num(x).to_vector<float>(), (Floats{0.0F, 3.4028235e38F, -3.4028235e38F, -2.0F}));
  EXPECT_EQ(nan_to_num(x, 1, 7, -8).to_vector<float>(), (Floats{1, 7, -8, -2}));
  EXPECT_EQ(astype(nan_to_num(astype(x, DType::f16)), DType::f32).to_vector<float>(),
            (Floats{0, 65504, -65504, -2}));
  const Array half = nan_to_num(astype(x, DType::bf16));
  EXPECT_TRUE(all(is_finite(half)).item<bool>());
  EXPECT_TRUE(array_equal(nan_to_num(array({1, 2})), array({1, 2})));
  // No gradient flows through elements that are replaced.
  const auto slopes = grad([](const Array& a) { return sum(nan_to_num(a) * 3); })(x);
  EXPECT_EQ(slopes.to_vector<float>(), (Floats{0, 0, 0, 3}));
}

TEST(ArrayFunctions, KeepDtypesAndEmptyArrays) {
  const Array filled = full_like(astype(ones({2}), DType::bf16), 2.5);
  EXPECT_EQ(filled.dtype(), DType::bf16);
  EXPECT_EQ(astype(filled, DType::f32).to_vector<float>(), (Floats{2.5F, 2.5F}));
  EXPECT_EQ(diff(array({true, true, false})).to_vector<bool>(), (Bools{false, true}));
  EXPECT_EQ(diff(array({5, 2}), 0).to_vector<std::int32_t>(), (std::vector<std::int32_t>{5, 2}));
  EXPECT_EQ(diff(ones({2, 1}), 4).shape(), (Shape{2, 0}));
  EXPECT_TRUE(meshgrid({}).empty());
  EXPECT_EQ(meshgrid({scalar(1.0F), zeros({0})})[0].shape(), (Shape{0, 1}));
  EXPECT_EQ(moveaxis(ones({2, 3}), 0, -1).shape(), (Shape{3, 2}));
  EXPECT_EQ(tensordot(ones({2, 0}), ones({0, 3}), 1).to_vector<float>(), Floats(6, 0.0F));
}

}  // namespace
}  // namespace tessera
