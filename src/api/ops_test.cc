#include <gtest/gtest.h>

#include <tessera/engine.h>
#include <tessera/error.h>
#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/jit.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::mistake_of;

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

TEST(Arrays, AreMadeAndRead) {
  EXPECT_EQ(array({1, 2, 3}).to_vector<std::int32_t>(), (Ints{1, 2, 3}));
  EXPECT_EQ(array(std::vector<bool>{true, false}).to_vector<bool>(),
            (std::vector<bool>{true, false}));
  EXPECT_EQ(array(std::vector<bool>{true, false}).to_vector<std::uint8_t>()[0], 1);
  EXPECT_EQ(full({2}, 1.5).to_vector<float>(), (Floats{1.5F, 1.5F}));
  EXPECT_EQ(ones_like(array({1, 2})).to_vector<std::int32_t>(), (Ints{1, 1}));
  EXPECT_EQ(arange(2, 9, 3).to_vector<std::int32_t>(), (Ints{2, 5, 8}));
  EXPECT_EQ(arange(3, 0, -1).to_vector<std::int32_t>(), (Ints{3, 2, 1}));
  EXPECT_EQ(zeros({2, 0}).size(), 0);
  EXPECT_EQ(scalar(2.5F).item<double>(), 2.5);
  EXPECT_EQ(to_string(array({1, 2})), "i32[2] [1, 2]");
  EXPECT_EQ(array({1, 2}).dim(-1), 2);
}

TEST(Arrays, MisuseIsAnError) {
  EXPECT_EQ(mistake_of([] { array({1.F, 2.F}, {3}); }).found, "2 elements for [3]");
  EXPECT_EQ(mistake_of([] { Array() + 1; }).what, "an empty Array was used");
  EXPECT_EQ(mistake_of([] { array({1}).to_vector<float>(); }).found, "i32[1]");
  EXPECT_EQ(mistake_of([] { array({1, 2}).item<int>(); }).wanted, "an array of size 1");
  EXPECT_EQ(mistake_of([] { array({1, 2}).dim(2); }).wanted, "an axis from -1 to 0");
  EXPECT_EQ(mistake_of([] {
              array({1, 2}).local_data(1);
            }).what,
            "local_data: the mesh has no device 1");
  EXPECT_EQ(mistake_of([] { array({1, 2})[2]; }).wanted, "an index from -2 to 1");
}

TEST(Arrays, ArePlaced) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 3}});
  const Array x = reshape(arange(30), {5, 6});
  const Array y = device_put(x, NamedSharding(mesh, P{"a", "b"}));
  EXPECT_EQ(y.sharding().spec, (P{"a", "b"}));
  EXPECT_TRUE(array_equal(x, y));
  EXPECT_EQ(y.local_data(5).to_vector<std::int32_t>(), (Ints{16, 17, 22, 23, 28, 29}));
  const Array z = device_put(y, NamedSharding(mesh, P{none, {"b", "a"}}));
  EXPECT_TRUE(array_equal(x, z));
  EXPECT_EQ(z.local_data(1).to_vector<std::int32_t>(), (Ints{2, 8, 14, 20, 26}));
  EXPECT_TRUE(array_equal(x + 1, z + 1));
  EXPECT_NE(mistake_of([&] { device_put(x, P{"a"}); }).cure.find("NamedSharding"),
            std::string::npos);
  const use_mesh scope(mesh);
  EXPECT_EQ(device_put(x, P{"a"}).sharding().spec, P{"a"});
  EXPECT_THROW(device_put(x, P{"c"}), UserError);
  EXPECT_THROW(device_put(x, P{"a", none, "b"}), UserError);
}

TEST(Ops, Broadcast) {
  const Array x = reshape(arange(6), {2, 3});
  EXPECT_EQ((x + array({10, 20, 30})).to_vector<std::int32_t>(), (Ints{10, 21, 32, 13, 24, 35}));
  EXPECT_EQ((array({10, 20}, {2, 1}) - x).to_vector<std::int32_t>(), (Ints{10, 9, 8, 17, 16, 15}));
  EXPECT_EQ((2 * x).to_vector<std::int32_t>(), (Ints{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ((x < 2).to_vector<bool>(), (std::vector<bool>{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(where(x > 1, x, -1).to_vector<std::int32_t>(), (Ints{-1, -1, 2, 3, 4, 5}));
  EXPECT_EQ(clamp(1, x, 4).to_vector<std::int32_t>(), (Ints{1, 1, 2, 3, 4, 4}));
  EXPECT_EQ(maximum(1.5, 2).item<float>(), 2.0F);
}

/// Numbers from 2^63 on would be negative if they were signed.
TEST(Ops, TakesUnsignedNumbers) {
  const Array x = array({0.5F});
  EXPECT_EQ((x * 18446744073709551615U).item<float>(), 0x1p63F);
  EXPECT_EQ((x + (std::uint64_t{1} << 63)).item<float>(), 0x1p63F);
}

TEST(Ops, Shapes) {
  const Array x = reshape(arange(6), {2, -1});
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(transpose(x).to_vector<std::int32_t>(), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(swap_axes(x, 0, -1).shape(), (Shape{3, 2}));
  EXPECT_EQ(expand_dims(x, -1).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(squeeze(expand_dims(x, 1)).shape(), (Shape{2, 3}));
  EXPECT_EQ(x[1].to_vector<std::int32_t>(), (Ints{3, 4, 5}));
  EXPECT_EQ(x[-1][-2].item<int>(), 4);
  EXPECT_EQ(x.slice(1, 1).to_vector<std::int32_t>(), (Ints{1, 2, 4, 5}));
  EXPECT_EQ(slice(x, -1, 0, -1).to_vector<std::int32_t>(), (Ints{0, 1, 3, 4}));
  EXPECT_EQ(slice(x, 1, 0, to_end, 2).to_vector<std::int32_t>(), (Ints{0, 2, 3, 5}));
  EXPECT_EQ(pad(array({1, 2}), {1}, {2}, 9).to_vector<std::int32_t>(), (Ints{9, 1, 2, 9, 9}));
  EXPECT_EQ(concatenate({x, x}, -1).shape(), (Shape{2, 6}));
  EXPECT_EQ(stack({x, x, x}, 1).shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(reverse(array({1, 2, 3})).to_vector<std::int32_t>(), (Ints{3, 2, 1}));
  EXPECT_EQ(broadcast_to(array({1, 2}), {2, 2}).to_vector<std::int32_t>(), (Ints{1, 2, 1, 2}));
}

TEST(Ops, Reductions) {
  const Array x = array({1.F, 5.F, 3.F, 4.F, 2.F, 6.F}, {2, 3});
  EXPECT_EQ(sum(x).item<float>(), 21.0F);
  EXPECT_EQ(sum(x, 0).to_vector<float>(), (Floats{5, 7, 9}));
  EXPECT_EQ(mean(x, -1, keepdims).shape(), (Shape{2, 1}));
  EXPECT_EQ(mean(x, {0, 1}).item<float>(), 3.5F);
  EXPECT_EQ(max(x, 1).to_vector<float>(), (Floats{5, 6}));
  EXPECT_EQ(min(x).item<float>(), 1.0F);
  EXPECT_EQ(argmax(x).to_vector<std::int32_t>(), (Ints{1, 2}));
  EXPECT_EQ(all(x > 0).item<bool>(), true);
  EXPECT_EQ(any(x > 5, 1).to_vector<bool>(), (std::vector<bool>{false, true}));
  EXPECT_NEAR(sum(softmax(x)).item<float>(), 2.0F, 1e-6F);
}

TEST(Ops, Contractions) {
  const Array a = reshape(arange(6, DType::f32), {2, 3});
  const Array b = reshape(arange(12, DType::f32), {3, 4});
  const Array c = dot(a, b);
  EXPECT_EQ(c.to_vector<float>(), (Floats{20, 23, 26, 29, 56, 68, 80, 92}));
  EXPECT_TRUE(array_equal(einsum("ij,jk->ki", a, b), transpose(c)));
  EXPECT_TRUE(array_equal(einsum("ij,jk->k", a, b), sum(c, 0)));
  EXPECT_TRUE(array_equal(einsum("ij->j", a), sum(a, 0)));
  EXPECT_TRUE(array_equal(einsum("ij,jk", a, b), c));
  EXPECT_TRUE(array_equal(einsum("kj,ik", b, a), c));
  EXPECT_EQ(einsum("ii->i", array({-0.0F, NAN, NAN, INFINITY}, {2, 2})).to_vector<float>(),
            (Floats{-0.0F, INFINITY}));
  const Array batch = stack({a, a * 2}, 0);
  EXPECT_TRUE(array_equal(matmul(batch, b), stack({c, dot(a * 2, b)}, 0)));
  EXPECT_TRUE(array_equal(matmul(a, stack({b, b + 1}, 0)), stack({c, dot(a, b + 1)}, 0)));
  EXPECT_TRUE(array_equal(matmul(batch, stack({b, b + 1}, 0)), stack({c, dot(a * 2, b + 1)}, 0)));
  EXPECT_TRUE(array_equal(einsum("bij,bjk->bik", batch, stack({b, b + 1}, 0)),
                          matmul(batch, stack({b, b + 1}, 0))));
  EXPECT_TRUE(array_equal(einsum("...ij,...jk", batch, b), matmul(batch, b)));
  EXPECT_EQ(einsum("bii", zeros({3, 0, 0})).to_vector<float>(), (Floats{0, 0, 0}));
}

TEST(Ops, Indexing) {
  const Array x = reshape(arange(6), {3, 2});
  EXPECT_EQ(take(x, array({2, 0})).to_vector<std::int32_t>(), (Ints{4, 5, 0, 1}));
  EXPECT_EQ(take(x, array({1}), 1).to_vector<std::int32_t>(), (Ints{1, 3, 5}));
  EXPECT_EQ(take(x, reshape(array({0, 1}), {1, 2})).shape(), (Shape{1, 2, 2}));
  EXPECT_EQ(one_hot(array({1, 0}), 2).to_vector<float>(), (Floats{0, 1, 1, 0}));
  EXPECT_EQ(scatter_add(zeros({3}), array({2, 2, 0}), array({1.F, 2.F, 4.F})).to_vector<float>(),
            (Floats{4, 0, 3}));
  EXPECT_EQ(sort(array({3, 1, 2})).to_vector<std::int32_t>(), (Ints{1, 2, 3}));
  const auto [keys, values] = sort_by(array({3, 1, 2}), array({30.F, 10.F, 20.F}));
  EXPECT_EQ(values.to_vector<float>(), (Floats{10, 20, 30}));
}

TEST(Ops, ErrorsNameShapesParametersAndLines) {
  const Param kernel(ones({3, 4}), "Dense_0/kernel");
  const auto line = std::source_location::current().line();
  const Mistake dots = mistake_of([&] { dot(ones({2, 5}), kernel); });
  EXPECT_EQ(dots.where.line, line + 1);
  EXPECT_EQ(dots.found, "f32[2,5] and f32[3,4] (parameter Dense_0/kernel)");
  const Mistake sums = mistake_of([&] { ones({2, 3}) + kernel; });
  EXPECT_EQ(sums.what, "add: the shapes cannot be broadcast together");
  EXPECT_EQ(sums.found, "f32[2,3] and f32[3,4] (parameter Dense_0/kernel)");
  const Mistake inside = mistake_of([&] { jit([](Param k) { return k + ones({7}); })(kernel); });
  EXPECT_EQ(inside.found, "f32[3,4] (parameter Dense_0/kernel) and f32[7]");
  EXPECT_EQ(mistake_of([] { array({1}) + array({1.F}); }).cure,
            "convert one of them: astype(x, DType::f32)");
  EXPECT_EQ(mistake_of([] { array({1}) * 0.5; }).found, "0.5 and an array of i32");
  EXPECT_EQ(mistake_of([] { sum(ones({2}), 1); }).what, "sum: axis 1 is out of range");
  EXPECT_EQ(mistake_of([] { sum(ones({2}), {0, -1}); }).what, "sum: an axis is given twice");
  EXPECT_EQ(mistake_of([] { reshape(ones({6}), {4, -1}); }).found, "f32[6] to [4,-1]");
  EXPECT_EQ(mistake_of([] {
              einsum("ij,jk->il", ones({2, 2}), ones({2, 2}));
            }).what,
            "einsum: 'l' is in the result, but in no operand");
  EXPECT_EQ(mistake_of([] {
              einsum("ij,jk->ik", ones({2, 3}), ones({2, 2}));
            }).what,
            "einsum: 'j' has the sizes 3 and 2");
  EXPECT_EQ(mistake_of([] {
              einsum("ijk,jk->ik", ones({2, 2}), ones({2, 2}));
            }).what,
            "einsum: \"ijk\" has 3 letters for an array of rank 2");
}

/// Arrays with more elements than one part of a kernel takes.
struct Large {
  Array cube = testing::numbers({40, 63, 64}, 1);
  Array line = testing::numbers({1, 300, 400}, 2);
  Array table = testing::numbers({200, 90}, 3);
  Array tables = testing::numbers({3, 200, 90}, 4);
  Array rows = random::randint(Key(5), {50, 60}, -5, 210);
  Array updates = testing::numbers({50, 60, 90}, 6);

  std::vector<Array> results() const {
    const auto every_third = [](const Array& x) { return sum(slice(x, 0, 1, 40, 3) * 2.0F); };
    return {pad(cube, {1, 2, 0}, {3, 0, 1}, 0.5F),
            pad(line, {0, 7, 2}, {0, 9, 0}),
            grad(every_third)(cube),
            take(table, rows),
            take(tables, rows, 1),
            scatter_add(table, rows, updates)};
  }
};

TEST(Indexing, PartsOfLargeArraysHaveTheBitsOfTheReference) {
  const Large large;
  const std::vector<Array> found = large.results();
  set_engine("reference");
  const std::vector<Array> wanted = large.results();
  set_engine("host");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(i);
    testing::expect_same_bits(found[i], wanted[i]);
  }
}

}  // namespace
}  // namespace tessera
