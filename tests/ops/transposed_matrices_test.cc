// Matrices that a loop multiplies with few rows. They are transposed before the loop.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

#include "ops/control/control.h"
#include "tests/ops/loops.h"

namespace tessera {
namespace {

using ir::Function;
using testing::body_of, testing::count, testing::expect_same_bits;

Function transposed(const Function& f) {
  return testing::changed_by(ops::transpose_before_loops, "transpose_before_loops", f);
}

struct Sizes {
  int rows = 2;
  int columns = 24;
  int terms = 20;
  int rounds = 16;
  std::string dtype = "f32";
};

/// A scan whose rounds multiply the carry by the matrix, and the result by its transpose.
Function scan_of(const Sizes& sizes, const std::string& more = "") {
  return ir::parse(
      fmt::format("function main[mesh=\"none\", grains=8](%0: {0}, %1: {1}) {{\n"
                  "  %2: {1} = scan[body={{(%0: {0}, %1: {1}) {{\n"
                  "    %2: {2} = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[], "
                  "rhs_contract=[1]] %1, %0\n"
                  "    %3: {1} = dot_general[lhs_batch=[], lhs_contract=[1], rhs_batch=[], "
                  "rhs_contract=[0]] %2, %0\n"
                  "    %4: {1} = {5} %3\n    return %4\n"
                  "  }}}}, length={3}{4}, num_carry=1, num_consts=1, reverse=false] %0, %1\n"
                  "  return %2\n}}\n",
                  fmt::format("{}[{},{}]", sizes.dtype, sizes.columns, sizes.terms),
                  fmt::format("{}[{},{}]", sizes.dtype, sizes.rows, sizes.terms),
                  fmt::format("{}[{},{}]", sizes.dtype, sizes.rows, sizes.columns), sizes.rounds,
                  more, sizes.dtype == "f32" ? "tanh" : "neg"));
}

TEST(TransposedMatrices, OfFewRowsAreMadeBeforeTheLoop) {
  const Function f = scan_of({}), changed = transposed(f);
  EXPECT_EQ(count(changed, "transpose"), 1U) << ir::print(changed);
  EXPECT_EQ(body_of(changed).inputs.size(), 3U) << ir::print(changed);
  for (const ir::Equation& equation : body_of(changed).equations) {
    if (*equation.op->name != "dot_general") continue;
    EXPECT_EQ(equation.attributes.ints("rhs_contract"), std::vector<std::int64_t>({0}));
  }
  expect_same_bits(f, changed);
}

TEST(TransposedMatrices, StayWhereThatTakesLonger) {
  for (const Function& f :
       {scan_of({.rows = 17}), scan_of({.columns = 15}), scan_of({.rounds = 15}),
        scan_of({.dtype = "i32"}), scan_of({.columns = 1024, .terms = 2049}),
        scan_of({}, ", microbatches=true")}) {
    EXPECT_EQ(ir::print(transposed(f)), ir::print(f));
  }
}

int below(std::mt19937& random, int end) {
  return static_cast<int>(random() % static_cast<unsigned>(end));
}

/// A matrix of a loop, with its dimensions in any order.
struct RandomMatrix {
  explicit RandomMatrix(std::mt19937& random)
      : has_batch(below(random, 2) == 0),
        batch(1 + below(random, 3)),
        rows(1 + below(random, 18)),
        n(14 + below(random, 8)) {
    if (has_batch) order.push_back(kBatch);
    std::ranges::shuffle(order, random);
  }

  std::string type() const {
    std::string sizes;
    for (const int dim : order) sizes += fmt::format(",{}", dim == kBatch ? batch : n);
    return "f32[" + sizes.substr(1) + "]";
  }
  /// Reverses the order of the dimensions. Returns the line that does the same to %0.
  std::string turn() {
    std::ranges::reverse(order);
    return fmt::format("    %4: {} = transpose[permutation=[{}]] %0\n", type(),
                       has_batch ? "2,1,0" : "1,0");
  }
  /// Dimension numbers, as in an attribute.
  std::string batch_dims() const { return has_batch ? place(kBatch) : ""; }
  std::string place(int dim) const {
    return std::to_string(std::ranges::find(order, dim) - order.begin());
  }

  enum : std::uint8_t { kBatch, kTerms, kColumns };
  bool has_batch;
  int batch;
  int rows;  // of the carry
  int n;     // terms and columns: products become the next carry
  std::vector<int> order = {kTerms, kColumns};
};

/// A while loop whose rounds multiply a carry with a matrix on either side.
Function random_loop_of_matrices(std::mt19937& random) {
  RandomMatrix matrix(random);
  const auto type_of = [&](int first, int second) {
    return matrix.has_batch ? fmt::format("f32[{},{},{}]", matrix.batch, first, second)
                            : fmt::format("f32[{},{}]", first, second);
  };
  const std::string type = matrix.type(), carry = type_of(matrix.rows, matrix.n);
  const bool is_left = below(random, 2) == 0, is_turned = below(random, 2) == 0;
  std::string body = is_turned ? matrix.turn() : "";
  const std::string name = is_turned ? "%4" : "%0";
  const std::string batch = matrix.has_batch ? "0" : "", terms = matrix.has_batch ? "2" : "1";
  const char* const product =
      "    %5: {} = dot_general[lhs_batch=[{}], lhs_contract=[{}], rhs_batch=[{}], "
      "rhs_contract=[{}]] {}, {}\n";
  if (is_left) {
    body += fmt::format(fmt::runtime(product), type_of(matrix.n, matrix.rows), matrix.batch_dims(),
                        matrix.place(RandomMatrix::kTerms), batch, terms, name, "%3");
    body += fmt::format("    %6: {} = transpose[permutation=[{}]] %5\n", carry,
                        matrix.has_batch ? "0,2,1" : "1,0");
  } else {
    body += fmt::format(fmt::runtime(product), carry, batch, terms, matrix.batch_dims(),
                        matrix.place(RandomMatrix::kTerms), "%3", name);
  }
  return ir::parse(fmt::format(
      "function main[mesh=\"none\", grains=8](%0: {0}, %1: i32[], %2: {1}) {{\n"
      "  %3: i32[], %4: {1} = while[body={{(%0: {0}, %1: i32[], %2: i32[], %3: {1}) {{\n{2}"
      "    %7: {1} = tanh {3}\n"
      "    %8: i32[] = constant[dtype=i32, shape=[], value=1.0]\n"
      "    %9: i32[] = add %2, %8\n    return %9, %7\n"
      "  }}}}, condition={{(%0: {0}, %1: i32[], %2: i32[], %3: {1}) {{\n"
      "    %4: i32[] = constant[dtype=i32, shape=[], value=3.0]\n"
      "    %5: bool[] = compare[direction=\"lt\"] %2, %4\n    return %5\n"
      "  }}}}, num_consts=2] %0, %1, %1, %2\n"
      "  return %3, %4\n}}\n",
      type, carry, body, is_left ? "%6" : "%5"));
}

TEST(TransposedMatrices, RandomOnesHaveTheSameBits) {
  int num_changed = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Function f = random_loop_of_matrices(random), changed = transposed(f);
    num_changed += count(changed, "transpose") > 0 ? 1 : 0;
    expect_same_bits(f, changed);
    if (HasFailure()) return;
  }
  EXPECT_GT(num_changed, 50);
  EXPECT_LT(num_changed, 150);
}

}  // namespace
}  // namespace tessera
