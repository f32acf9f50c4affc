// Statistics over random cases have the values and gradients that JAX printed, and on a mesh the
// bits that they have without one.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <tessera/statistics.h>
#include <tessera/tessera.h>

#include "tests/ops/golden_functions.h"

namespace tessera {
namespace {

using Positions = std::vector<std::int64_t>;

Array of_i32(const Array& x) { return astype(x, DType::i32); }
Axes axes_of(const Json& a) { return Axes(a["axes"].get<Positions>()); }
KeepDims keep_of(const Json& a) { return a["keep"].get<bool>() ? KeepDims::yes : KeepDims::no; }
Side side_of(const Json& a) { return a["right"].get<bool>() ? Side::right : Side::left; }
Arrays both(const Histogram& all) { return {all.counts, all.edges}; }
Array numbers_of(const Json& list, DType dtype) {
  return astype(array(list.get<std::vector<double>>()), dtype);
}

QuantileMethod method_of(const Json& a) {
  if (a["method"] == "lower") return QuantileMethod::lower;
  if (a["method"] == "higher") return QuantileMethod::higher;
  if (a["method"] == "midpoint") return QuantileMethod::midpoint;
  return a["method"] == "nearest" ? QuantileMethod::nearest : QuantileMethod::linear;
}

HistogramOptions options_of(const Json& a) {
  HistogramOptions options;
  if (!a["range"].is_null()) options.range = {a["range"][0], a["range"][1]};
  return options;
}

const Functions& quantile_functions() {
  static const Functions list = {
      {"median",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {median(in[0], axes_of(a), keep_of(a))};
       }},
      {"quantile",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {quantile(in[0], a["q"].get<double>(), axes_of(a), keep_of(a), method_of(a))};
       }},
      {"quantiles",
       [](const Json& a, const Arrays& in) -> Arrays {
         const Array q = numbers_of(a["q"], in[0].dtype());
         return {quantile(in[0], q, axes_of(a), keep_of(a), method_of(a))};
       }},
      {"percentile", [](const Json& a, const Arrays& in) -> Arrays {
         return {percentile(in[0], a["q"].get<std::int64_t>(), axes_of(a), keep_of(a))};
       }}};
  return list;
}

const Functions& count_functions() {
  static const Functions list = {
      {"histogram",
       [](const Json& a, const Arrays& in) {
         return both(histogram(in[0], a["bins"].get<std::int64_t>(), options_of(a)));
       }},
      {"weighted_histogram",
       [](const Json& a, const Arrays& in) {
         HistogramOptions options = options_of(a);
         options.weights = in[1];
         return both(histogram(in[0], a["bins"].get<std::int64_t>(), options));
       }},
      {"histogram_between",
       [](const Json&, const Arrays& in) { return both(histogram(in[0], in[1])); }},
      {"bincount",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {bincount(of_i32(in[0]), a["length"])};
       }},
      {"weighted_bincount", [](const Json& a, const Arrays& in) -> Arrays {
         const Array numbers = reshape(numbers_of(a["numbers"], DType::i32), in[0].shape());
         return {bincount(numbers, a["length"], in[0])};
       }}};
  return list;
}

const Functions& search_functions() {
  static const Functions list = {
      {"searchsorted",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {searchsorted(in[0], in[1], side_of(a))};
       }},
      {"digitize",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {digitize(in[0], in[1], a["right"].get<bool>())};
       }},
      {"isin",
       [](const Json&, const Arrays& in) -> Arrays { return {of_i32(isin(in[0], in[1]))}; }},
      {"nonzero",
       [](const Json& a, const Arrays& in) { return nonzero(in[0], a["size"], a["fill"]); }}};
  return list;
}

const Functions* functions_with(const std::string& name) {
  for (const Functions* list : {&quantile_functions(), &count_functions(), &search_functions()}) {
    if (list->contains(name)) return list;
  }
  return nullptr;
}

TEST(StatisticsGolden, AreThoseOfJaxOnAnyMesh) {
  const Json golden = read_golden("statistics.json");
  int count = 0;
  for (const Json& c : golden["cases"]) {
    const Functions* list = functions_with(c["name"]);
    if (list == nullptr) continue;
    check_case(list->at(c["name"]), c, DType::f64, 1e-12);
    check_case(list->at(c["name"]), c, DType::f32, 1e-5);
    ++count;
  }
  EXPECT_GE(count, 100);
}

using Floats = std::vector<float>;
using Numbers = std::vector<std::int32_t>;

TEST(Statistics, QuantilesOfNaNsAndOfNothingAreNaN) {
  const Array x = array({1.0F, NAN, 3.0F, 4.0F, 2.0F, 6.0F}, {2, 3});
  const Floats rows = median(x, 1).to_vector<float>();
  EXPECT_TRUE(std::isnan(rows[0]));
  EXPECT_EQ(rows[1], 4.0F);
  EXPECT_TRUE(std::isnan(quantile(x, 0.0).item<float>()));
  const Array none = median(zeros({3, 0}), 1, keepdims);
  EXPECT_EQ(none.shape(), (Shape{3, 1}));
  EXPECT_TRUE(all(is_nan(none)).item<bool>());
  EXPECT_EQ(quantile(zeros({0, 3}), array({0.5F, 1.0F}), 1).shape(), (Shape{2, 0}));
  EXPECT_EQ(median(scalar(2.5F)).item<float>(), 2.5F);
  // The gradient of a line that has a NaN is 0.
  const auto slopes = grad([](const Array& a) {
    const Array lines = median(a, 1);
    return sum(where(is_nan(lines), 0, lines));
  })(x);
  EXPECT_EQ(slopes.to_vector<float>(), (Floats{0, 0, 0, 1, 0, 0}));
}

TEST(Statistics, QuantilesKeepInfinities) {
  const float inf = INFINITY;
  const Array x = array({-inf, 1.0F, inf, inf, 5.0F});
  EXPECT_EQ(median(x).item<float>(), 5.0F);
  EXPECT_EQ(quantile(x, 0.0).item<float>(), -inf);
  EXPECT_EQ(quantile(x, 0.125).item<float>(), -inf);
  EXPECT_EQ(quantile(x, 0.25).item<float>(), 1.0F);
  EXPECT_EQ(quantile(x, 0.9).item<float>(), inf);
  EXPECT_EQ(quantile(x, array({0.5F, 0.6F, 1.0F})).to_vector<float>(), (Floats{5.0F, inf, inf}));
  const Array large = full({2}, 3e38F);
  EXPECT_EQ(median(large).item<float>(), 3e38F);
  EXPECT_EQ(quantile(large, 0.5, {}, KeepDims::no, QuantileMethod::midpoint).item<float>(), 3e38F);
}

TEST(Statistics, QuantilesOfHalfPrecisionAreRoundedOnce) {
  const Array x = astype(arange(257), DType::bf16);
  EXPECT_EQ(quantile(x, 0.9).dtype(), DType::bf16);
  EXPECT_EQ(astype(quantile(x, 0.9), DType::f32).item<float>(), 230.0F);  // of 230.4
  EXPECT_EQ(astype(quantile(x, array({0.9F})), DType::f32).item<float>(), 230.0F);
}

TEST(Statistics, AQuantileOfABatchIsThatOfItsElements) {
  const Array x = random::normal(Key(0), {3, 4, 5});
  const Array q = array({0.1F, 0.5F, 0.7F});
  const auto one = [](const Array& rows, const Array& at) { return quantile(rows, at, 0); };
  const auto slope = [&](const Array& rows, const Array& at) {
    return grad([&](const Array& r) { return sum(square(one(r, at))); })(rows);
  };
  const Array all = vmap(one)(x, q), slopes = vmap(slope)(x, q);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(array_equal(all[i], one(x[i], q[i])));
    EXPECT_TRUE(array_equal(slopes[i], slope(x[i], q[i])));
  }
}

TEST(Statistics, TheSlopeOfAQuantileOverItsFractionIsThatOfTheLine) {
  const Array x = array({1.0F, 5.0F, 2.0F});
  const auto at = [&](const Array& q) { return quantile(x, q); };
  EXPECT_FLOAT_EQ(grad(at)(scalar(0.25F)).item<float>(), 2.0F);
  EXPECT_FLOAT_EQ(grad(at)(scalar(0.75F)).item<float>(), 6.0F);
}

TEST(Statistics, CountsOfABatchAreThoseOfItsElements) {
  const Array x = random::normal(Key(0), {3, 11});
  const Array numbers = random::randint(Key(1), {3, 11}, -1, 6);
  const Array line = sort(random::normal(Key(2), {3, 7}));
  const auto bars = [](const Array& a) { return histogram(a, 4).counts; };
  const auto counts = [](const Array& a) { return bincount(a, 5); };
  const auto places = [](const Array& s, const Array& v) { return searchsorted(s, v); };
  const auto known = [](const Array& a, const Array& b) { return isin(a, b); };
  const auto found = [](const Array& a) { return nonzero(a > 0, 6, -1)[0]; };
  const Array all_bars = vmap(bars)(x), all_counts = vmap(counts)(numbers);
  const Array all_places = vmap(places)(line, x), all_found = vmap(found)(x);
  const Array all_known = vmap(known)(numbers, slice(numbers, 1, 2, 4));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(array_equal(all_bars[i], bars(x[i])));
    EXPECT_TRUE(array_equal(all_counts[i], counts(numbers[i])));
    EXPECT_TRUE(array_equal(all_places[i], places(line[i], x[i])));
    EXPECT_TRUE(array_equal(all_known[i], known(numbers[i], slice(numbers[i], 0, 2, 4))));
    EXPECT_TRUE(array_equal(all_found[i], found(x[i])));
  }
}

TEST(Statistics, NaNIsSortedLastAndInNoBin) {
  const Array line = array({-1.0F, -0.0F, 2.0F, NAN, NAN});
  const Array x = array({0.0F, NAN, INFINITY, -INFINITY});
  EXPECT_EQ(searchsorted(line, x).to_vector<std::int32_t>(), (Numbers{1, 3, 3, 0}));
  EXPECT_EQ(searchsorted(line, x, Side::right).to_vector<std::int32_t>(), (Numbers{2, 5, 3, 0}));
  EXPECT_EQ(isin(x, line).to_vector<bool>(), (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(histogram(x, array({-1.0F, 0.0F, 1.0F})).counts.to_vector<std::int32_t>(),
            (Numbers{0, 1}));
  EXPECT_EQ(nonzero(x, 4, 9)[0].to_vector<std::int32_t>(), (Numbers{1, 2, 3, 9}));
}

TEST(Statistics, CountsOfNothingAreZero) {
  const Array none = zeros({0}), no_numbers = zeros({0}, DType::i32);
  const Histogram all = histogram(none, 2);
  EXPECT_EQ(all.counts.to_vector<std::int32_t>(), (Numbers{0, 0}));
  EXPECT_EQ(all.edges.to_vector<float>(), (Floats{0.0F, 0.5F, 1.0F}));
  EXPECT_EQ(histogram(full({3}, 2), 2).edges.to_vector<float>(), (Floats{1.5F, 2.0F, 2.5F}));
  EXPECT_EQ(bincount(no_numbers, 2).to_vector<std::int32_t>(), (Numbers{0, 0}));
  EXPECT_EQ(bincount(array({0, 1}), 0).size(), 0);
  EXPECT_EQ(searchsorted(none, 3.0).item<std::int32_t>(), 0);
  EXPECT_EQ(searchsorted(array({1, 2}), no_numbers).size(), 0);
  EXPECT_FALSE(isin(3, no_numbers).item<bool>());
  EXPECT_EQ(nonzero(zeros({0, 3}), 2, 7)[1].to_vector<std::int32_t>(), (Numbers{7, 7}));
  EXPECT_EQ(nonzero(ones({2}), 0)[0].size(), 0);
}

TEST(Statistics, CountIntegersOfEveryDtype) {
  const std::vector<std::int64_t> numbers = {0, 2, 2, 120, -3};
  for (const DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64}) {
    const Array x = astype(array(numbers), dtype);
    EXPECT_EQ(bincount(x, 3).to_vector<std::int32_t>(), (Numbers{2, 0, 2})) << name(dtype);
    EXPECT_EQ(searchsorted(array({0, 2, 120}), astype(x, DType::i32)).to_vector<std::int32_t>(),
              (Numbers{0, 1, 1, 2, 0}));
  }
  EXPECT_EQ(bincount(array({1U, 4294967295U}), 3).to_vector<std::int32_t>(), (Numbers{0, 1, 0}));
  EXPECT_EQ(bincount(array({true, false, true}), 2).to_vector<std::int32_t>(), (Numbers{1, 2}));
  const Array weights = astype(full({300}, 1), DType::bf16);
  const Array sums = bincount(zeros({300}, DType::i32), 1, weights);
  EXPECT_EQ(astype(sums, DType::f32).item<float>(), 300.0F);
  EXPECT_EQ(isin(array({true, false}), array({true})).to_vector<bool>(),
            (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace tessera
