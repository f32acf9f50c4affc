// Layers whose parameters or inputs are not f32.
#include <gtest/gtest.h>

#include <tessera/recurrent.h>
#include <tessera/tessera.h>

namespace tessera::nn {
namespace {

Array sample_input(Shape shape) { return random::normal(Key(7), std::move(shape)) * 2 + 1; }

template <typename Layer>
Layer in_dtype(const Layer& layer, DType dtype) {
  return tree_map([&](const Array& x) { return astype(x, dtype); }, layer);
}

void expect_close(const Array& found, const Array& wanted, double tolerance) {
  const Array difference = astype(found, DType::f64) - astype(wanted, DType::f64);
  EXPECT_LT(max(abs(difference)).item<double>(), tolerance);
}

/// Expects `run` to accept parameters and an input of every float, and to return its dtype.
template <typename Layer, typename Run>
void check_floats(const char* what, const Layer& layer, const Array& x, const Run& run) {
  SCOPED_TRACE(what);
  const Array wanted = run(layer, x);
  EXPECT_EQ(wanted.dtype(), DType::f32);
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::f64, 1e-4), {DType::f16, 0.02}, {DType::bf16, 0.1}}) {
    SCOPED_TRACE(name(dtype));
    Layer converted = in_dtype(layer, dtype);
    const Array found = run(converted, astype(x, dtype));
    EXPECT_EQ(found.dtype(), dtype);
    expect_close(found, wanted, tolerance);
    for (const Array& leaf : tree_leaves(converted)) EXPECT_EQ(leaf.dtype(), dtype);
  }
}

constexpr auto kCall = [](auto& layer, const Array& x) { return layer(x); };
constexpr auto kTrain = [](auto layer, const Array& x) { return layer(x, Mode::train()); };

TEST(LayerDtypes, ParametersMayBeAnyFloat) {
  const Scope scope(Key(0));
  const Array x = sample_input({3, 4}), images = sample_input({2, 5, 5, 4});
  check_floats("Dense", Dense(scope / "a", 4, 4), x, kCall);
  check_floats("LayerNorm", LayerNorm(scope / "b", 4), x, kCall);
  check_floats("RMSNorm", RMSNorm(scope / "c", 4), x, kCall);
  check_floats("GroupNorm", GroupNorm(scope / "d", 4, 2), images, kCall);
  check_floats("BatchNorm", BatchNorm(scope / "e", 4), images, kCall);
  check_floats("BatchNorm in training", BatchNorm(scope / "f", 4), images, kTrain);
  check_floats("Conv", Conv(scope / "g", 4, 4, {.kernel_size = {3, 3}}), images, kCall);
  check_floats("ConvTranspose",
               ConvTranspose(scope / "h", 4, 4, {.kernel_size = {3, 3}, .strides = {2, 2}}), images,
               kCall);
  const MultiHeadAttention attention(scope / "i", {.num_heads = 2, .features = 4});
  check_floats("MultiHeadAttention", attention, sample_input({2, 3, 4}), kCall);
}

/// Expects a layer with f32 parameters to compute in f64 if that is its dtype.
template <typename Layer>
void check_f64(const char* what, const Layer& layer, const Array& x) {
  SCOPED_TRACE(what);
  const Array found = layer(x);
  EXPECT_EQ(found.dtype(), DType::f64);
  const Layer exact = in_dtype(layer, DType::f64);
  expect_close(found, exact(astype(x, DType::f64)), 1e-13);
  expect_close(layer(astype(x, DType::f64)), found, 1e-13);
}

TEST(LayerDtypes, NormsOfDtypeF64ComputeInF64) {
  const Scope scope(Key(0));
  const Array x = sample_input({3, 8}), images = sample_input({2, 5, 8});
  check_f64("LayerNorm", LayerNorm(scope / "a", 8, 1e-6, DType::f64), x);
  check_f64("RMSNorm", RMSNorm(scope / "b", 8, 1e-6, DType::f64), x);
  check_f64("GroupNorm", GroupNorm(scope / "c", 8, 2, 1e-6, DType::f64), images);
  check_f64("BatchNorm", BatchNorm(scope / "d", 8, {.dtype = DType::f64}), images);
  BatchNorm norm(scope / "e", 8, {.dtype = DType::f64});
  EXPECT_EQ(norm(images, Mode::train()).dtype(), DType::f64);
  EXPECT_EQ(norm.mean.dtype(), DType::f32);
  EXPECT_EQ(norm.var.dtype(), DType::f32);
}

TEST(LayerDtypes, GradientsHaveTheDtypeOfTheParameters) {
  const BatchNorm norm = in_dtype(BatchNorm(Scope(Key(0)), 4), DType::bf16);
  const Array x = astype(sample_input({6, 4}), DType::bf16);
  const BatchNorm gradient = grad([&](BatchNorm layer) {
    return sum(astype(square(layer(x, Mode::train())), DType::f32));
  })(norm);
  EXPECT_EQ(gradient.scale->dtype(), DType::bf16);
  EXPECT_EQ(gradient.bias->dtype(), DType::bf16);
}

TEST(LayerDtypes, CellsMayHaveParametersOfAnyFloat) {
  const auto both = [](const auto& cell, const Array& x) { return bidirectional(cell, cell, x); };
  const Scope scope(Key(0));
  const Array x = sample_input({2, 3, 4});
  check_floats("SimpleCell", SimpleCell(scope / "a", 4, 4), x, both);
  check_floats("LSTMCell", LSTMCell(scope / "b", 4, 4), x, both);
  check_floats("GRUCell", GRUCell(scope / "c", 4, 4), x, both);
}

}  // namespace
}  // namespace tessera::nn
