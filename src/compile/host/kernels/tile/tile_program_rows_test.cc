// Tests of tile programs that reduce rows: results must equal those of the steps run one by one
// over the whole array.
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "compile/host/kernels/on_every_target.h"
#include "compile/host/kernels/test_values.h"
#include "compile/host/kernels/tile/tile_program.h"
#include "compile/host/kernels/tile/tile_program_internal.h"

namespace tessera::kernels {
namespace {

using testing::at;
using testing::on_every_target;
using Floats = std::vector<float>;
using Strides = std::vector<std::int64_t>;

Floats random_floats(std::int64_t count) {
  static std::mt19937 random(3);
  Floats values(at(count));
  for (float& x : values)
    x = static_cast<float>(static_cast<int>(random() % 20001) - 10000) * 1e-4F;
  return values;
}

Floats map2(const char* kernel, const Floats& a, const Floats& b) {
  Floats result(a.size());
  const TileInput inputs[] = {{a.data(), false}, {b.data(), false}};
  find_tile_kernel(kernel, DType::f32)->run(inputs, result.data(), result.size());
  return result;
}

Floats expanded(const Floats& rows, std::int64_t columns) {
  Floats result;
  for (float x : rows) result.insert(result.end(), at(columns), x);
  return result;
}

/// y = exp(x - max(x)) / (sum(exp(x - max(x))) * scale), with strided x and scale. Stores y, the
/// sums, the product of sum and scale, and scale squared, all dense.
struct Softmax {
  Shape outer;
  std::int64_t columns;
  Strides cuts;
  Strides x_strides;      // of all dimensions
  Strides scale_strides;  // of the outer dimensions
  Floats x, scale;

  std::int64_t rows() const { return num_elements(outer); }

  Shape extents() const {
    Shape all = outer;
    all.push_back(columns);
    return all;
  }

  TileProgram program() const {
    TileProgram p;
    p.extents = extents();
    p.has_rows = true;
    const auto access = [](int buffer, Strides strides) {
      return TileAccess{
          .buffer = buffer, .offset = 0, .strides = std::move(strides), .dtype = DType::f32};
    };
    p.loads = {{.reg = 0, .access = access(0, x_strides)},
               {.reg = 1, .access = access(1, scale_strides), .is_row = true}};
    p.reductions = {{.kind = ReduceKind::max, .cuts = {0, columns}},
                    {.kind = ReduceKind::sum, .cuts = cuts}};
    const auto step = [](const char* kernel, Strides inputs, int output) {
      TileStep made{};
      if (kernel != nullptr) made.kernel = find_tile_kernel(kernel, DType::f32);
      made.num_inputs = static_cast<int>(inputs.size());
      for (std::size_t i = 0; i < inputs.size(); ++i) made.inputs[i] = static_cast<int>(inputs[i]);
      made.output = output;
      made.out_dtype = DType::f32;
      return made;
    };
    p.steps = {step(nullptr, {0}, 2),  step(nullptr, {2}, 3), step("mul", {1, 1}, 10),
               step("sub", {0, 3}, 4), step("exp", {4}, 5),   step(nullptr, {5}, 6),
               step("mul", {6, 1}, 7), step(nullptr, {7}, 8), step("div", {5, 8}, 9)};
    p.num_registers = 11;
    p.steps[0].kind = p.steps[5].kind = StepKind::reduce;
    p.steps[0].reduction = 0;
    p.steps[5].reduction = 1;
    p.steps[1].kind = p.steps[7].kind = StepKind::expand;
    p.steps[2].is_row = p.steps[6].is_row = true;
    p.stores = {{.reg = 9, .access = access(2, row_major_strides(extents()))},
                {.reg = 6, .access = access(3, row_major_strides(outer)), .is_row = true},
                {.reg = 7, .access = access(4, row_major_strides(outer)), .is_row = true},
                {.reg = 10, .access = access(5, row_major_strides(outer)), .is_row = true}};
    return p;
  }

  Floats gathered(const Floats& from, const Shape& shape, const Strides& strides) const {
    Floats values;
    Strides index(shape.size(), 0);
    for (std::int64_t n = num_elements(shape); n > 0; --n) {
      values.push_back(from[at(
          std::inner_product(index.begin(), index.end(), strides.begin(), std::int64_t{0}))]);
      for (std::size_t d = shape.size(); d-- > 0;) {
        if (++index[d] < shape[d]) break;
        index[d] = 0;
      }
    }
    return values;
  }

  void check() {
    x = random_floats(rows() * columns);
    scale = random_floats(rows());
    Floats y(x.size()), sums(at(rows())), products(at(rows())), squares(at(rows()));
    const TilePlan plan(program(), 4);
    std::vector<std::byte*> buffers;
    for (Floats* array : {&x, &scale, &y, &sums, &products, &squares}) {
      buffers.push_back(reinterpret_cast<std::byte*>(array->data()));
    }
    for (int part = plan.num_parts(); part-- > 0;) plan.run(buffers, part);

    const Floats dense = gathered(x, extents(), x_strides);
    Floats largest(at(rows())), total(at(rows()));
    RowReducer(ReduceKind::max, {0, columns}).run(dense.data(), rows(), largest.data());
    const Floats shifted = map2("sub", dense, expanded(largest, columns));
    const Floats e = map2("exp", shifted, shifted);
    RowReducer(ReduceKind::sum, cuts).run(e.data(), rows(), total.data());
    const Floats scales = gathered(scale, outer, scale_strides);
    const Floats product = map2("mul", total, scales);
    EXPECT_EQ(sums, total);
    EXPECT_EQ(products, product);
    EXPECT_EQ(squares, map2("mul", scales, scales));
    EXPECT_EQ(y, map2("div", e, expanded(product, columns)));
  }
};

TEST(TileProgramRows, EqualTheirStepsOneByOne) {
  for (std::int64_t columns : {2, 7, 16, 64, 65, 300, 512, 513, 1536, 4096}) {
    for (std::int64_t count : {1, 3, 40}) {
      SCOPED_TRACE(::testing::Message() << count << " rows of " << columns);
      const std::int64_t cut = columns / 3;
      Softmax{.outer = {count},
              .columns = columns,
              .cuts = {0, cut, cut, columns},
              .x_strides = {columns, 1},
              .scale_strides = {1},
              .x = {},
              .scale = {}}
          .check();
    }
  }
}

TEST(TileProgramRows, MayLieInAnyOrder) {
  // Rows over two dimensions that cannot be merged, columns far apart, one scale for many rows.
  Softmax{.outer = {5, 6},
          .columns = 33,
          .cuts = {0, 33},
          .x_strides = {1, 5, 30},
          .scale_strides = {1, 5},
          .x = {},
          .scale = {}}
      .check();
  Softmax{.outer = {5, 6},
          .columns = 33,
          .cuts = {0, 16, 33},
          .x_strides = {33, 165, 1},
          .scale_strides = {0, 1},
          .x = {},
          .scale = {}}
      .check();
  Softmax{.outer = {1, 6},
          .columns = 40,
          .cuts = {0, 16, 40},
          .x_strides = {7, 40, 1},
          .scale_strides = {0, 0},
          .x = {},
          .scale = {}}
      .check();
}

TEST(TileProgramRows, AreFilledUpToTheirEnds) {
  on_every_target([](const char* /*name*/) {
    for (const std::size_t size : {1U, 2U, 4U, 8U}) {
      for (const std::size_t columns : {1U, 2U, 3U, 8U, 16U, 65U, 130U}) {
        for (const std::size_t rows : {1U, 2U, 7U, 41U}) {
          SCOPED_TRACE(::testing::Message() << rows << " x " << columns << " of " << size);
          std::vector<std::byte> values(rows * size);
          for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i + 1);
          constexpr std::size_t kGuard = 64;
          std::vector<std::byte> expected(rows * columns * size + kGuard, std::byte{0xA5});
          auto filled = expected;
          for (std::size_t i = 0; i < rows * columns * size; ++i)
            expected[i] = values[i / (columns * size) * size + i % size];
          tiles::fill_rows(size, values.data(), static_cast<std::int64_t>(rows),
                           static_cast<std::int64_t>(columns), filled.data());
          EXPECT_EQ(filled, expected);
        }
      }
    }
  });
}

TEST(TileProgramRows, NoRowsAreNoWork) {
  Softmax{.outer = {0},
          .columns = 4,
          .cuts = {0, 4},
          .x_strides = {4, 1},
          .scale_strides = {1},
          .x = {},
          .scale = {}}
      .check();
}

TEST(TileProgramRows, AConstantIsReducedLikeAnyRow) {
  TileProgram p;
  p.extents = {3, 5};
  p.has_rows = true;
  p.num_registers = 2;
  p.constants = {{.reg = 0, .value = 0.5, .dtype = DType::f32}};
  p.reductions = {{.kind = ReduceKind::sum, .cuts = {0, 5}}};
  TileStep sum{};
  sum.kind = StepKind::reduce;
  sum.num_inputs = 1;
  sum.output = 1;
  sum.out_dtype = DType::f32;
  sum.reduction = 0;
  p.steps = {sum};
  p.stores = {{.reg = 1,
               .access = {.buffer = 0, .offset = 0, .strides = {1}, .dtype = DType::f32},
               .is_row = true}};
  Floats sums(3);
  const TilePlan plan(std::move(p), 4);
  std::byte* buffers[] = {reinterpret_cast<std::byte*>(sums.data())};
  for (int part = plan.num_parts(); part-- > 0;) plan.run(buffers, part);
  EXPECT_EQ(sums, (Floats{2.5F, 2.5F, 2.5F}));
}

}  // namespace
}  // namespace tessera::kernels
