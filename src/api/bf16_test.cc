// bf16 through the public functions: which values are rounded, and when.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/checkpoint.h>
#include <tessera/error.h>
#include <tessera/tessera.h>

#include "api/test_support.h"
#include "compile/compile.h"
#include "compile/host/kernels/targets.h"
// targets.h must come before any Highway header.
#include <hwy/highway.h>

namespace tessera {
namespace {

using Values = std::vector<float>;

Array bf16(const Values& values, const Shape& shape) {
  return astype(array(values, shape), DType::bf16);
}
Values floats(const Array& x) { return astype(x, DType::f32).to_vector<float>(); }

TEST(Bf16, IsMadeAndReadAsItIs) {
  const std::vector<bfloat16> values = {bfloat16(1.5F), bfloat16(-0.0F), bfloat16(0.1F)};
  const Array x = array(values);
  EXPECT_EQ(x.dtype(), DType::bf16);
  const auto read = x.to_vector<bfloat16>();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(read[i].bits(), values[i].bits());
  EXPECT_EQ(scalar(bfloat16(2.5F)).item<float>(), 2.5F);
  EXPECT_EQ(to_string(x), "bf16[3] [1.5, -0, 0.100097656]");
}

TEST(Bf16, ConvertsToTheNearestEven) {
  const float tie = 1.0F + 0x1p-8F;
  EXPECT_EQ(floats(bf16({tie, std::nextafter(tie, 2.0F), 1.0F + 3 * 0x1p-8F}, {3})),
            (Values{1.0F, 1.0F + 0x1p-7F, 1.0F + 0x1p-6F}));
  EXPECT_EQ(floats(bf16({std::numeric_limits<float>::max()}, {1})),
            (Values{std::numeric_limits<float>::infinity()}));
  EXPECT_TRUE(std::isnan(bf16({std::nanf("")}, {1}).item<float>()));
  // Converting to f32 first would give 2^24 + 2^16, which is a tie between two bf16 numbers.
  const Array whole = array({16842753}, {1});
  EXPECT_EQ(floats(astype(whole, DType::bf16)), Values{16908288.0F});
  EXPECT_EQ(astype(bf16({-3.75F, 300.0F}, {2}), DType::i32).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{-3, 300}));
}

TEST(Bf16, BitsOfWhatIsFusedAreThoseInMemory) {
  const Array x = bf16({0.75F, -3.0F, 1e-3F, 300.0F}, {4});
  const auto bits = [](const Array& y) { return bitcast(y * y, DType::i16) >> 3; };
  EXPECT_EQ(jit(bits)(x).to_vector<std::int16_t>(), bits(x).to_vector<std::int16_t>());
  const Array words = array({16000, 16256, 17000, 8000}, {4});
  const auto number = [](const Array& i) {
    return bitcast(astype(i + 3, DType::i16), DType::bf16) * scalar(bfloat16(2.0F));
  };
  EXPECT_EQ(floats(jit(number)(words)), floats(number(words)));
  EXPECT_EQ(floats(number(array({16253}, {1}))), Values{2.0F});
}

TEST(Bf16, EveryOpRounds) {
  const auto fused = [](const Array& x, const Array& y) { return (x + y) - x; };
  const Array x = bf16({256.0F, 1.0F}, {2});
  const Array y = bf16({1.0F, 0x1p-7F}, {2});
  EXPECT_EQ(floats(fused(x, y)), (Values{0.0F, 0x1p-7F}));
  EXPECT_EQ(floats(jit(fused)(x, y)), (Values{0.0F, 0x1p-7F}));
}

TEST(Bf16, SumsAreRoundedOnce) {
  // If ones were added one by one in bf16, the sum would stop at 256.
  const Array many = ones({4, 1000}, DType::bf16);
  EXPECT_EQ(sum(many, 1).dtype(), DType::bf16);
  EXPECT_EQ(floats(sum(many, 1)), Values(4, 1000.0F));
  EXPECT_EQ(floats(mean(many)), Values{1.0F});
  EXPECT_EQ(floats(slice(cumsum(many, 1), 1, 999)), Values(4, 1000.0F));
  const Mesh mesh = make_mesh({{"data", 8}});
  const Array spread = device_put(many, NamedSharding(mesh, P{none, "data"}));
  EXPECT_EQ(floats(sum(spread, 1)), Values(4, 1000.0F));
  const Array ids = zeros({1000}, DType::i32);
  EXPECT_EQ(floats(scatter_add(zeros({2}, DType::bf16), ids, ones({1000}, DType::bf16))),
            (Values{1000.0F, 0.0F}));
}

TEST(Bf16, ContractionsAreAddedInF32) {
  const Array a = ones({2, 1000}, DType::bf16);
  const Array b = ones({1000, 3}, DType::bf16) * 1.0078125;
  const Array product = dot(a, b);
  EXPECT_EQ(product.dtype(), DType::bf16);
  EXPECT_EQ(floats(product), Values(6, 1008.0F));
  const DotDims dims{.contract_a = {1}, .contract_b = {0}};
  const Array exact = dot_general(a, b, dims, DType::f32);
  EXPECT_EQ(exact.dtype(), DType::f32);
  EXPECT_EQ(exact.to_vector<float>(), Values(6, 1007.8125F));
  const auto grad_of_a = grad([&](const Array& x) { return sum(astype(dot(x, b), DType::f32)); });
  EXPECT_EQ(grad_of_a(a).dtype(), DType::bf16);
  EXPECT_EQ(floats(grad_of_a(a)), Values(2000, 3.03125F));
}

/// The names of the dot units that this machine has.
std::vector<std::string_view> dot_units() {
  std::vector<std::string_view> names;
  for (const DotUnit unit : compile::dot_units()) names.push_back(name(unit));
  return names;
}

// Factors of about 2^-63, whose products are subnormal or slightly larger.
Array tiny(const Shape& shape, std::int64_t seed) {
  return astype(testing::numbers(shape, seed) * 0x1p-63, DType::bf16);
}

TEST(Bf16, UnitsOfTheHostAreThoseOfTheReference) {
  const Array a = tiny({3, 40, 19}, 1);
  const Array b = tiny({3, 19, 34}, 2);
  const auto f = [](const Array& x, const Array& y) {
    const DotDims dims{.contract_a = {2}, .contract_b = {1}, .batch_a = {0}, .batch_b = {0}};
    return dot_general(x, y, dims, DType::f32);
  };
  std::vector<Values> products;
  for (const std::string_view unit : dot_units()) {
    SCOPED_TRACE(unit);
    set_engine("reference");
    const Array wanted = jit(f, {.dot_unit = std::string(unit)})(a, b);
    set_engine("host");
    testing::expect_same_bits(jit(f, {.dot_unit = std::string(unit)})(a, b), wanted);
    const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
    const Array split = device_put(a, NamedSharding(mesh, P{none, "data", "model"}));
    testing::expect_same_bits(jit(f, {.dot_unit = std::string(unit)})(split, b), wanted);
    products.push_back(wanted.to_vector<float>());
  }
  const bool are_equal = std::all_of(products.begin(), products.end(),
                                     [&](const Values& p) { return p == products.front(); });
  EXPECT_EQ(are_equal, products.size() == 1);
}

TEST(Bf16, DotUnitIsASetting) {
  EXPECT_EQ(dot_unit(), dot_units().back());
  const auto product = jit([](const Array& x) { return dot(x, x); });
  const Array x = tiny({2, 2}, 1);
  for (const std::string_view unit : dot_units()) {
    set_dot_unit(unit);
    EXPECT_EQ(dot_unit(), unit);
    product(x);
  }
  set_dot_unit("auto");
  EXPECT_EQ(dot_unit(), dot_units().back());
  product(x);
  EXPECT_EQ(product.num_traces(), static_cast<int>(dot_units().size()));
}

TEST(Bf16, MachinesWithoutAUnitNameWhatTheyHave) {
  hwy::SetSupportedTargetsForTest(HWY_AVX2);
  hwy::GetChosenTarget().Update(HWY_AVX2);
  const Mistake mistake = testing::mistake_of([] { set_dot_unit("avx512_bf16"); });
  EXPECT_EQ(dot_unit(), "portable");
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_EQ(mistake.what, "set_dot_unit: this machine does not have this unit");
  EXPECT_EQ(mistake.found, "avx512_bf16");
  EXPECT_EQ(mistake.wanted, "auto or portable");
}

TEST(Bf16, MeetsNoOtherDtypeInSilence) {
  EXPECT_THROW(ones({2}, DType::bf16) + ones({2}), UserError);
  EXPECT_EQ((ones({2}, DType::bf16) * 0.5).dtype(), DType::bf16);
  EXPECT_THROW(bitcast(ones({2}, DType::bf16), DType::i32), UserError);
}

TEST(Bf16, FindsExtremesAndPlaces) {
  const Array x = bf16({3.0F, -1.0F, std::nanf(""), 2.0F, 8.0F, -8.0F}, {2, 3});
  EXPECT_EQ(argmax(x, 1).to_vector<std::int32_t>(), (std::vector<std::int32_t>{2, 1}));
  EXPECT_EQ(floats(slice(max(x, 1), 0, 1)), Values{8.0F});
  EXPECT_EQ(floats(take(x, array({1}, {1}), 0)), (Values{2.0F, 8.0F, -8.0F}));
  EXPECT_EQ(floats(sort(bf16({2.0F, -0.5F, 1.0F}, {3}))), (Values{-0.5F, 1.0F, 2.0F}));
}

}  // namespace
}  // namespace tessera
