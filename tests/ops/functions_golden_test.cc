// Functions of arrays over random cases have the values and gradients that JAX printed, and on a
// mesh the bits that they have without one.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/nn.h>
#include <tessera/random.h>
#include <tessera/tessera.h>

#include "tests/ops/golden_functions.h"

namespace tessera {
namespace {

KeepDims keep_of(const Json& a) { return a["keep"].get<bool>() ? KeepDims::yes : KeepDims::no; }
Axes axes_of(const Json& a) { return Axes(a["axes"].get<std::vector<std::int64_t>>()); }
Key key_of(const Json& a) { return Key(a["seed"].get<std::int64_t>()); }

DType dtype_of(const Json& a) {
  if (a["dtype"] == "f16") return DType::f16;
  return a["dtype"] == "bf16" ? DType::bf16 : DType::f64;
}

/// The leading 20 bits of numbers from 0 to 1, then the next 20 bits, then the next 20.
Arrays thirds(const Array& x) {
  Arrays parts;
  Array rest = astype(x, DType::f64);
  for (int i = 0; i < 3; ++i) {
    rest = rest * 1048576.0;
    parts.push_back(astype(floor(rest), DType::i32));
    rest = rest - floor(rest);
  }
  return parts;
}

Arrays choose(const Json& a) {
  random::ChoiceOptions options{.replace = a["replace"].get<bool>()};
  if (!a["p"].is_null()) options.p = array(a["p"].get<std::vector<float>>());
  return {random::choice(key_of(a), 5, {2, 2}, options)};
}

const Functions& matrix_functions() {
  static const Functions list = {
      {"var",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {var(in[0], axes_of(a), keep_of(a), a["ddof"])};
       }},
      {"stddev",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {stddev(in[0], axes_of(a), keep_of(a), a["ddof"])};
       }},
      {"norm",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {norm(in[0], axes_of(a), keep_of(a))};
       }},
      {"tril",
       [](const Json& a, const Arrays& in) -> Arrays { return {tril(in[0], a["offset"])}; }},
      {"triu",
       [](const Json& a, const Arrays& in) -> Arrays { return {triu(in[0], a["offset"])}; }},
      {"diag",
       [](const Json& a, const Arrays& in) -> Arrays { return {diag(in[0], a["offset"])}; }},
      {"outer", [](const Json&, const Arrays& in) -> Arrays { return {outer(in[0], in[1])}; }},
      {"kron", [](const Json&, const Arrays& in) -> Arrays { return {kron(in[0], in[1])}; }},
      {"eye", [](const Json& a, const Arrays&) -> Arrays {
         return {eye(a["rows"], a["columns"], a["offset"])};
       }}};
  return list;
}

const Functions& shape_functions() {
  static const Functions list = {
      {"roll",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {roll(in[0], a["shift"], a["axis"])};
       }},
      {"flip",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {flip(in[0], a["axis"].get<std::int64_t>())};
       }},
      {"tile",
       [](const Json& a, const Arrays& in) -> Arrays { return {tile(in[0], a["repeats"])}; }},
      {"split",
       [](const Json& a, const Arrays& in) { return split(in[0], a["parts"], a["axis"]); }},
      {"split_at",
       [](const Json& a, const Arrays& in) { return split_at(in[0], a["positions"], a["axis"]); }},
      {"argsort",
       [](const Json& a, const Arrays& in) -> Arrays { return {argsort(in[0], a["axis"])}; }},
      {"linspace",
       [](const Json& a, const Arrays&) -> Arrays {
         return {linspace(a["start"], a["stop"], a["count"])};
       }},
      {"sigmoid", [](const Json&, const Arrays& in) -> Arrays { return {sigmoid(in[0])}; }},
      {"softplus", [](const Json&, const Arrays& in) -> Arrays { return {softplus(in[0])}; }},
      {"silu", [](const Json&, const Arrays& in) -> Arrays { return {silu(in[0])}; }},
      {"log10", [](const Json&, const Arrays& in) -> Arrays { return {log10(in[0])}; }},
      {"einsum", [](const Json& a, const Arrays& in) -> Arrays {
         return {einsum(a["text"].get<std::string>(), std::vector<Operand>(in.begin(), in.end()))};
       }}};
  return list;
}

const Functions& random_functions() {
  static const Functions list = {
      {"gumbel",
       [](const Json& a, const Arrays&) -> Arrays {
         return {random::gumbel(key_of(a), a["shape"])};
       }},
      {"categorical",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {random::categorical(key_of(a), in[0], a["axis"], a["samples"])};
       }},
      {"choice", [](const Json& a, const Arrays&) { return choose(a); }},
      {"uniform",
       [](const Json& a, const Arrays&) {
         return thirds(random::uniform(key_of(a), a["shape"], dtype_of(a)));
       }},
      {"normal",
       [](const Json& a, const Arrays&) -> Arrays {
         return {random::normal(key_of(a), a["shape"], dtype_of(a))};
       }},
      {"gamma", [](const Json& a, const Arrays& in) -> Arrays {
         return {random::gamma(key_of(a), in[0], a["shape"].get<Shape>())};
       }}};
  return list;
}

Array i32_of(const Json& numbers, const Shape& shape) {
  return array(numbers.get<std::vector<std::int32_t>>(), shape);
}

ResizeMethod method_of(const Json& a) {
  if (a["method"] == "nearest") return ResizeMethod::nearest;
  return a["method"] == "linear" ? ResizeMethod::linear : ResizeMethod::cubic;
}

const Functions& other_functions() {
  static const Functions list = {
      {"resize",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {resize(in[0], a["shape"], method_of(a), a["antialias"])};
       }},
      {"ctc_loss",
       [](const Json& a, const Arrays& in) -> Arrays {
         const std::int64_t batch = in[0].dim(0);
         const auto size = static_cast<std::int64_t>(a["labels"].size());
         return {ctc_loss(in[0], i32_of(a["lengths"], {batch}),
                          i32_of(a["labels"], {batch, size / batch}), i32_of(a["counts"], {batch}),
                          a["blank"])};
       }},
      {"unique", [](const Json& a, const Arrays& in) -> Arrays {
         std::optional<Operand> fill;
         if (!a["fill"].is_null()) fill = Operand(a["fill"].get<float>());
         const Unique all = unique(in[0], a["size"], fill);
         return {all.values, all.indices, all.inverse, all.counts};
       }}};
  return list;
}

template <Array (*kFunction)(Operand)>
Arrays call_of(const Json& /*arguments*/, const Arrays& in) {
  return {kFunction(in[0])};
}

const Functions& neural_functions() {
  static const Functions list = {
      {"log_sigmoid", call_of<log_sigmoid>},
      {"selu", call_of<selu>},
      {"mish", call_of<mish>},
      {"soft_sign", call_of<soft_sign>},
      {"relu6", call_of<relu6>},
      {"hard_sigmoid", call_of<hard_sigmoid>},
      {"hard_silu", call_of<hard_silu>},
      {"hard_tanh", call_of<hard_tanh>},
      {"relu", call_of<relu>},
      {"sign", call_of<sign>},
      {"clamp", [](const Json&, const Arrays& in) -> Arrays { return {clamp(-1, in[0], 3)}; }},
      {"maximum", [](const Json&, const Arrays& in) -> Arrays { return {maximum(in[0], in[1])}; }},
      {"minimum", [](const Json&, const Arrays& in) -> Arrays { return {minimum(in[0], in[1])}; }},
      {"huber_loss",
       [](const Json&, const Arrays& in) -> Arrays { return {huber_loss(in[0], in[1])}; }},
      {"leaky_relu",
       [](const Json& a, const Arrays& in) -> Arrays { return {leaky_relu(in[0], a["number"])}; }},
      {"elu", [](const Json& a, const Arrays& in) -> Arrays { return {elu(in[0], a["number"])}; }},
      {"glu", [](const Json& a, const Arrays& in) -> Arrays { return {glu(in[0], a["axis"])}; }},
      {"kl_divergence",
       [](const Json& a, const Arrays& in) -> Arrays {
         const auto targets = a["targets"].get<std::vector<float>>();
         return {kl_divergence(in[0], array(targets, in[0].shape()))};
       }},
      {"cosine_similarity",
       [](const Json&, const Arrays& in) -> Arrays { return {cosine_similarity(in[0], in[1])}; }},
      {"logaddexp",
       [](const Json&, const Arrays& in) -> Arrays { return {logaddexp(in[0], in[1])}; }},
      {"hinge_loss",
       [](const Json&, const Arrays& in) -> Arrays { return {hinge_loss(in[0], in[1])}; }},
      {"triplet_margin_loss",
       [](const Json&, const Arrays& in) -> Arrays {
         return {triplet_margin_loss(in[0], in[1], in[2], 0.75, 1e-3)};
       }},
      {"rotary_embedding", [](const Json& a, const Arrays& in) -> Arrays {
         const nn::RotaryOptions options{
             .base = a["base"], .features = a["features"], .is_interleaved = a["interleaved"]};
         return {
             nn::rotary_embedding(in[0], i32_of(a["positions"], a["rows"].get<Shape>()), options)};
       }}};
  return list;
}

template <Array (*kFunction)(Operand, Operand, std::int64_t)>
Arrays segments_of(const Json& a, const Arrays& in) {
  const Array ids = i32_of(a["ids"], {in[0].dim(0)});
  return {kFunction(in[0], ids, a["count"])};
}

const Functions& sequence_functions() {
  using Step = std::pair<Array, Array>;
  static const Functions list = {{"cumlogsumexp",
                                  [](const Json& a, const Arrays& in) -> Arrays {
                                    return {cumlogsumexp(in[0], a["axis"], a["reverse"])};
                                  }},
                                 {"associative_scan",
                                  [](const Json& a, const Arrays& in) -> Arrays {
                                    const auto join = [](const Step& l, const Step& r) {
                                      return Step(r.first * l.first, r.first * l.second + r.second);
                                    };
                                    const auto [decay, h] = associative_scan(
                                        join, Step(in[0], in[1]), a["axis"], a["reverse"]);
                                    return {decay, h};
                                  }},
                                 {"repeat",
                                  [](const Json& a, const Arrays& in) -> Arrays {
                                    return {repeat(in[0], a["times"], a["axis"])};
                                  }},
                                 {"segment_sum", segments_of<segment_sum>},
                                 {"segment_mean", segments_of<segment_mean>},
                                 {"segment_max", segments_of<segment_max>},
                                 {"segment_min", segments_of<segment_min>},
                                 {"segment_softmax", segments_of<segment_softmax>}};
  return list;
}

const Function& function_of(const std::string& name) {
  for (const Functions* list : {&matrix_functions(), &shape_functions(), &random_functions(),
                                &other_functions(), &neural_functions(), &sequence_functions()}) {
    const auto place = list->find(name);
    if (place != list->end()) return place->second;
  }
  throw std::runtime_error("no function " + name);
}

Array array_of(const Json& packed) {
  return array(packed["values"].get<std::vector<float>>(), packed["shape"].get<Shape>());
}

/// Expects equality up to a few roundings of f32.
void expect_near(const Array& found, const Json& wanted) {
  EXPECT_EQ(found.shape(), wanted["shape"].get<Shape>());
  const auto values = astype(found, DType::f32).to_vector<float>();
  const auto numbers = wanted["values"].get<std::vector<float>>();
  ASSERT_EQ(values.size(), numbers.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float tolerance = 4e-6F * std::max(1.0F, std::abs(numbers[i]));
    if (is_integer(found.dtype())) {
      EXPECT_EQ(values[i], numbers[i]) << "element " << i;
    } else {
      EXPECT_NEAR(values[i], numbers[i], tolerance) << "element " << i;
    }
  }
}

TEST(FunctionsGolden, AreThoseOfJaxOnAnyMesh) {
  const Json golden = read_golden("functions.json");
  ASSERT_GE(golden["cases"].size(), 100U);
  for (const Json& c : golden["cases"]) {
    SCOPED_TRACE(c["name"].dump() + " " + c["arguments"].dump());
    const Function& function = function_of(c["name"]);
    Arrays inputs;
    for (const Json& input : c["inputs"]) inputs.push_back(array_of(input));
    const Arrays found = evaluate(function, c, inputs, DType::f32);
    const Json wanted = wanted_of(c);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i) expect_near(found[i], wanted[i]);

    const use_mesh scope(make_mesh({{"a", 2}, {"b", 2}}));
    const Arrays on_mesh = evaluate(function, c, placed(inputs), DType::f32);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(array_equal(found[i], on_mesh[i]));
  }
}

std::vector<float> gradient(const std::function<Array(const Array&)>& f, const Array& x) {
  return grad(f)(x).to_vector<float>();
}

TEST(Functions, HaveZeroGradientsWhereTheRootIsZero) {
  const std::vector<float> none(4, 0.0F);
  EXPECT_EQ(gradient([](const Array& x) { return stddev(x); }, full({4}, 3)), none);
  EXPECT_EQ(gradient([](const Array& x) { return norm(x); }, zeros({4})), none);
  const auto twice = [](const Array& x) {
    return sum(grad([](const Array& y) { return norm(y); })(x));
  };
  EXPECT_EQ(gradient(twice, zeros({4})), none);
  EXPECT_EQ(stddev(full({4}, 3)).item<float>(), 0.0F);
}

TEST(Functions, SegmentsWithoutRowsHaveTheNeutralElement) {
  const float inf = INFINITY;
  const Array x = array({1.0F, NAN, -2.0F, 5.0F}), ids = array({0, 2, 0, 9});
  EXPECT_EQ(segment_sum(x, ids, 2).to_vector<float>(), (std::vector<float>{-1.0F, 0.0F}));
  EXPECT_EQ(segment_mean(x, ids, 2).to_vector<float>(), (std::vector<float>{-0.5F, 0.0F}));
  EXPECT_EQ(segment_max(x, ids, 2).to_vector<float>(), (std::vector<float>{1.0F, -inf}));
  EXPECT_EQ(segment_min(x, ids, 2).to_vector<float>(), (std::vector<float>{-2.0F, inf}));
  EXPECT_TRUE(std::isnan(segment_max(x, ids, 3).to_vector<float>()[2]));
  const Array whole = array({-3, 7}), none = zeros({0}, DType::i32);
  EXPECT_EQ(segment_max(whole, array({1, 1}), 2).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{INT32_MIN, 7}));
  EXPECT_EQ(segment_max(zeros({0, 2}), none, 1).to_vector<float>(),
            (std::vector<float>{-inf, -inf}));
}

TEST(Functions, SegmentsOfABatchAreThoseOfItsElements) {
  const Array x = random::normal(Key(0), {3, 11, 2});
  const Array ids = random::randint(Key(1), {3, 11}, -1, 5);
  const auto extreme = [](const Array& rows, const Array& of) { return segment_max(rows, of, 4); };
  const auto slope = [&](const Array& rows, const Array& of) {
    const auto loss = [&](const Array& r) {
      const Array best = extreme(r, of);
      return sum(square(where(is_inf(best), 0, best)));
    };
    return grad(loss)(rows);
  };
  const Array all = vmap(extreme)(x, ids), slopes = vmap(slope)(x, ids);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(array_equal(all[i], extreme(x[i], ids[i])));
    EXPECT_TRUE(array_equal(slopes[i], slope(x[i], ids[i])));
  }
}

TEST(Functions, SegmentsHaveSecondDerivatives) {
  const Array x = array({1.0F, 3.0F, -2.0F, 5.0F}), ids = array({0, 0, 1, 1});
  const auto cubes = [&](const Array& rows) { return sum(pow(segment_max(rows, ids, 2), 3)); };
  EXPECT_TRUE(array_equal(hessian(cubes)(x), diag(array({0.0F, 18.0F, 0.0F, 30.0F}))));
  const auto shares = [&](const Array& rows) {
    return sum(segment_softmax(rows, ids, 2) * array({0.0F, 1.0F, 0.0F, 2.0F}));
  };
  // The softmax of two numbers is the logistic function of their difference d, here 2 and 7.
  const auto bend = [](double d) {
    const double p = 1 / (1 + std::exp(-d));
    return p * (1 - p) * (1 - 2 * p);
  };
  const auto second = hessian(shares)(x).to_vector<float>();
  EXPECT_NEAR(second[0], bend(2), 1e-6);
  EXPECT_NEAR(second[1], -bend(2), 1e-6);
  EXPECT_NEAR(second[15], 2 * bend(7), 1e-6);
  EXPECT_EQ(second[2], 0.0F);
}

TEST(Functions, RowsWithoutASegmentHaveNoGradient) {
  const Array weights = array({0.0F, 1.0F, 0.0F, 2.0F, 5.0F});
  const auto shares = [&](const Array& ids) {
    return grad([&](const Array& x) { return sum(segment_softmax(x, ids, 2) * weights); });
  };
  // Segment 0 is empty, or its only row is 200 smaller than a row without a segment.
  const Array x = array({1.0F, 2.0F, 3.0F, 4.0F, 204.0F});
  const double p = 1 / (1 + std::exp(-1.0));  // the share of the larger of two rows
  for (const Array& ids : {array({-1, 1, 1, -1, -1}), array({-1, 1, 1, 0, 7})}) {
    const auto slope = shares(ids)(x).to_vector<float>();
    EXPECT_EQ(slope[0], 0);
    EXPECT_NEAR(slope[1], p * (1 - p), 1e-6);
    EXPECT_NEAR(slope[2], -p * (1 - p), 1e-6);
    EXPECT_EQ(slope[3], 0);
    EXPECT_EQ(slope[4], 0);
  }
}

TEST(Functions, SegmentsKeepZerosAndInfinities) {
  const float inf = INFINITY;
  const Array x = array({-0.0F, -1.0F, -inf, -inf, inf}), ids = array({0, 0, 1, 1, 2});
  const auto all = value_and_grad([&](const Array& rows) {
    const Array best = segment_max(rows, ids, 3);
    return std::tuple(sum(where(is_inf(best), 0, best)), best);
  })(x);
  const auto best = std::get<1>(all).to_vector<float>();
  EXPECT_EQ(best, (std::vector<float>{0.0F, -inf, inf}));
  EXPECT_TRUE(std::signbit(best[0]));
  EXPECT_EQ(std::get<2>(all).to_vector<float>(), (std::vector<float>{1, 0, 0, 0, 0}));
}

TEST(Functions, LogarithmsOfSumsKeepInfinities) {
  const float inf = INFINITY;
  const Array a = array({inf, -inf, -inf, inf, 2.0F}), b = array({inf, -inf, 1.0F, -inf, NAN});
  const auto both = logaddexp(a, b).to_vector<float>();
  EXPECT_EQ(both[0], inf);
  EXPECT_EQ(both[1], -inf);
  EXPECT_EQ(both[2], 1.0F);
  EXPECT_EQ(both[3], inf);
  EXPECT_TRUE(std::isnan(both[4]));
  const auto loss = [&](const Array& x) { return logaddexp(x, array({1.0F}))[0]; };
  EXPECT_EQ(grad(loss)(array({-inf})).item<float>(), 0.0F);
}

TEST(Functions, KeepNaNsAndInfinities) {
  const float inf = INFINITY;
  const Array x = array({inf, -inf, NAN, 0.0F});
  EXPECT_EQ(is_inf(x).to_vector<bool>(), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(is_nan(x).to_vector<bool>(), (std::vector<bool>{false, false, true, false}));
  EXPECT_TRUE(std::isnan(norm(x).item<float>()));
  EXPECT_EQ(norm(array({inf, 1.0F})).item<float>(), inf);
  const auto soft = softplus(x).to_vector<float>();
  EXPECT_EQ(soft[0], inf);
  EXPECT_EQ(soft[1], 0.0F);
  EXPECT_TRUE(std::isnan(soft[2]));
  EXPECT_TRUE(std::isnan(var(ones({2}), {}, KeepDims::no, 2).item<float>()));
  EXPECT_EQ(diag(array({-0.0F, inf, NAN, 2.0F}, {2, 2})).to_vector<float>(),
            (std::vector<float>{-0.0F, 2.0F}));
}

TEST(Functions, HaveTheOperatorsOfC) {
  const std::vector<std::int32_t> a = {7, -7, 12, -1}, b = {3, 3, 5, 2};
  const Array x = array(a), y = array(b);
  std::vector<std::int32_t> rest, left, right, common, either, differ, none;
  for (std::size_t i = 0; i < a.size(); ++i) {
    rest.push_back(a[i] % b[i]);
    left.push_back(a[i] << b[i]);
    right.push_back(a[i] >> b[i]);
    common.push_back(a[i] & b[i]);
    either.push_back(a[i] | b[i]);
    differ.push_back(a[i] ^ b[i]);
    none.push_back(~a[i]);
  }
  EXPECT_EQ((x % y).to_vector<std::int32_t>(), rest);
  EXPECT_EQ((x << y).to_vector<std::int32_t>(), left);
  EXPECT_EQ((x >> y).to_vector<std::int32_t>(), right);
  EXPECT_EQ((x & y).to_vector<std::int32_t>(), common);
  EXPECT_EQ((x | y).to_vector<std::int32_t>(), either);
  EXPECT_EQ((x ^ y).to_vector<std::int32_t>(), differ);
  EXPECT_EQ((~x).to_vector<std::int32_t>(), none);
  EXPECT_EQ((array({0x80000000U}) >> 4).to_vector<std::uint32_t>()[0], 0x08000000U);
  const Array p = array({true, true, false, false}), q = array({true, false, true, false});
  EXPECT_TRUE(array_equal(p && q, logical_and(p, q)));
  EXPECT_TRUE(array_equal(p || q, logical_or(p, q)));
  EXPECT_TRUE(array_equal(p & q, p && q));
  EXPECT_TRUE(array_equal(p ^ q, logical_xor(p, q)));
  EXPECT_TRUE(array_equal(!p, logical_not(p)));
  EXPECT_TRUE(array_equal(~p, !p));
}

// --- resize

std::int64_t count_of(const std::string& text, const std::string& word) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

TEST(Resize, OfFewTermsAndItsDerivativesAreNoProductsAndScatters) {
  const Shape larger = {1, 112, 112, 3};
  const auto f = [&](const Array& x) { return resize(x, larger); };
  const Array x = ones({1, 56, 56, 3});
  const auto of_x = jit([&](Array a, Array c) { return vjp(f, c)(a); });
  const auto of_tangent = jit([&](Array a, Array t) { return jvp(f, t)(a); });
  for (const std::string& text : {of_x.lower(x, ones(larger)).ir(), of_tangent.lower(x, x).ir()}) {
    EXPECT_EQ(count_of(text, "dot_general") + count_of(text, "scatter"), 0) << text;
    EXPECT_GT(count_of(text, "gather"), 0);
  }
}

/// The same numbers for columns of a matrix, and for matrices of a batch, as for each by itself.
TEST(Resize, OfLongRowsIsThatOfEachColumn) {
  const Array x = random::normal(Key(0), {40, 70});
  const auto f = [](const Array& a) { return resize(a, {64, a.dim(1)}); };
  const Array y = f(x);
  for (std::int64_t i = 0; i < 70; i += 23) {
    EXPECT_TRUE(array_equal(y.slice(1, i, i + 1), f(x.slice(1, i, i + 1))));
  }
  const Array batch = reshape(x, {2, 40, 35});
  const Array all = vmap(f)(batch);
  EXPECT_TRUE(array_equal(all[1], f(batch[1])));
}

TEST(Resize, IsItsOwnTangent) {
  for (const std::int64_t size : {24, 64}) {
    const auto f = [&](const Array& a) { return resize(a, {size, 3}, ResizeMethod::linear); };
    const Array x = random::normal(Key(0), {40, 3}), t = random::normal(Key(1), {40, 3});
    EXPECT_TRUE(array_equal(jvp(f, t)(x).second, f(t)));
    // The derivative of the cotangent with respect to the cotangent of the result.
    const Array c = random::normal(Key(2), {size, 3});
    const auto back = [&](const Array& a) { return vjp(f, a)(x).second; };
    EXPECT_TRUE(array_equal(grad([&](const Array& a) { return sum(back(a) * t); })(c), f(t)));
  }
}

TEST(Resize, MayBeEmpty) {
  EXPECT_EQ(resize(ones({40, 3}), {0, 3}).shape(), (Shape{0, 3}));
  EXPECT_EQ(resize(zeros({40, 0}), {60, 0}).shape(), (Shape{60, 0}));
}

TEST(Resize, KeepsInfinitiesAmongTheirNeighbours) {
  std::vector<float> values(40, 1.0F);
  values[20] = INFINITY;
  const std::vector<float> y = resize(array(values), {80}).to_vector<float>();
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i], i >= 39 && i <= 42 ? INFINITY : 1.0F) << i;
  }
}

}  // namespace
}  // namespace tessera
