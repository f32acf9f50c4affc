// Compares optimisers and schedules with Optax's numbers. Also tests what they store per parameter.
#include <cmath>
#include <gtest/gtest.h>

#include <tessera/jit.h>
#include <tessera/optim.h>

#include "tests/peers/golden.h"

namespace tessera::optim {
namespace {

using nlohmann::json;

/// Relative to the largest element of an array: some updates are no more accurate than this in f32.
constexpr double kTolerance = 2e-6;
/// Making matrices orthogonal amplifies that error.
constexpr double kMuonTolerance = 2e-5;
/// One rounding of bf16.
constexpr double kNarrowTolerance = 1.0 / 256;

bool is_kernel(const Param& x) {
  return !x.path().ends_with("bias") && !x.path().ends_with("scale");
}

Rate cosine() {
  return warmup_cosine_decay_schedule(
      {.init_value = 0, .peak_value = 0.1, .warmup_steps = 2, .decay_steps = 5, .end_value = 0.01});
}

Optimizer chain_of_all() {
  return chain({trace(0.5), clip_by_global_norm(2.0),
                add_decayed_weights(0.1, Mask::except({"*/bias", "*/scale"})), trace(0.9),
                scale_by_schedule(Rate([](const Array& done) { return -0.1 / (1.0 + done); }))});
}

std::map<std::string, Optimizer> more_adaptive_cases() {
  const Mask kernels = Mask::when(is_kernel);
  return {
      {"adamax", adamax({.learning_rate = 0.1})},
      {"adamax decay", adamax({.learning_rate = cosine(),
                               .b1 = 0.8,
                               .b2 = 0.5,
                               .epsilon = 1e-3,
                               .weight_decay = 0.1,
                               .mask = kernels})},
      {"radam", radam({.learning_rate = 0.1, .b2 = 0.9})},
      {"radam all", radam({.learning_rate = cosine(),
                           .b1 = 0.8,
                           .b2 = 0.8,
                           .epsilon = 1e-3,
                           .epsilon_root = 1e-3,
                           .threshold = 4.5,
                           .nesterov = true})},
      {"adabelief", adabelief({.learning_rate = 0.1})},
      {"adabelief all", adabelief({.learning_rate = cosine(),
                                   .b1 = 0.8,
                                   .b2 = 0.9,
                                   .epsilon = 1e-4,
                                   .epsilon_root = 1e-3,
                                   .nesterov = true})},
      {"lars", lars({.learning_rate = 0.1})},
      {"lars all",
       lars({.learning_rate = cosine(),
             .weight_decay = 0.1,
             .weight_decay_mask = kernels,
             .trust_coefficient = 0.02,
             .epsilon = 1e-2,
             .trust_ratio_mask = Mask::when([](const Param& x) { return x.rank() == 2; }),
             .momentum = 0.8,
             .nesterov = true})},
      {"trust ratio", chain({scale_by_trust_ratio({.min_norm = 2}), sgd({.learning_rate = 0.1})})}};
}

std::map<std::string, Optimizer> adaptive_cases() {
  const Mask kernels = Mask::when(is_kernel);
  return {
      {"rmsprop", rmsprop({.learning_rate = 0.1})},
      {"rmsprop centered", rmsprop({.learning_rate = 0.1,
                                    .decay = 0.8,
                                    .epsilon = 1e-3,
                                    .centered = true,
                                    .momentum = 0.9})},
      {"rmsprop all", rmsprop({.learning_rate = cosine(),
                               .epsilon = 1e-4,
                               .initial_scale = 0.5,
                               .epsilon_in_sqrt = false,
                               .momentum = 0.9,
                               .nesterov = true,
                               .bias_correction = true})},
      {"rmsprop deviation", rmsprop({.learning_rate = 0.1,
                                     .epsilon = 1e-2,
                                     .initial_scale = 2,
                                     .epsilon_in_sqrt = false,
                                     .centered = true})},
      {"adagrad", adagrad({.learning_rate = 0.1})},
      {"adagrad zero",
       adagrad({.learning_rate = cosine(), .initial_accumulator_value = 0, .epsilon = 1e-3})},
      {"amsgrad", amsgrad({.learning_rate = 0.1})},
      {"amsgrad root",
       amsgrad(
           {.learning_rate = 0.1, .b1 = 0.8, .b2 = 0.5, .epsilon = 1e-4, .epsilon_root = 1e-3})},
      {"adadelta", adadelta()},
      {"adadelta decay", adadelta({.learning_rate = cosine(),
                                   .rho = 0.8,
                                   .epsilon = 1e-3,
                                   .weight_decay = 0.1,
                                   .mask = kernels})},
      {"lamb", lamb({.learning_rate = 0.1})},
      {"lamb decay", lamb({.learning_rate = cosine(),
                           .b1 = 0.8,
                           .b2 = 0.99,
                           .epsilon = 1e-4,
                           .epsilon_root = 1e-3,
                           .weight_decay = 0.1,
                           .mask = kernels})},
      {"novograd", novograd({.learning_rate = 0.1})},
      {"novograd decay", novograd({.learning_rate = 0.1,
                                   .b1 = 0.8,
                                   .b2 = 0.5,
                                   .epsilon = 1e-3,
                                   .epsilon_root = 1e-3,
                                   .weight_decay = 0.1})},
      {"yogi", yogi({.learning_rate = 0.1})},
      {"yogi small", yogi({.learning_rate = cosine(), .b1 = 0.8, .b2 = 0.9, .epsilon = 1e-2})},
  };
}

/// The optimisers of tests/peers/make_optim_golden.py.
std::map<std::string, Optimizer> cases() {
  const Mask kernels = Mask::when(is_kernel);
  const Mask matrices = Mask::when([](const Param& x) { return x.rank() == 2; });
  std::map<std::string, Optimizer> list = {
      {"sgd", sgd({.learning_rate = 0.1})},
      {"sgd momentum", sgd({.learning_rate = 0.1, .momentum = 0.9})},
      {"sgd nesterov", sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true})},
      {"sgd cosine", sgd({.learning_rate = cosine(), .momentum = 0.9})},
      {"adam", adam({.learning_rate = 0.1})},
      {"adam nesterov",
       adam({.learning_rate = 0.1, .b1 = 0.8, .b2 = 0.99, .epsilon_root = 1e-3, .nesterov = true})},
      {"adamw", adamw({.learning_rate = 0.1, .weight_decay = 0.1})},
      {"adamw masked", adamw({.learning_rate = 0.1, .weight_decay = 0.1, .mask = kernels})},
      {"adamw cosine", adamw({.learning_rate = cosine()})},
      {"adafactor", adafactor({.learning_rate = 0.1})},
      {"adafactor small", adafactor({.learning_rate = 0.1, .min_dim_size_to_factor = 4})},
      {"adafactor all", adafactor({.learning_rate = cosine(),
                                   .min_dim_size_to_factor = 2,
                                   .decay_rate = 0.7,
                                   .clipping_threshold = 0.5,
                                   .momentum = 0.9,
                                   .weight_decay_rate = 0.01,
                                   .mask = kernels})},
      {"adafactor plain",
       adafactor(
           {.learning_rate = 0.1, .multiply_by_parameter_scale = false, .clipping_threshold = 0})},
      {"lion", lion({.learning_rate = 0.1})},
      {"lion masked",
       lion({.learning_rate = 0.1, .b1 = 0.8, .b2 = 0.95, .weight_decay = 0.1, .mask = kernels})},
      {"muon", muon({.learning_rate = 0.1})},
      {"muon rms", muon({.learning_rate = 0.1,
                         .weight_decay = 0.1,
                         .nesterov = false,
                         .adam = AdamWOptions{.learning_rate = 0.1, .weight_decay = 0},
                         .consistent_rms = 0.2})},
      {"clip norm", chain({clip_by_global_norm(1), sgd({.learning_rate = 0.1, .momentum = 0.9})})},
      {"clip norm large", chain({clip_by_global_norm(1e3), adam({.learning_rate = 0.1})})},
      {"clip", chain({clip(0.3), sgd({.learning_rate = 0.1})})},
      {"chain", chain_of_all()},
      {"masked", chain({masked(clip_by_global_norm(1), matrices), adam({.learning_rate = 0.1})})},
      {"multi steps",
       multi_steps(chain({clip_by_global_norm(1), adamw({.learning_rate = cosine()})}), 2)},
      {"multi steps 4", multi_steps(sgd({.learning_rate = 0.1, .momentum = 0.9}), 4)},
  };
  list.merge(adaptive_cases());
  list.merge(more_adaptive_cases());
  return list;
}

bool is_narrow(const std::string& path) { return path.ends_with("*"); }

/// The leaves of a recorded tree; those whose paths end with * are bf16.
std::vector<Param> read_tree(const json& shapes, const json& tree) {
  std::vector<Param> leaves;
  for (const auto& [path, shape] : shapes.items()) {
    Array value = array(tree.at(path).get<std::vector<float>>(), shape.get<Shape>());
    if (is_narrow(path)) value = astype(value, DType::bf16);
    leaves.emplace_back(value, path.substr(0, path.find('*')));
  }
  return leaves;
}

struct Trained {
  std::vector<Param> params;
  State state;
  Optimizer tx;
  TESSERA_TREE(params, state, tx)
};

Trained updated(Trained run, const std::vector<Array>& gradients) {
  const std::vector<Array> values = run.tx.update(run.params, gradients, run.state);
  for (std::size_t i = 0; i < values.size(); ++i)
    run.params[i] = run.params[i].with_value(values[i]);
  return run;
}

void expect_near(const Param& found, const std::string& path, const json& want, double tolerance) {
  SCOPED_TRACE(path);
  const std::vector<float> values = astype(found, DType::f32).to_vector<float>();
  const auto wanted = want.at(path).get<std::vector<double>>();
  ASSERT_EQ(values.size(), wanted.size());
  double largest = 0;
  for (const double x : wanted) largest = std::max(largest, std::fabs(x));
  if (is_narrow(path)) tolerance = kNarrowTolerance;
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(values[i]), wanted[i], tolerance * largest);
  }
}

std::vector<Array> values_of(const std::vector<Param>& leaves) {
  return {leaves.begin(), leaves.end()};
}

TEST(Optimizers, GiveTheNumbersOfOptax) {
  const json golden = read_golden("optim.json");
  const json& shapes = golden.at("shapes");
  const auto optimizers = cases();
  EXPECT_EQ(optimizers.size(), golden.at("after").size());
  const std::vector<Param> params = read_tree(shapes, golden.at("params"));
  const auto step = jit(updated);
  for (const auto& [name, tx] : optimizers) {
    SCOPED_TRACE(name);
    const json& after = golden.at("after").at(name);
    Trained run{params, tx.init(params), tx};
    for (std::size_t i = 0; i < after.size(); ++i) {
      SCOPED_TRACE("update " + std::to_string(i));
      run = step(run, values_of(read_tree(shapes, golden.at("gradients")[i])));
      std::size_t leaf = 0;
      const double tolerance = name.starts_with("muon") ? kMuonTolerance : kTolerance;
      for (const auto& [path, shape] : shapes.items()) {
        expect_near(run.params[leaf++], path, after[i], tolerance);
      }
    }
  }
}

TEST(Schedules, GiveTheNumbersOfOptax) {
  const std::map<std::string, Rate> schedules = {
      {"linear", linear_schedule(0.1, 0.02, 7, 3)},
      {"polynomial", polynomial_schedule(0.1, 0.02, 2.5, 7, 3)},
      {"polynomial root", polynomial_schedule(0, 0.1, 0.5, 9)},
      {"linear one cycle", linear_onecycle_schedule(11, 0.1, 0.4, 0.8, 10, 100)},
      {"linear one cycle falls", linear_onecycle_schedule(7, 0.1, 0)},
      {"cosine one cycle", cosine_onecycle_schedule(11, 0.1, 0.4, 10, 100)},
      {"cosine one cycle usual", cosine_onecycle_schedule(10, 0.1)},
      {"cosine", cosine_decay_schedule(0.1, 10, 0.1, 2)},
      {"warmup cosine", warmup_cosine_decay_schedule({.init_value = 0.01,
                                                      .peak_value = 0.1,
                                                      .warmup_steps = 4,
                                                      .decay_steps = 12,
                                                      .end_value = 0.001})},
      {"exponential", exponential_decay(0.1, 4, 0.5, 2)},
      {"exponential stairs", exponential_decay(0.1, 4, 0.5, 2, true, 0.03)},
      {"piecewise", piecewise_constant_schedule(0.1, {{3, 0.5}, {8, 0.1}})},
      {"join",
       join_schedules({linear_schedule(0, 1, 4), 0.5, exponential_decay(1, 3, 0.1)}, {4, 9})}};
  const json golden = read_golden("optim.json").at("schedules");
  EXPECT_EQ(schedules.size(), golden.size());
  for (const auto& [name, schedule] : schedules) {
    for (std::size_t step = 0; step < golden.at(name).size(); ++step) {
      const double want = golden.at(name)[step];
      const double found = schedule(scalar(static_cast<std::int32_t>(step))).item<double>();
      EXPECT_NEAR(found, want, 5e-7 * std::max(std::fabs(want), 0.1)) << name << " " << step;
    }
  }
}

TEST(Optimizers, SlotsOfBf16AreF32) {
  const std::vector<Param> params = {Param(ones({4, 6}, DType::bf16), "kernel", P{"data", none}),
                                     Param(ones({6}, DType::bf16), "bias"),
                                     Param(ones({6}, DType::bf16), "scale")};
  for (const auto& [name, tx] : cases()) {
    const State state = tx.init(params);
    for (const auto& [slot, arrays] : state.slots) {
      for (const Param& x : arrays) EXPECT_EQ(x.dtype(), DType::f32) << name << " " << slot;
    }
  }
}

/// The parameters after some updates, computed in `dtype`, in f64.
std::vector<std::vector<double>> run_in(DType dtype, const Optimizer& tx) {
  const auto ramp = [&](Shape shape, double factor) {
    const std::int64_t size = num_elements(shape);
    return astype(reshape(sin(astype(arange(size), DType::f32) * factor), shape), dtype);
  };
  const auto leaves = [&](double factor) {
    return std::vector<Array>{ramp({5, 6}, factor), ramp({6}, factor), ramp({6}, -factor)};
  };
  const char* const paths[] = {"kernel", "a/bias", "a/scale"};
  std::vector<Param> params;
  for (const Array& x : leaves(1.0)) params.emplace_back(x, paths[params.size()]);
  Trained run{params, tx.init(params), tx};
  const auto step = jit(updated);
  for (int i = 0; i < 4; ++i) run = step(run, leaves(2.0 + i));
  std::vector<std::vector<double>> result;
  for (const Param& x : run.params) {
    EXPECT_EQ(x.dtype(), dtype);
    result.push_back(astype(x, DType::f64).to_vector<double>());
  }
  for (const auto& [slot, arrays] : run.state.slots) {
    for (const Param& x : arrays)
      EXPECT_EQ(x.dtype(), dtype == DType::f64 ? dtype : DType::f32) << slot;
  }
  return result;
}

TEST(Optimizers, TrainParametersOfEveryFloat) {
  for (const auto& [name, tx] : cases()) {
    SCOPED_TRACE(name);
    const auto wanted = run_in(DType::f32, tx);
    for (const auto& [dtype, tolerance] :
         {std::pair(DType::f64, 1e-4), {DType::f16, 0.02}, {DType::bf16, 0.1}}) {
      SCOPED_TRACE(tessera::name(dtype));
      const auto found = run_in(dtype, tx);
      for (std::size_t leaf = 0; leaf < wanted.size(); ++leaf) {
        for (std::size_t i = 0; i < wanted[leaf].size(); ++i)
          EXPECT_NEAR(found[leaf][i], wanted[leaf][i], tolerance);
      }
    }
  }
}

TEST(Optimizers, SetToZeroFreezes) {
  const Mask frozen = Mask::matching({"a/*"});
  const Optimizer tx =
      chain({masked(adamw({.learning_rate = 0.1}), !frozen), masked(set_to_zero(), frozen)});
  const std::vector<Param> params = {Param(ones({2, 2}), "b/kernel"), Param(ones({2}), "a/bias")};
  State state = tx.init(params);
  EXPECT_EQ(state.slots.at("mu").size(), 1U);
  const std::vector<Array> after = tx.update(params, {ones({2, 2}), full({2}, INFINITY)}, state);
  EXPECT_FALSE(array_equal(after[0], params[0]));
  EXPECT_TRUE(array_equal(after[1], params[1]));
}

TEST(Optimizers, NormsOfLeavesOfTwoDtypesAreF64) {
  const Array norm = global_norm({ones({4}), ones({5}, DType::f64), ones({7}, DType::bf16)});
  EXPECT_EQ(norm.dtype(), DType::f64);
  EXPECT_EQ(norm.item<double>(), 4.0);
  EXPECT_EQ(global_norm({ones({4}, DType::f64), ones({5})}).item<double>(), 3.0);
}

// 0.9 times the smallest subnormal number rounds to that number itself.
TEST(Optimizers, StateFadesToZeroWithoutGradients) {
  constexpr float kSmall = 3e-18F;  // its square times 0.001 is subnormal
  const std::vector<Param> params = {Param(ones({3, 4}), "kernel"), Param(ones({4}), "a/bias"),
                                     Param(ones({4}), "a/scale")};
  const std::vector<Array> small = {full({3, 4}, kSmall), full({4}, kSmall), full({4}, kSmall)};
  const std::vector<Array> none = {zeros({3, 4}), zeros({4}), zeros({4})};
  const auto step = jit(updated);
  for (const auto& [name, tx] : cases()) {
    Trained run = step(Trained{params, tx.init(params), tx}, small);
    for (int i = 0; i < 1200; ++i) run = step(run, none);
    for (const auto& [slot, arrays] : run.state.slots) {
      for (const Param& x : arrays) {
        for (const float value : x.to_vector<float>())
          EXPECT_NE(std::fpclassify(value), FP_SUBNORMAL) << name << " " << slot;
      }
    }
  }
}

TEST(Optimizers, FactoredSlotsLackADimensionAndItsSpec) {
  const std::vector<Param> params = {Param(ones({3, 5, 7}), "stack", P{"layer", "in", "out"}),
                                     Param(ones({7, 5}), "tall", P{"a", "b"}, AxisNames::logical),
                                     Param(ones({9}), "bias")};
  const State state = adafactor({.min_dim_size_to_factor = 4}).init(params);
  const std::vector<Param>& rows = state.slots.at("v_row");
  const std::vector<Param>& columns = state.slots.at("v_col");
  ASSERT_EQ(rows.size(), 2U);
  ASSERT_EQ(columns.size(), 2U);
  EXPECT_EQ(rows[0].shape(), Shape({3, 5}));
  EXPECT_EQ(rows[0].spec(), P({"layer", "in"}));
  EXPECT_EQ(columns[0].shape(), Shape({3, 7}));
  EXPECT_EQ(columns[0].spec(), P({"layer", "out"}));
  EXPECT_EQ(rows[1].spec(), P({"b"}));
  EXPECT_EQ(columns[1].spec(), P({"a"}));
  EXPECT_TRUE(rows[1].is_logical());
  ASSERT_EQ(state.slots.at("v").size(), 1U);
  EXPECT_EQ(state.slots.at("v")[0].path(), "bias");
}

TEST(Optimizers, SlotsBeginWithTheirInitialValues) {
  const std::vector<Param> params = {Param(ones({2, 3}, DType::bf16), "kernel", P{"a", "b"})};
  const State sums = adagrad({.initial_accumulator_value = 0.25}).init(params);
  EXPECT_TRUE(array_equal(sums.slots.at("sum_of_squares")[0], full({2, 3}, 0.25)));
  EXPECT_EQ(sums.slots.at("sum_of_squares")[0].spec(), P({"a", "b"}));
  const State norms = novograd().init(params);
  EXPECT_EQ(norms.slots.at("mu")[0].shape(), Shape({2, 3}));
  EXPECT_EQ(norms.slots.at("nu")[0].shape(), Shape());
  EXPECT_EQ(norms.slots.at("nu")[0].spec(), P());
}

// The mean of squares is then as large as the square of the mean, up to rounding.
TEST(Optimizers, EqualGradientsHaveNoDeviation) {
  const std::vector<Param> params = {Param(ones({3}), "w")};
  Trained run{params, {}, rmsprop({.epsilon = 1e-12, .centered = true})};
  run.state = run.tx.init(params);
  const auto step = jit(updated);
  for (int i = 0; i < 400; ++i) run = step(run, {array({0.1F, 30.0F, 7.7F})});
  for (const float value : run.params[0].to_vector<float>()) EXPECT_TRUE(std::isfinite(value));
}

TEST(Optimizers, TrustRatiosOfZerosAreOne) {
  const std::vector<Param> params = {Param(zeros({2}), "new"), Param(array({3.F, 4.F}), "old"),
                                     Param(ones({2}), "still")};
  const Optimizer tx = scale_by_trust_ratio();
  State state = tx.init(params);
  const auto after = tx.update(params, {array({1.F, 2.F}), array({0.F, 2.F}), zeros({2})}, state);
  EXPECT_EQ(after[0].to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(after[1].to_vector<float>(), (std::vector<float>{3, 9}));
  EXPECT_EQ(after[2].to_vector<float>(), (std::vector<float>{1, 1}));
}

/// What scale_by_trust_ratio makes of the update of a parameter, as f32.
std::vector<float> by_trust_ratio(const Array& parameter, const Array& update) {
  const Optimizer tx = scale_by_trust_ratio();
  const std::vector<Param> params = {Param(parameter, "w")};
  State state = tx.init(params);
  const Array after = tx.update(params, {update}, state)[0];
  EXPECT_EQ(after.dtype(), parameter.dtype());
  return (astype(after, DType::f32) - astype(parameter, DType::f32)).to_vector<float>();
}

// The numbers are those of optax.scale_by_trust_ratio.
TEST(Optimizers, TrustRatiosOfBothWidths) {
  const Array p = array({1.5F, -0.75F, 2.25F, 0.375F, -1.125F, 0.625F, 3.0F, -2.5F});
  const Array u =
      array({0.125F, 0.3125F, -0.4375F, 0.0625F, 0.21875F, -0.15625F, 0.375F, 0.28125F});
  const std::vector<float> wide = {0.80521667F, 2.0130417F,  -2.8182583F, 0.40260834F,
                                   1.4091291F,  -1.0065209F, 2.4156499F,  1.8117375F};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::vector<float> found = by_trust_ratio(astype(p, dtype), astype(u, dtype));
    const float tolerance = dtype == DType::f32 ? 1e-6F : 0.03F;
    for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(found[i], wide[i], tolerance);
  }
}

// The squares are beyond the largest f16.
TEST(Optimizers, TrustRatiosOfLargeHalves) {
  const Array p = astype(array({300.F, 400.F}), DType::f16);
  const Array u = astype(array({3.F, 4.F}), DType::f16);
  EXPECT_EQ(by_trust_ratio(p, u), (std::vector<float>{300, 400}));
}

TEST(Optimizers, TrustRatiosPassOnNaN) {
  const Array p = array({NAN, 1.F});
  for (const float x : by_trust_ratio(p, ones({2}))) EXPECT_TRUE(std::isnan(x));
}

TEST(Optimizers, SlotsOfOneNameAreKeptApart) {
  const std::vector<Param> params = {Param(ones({2, 2}), "kernel"), Param(ones({2}), "bias")};
  const State twice = chain({trace(0.5), trace(0.9)}).init(params);
  EXPECT_EQ(twice.slots.at("trace").size(), 2U);
  EXPECT_EQ(twice.slots.at("trace_2").size(), 2U);
  // Muon's slots and Adam's belong to different parameters.
  const State state = muon().init(params);
  EXPECT_EQ(state.slots.size(), 2U);
  EXPECT_EQ(state.slots.at("mu").size(), 2U);
  EXPECT_EQ(state.slots.at("nu").size(), 1U);
}

TEST(Masks, ChooseByPathOrFunction) {
  const std::vector<Param> params = {Param(ones({2}), "a/bias"), Param(ones({2}), "bias"),
                                     Param(ones({2, 2}), "a/b/kernel")};
  const std::source_location here;
  using Chosen = std::vector<bool>;
  EXPECT_EQ(Mask()(params, here), Chosen({true, true, true}));
  EXPECT_EQ(Mask::matching({"*/bias"})(params, here), Chosen({true, true, false}));
  EXPECT_EQ(Mask::matching({"a/*"})(params, here), Chosen({true, false, true}));
  EXPECT_EQ(Mask::matching({"a*l"})(params, here), Chosen({false, false, true}));
  EXPECT_EQ(Mask::matching({})(params, here), Chosen({false, false, false}));
  EXPECT_EQ(Mask::except({"a/*/kernel", "bias"})(params, here), Chosen({true, false, false}));
  const Mask vectors = Mask::when([](const Param& x) { return x.rank() == 1; });
  EXPECT_EQ(vectors(params, here), Chosen({true, true, false}));
  EXPECT_EQ((!vectors)(params, here), Chosen({false, false, true}));
}

TEST(Optimizers, DifferentOnesHaveDifferentKeys) {
  std::map<std::string, std::string> names;
  for (const auto& [name, tx] : cases()) {
    const auto [other, is_new] = names.emplace(tx.tessera_key(), name);
    EXPECT_TRUE(is_new) << name << " and " << other->second;
  }
}

Rate falling(double peak) {
  return Rate([peak](const Array& done) { return peak / (1.0 + done); });
}

TEST(Schedules, MayHaveCaptures) {
  const Array done = array({0.0F, 1.0F, 3.0F});
  EXPECT_EQ(falling(8.0)(done).to_vector<float>(), (std::vector<float>{8.0F, 4.0F, 2.0F}));
  const Rate rate = falling(8.0);
  const Rate copy = rate;
  EXPECT_EQ(copy.key(), rate.key());
  EXPECT_NE(falling(8.0).key(), falling(4.0).key());
  const auto apply = [](const Optimizer& tx, const Param& parameter) {
    State state = tx.init({parameter});
    return tx.update({parameter}, {ones({2})}, state)[0];
  };
  const auto step = jit(apply);
  const Optimizer slow = sgd({.learning_rate = falling(0.5)});
  const Optimizer fast = sgd({.learning_rate = falling(1.0)});
  const Param parameter(ones({2}), "w");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(step(slow, parameter).to_vector<float>(), std::vector<float>(2, 0.5F));
    EXPECT_EQ(step(fast, parameter).to_vector<float>(), std::vector<float>(2, 0.0F));
  }
  EXPECT_EQ(step.num_traces(), 2);
}

TEST(Masks, MayHaveCaptures) {
  const std::vector<Param> params = {Param(ones({2}), "bias"), Param(ones({2, 2}), "kernel")};
  for (const std::int64_t rank : {1, 2}) {
    const Mask mask = Mask::when([rank](const Param& x) { return x.rank() == rank; });
    EXPECT_EQ(mask(params, {}), (std::vector<bool>{rank == 1, rank == 2}));
    EXPECT_EQ((!mask)(params, {}), (std::vector<bool>{rank != 1, rank != 2}));
  }
}

TEST(Optimizers, MuonOfSeveralMatricesIsMuonOfEach) {
  const Array first = array({1.F, 2.F, 3.F, -4.F, 5.F, 0.5F}, {2, 3});
  const Array second = array({0.1F, -2.F, 3.F, 0.F, 1.F, 7.F}, {2, 3});
  const auto step = [](const Array& gradient) {
    const std::vector<Param> params = {Param(zeros(gradient.shape()), "w")};
    const Optimizer tx = muon({.matrices = Mask::matching({"w"})});
    State state = tx.init(params);
    return tx.update(params, {gradient}, state).front();
  };
  const Array both = step(stack({first, second}));
  EXPECT_TRUE(array_equal(both[0], step(first)));
  EXPECT_TRUE(array_equal(both[1], step(second)));
}

}  // namespace
}  // namespace tessera::optim
