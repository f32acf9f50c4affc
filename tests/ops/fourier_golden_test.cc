// Fourier transforms have the values and gradients that JAX printed, and on a mesh the bits that
// they have without one.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "tests/ops/golden_functions.h"

namespace tessera {
namespace {

fft::Complex complex_of(const Arrays& in) { return {.real = in[0], .imag = in[1]}; }
Arrays parts_of(const fft::Complex& x) { return {x.real, x.imag}; }

fft::Norm norm_of(const Json& a) {
  const std::string norm = a.value("norm", "backward");
  if (norm == "ortho") return fft::Norm::ortho;
  return norm == "forward" ? fft::Norm::forward : fft::Norm::backward;
}

fft::Options options_of(const Json& a) {
  return {.length = a.value("n", std::int64_t{-1}),
          .axis = a.value("axis", std::int64_t{-1}),
          .norm = norm_of(a)};
}

fft::OptionsN options_n_of(const Json& a) {
  using Ints = std::vector<std::int64_t>;
  return {.axes = a.value("axes", Ints()), .lengths = a.value("s", Ints()), .norm = norm_of(a)};
}

Axes axes_of(const Json& a) {
  return a.contains("axes") ? Axes(a["axes"].get<std::vector<std::int64_t>>()) : Axes();
}

const Functions& functions() {
  static const Functions all = {
      {"fft", [](const Json& a,
                 const Arrays& in) { return parts_of(fft::fft(complex_of(in), options_of(a))); }},
      {"ifft", [](const Json& a,
                  const Arrays& in) { return parts_of(fft::ifft(complex_of(in), options_of(a))); }},
      {"rfft",
       [](const Json& a, const Arrays& in) { return parts_of(fft::rfft(in[0], options_of(a))); }},
      {"irfft",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {fft::irfft(complex_of(in), options_of(a))};
       }},
      {"fftn",
       [](const Json& a, const Arrays& in) {
         return parts_of(fft::fftn(complex_of(in), options_n_of(a)));
       }},
      {"ifftn",
       [](const Json& a, const Arrays& in) {
         return parts_of(fft::ifftn(complex_of(in), options_n_of(a)));
       }},
      {"rfftn", [](const Json& a,
                   const Arrays& in) { return parts_of(fft::rfftn(in[0], options_n_of(a))); }},
      {"irfftn",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {fft::irfftn(complex_of(in), options_n_of(a))};
       }},
      {"fft2", [](const Json&, const Arrays& in) { return parts_of(fft::fft2(complex_of(in))); }},
      {"ifft2", [](const Json&, const Arrays& in) { return parts_of(fft::ifft2(complex_of(in))); }},
      {"fftshift",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {fft::fftshift(in[0], axes_of(a))};
       }},
      {"ifftshift",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {fft::ifftshift(in[0], axes_of(a))};
       }},
      {"fftfreq",
       [](const Json& a, const Arrays&) -> Arrays {
         return {fft::fftfreq(a["n"], a["d"], DType::f64)};
       }},
      {"rfftfreq", [](const Json& a, const Arrays&) -> Arrays {
         return {fft::rfftfreq(a["n"], a["d"], DType::f64)};
       }}};
  return all;
}

TEST(FourierGolden, IsThatOfJaxOnAnyMesh) {
  const Json golden = read_golden("fourier.json");
  ASSERT_GE(golden["cases"].size(), 70U);
  for (const Json& c : golden["cases"]) {
    const Function& function = functions().at(c["name"]);
    check_case(function, c, DType::f64, 1e-13);
    check_case(function, c, DType::f32, 1e-5);
  }
}

TEST(Fourier, ProductsOfTransformsAreConvolutions) {
  const Array x = random::normal(random::Key(1), {33});
  const Array y = random::normal(random::Key(2), {8});
  const fft::Options whole{.length = 40};
  const auto convolve = jit([=](Array a, Array b) {
    return fft::irfft(fft::rfft(a, whole) * fft::rfft(b, whole), whole);
  });
  const std::vector<float> found = convolve(x, y).to_vector<float>();
  const std::vector<float> a = x.to_vector<float>();
  const std::vector<float> b = y.to_vector<float>();
  for (std::size_t k = 0; k < found.size(); ++k) {
    double sum = 0.0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      if (j <= k && k - j < a.size()) sum += static_cast<double>(a[k - j]) * b[j];
    }
    EXPECT_NEAR(found[k], sum, 1e-5);
  }
}

TEST(Fourier, RowsOfABatchAreTransformedOneByOne) {
  const Array x = random::normal(random::Key(1), {5, 3, 24});
  const Array y = random::normal(random::Key(2), {5, 3, 24});
  const auto one = [](const Array& re, const Array& im) {
    return fft::fft2({.real = re, .imag = im});
  };
  const auto [real, imag] = vmap(one)(x, y);
  for (std::int64_t i = 0; i < 5; ++i) {
    const fft::Complex alone = one(x[i], y[i]);
    EXPECT_TRUE(array_equal(real[i], alone.real));
    EXPECT_TRUE(array_equal(imag[i], alone.imag));
  }
}

TEST(Fourier, AbsoluteValuesAndConjugates) {
  const fft::Complex x{.real = array({3.F, 0.F}), .imag = array({-4.F, 0.F})};
  EXPECT_TRUE(array_equal(fft::abs(x), array({5.F, 0.F})));
  EXPECT_TRUE(array_equal(fft::conj(x).imag, array({4.F, 0.F})));
  const auto loss = [](const fft::Complex& z) { return sum(fft::abs(z)); };
  const fft::Complex gradient = grad(loss)(x);
  EXPECT_TRUE(array_equal(abs(gradient.real - array({0.6F, 0.F})) < 1e-6, array({true, true})));
  EXPECT_TRUE(array_equal(abs(gradient.imag - array({-0.8F, 0.F})) < 1e-6, array({true, true})));
}

}  // namespace
}  // namespace tessera
