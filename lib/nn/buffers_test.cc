// State that is not trained: how differentiation, optimisers, control flow, meshes, donation and
// checkpoints treat it.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>

#include <tessera/checkpoint.h>
#include <tessera/error.h>
#include <tessera/nn.h>
#include <tessera/optim.h>
#include <tessera/tessera.h>
#include <tessera/transform.h>

#include "nn/test_support.h"

namespace tessera::nn {
namespace {

/// A layer with batch statistics and a counter.
struct Block {
  Dense dense;
  BatchNorm norm;
  Buffer calls;

  explicit Block(const Scope& scope, const BatchNormOptions& options = {.momentum = 0.75})
      : dense(scope / "dense", 4, 4),
        norm(scope / "norm", 4, options),
        calls(scope.buffer("calls", zeros({}, DType::i32))) {}
  Array operator()(const Array& x, const Mode& mode) {
    if (mode.is_training) calls = calls + 1;
    return tanh(norm(dense(x), mode));
  }
  TESSERA_MODULE(dense, norm, calls)
};

struct Net {
  std::vector<Block> blocks;

  explicit Net(const Scope& scope) {
    for (const char* name : {"first", "second"}) blocks.emplace_back(scope / name);
  }
  Array operator()(Array x, const Mode& mode) {
    for (Block& block : blocks) x = block(x, mode);
    return x;
  }
  TESSERA_MODULE(blocks)
};

using State = TrainState<Net>;

Array batch(std::int64_t seed = 1) { return random::normal(Key(seed), {8, 4}) * 2 + 1; }

State initial(const optim::Optimizer& tx = optim::adamw({.weight_decay = 0.1})) {
  return State(Net(Scope(Key(0))), tx);
}

std::tuple<State, Array> train(const State& old, const Array& x) {
  auto [loss, net, grads] = value_and_grad([&](Net model) {
    const Array y = model(x, Mode::train());
    return std::tuple(mean(square(y - 0.5)), model);
  })(old.params);
  return {old.apply_gradients(grads, net), loss};
}

State after_steps(State state, int steps, const Shardings& of_batch = {}) {
  const auto step = jit(train, {.donate_argnums = {0}});
  for (int i = 0; i < steps; ++i) {
    Array x = batch(i);
    if (!of_batch.is_unspecified()) x = device_put(x, of_batch);
    state = std::get<0>(step(std::move(state), x));
  }
  return state;
}

TEST(Buffers, KeepPathSpecAndKind) {
  const Scope scope(Key(0));
  Buffer cache(scope.param("cache", with_partitioning(init::zeros(), P{"data", none}), {4, 2}));
  EXPECT_FALSE(cache.is_trained());
  EXPECT_TRUE(scope.param("kernel", init::ones(), {2}).is_trained());
  cache = cache + 1;
  EXPECT_EQ(cache.path(), "cache");
  EXPECT_EQ(cache.spec(), (P{"data", none}));
  EXPECT_FALSE(cache.is_trained());
  EXPECT_TRUE(array_equal(cache, ones({4, 2})));
  cache = 3;
  EXPECT_TRUE(array_equal(cache, full({4, 2}, 3.0)));
  EXPECT_FALSE(unbox(cache).is_trained());
  EXPECT_FALSE(unbox(cache).is_annotated());
  EXPECT_FALSE(tree_params(cache).at(0).is_trained());
  EXPECT_FALSE(jit([](Buffer x) { return x; })(cache).is_trained());
}

TEST(Buffers, GradientsAreZerosOfAnyType) {
  const Net net = initial().params;
  const auto grads = grad([](Net model) { return sum(model(batch(), Mode::train())); })(net);
  for (const Block& block : grads.blocks) {
    EXPECT_TRUE(array_equal(block.calls, zeros({}, DType::i32)));
    EXPECT_TRUE(array_equal(block.norm.mean, zeros({4})));
    EXPECT_FALSE(array_equal(block.dense.kernel, zeros({4, 4})));
  }
  // No gradient flows through a buffer, in whatever mode it is read.
  const auto of_x = grad([&](const Array& x) {
    BatchNorm norm = net.blocks[0].norm;
    norm(x, Mode::train());
    return sum(norm.mean * norm.var);
  })(batch());
  EXPECT_TRUE(array_equal(of_x, zeros({8, 4})));
}

TEST(Buffers, OptimizersLeaveThemAlone) {
  for (const optim::Optimizer& tx :
       {optim::adamw({.weight_decay = 0.1}), optim::sgd({.learning_rate = 0.1, .momentum = 0.9}),
        optim::lion(), optim::adafactor(), optim::muon(),
        optim::multi_steps(optim::chain({optim::clip_by_global_norm(0.1), optim::adam()}), 2)}) {
    const State state = initial(tx);
    for (const auto& [name, slots] : state.opt_state.slots) {
      for (const Param& slot : slots) {
        EXPECT_EQ(slot.path().find("mean"), std::string::npos) << slot.path();
        EXPECT_EQ(slot.path().find("calls"), std::string::npos) << slot.path();
      }
    }
    const Net grads = tree_map([](const Array& x) { return ones_like(x); }, state.params);
    const State next = state.apply_gradients(grads);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(array_equal(next.params.blocks[i].norm.mean, zeros({4})));
      EXPECT_TRUE(array_equal(next.params.blocks[i].norm.var, ones({4})));
      EXPECT_EQ(next.params.blocks[i].calls.item<int>(), 0);
    }
  }
}

TEST(Buffers, TheStepReturnsThem) {
  const State state = after_steps(initial(), 3);
  EXPECT_EQ(state.params.blocks[1].calls.item<int>(), 3);
  EXPECT_FALSE(state.params.blocks[1].calls.is_trained());
  // The same computed by hand from the output of the first layer.
  Array mean_of = zeros({4});
  State hand = initial();
  for (int i = 0; i < 3; ++i) {
    const Array y =
        jit([](Dense d, Array x) { return d(x); })(hand.params.blocks[0].dense, batch(i));
    mean_of = mean_of * 0.75 + mean(y, 0) * 0.25;
    hand = std::get<0>(jit(train)(hand, batch(i)));
  }
  const auto found = state.params.blocks[0].norm.mean.to_vector<float>();
  const auto wanted = mean_of.to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], wanted[i], 1e-6);
  expect_same_bits(hand, state, "donated or not");
}

TEST(Buffers, DonationUpdatesThemInPlace) {
  State state = initial();
  const auto step = jit(train, {.donate_argnums = {0}});
  const Buffer old = state.params.blocks[0].norm.mean;
  state = std::get<0>(step(std::move(state), batch()));
  EXPECT_TRUE(old.is_deleted());
}

TEST(Buffers, HaveTheSameBitsOnEveryMesh) {
  const State wanted = after_steps(initial(), 3);
  for (const std::int64_t devices : {2, 4, 8}) {
    const Mesh mesh = make_mesh({{"data", devices}});
    const Shardings split = NamedSharding(mesh, P{"data"});
    expect_same_bits(after_steps(device_put(initial(), replicated(mesh)), 3, split), wanted,
                     "replicated");
    const State whole = initial();
    expect_same_bits(after_steps(device_put(whole, fsdp_shardings(mesh, whole)), 3, split), wanted,
                     "FSDP");
  }
  const Mesh both = make_mesh({{"data", 2}, {"model", 2}});
  expect_same_bits(after_steps(device_put(initial(), replicated(both)), 3,
                               NamedSharding(both, P{"data", "model"})),
                   wanted, "data and model");
}

TEST(Buffers, Remat) {
  const auto with = [](auto transform) {
    return [transform](const State& old, const Array& x) {
      auto [loss, net, grads] = value_and_grad([&](Net model) {
        const auto apply = [](Net inner, const Array& a) {
          const Array y = inner(a, Mode::train());
          return std::pair(y, inner);
        };
        const auto [y, after] = transform(apply)(model, x);
        return std::tuple(mean(square(y - 0.5)), after);
      })(old.params);
      return std::tuple(old.apply_gradients(grads, net), loss);
    };
  };
  const auto plain = jit(with([](auto f) { return f; }))(initial(), batch());
  const auto again = jit(with([](auto f) { return remat(f); }))(initial(), batch());
  const auto called = jit(with([](auto f) { return jit(f); }))(initial(), batch());
  expect_same_bits(again, plain, "remat");
  expect_same_bits(called, plain, "jit inside of jit");
}

TEST(BatchNorm, OfBf16HasStatisticsInF32) {
  BatchNorm wide(Scope(Key(0)), 4), narrow(Scope(Key(0)), 4, {.dtype = DType::bf16});
  const Array x = astype(batch(), DType::bf16);
  const Array y = narrow(x, Mode::train());
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_TRUE(array_equal(y, astype(wide(astype(x, DType::f32), Mode::train()), DType::bf16)));
  EXPECT_TRUE(array_equal(narrow.mean, wide.mean));
  EXPECT_TRUE(array_equal(narrow.var, wide.var));
  EXPECT_EQ(narrow.var.dtype(), DType::f32);
  const auto loss = [&](const Array& a) {
    BatchNorm norm = narrow;
    return sum(astype(norm(a, Mode::train()), DType::f32) * batch(7));
  };
  EXPECT_EQ(grad(loss)(x).dtype(), DType::bf16);
}

/// As in PyTorch: F.batch_norm of no rows changes neither running_mean nor running_var.
TEST(BatchNorm, KeepsItsAveragesForAnEmptyBatch) {
  BatchNorm norm(Scope(Key(0)), 4);
  norm(full({2, 4}, 3.0), Mode::train());
  const Array mean = norm.mean, var = norm.var;
  EXPECT_EQ(norm(zeros({0, 4}), Mode::train()).shape(), (Shape{0, 4}));
  EXPECT_EQ(norm(zeros({2, 0, 4}), Mode::train()).shape(), (Shape{2, 0, 4}));
  EXPECT_TRUE(array_equal(norm.mean, mean));
  EXPECT_TRUE(array_equal(norm.var, var));
  const auto loss = [](BatchNorm layer) { return sum(layer(zeros({0, 4}), Mode::train())); };
  EXPECT_EQ(grad(loss)(norm).scale->to_vector<float>(), std::vector<float>(4, 0));
}

/// Like BatchNorm in training, but differentiated op by op.
Array normalized(const Array& x, const Array& scale, const Array& bias, const std::string& axis) {
  const auto mean_of = [&](const Array& a) {
    const Array all = mean(a, 0);
    return axis.empty() ? all : pmean(all, axis);
  };
  const Array centered = x - mean_of(x);
  return centered * (rsqrt(mean_of(square(centered)) + 1e-5) * scale) + bias;
}

void expect_near(const Array& found, const Array& wanted, const char* what) {
  ASSERT_EQ(found.shape(), wanted.shape()) << what;
  const auto a = found.to_vector<float>(), b = wanted.to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-4) << what << " " << i;
}

TEST(BatchNorm, HasTheDerivativesOfItsDefinition) {
  const auto loss_of = [](const Array& y, const Array& x) { return sum(y * y * sin(x)); };
  const auto layer = [&](const Array& x, const Array& scale, const Array& bias) {
    BatchNorm norm(Scope(Key(0)), 4);
    norm.scale = norm.scale->with_value(scale);
    norm.bias = norm.bias->with_value(bias);
    return loss_of(norm(x, Mode::train()), x);
  };
  const auto definition = [&](const Array& x, const Array& scale, const Array& bias) {
    return loss_of(normalized(x, scale, bias, ""), x);
  };
  for (std::int64_t seed = 0; seed < 4; ++seed) {
    const Array x = batch(seed), scale = batch(seed + 10)[0], bias = batch(seed + 20)[0];
    const auto compare = [&](const auto& of, const char* what) {
      const auto found = of(layer), wanted = of(definition);
      expect_near(std::get<0>(found), std::get<0>(wanted), what);
      expect_near(std::get<1>(found), std::get<1>(wanted), what);
      expect_near(std::get<2>(found), std::get<2>(wanted), what);
    };
    compare([&](const auto& f) { return grad<0, 1, 2>(f)(x, scale, bias); }, "first");
    const auto second = [&](const auto& f) {
      return grad<0, 1, 2>([&](const Array& a, const Array& b, const Array& c) {
        const auto [of_x, of_scale, of_bias] = grad<0, 1, 2>(f)(a, b, c);
        return sum(of_x * cos(x)) + sum(of_scale * of_bias);
      })(x, scale, bias);
    };
    compare(second, "second");
  }
}

TEST(BatchNorm, HasTheDerivativesOfItsDefinitionOverAnAxis) {
  const Array x = stack({batch(1), batch(2), batch(3)}, 0);
  const Array ones_of = ones({4}), zeros_of = zeros({4});
  const auto loss_of = [&](const auto& apply) {
    return grad([&](const Array& a) {
      const Array y = vmap(apply, {.axis_name = "parts"})(a);
      return sum(y * y * sin(a));
    })(x);
  };
  const Array found = loss_of([](const Array& part) {
    BatchNorm norm(Scope(Key(0)), 4, {.axis_name = "parts"});
    return norm(part, Mode::train());
  });
  const Array wanted =
      loss_of([&](const Array& part) { return normalized(part, ones_of, zeros_of, "parts"); });
  expect_near(found, wanted, "over an axis");
}

TEST(BatchNorm, OfALargeMean) {
  // Computed as the mean of squares minus the square of the mean, the variance would lose all
  // digits.
  const Array x = batch() + 10000;
  BatchNorm norm(Scope(Key(0)), 4, {.momentum = 0});
  norm(x, Mode::train());
  const auto found = norm.var.to_vector<float>();
  const auto wanted = var(batch(), 0).to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], wanted[i], 1e-2F * wanted[i]);
}

TEST(Buffers, Microbatches) {
  const auto step = jit([](const State& old, const Array& xs) {
    const auto one = [&](const Array& x) {
      const auto [loss, net, grads] = value_and_grad([&](Net model) {
        const Array y = model(x, Mode::train());
        return std::tuple(mean(square(y - 0.5)), model);
      })(old.params);
      return std::pair(net, grads);
    };
    const auto [nets, grads] = treduce(one, xs, GPipe{.num_stages = 1, .mpmd_dim = 1});
    const auto half = [](const Array& x) { return x / 2; };
    return old.apply_gradients(tree_map(half, grads), tree_map(half, nets));
  });
  const State found = step(initial(), stack({batch(0), batch(1)}, 0));
  EXPECT_EQ(found.params.blocks[0].calls.item<int>(), 1);
  const auto mean_after = [](int seed) {
    const State state = std::get<0>(jit(train)(initial(), batch(seed)));
    return state.params.blocks[0].norm.mean.value();
  };
  EXPECT_TRUE(array_equal(found.params.blocks[0].norm.mean, (mean_after(0) + mean_after(1)) / 2));
}

TEST(Buffers, ScanOverLayers) {
  const Scanned<Block> stacked = scan<Block>(Scope(Key(3)), {.length = 3});
  EXPECT_FALSE(stacked.layers.calls.is_trained());
  EXPECT_EQ(stacked.layers.calls.shape(), (Shape{3}));
  const auto loss = [](Block layers, const Array& x) {
    const auto [y, after] = tessera::scan(
        [](const Array& a, Block block) {
          const Array b = block(a, Mode::train());
          return std::pair(b, block);
        },
        x, layers);
    return std::tuple(sum(square(y)), after);
  };
  const auto unrolled = [](Block layers, const Array& x) {
    Array y = x;
    std::vector<Block> after;
    for (std::int64_t i = 0; i < 3; ++i) {
      after.push_back(tree_map([i](const Array& a) { return a[i]; }, layers));
      y = after.back()(y, Mode::train());
    }
    const Block all = tree_map(
        [](const Array& a, const Array& b) {
          return stack({a, b}, 0);
        },
        after[0], after[1]);
    const Block last = tree_map(
        [](const Array& a, const Array& b) {
          return concatenate({a, expand_dims(b, 0)}, 0);
        },
        all, after[2]);
    return std::tuple(sum(square(y)), last);
  };
  const auto [value, after, grads] = value_and_grad(loss)(stacked.layers, batch());
  const auto [value_2, after_2, grads_2] = value_and_grad(unrolled)(stacked.layers, batch());
  EXPECT_TRUE(array_equal(value, value_2));
  expect_same_bits(after, after_2, "layers");
  expect_same_bits(grads, grads_2, "gradients");
  EXPECT_EQ(after.calls.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 1, 1}));
}

TEST(Buffers, ScanOverSteps) {
  const auto many = jit([](const State& state, const Array& xs) {
    return std::get<0>(
        tessera::scan([](const State& s, const Array& x) { return train(s, x); }, state, xs));
  });
  const Array xs = stack({batch(0), batch(1), batch(2)}, 0);
  expect_same_bits(many(initial(), xs), after_steps(initial(), 3), "scan of steps");
}

TEST(Buffers, VmapOverModels) {
  const std::vector<Net> nets = {Net(Scope(Key(1))), Net(Scope(Key(2)))};
  const Net both = tree_map(
      [](const Array& a, const Array& b) {
        return stack({a, b}, 0);
      },
      nets[0], nets[1]);
  const auto apply = [](Net net, const Array& x) {
    const Array y = net(x, Mode::train());
    return std::pair(y, net);
  };
  const auto [y, after] = vmap(apply, {.in_axes = {0, none}})(both, batch());
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto [one, net] = jit(apply)(nets[static_cast<std::size_t>(i)], batch());
    EXPECT_TRUE(array_equal(y[i], one));
    expect_same_bits(tree_map([i](const Array& a) { return a[i]; }, after), net, "vmap");
  }
}

TEST(Buffers, AxisNameJoinsTheElementsOfVmap) {
  const Block block(Scope(Key(0)), {.momentum = 0.75, .axis_name = "batch"});
  const Block plain(Scope(Key(0)));
  const Array x = batch();
  const auto apply = [](Block b, const Array& a) {
    const Array y = b(a, Mode::train());
    return std::pair(y, b);
  };
  const auto [y, after] =
      vmap(apply, {.in_axes = {none, 0}, .axis_name = "batch"})(block, reshape(x, {4, 2, 4}));
  const auto [whole, wanted] = apply(plain, x);
  const auto a = reshape(y, {8, 4}).to_vector<float>();
  const auto b = whole.to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
  const auto var = after.norm.var.slice(0, 0, 1).to_vector<float>();
  const auto wanted_var = wanted.norm.var.to_vector<float>();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(var[i], wanted_var[i], 1e-5);
}

TEST(Buffers, Checkpoints) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "tessera_buffers";
  std::filesystem::remove_all(folder);
  const State state = after_steps(initial(), 2);
  checkpoint::save(folder.string(), state);
  const auto shapes = eval_shape([] { return initial(); });
  EXPECT_FALSE(shapes.params.blocks[0].calls.is_trained());
  const Mesh mesh = make_mesh({{"data", 4}});
  const State restored = checkpoint::restore(folder.string(), shapes, fsdp_shardings(mesh, shapes));
  expect_same_bits(restored, state, "restored");
  EXPECT_FALSE(restored.params.blocks[0].norm.var.is_trained());
  const Shardings split = NamedSharding(mesh, P{"data"});
  expect_same_bits(after_steps(restored, 1, split), after_steps(state, 1), "continued");
  std::filesystem::remove_all(folder);
}

TEST(Buffers, MovingAverage) {
  State state = initial();
  Net average = state.params;
  const auto step = jit(
      [](const State& old, const Net& ema, const Array& x) {
        const State next = std::get<0>(train(old, x));
        return std::tuple(next, optim::incremental_update(next.params, ema, 0.25));
      },
      {.donate_argnums = {1}});
  std::vector<double> kernel(16), wanted;
  for (const float x : average.blocks[0].dense.kernel.to_vector<float>()) wanted.push_back(x);
  for (int i = 0; i < 3; ++i) {
    std::tie(state, average) = step(state, std::move(average), batch(i));
    const auto now = state.params.blocks[0].dense.kernel.to_vector<float>();
    for (std::size_t k = 0; k < 16; ++k) wanted[k] = 0.25 * now[k] + 0.75 * wanted[k];
  }
  const auto found = average.blocks[0].dense.kernel.to_vector<float>();
  for (std::size_t k = 0; k < 16; ++k) EXPECT_NEAR(found[k], wanted[k], 1e-6);
  // The average has the buffers of the model, so that it can be used as it is.
  EXPECT_EQ(average.blocks[0].calls.item<int>(), 3);
  EXPECT_TRUE(array_equal(average.blocks[1].norm.var, state.params.blocks[1].norm.var));
  EXPECT_FALSE(average.blocks[0].calls.is_trained());
}

TEST(Buffers, MovingAverageOfHalfFloats) {
  using Model = std::map<std::string, Array>;
  const Model model = {{"kernel", full({2}, 1.0, DType::bf16)}};
  Model average = {{"kernel", full({2}, 3.0)}};
  for (int i = 0; i < 1000; ++i) average = optim::incremental_update(model, average, 1 - 0.999);
  EXPECT_EQ(average["kernel"].dtype(), DType::f32);
  EXPECT_NEAR(average["kernel"].to_vector<float>()[1], 1 + 2 * std::pow(0.999, 1000), 1e-4);
  const Model half = {{"kernel", full({2}, 3.0, DType::bf16)}};
  const Model next = optim::incremental_update(model, half, full({}, 0.25));
  EXPECT_EQ(next.at("kernel").dtype(), DType::bf16);
  EXPECT_EQ(astype(next.at("kernel"), DType::f32).to_vector<float>()[0], 2.5F);
}

TEST(Metrics, AreSumsOverBatchesAndMeshes) {
  const Array logits = random::normal(Key(0), {24, 5});
  const Array labels = random::randint(Key(1), {24}, -1, 5);
  struct Metrics {
    metrics::Mean loss, top_1, top_2;
    metrics::Confusion confusion{5};
    TESSERA_TREE(loss, top_1, top_2, confusion)
  };
  const auto update = jit([](Metrics m, const Array& x, const Array& y) {
    const Array is_counted = y >= 0;
    m.loss.update(cross_entropy(x, y), is_counted);
    m.top_1.update(metrics::in_top_k(x, y), is_counted);
    m.top_2.update(metrics::in_top_k(x, y, 2), is_counted);
    m.confusion.update(argmax(x, -1), y);
    return m;
  });
  const auto values = logits.to_vector<float>();
  const auto classes = labels.to_vector<std::int32_t>();
  double loss = 0;
  float count = 0, top_1 = 0, top_2 = 0;
  std::vector<std::int64_t> confusion(25);
  for (std::size_t i = 0; i < 24; ++i) {
    if (classes[i] < 0) continue;
    const float* row = &values[5 * i];
    const auto label = static_cast<std::size_t>(classes[i]);
    double total = 0;
    for (int c = 0; c < 5; ++c) total += std::exp(row[c]);
    const auto above = std::count_if(row, row + 5, [&](float x) { return x > row[label]; });
    loss += std::log(total) - row[label];
    top_1 += above < 1 ? 1 : 0;
    top_2 += above < 2 ? 1 : 0;
    ++count;
    ++confusion[5 * label + static_cast<std::size_t>(std::max_element(row, row + 5) - row)];
  }
  const auto run = [&](const Shardings& split) {
    Metrics m;
    for (std::int64_t i = 0; i < 3; ++i) {
      Array x = logits.slice(0, 8 * i, 8 * (i + 1)), y = labels.slice(0, 8 * i, 8 * (i + 1));
      if (!split.is_unspecified()) x = device_put(x, split), y = device_put(y, split);
      m = update(m, x, y);
    }
    return m;
  };
  const Metrics found = run({});
  EXPECT_NEAR(found.loss.value().item<float>(), loss / count, 1e-5);
  EXPECT_NEAR(exp(found.loss.value()).item<float>(), std::exp(loss / count), 1e-4);
  EXPECT_FLOAT_EQ(found.top_1.value().item<float>(), top_1 / count);
  EXPECT_FLOAT_EQ(found.top_2.value().item<float>(), top_2 / count);
  EXPECT_EQ(found.confusion.counts.to_vector<std::int64_t>(), confusion);
  for (const std::int64_t devices : {2, 4}) {
    const Mesh mesh = make_mesh({{"data", devices}});
    expect_same_bits(run(NamedSharding(mesh, P{"data"})), found, "on a mesh");
  }
}

TEST(Metrics, OfAModelThatHasDiverged) {
  const Array logits = array({NAN, NAN, NAN, 0.0F, NAN, 1.0F, 0.0F, 1.0F, 2.0F}, {3, 3});
  const Array labels = array({1, 2, 2});
  const Array is_right = astype(metrics::in_top_k(logits, labels), DType::i32);
  EXPECT_EQ(is_right.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 1}));
  metrics::Mean mean;
  mean.update(array({INFINITY, 2.0F}));
  mean.update(2.5);
  EXPECT_EQ(mean.value().item<float>(), INFINITY);
  metrics::Confusion confusion(2);
  confusion.update(1, 0);
  EXPECT_EQ(confusion.counts.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 0, 0}));
}

TEST(Metrics, SumsOfLongRunsAreExact) {
  metrics::Mean m;
  m.total = full({}, 16777216.0);  // above this number, f32 has no odd numbers
  m.count = full({}, std::int64_t{1} << 40, DType::i64);
  const auto more = jit([](metrics::Mean mean) {
    mean.update(ones({}));
    return mean;
  });
  for (int i = 0; i < 100; ++i) m = more(m);
  EXPECT_EQ(m.count.item<std::int64_t>(), (std::int64_t{1} << 40) + 100);
  EXPECT_NEAR(m.total.item<double>() - m.rest.item<double>(), 16777316.0, 1.0);
}

}  // namespace
}  // namespace tessera::nn
