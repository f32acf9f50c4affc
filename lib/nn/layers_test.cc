// Scans of layers, dropout and convolution. tests/programs compares the parameters with Flax's.

#include <gtest/gtest.h>

#include <tessera/nn.h>

#include "nn/test_support.h"

namespace tessera::nn {
namespace {

Array ramp(Shape shape) {
  const std::int64_t size = num_elements(shape);
  return reshape(astype(arange(size), DType::f32) / static_cast<double>(size) - 0.4, shape);
}

TEST(Scan, AppliesItsLayersInOrder) {
  const auto scanned = scan<Dense>(Scope(Key(3)) / "layers", {.length = 3}, 4, 4);
  EXPECT_EQ(scanned.layers.kernel.shape(), (Shape{3, 4, 4}));
  EXPECT_EQ(scanned.layers.bias->path(), "layers/bias");
  const Array x = ramp({2, 4});
  Array want = x;
  for (std::int64_t i = 0; i < 3; ++i) want = layer_of(scanned, i)(want);
  EXPECT_TRUE(array_equal(scanned(x), want));
}

TEST(Sequential, AppliesLayersAndFunctions) {
  const Scope scope(Key(3));
  Sequential net(Dense(scope / "up", 4, 6), relu, BatchNorm(scope / "norm", 6),
                 Dropout(scope / "dropout", 0.5), [](Operand x) { return gelu(x, false); });
  const auto& [up, _, norm, dropout, last] = net.layers;
  EXPECT_EQ(tree_paths(net), (std::vector<std::string>{"up/kernel", "up/bias", "norm/scale",
                                                       "norm/bias", "norm/mean", "norm/var"}));
  const Array x = ramp({5, 4});
  EXPECT_TRUE(array_equal(net(x), gelu(norm(relu(up(x))), false)));
  const Array mean_before = norm.mean;
  const Mode mode = Mode::train(Key(1));
  BatchNorm again = norm;
  const Array wanted = gelu(dropout(again(relu(up(x)), mode), mode), false);
  EXPECT_TRUE(array_equal(net(x, mode), wanted));
  EXPECT_TRUE(array_equal(norm.mean, again.mean));
  EXPECT_FALSE(array_equal(norm.mean, mean_before));
  const auto jitted = jit([](const decltype(net)& model, const Array& v) { return model(v); });
  EXPECT_TRUE(array_equal(jitted(net, x), net(x)));
  const auto loss = [&](const decltype(net)& model) { return sum(square(model(x))); };
  EXPECT_EQ(tree_leaves(grad(loss)(net)).size(), 6U);
}

/// A block as users write it: it takes an Array.
struct Residual {
  Dense dense;
  explicit Residual(const Scope& scope) : dense(scope / "dense", 4, 4) {}
  Array operator()(const Array& x) const { return x + dense(x); }
  TESSERA_MODULE(dense)
};

/// A block that behaves differently in training.
struct Doubled {
  Array operator()(const Array& x, const Mode& mode) const { return mode.is_training ? x * 2 : x; }
  TESSERA_MODULE()
};

Array halved(const Array& x) { return x / 2; }
Array negated(Array x) { return -x; }

TEST(Sequential, TakesBlocksAndFunctionsOfArrays) {
  const Array x = ramp({5, 4});
  const Residual block(Scope(Key(3)));
  Sequential net(block, Doubled(), halved, negated, [](const Array& a) { return a + 1; });
  const Array before = block(x);
  EXPECT_TRUE(array_equal(net(x), -(before / 2) + 1));
  EXPECT_TRUE(array_equal(net(x, Mode::train()), -before + 1));
  EXPECT_TRUE(array_equal(std::as_const(net)(x), net(x)));
  const auto jitted = jit([](const decltype(net)& model, const Array& v) { return model(v); });
  EXPECT_TRUE(array_equal(jitted(net, x), net(x)));
  EXPECT_EQ(tree_paths(net).size(), 2U);
}

TEST(Sequential, TakesActivationsWithDefaults) {
  const Array x = ramp({5, 4});
  Sequential net(gelu, leaky_relu, elu, softmax, log_softmax, glu);
  EXPECT_TRUE(array_equal(net(x), glu(log_softmax(softmax(elu(leaky_relu(gelu(x))))))));
  // Different functions are different programs.
  const auto jitted = jit([](const auto& model, const Array& v) { return model(v); });
  EXPECT_TRUE(array_equal(jitted(Sequential(Map(elu)), x), elu(x)));
  EXPECT_TRUE(array_equal(jitted(Sequential(Map(softmax)), x), softmax(x)));
  EXPECT_TRUE(array_equal(jitted(Sequential(Map(halved)), x), halved(x)));
  EXPECT_TRUE(array_equal(jitted(Sequential(Map(relu)), x), relu(x)));
}

TEST(Scan, LayersDiffer) {
  const auto scanned = scan<Dense>(Scope(Key(3)), {.length = 2}, 4, 4);
  EXPECT_FALSE(array_equal(layer_of(scanned, 0).kernel, layer_of(scanned, 1).kernel));
}

TEST(Scan, LayersOfLayersHaveTheSpecsOfBoth) {
  struct Pair {
    Param first;
    Dense second;
    explicit Pair(const Scope& scope)
        : first(scope.param("first", with_partitioning(init::ones(), {"model", none}), {4, 2})),
          second(scope / "second", 2, 4) {}
    Array operator()(const Array& x) const { return second(dot(x, first)); }
    TESSERA_MODULE(first, second)
  };
  const auto scanned = scan<Pair>(Scope(Key(0)), {.length = 5, .axis_name = "stage"});
  EXPECT_EQ(scanned.layers.first.spec(), (P{"stage", "model", none}));
  EXPECT_FALSE(scanned.layers.second.kernel.is_annotated());
  EXPECT_EQ(scanned.layers.second.kernel.path(), "second/kernel");
}

TEST(Scan, NamesTheDimensionOfLayers) {
  struct Layer {
    Param first, second;
    explicit Layer(const Scope& scope)
        : first(scope.param("first", with_logical_partitioning(init::ones(), {"embed", "mlp"}),
                            {4, 2})),
          second(scope.param(
              "second", init::flattened(with_logical_partitioning(init::normal(), {"heads"}), 2, 3),
              {2, 3})) {}
    Array operator()(const Array& x) const { return dot(dot(x, first), second); }
    TESSERA_MODULE(first, second)
  };
  const auto scanned = scan<Layer>(Scope(Key(0)), {.length = 5, .axis_name = "layer"});
  EXPECT_TRUE(scanned.layers.first.is_logical());
  EXPECT_EQ(scanned.layers.first.spec(), (P{"layer", "embed", "mlp"}));
  EXPECT_TRUE(scanned.layers.second.is_logical());
  EXPECT_EQ(scanned.layers.second.spec(), (P{"layer", "heads"}));
  EXPECT_EQ(to_string(logical_to_mesh(get_partition_spec(scanned), {{"mlp", "model"}})),
            "first: P(None, None, 'model')\nsecond: P(None, None)\n");
}

TEST(Scope, NnxCountsKeysAndLinenFoldsNames) {
  const auto kernel = [](const Scope& scope) { return Dense(scope, 3, 3).kernel; };
  const Scope nnx = Scope::nnx(Key(0));
  const Array first = kernel(nnx / "a");
  EXPECT_FALSE(array_equal(first, kernel(nnx / "b")));
  EXPECT_TRUE(array_equal(first, kernel(Scope::nnx(Key(0)) / "b")));
  EXPECT_TRUE(array_equal(first, init::lecun_normal()(random::fold_in(Key(0), 0), {3, 3})));
  const Scope linen(Key(0));
  const Param valued = (linen / "c").param("value", ones({2}));
  EXPECT_EQ(valued.path(), "c/value");
  EXPECT_FALSE(array_equal(kernel(linen / "a"), kernel(linen / "b")));
  EXPECT_FALSE(array_equal(kernel(linen / "d"), kernel((Scope(Key(0)) / "d").folded())));
}

TEST(Dropout, KeepsTheSizeOfWhatItDoesNotDrop) {
  const Scope scope(Key(0));
  const Dropout dropout(scope / "Dropout_0", 0.25);
  const Array x = ones({64, 64});
  const std::vector<float> values = dropout(x, Mode::train(Key(5))).to_vector<float>();
  int num_dropped = 0;
  for (float value : values) {
    if (value == 0.0F)
      ++num_dropped;
    else
      EXPECT_FLOAT_EQ(value, 4.0F / 3.0F);
  }
  EXPECT_NEAR(num_dropped, 1024, 100);
  EXPECT_TRUE(array_equal(dropout(x, Mode::eval()), x));
  const Dropout other(scope / "Dropout_1", 0.25);
  EXPECT_FALSE(array_equal(dropout(x, Mode::train(Key(5))), other(x, Mode::train(Key(5)))));
}

TEST(Conv, OfPatchesIsADenseLayer) {
  const Scope scope(Key(1));
  const Conv conv(scope, 3, 5,
                  {.kernel_size = {2, 2}, .strides = {2, 2}, .bias_init = init::ones()});
  EXPECT_EQ(conv.kernel.shape(), (Shape{2, 2, 3, 5}));
  const Array x = ramp({1, 2, 2, 3});
  const Array want = dot(reshape(x, {1, 12}), reshape(conv.kernel, {12, 5})) + 1.0;
  const std::vector<float> values = conv(x).to_vector<float>();
  const std::vector<float> expected = want.to_vector<float>();
  ASSERT_EQ(values.size(), 5U);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6);
}

TEST(Conv, TakesPaddingAsPairsOrAsANumber) {
  const Array x = ramp({2, 5, 7, 4});
  const auto conv_of = [&](const Padding& padding) {
    return Conv(Scope(Key(1)), 4, 6, {.kernel_size = {3, 3}, .padding = padding})(x);
  };
  const Conv pairs(Scope(Key(1)), 4, 6, {.kernel_size = {3, 3}, .padding = {{1, 1}, {1, 1}}});
  const Conv number(Scope(Key(1)), 4, 6, {.kernel_size = {3, 3}, .padding = 1});
  EXPECT_TRUE(array_equal(pairs(x), conv_of("SAME")));
  EXPECT_TRUE(array_equal(number(x), conv_of("SAME")));
  EXPECT_TRUE(array_equal(conv_of(0), conv_of("VALID")));
  EXPECT_EQ(conv_of({{0, 1}, {2, 3}}).shape(), (Shape{2, 4, 10, 6}));
  EXPECT_TRUE(array_equal(max_pool(x, {3, 3}, {2, 2}, 1), max_pool(x, {3, 3}, {2, 2}, "SAME")));
  const ConvTranspose up(Scope(Key(1)), 4, 6, {.kernel_size = {3, 3}, .padding = 2});
  const ConvTranspose same(Scope(Key(1)), 4, 6, {.kernel_size = {3, 3}, .padding = "VALID"});
  EXPECT_TRUE(array_equal(up(x), same(x)));
}

TEST(Conv, PadsAsFlaxDoesByDefault) {
  const Conv conv(Scope(Key(1)), 4, 6, {.kernel_size = {3, 3}, .feature_group_count = 2});
  EXPECT_EQ(conv.kernel.shape(), (Shape{3, 3, 2, 6}));
  EXPECT_EQ(conv(ramp({2, 5, 7, 4})).shape(), (Shape{2, 5, 7, 6}));
}

}  // namespace
}  // namespace tessera::nn
