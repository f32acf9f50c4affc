// Tests of tile programs that sum columns, or everything: the sums must equal those of the whole
// arrays.
#include <gtest/gtest.h>
#include <random>
#include <string>

#include "base/leaf_tree.h"
#include "base/sanitized.h"
#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/tile/tile_program.h"

namespace tessera::kernels {
namespace {

using Floats = std::vector<float>;
using Cuts = std::vector<std::vector<std::int64_t>>;

/// y = x * scale, where each column has its scale. Stores y, and the sums of y and x: of their
/// columns or, with grains of the last dimension, of all elements.
struct Scaled {
  Shape extents;
  Cuts cuts;
  std::vector<std::int64_t> last_cuts;
  Floats x, scale;

  TileProgram program() const {
    TileProgram p;
    p.extents = extents;
    std::vector<std::int64_t> of_columns(extents.size(), 0);
    of_columns.back() = 1;
    const auto access = [](int buffer, std::vector<std::int64_t> strides) {
      return TileAccess{
          .buffer = buffer, .offset = 0, .strides = std::move(strides), .dtype = DType::f32};
    };
    p.loads = {{.reg = 0, .access = access(0, row_major_strides(extents))},
               {.reg = 1, .access = access(1, of_columns)}};
    p.steps = {{.kernel = find_tile_kernel("mul", DType::f32),
                .num_inputs = 2,
                .inputs = {0, 1},
                .output = 2,
                .out_dtype = DType::f32}};
    p.num_registers = 3;
    p.stores = {{.reg = 2, .access = access(2, row_major_strides(extents))}};
    p.column_sums = {{.reg = 2, .buffer = 3}, {.reg = 0, .buffer = 4}};
    p.column_cuts = cuts;
    p.last_cuts = last_cuts;
    p.scratch_buffer = 5;
    return p;
  }

  Floats sums_of(const Floats& values) const {
    const std::vector<std::int64_t> strides = row_major_strides(extents);
    ReduceProblem problem{.kind = ReduceKind::sum,
                          .dtype = DType::f32,
                          .kept_extents = {extents.back()},
                          .kept_strides = {1},
                          .reduced_extents = {extents.begin(), extents.end() - 1},
                          .reduced_strides = {strides.begin(), strides.end() - 1},
                          .cuts = cuts};
    if (!last_cuts.empty()) {
      problem.kept_extents = problem.kept_strides = {};
      problem.reduced_extents = extents;
      problem.reduced_strides = strides;
      problem.cuts.push_back(last_cuts);
      problem.lanes16 = true;
    }
    Floats sums(static_cast<std::size_t>(num_elements(problem.kept_extents)));
    const ReducePlan plan(std::move(problem), 1, {});
    std::vector<std::byte> scratch(static_cast<std::size_t>(plan.scratch_bytes()));
    for (int part = 0; part < plan.num_parts(); ++part) {
      plan.run(values.data(), sums.data(), scratch.data(), part);
    }
    if (!scratch.empty()) plan.join(scratch.data(), sums.data());
    return sums;
  }

  void check(int num_workers) const {
    const TilePlan plan(program(), num_workers);
    const std::size_t num_sums = last_cuts.empty() ? scale.size() : 1;
    Floats in = x, y(x.size()), of_y(num_sums), of_x(num_sums);
    Floats factors = scale;
    std::vector<float> scratch(static_cast<std::size_t>(plan.scratch_bytes()) / sizeof(float));
    std::byte* buffers[] = {
        reinterpret_cast<std::byte*>(in.data()),   reinterpret_cast<std::byte*>(factors.data()),
        reinterpret_cast<std::byte*>(y.data()),    reinterpret_cast<std::byte*>(of_y.data()),
        reinterpret_cast<std::byte*>(of_x.data()), reinterpret_cast<std::byte*>(scratch.data())};
    for (int part = plan.num_parts(); part-- > 0;) plan.run(buffers, part);
    plan.join(buffers);
    Floats wanted = x;
    for (std::size_t i = 0; i < x.size(); ++i) wanted[i] *= scale[i % scale.size()];
    EXPECT_EQ(y, wanted);
    EXPECT_EQ(of_y, sums_of(wanted));
    EXPECT_EQ(of_x, sums_of(x));
  }
};

/// Grains of each dimension.
Cuts cuts_of(const Shape& extents, std::mt19937& random) {
  Cuts cuts;
  const std::vector<std::int64_t> grains = {1, 2, 3, 8};
  for (std::size_t d = 0; d < extents.size(); ++d) {
    const std::int64_t count = grains[random() % grains.size()];
    cuts.emplace_back();
    for (std::int64_t leaf = 0; leaf <= count; ++leaf) {
      cuts.back().push_back(leaf_start(leaf, count, extents[d]));
    }
  }
  return cuts;
}

TEST(TileColumns, SumsAreThoseOfWholeArrays) {
  testing::on_every_target([](const char* target) {
    std::mt19937 random(11);
    for (int round = 0; round < num_cases(200); ++round) {
      Scaled test;
      const std::size_t rank = 2 + random() % 3;
      const auto most = static_cast<std::uint32_t>(rank == 2 ? 2000 : 24);
      for (std::size_t d = 0; d < rank; ++d)
        test.extents.push_back(static_cast<std::int64_t>(1 + random() % most));
      if (rank == 2) test.extents[1] = 1 + test.extents[1] % 150;
      // Whole vectors are added by loops of their own.
      if (random() % 2 == 0) test.extents.back() = std::int64_t{16} << random() % 4;
      test.cuts = cuts_of(test.extents, random);
      if (random() % 2 == 0) test.last_cuts = test.cuts.back();
      test.cuts.pop_back();
      const auto value = [&] { return static_cast<float>(random() % 20001) * 1e-4F - 1.0F; };
      for (std::int64_t i = num_elements(test.extents); i > 0; --i) test.x.push_back(value());
      for (std::int64_t i = test.extents.back(); i > 0; --i) test.scale.push_back(value());
      SCOPED_TRACE(std::string(target) + ", round " + std::to_string(round));
      for (const int num_workers : {1, 2, 16}) test.check(num_workers);
      if (HasFailure()) return;
    }
  });
}

}  // namespace
}  // namespace tessera::kernels
