// Linear algebra over random cases has the values and gradients that JAX printed, and on a mesh the
// bits that it has without one.
#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "tests/ops/golden_functions.h"

namespace tessera {
namespace {

Arrays list_of(const std::pair<Array, Array>& pair) { return {pair.first, pair.second}; }

linalg::TriangularOptions triangular_options(const Json& a) {
  return {.lower = a["lower"], .transpose = a["transpose"], .unit_diagonal = a["unit_diagonal"]};
}

const Functions& factorisations() {
  static const Functions list = {
      {"cholesky",
       [](const Json&, const Arrays& in) -> Arrays { return {linalg::cholesky(in[0])}; }},
      {"lu_factor",
       [](const Json&, const Arrays& in) -> Arrays { return {linalg::lu_factor(in[0]).packed}; }},
      {"lu_pivots",
       [](const Json&, const Arrays& in) -> Arrays {
         const linalg::LuFactors factors = linalg::lu_factor(in[0]);
         return {factors.pivots, factors.permutation};
       }},
      {"qr",
       [](const Json& a, const Arrays& in) {
         const bool is_full = a["full"];
         return list_of(
             linalg::qr(in[0], is_full ? linalg::FullMatrices::yes : linalg::FullMatrices::no));
       }},
      {"eigh", [](const Json&, const Arrays& in) { return list_of(linalg::eigh(in[0])); }},
      {"eigvalsh",
       [](const Json&, const Arrays& in) -> Arrays { return {linalg::eigvalsh(in[0])}; }},
      {"svd",
       [](const Json&, const Arrays& in) -> Arrays {
         const auto [u, s, vt] = linalg::svd(in[0]);
         return {u, s, vt};
       }},
      {"svdvals",
       [](const Json&, const Arrays& in) -> Arrays { return {linalg::svdvals(in[0])}; }}};
  return list;
}

const Functions& systems() {
  static const Functions list = {
      {"solve",
       [](const Json&, const Arrays& in) -> Arrays { return {linalg::solve(in[0], in[1])}; }},
      {"lu_solve",
       [](const Json&, const Arrays& in) -> Arrays {
         return {linalg::lu_solve(linalg::lu_factor(in[0]), in[1])};
       }},
      {"cholesky_solve",
       [](const Json&, const Arrays& in) -> Arrays {
         return {linalg::cholesky_solve(in[0], in[1])};
       }},
      {"solve_triangular",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {linalg::solve_triangular(in[0], in[1], triangular_options(a))};
       }},
      {"lstsq",
       [](const Json&, const Arrays& in) -> Arrays { return {linalg::lstsq(in[0], in[1])}; }},
      {"pinv", [](const Json&, const Arrays& in) -> Arrays { return {linalg::pinv(in[0])}; }},
      {"inv", [](const Json&, const Arrays& in) -> Arrays { return {linalg::inv(in[0])}; }},
      {"det", [](const Json&, const Arrays& in) -> Arrays { return {linalg::det(in[0])}; }},
      {"slogdet", [](const Json&, const Arrays& in) { return list_of(linalg::slogdet(in[0])); }},
      {"matrix_power",
       [](const Json& a, const Arrays& in) -> Arrays {
         return {linalg::matrix_power(in[0], a["n"])};
       }},
      {"matrix_rank",
       [](const Json&, const Arrays& in) -> Arrays { return {linalg::matrix_rank(in[0])}; }}};
  return list;
}

const Function& function_of(const std::string& name) {
  const auto found = factorisations().find(name);
  return found != factorisations().end() ? found->second : systems().at(name);
}

TEST(LinalgGolden, IsThatOfJaxOnAnyMesh) {
  const Json golden = read_golden("linalg.json");
  ASSERT_GE(golden["cases"].size(), 60U);
  for (const Json& c : golden["cases"]) {
    check_case(function_of(c["name"]), c, DType::f64, 1e-9);
    check_case(function_of(c["name"]), c, DType::f32, 5e-3);
  }
}

TEST(LinalgPieces, RightHandSidesThatThreadsShareAreThoseOfOneAlone) {
  constexpr std::int64_t kRows = 130;
  constexpr std::int64_t kSides = 300;  // more than two pieces
  const Array a = random::normal(random::Key(1), {2, kRows, kRows}) * 0.05 + eye(kRows);
  const Array b = random::normal(random::Key(2), {2, kRows, kSides});
  for (const linalg::TriangularOptions& options :
       {linalg::TriangularOptions{.lower = true}, linalg::TriangularOptions{.transpose = true}}) {
    const Array all = linalg::solve_triangular(a, b, options);
    for (const std::int64_t side : {0, 1, 127, 128, 255, 256, 299}) {
      const Array alone = linalg::solve_triangular(a, b.slice(2, side, side + 1), options);
      EXPECT_TRUE(array_equal(all.slice(2, side, side + 1), alone)) << "side " << side;
    }
  }
}

}  // namespace
}  // namespace tessera
