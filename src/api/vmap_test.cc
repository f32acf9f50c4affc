#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/functions.h>
#include <tessera/grad.h>
#include <tessera/random.h>
#include <tessera/transform.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::mistake_of;
using testing::numbers;

using Floats = std::vector<float>;

/// f applied to each row, stacked.
template <typename F>
Array stacked_rows(F f, const Array& x) {
  std::vector<Array> rows;
  for (std::int64_t i = 0; i < x.dim(0); ++i) rows.push_back(f(x[i]));
  return stack(rows);
}

struct Model {
  Param w, b;
  TESSERA_MODULE(w, b)
};

TEST(Vmap, MapsTheFirstDimension) {
  const Array x = numbers({5, 7});
  auto f = [](Array row) { return exp(row) / sum(exp(row)); };
  expect_same_bits(vmap(f)(x), stacked_rows(f, x));
  expect_same_bits(jit(vmap(f))(x), stacked_rows(f, x));
}

TEST(Vmap, TakesAxesPerArgument) {
  const Array w = numbers({4, 6}, 1);
  const Array x = numbers({6, 5}, 2);
  const Array y = numbers({5}, 3);
  auto f = [](Array weights, Array column, Array scale) { return dot(weights, column) * scale; };
  const Array found = vmap(f, {.in_axes = {none, 1, -1}, .out_axes = 1})(w, x, y);
  std::vector<Array> columns;
  for (std::int64_t i = 0; i < 5; ++i) columns.push_back(f(w, transpose(x)[i], y[i]));
  expect_same_bits(found, stack(columns, 1));
  expect_same_bits(vmap(f, {.in_axes = {none, 1, 0}, .out_axes = -1})(w, x, y), found);
}

TEST(Vmap, TakesAndReturnsTrees) {
  const Model model{Param(numbers({3, 2}), "w"), Param(numbers({2}, 1), "b")};
  const std::pair<Array, Array> pair(numbers({4, 3}, 2), numbers({4}, 3));
  auto f = [](const Model& m, const std::pair<Array, Array>& p, double scale) {
    return std::tuple(dot(p.first, m.w) * scale + m.b, p.second, m, 7);
  };
  const auto [y, second, copy, number] = vmap(f, {.in_axes = {none, 0, none}})(model, pair, 2.0);
  EXPECT_EQ(number, 7);
  EXPECT_EQ(copy.w.path(), "w");
  expect_same_bits(second, pair.second);
  // Results that do not depend on the batch are repeated.
  expect_same_bits(copy.b, stack({model.b, model.b, model.b, model.b}));
  for (std::int64_t i = 0; i < 4; ++i) {
    expect_same_bits(y[i], dot(pair.first[i], model.w) * 2.0 + model.b);
  }
  // A batch of models.
  const Model models{Param(numbers({4, 3, 2}, 4), "w"), Param(numbers({4, 2}, 5), "b")};
  const Array outputs = std::get<0>(vmap(f, {.in_axes = {0, 0, none}})(models, pair, 2.0));
  expect_same_bits(outputs[3], dot(pair.first[3], models.w[3]) * 2.0 + models.b[3]);
}

TEST(Vmap, SharesWhatIsCapturedOrNotMapped) {
  const Array table = numbers({10, 3});
  const Array rows = array({1, 9, 4, -3}, {2, 2});
  expect_same_bits(vmap([&](Array index) { return take(table, index); })(rows), take(table, rows));
  const Array same = vmap([](Array, Array y) { return y * 2; },
                          {.in_axes = {0, none}, .out_axes = none})(table, rows);
  EXPECT_EQ(same.to_vector<std::int32_t>(), (std::vector<std::int32_t>{2, 18, 8, -6}));
}

TEST(Vmap, Nests) {
  const Array x = numbers({4, 6}, 1);
  const Array y = numbers({5, 6}, 2);
  auto product = [](Array a, Array b) { return sum(a * b); };
  auto all = vmap([&](Array a) { return vmap([&](Array b) { return product(a, b); })(y); });
  const Array found = all(x);
  EXPECT_EQ(found.shape(), (Shape{4, 5}));
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) expect_same_bits(found[i][j], product(x[i], y[j]));
  }
  auto twice = vmap(vmap(product, {.in_axes = {none, 0}}), {.in_axes = {0, none}});
  expect_same_bits(twice(x, y), found);
  expect_same_bits(jit(twice)(x, y), found);
}

TEST(Vmap, OfGradients) {
  const Array w = numbers({6, 3}, 1);
  const Array x = numbers({5, 6}, 2);
  const Array labels = array({0, 2, 1, 1, 0});
  auto loss = [](Array weights, Array row, Array label) {
    return -sum(log_softmax(dot(row, weights)) * one_hot(label, 3));
  };
  auto each = vmap(value_and_grad(loss), {.in_axes = {none, 0, 0}});
  const auto [losses, grads] = each(w, x, labels);
  const auto jitted = jit(each)(w, x, labels);
  for (std::int64_t i = 0; i < 5; ++i) {
    const auto [value, gradient] = value_and_grad(loss)(w, x[i], labels[i]);
    expect_same_bits(losses[i], value);
    expect_same_bits(grads[i], gradient);
  }
  expect_same_bits(std::get<1>(jitted), grads);
}

TEST(Vmap, HasGradients) {
  const Array w = numbers({6}, 1);
  const Array x = numbers({5, 6}, 2);
  auto row_loss = [](Array weights, Array row) { return tanh(sum(weights * row)); };
  auto loss = [&](Array weights) {
    return sum(vmap(row_loss, {.in_axes = {none, 0}})(weights, x));
  };
  auto loop = [&](Array weights) {
    Array total = scalar(0.F);
    for (std::int64_t i = 0; i < 5; ++i) total = total + row_loss(weights, x[i]);
    return total;
  };
  const Floats found = grad(loss)(w).to_vector<float>();
  const Floats wanted = grad(loop)(w).to_vector<float>();
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-5F);
  // The mapped function captures the weights.
  const Floats captured = grad([&](Array weights) {
                            return sum(vmap([&](Array row) { return row_loss(weights, row); })(x));
                          })(w)
                              .to_vector<float>();
  EXPECT_EQ(captured, found);
}

TEST(Vmap, DrawsTheNumbersOfEachKey) {
  const Array keys = random::split_data(Key(3), 4);
  auto draw = [](Array data) {
    const Key key = Key::from_data(data);
    const auto [first, second] = random::split<2>(random::fold_in(key, 5));
    return std::tuple(random::normal(first, {3, 2}), random::bits(second),
                      random::permutation(second, 6));
  };
  const auto [normal, bits, order] = vmap(draw)(keys);
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto [row_normal, row_bits, row_order] = draw(keys[i]);
    expect_same_bits(normal[i], row_normal);
    EXPECT_EQ(bits[i].item<std::uint32_t>(), row_bits.item<std::uint32_t>());
    EXPECT_EQ(order[i].to_vector<std::int32_t>(), row_order.to_vector<std::int32_t>());
  }
  // Each element is a number to fold into the same key.
  const Array folded = vmap([](Array n) { return random::fold_in(Key(3), n).data(); })(arange(4));
  EXPECT_EQ(folded[2].to_vector<std::uint32_t>(),
            random::fold_in(Key(3), 2).data().to_vector<std::uint32_t>());
}

TEST(Vmap, RunsOnAMesh) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const Array x = numbers({8, 6});
  const Array placed = device_put(x, NamedSharding(mesh, P{"data"}));
  auto f = [](Array row) { return sort(row) * sum(row); };
  expect_same_bits(vmap(f)(placed), vmap(f)(x));
  EXPECT_EQ(jit(vmap(f)).lower(placed).collectives().size(), 0U);
}

TEST(Vmap, ErrorsNameTheMistake) {
  const Array x = numbers({5, 7});
  auto add = [](Array a, Array b) { return a + b; };
  const Mistake sizes = mistake_of([&] { vmap(add)(x, numbers({4, 7})); });
  EXPECT_EQ(sizes.what, "vmap: the batches of the arguments have different sizes");
  EXPECT_EQ(sizes.found,
            "argument 0: f32[5,7] has 5 along axis 0; argument 1: f32[4,7] has 4 along axis 0");
  EXPECT_NE(sizes.cure.find("share argument 1, write none"), std::string::npos);
  EXPECT_NE(to_string(sizes.where).find("vmap_test.cc:"), std::string::npos);
  const Mistake axis = mistake_of([&] { vmap(add, {.in_axes = {0, 2}})(x, x); });
  EXPECT_EQ(axis.what, "vmap: argument 1 has no such axis");
  EXPECT_EQ(axis.found, "f32[5,7], in_axes = {0, 2}");
  EXPECT_EQ(axis.wanted, "an axis from -2 to 1");
  const Mistake scalar_axis = mistake_of([&] { vmap(add)(x, scalar(1.F)); });
  EXPECT_EQ(scalar_axis.wanted, "an array of rank 1 or more");
  const Mistake nothing = mistake_of([&] { vmap(add, {.in_axes = none})(x, x); });
  EXPECT_EQ(nothing.what, "vmap: no argument is mapped");
  const Mistake number = mistake_of([&] { vmap(add, {.in_axes = {0, 0, 0}})(x, x); });
  EXPECT_EQ(number.found, "in_axes = {0, 0, 0} for 2 arguments");
  const Mistake out = mistake_of([&] { vmap(add, {.out_axes = 3})(x, x); });
  EXPECT_EQ(out.what, "vmap: a result has no such axis");
  const Mistake differs = mistake_of([&] { vmap(add, {.out_axes = none})(x, x); });
  EXPECT_EQ(differs.what, "vmap: a result differs from element to element");
  const Mistake tree = mistake_of(
      [&] { vmap([](std::pair<Array, Array> p) { return p.first; })(std::pair(x, numbers({3}))); });
  EXPECT_NE(tree.found.find("argument 0/1: f32[3] has 3"), std::string::npos);
}

}  // namespace
}  // namespace tessera
