// The layouts of examples/layouts: the same values as on one device, and exactly the collectives
// that each layout is known for.

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tessera/nn.h>
#include <tessera/optim.h>

#include "api/test_support.h"
#include "layouts/expert.h"
#include "layouts/ring_attention.h"
#include "layouts/transformer.h"
#include "layouts/vocabulary.h"
#include "layouts/zero.h"

namespace tessera::testing {
namespace {

using Uses = std::vector<std::string>;

std::string use(const char* kind, std::int64_t count, std::int64_t wire_bytes) {
  return fmt::format("{} x{}: {} bytes", kind, count, wire_bytes);
}

/// The uses, with kinds in alphabetical order.
Uses uses_of(const LoweredProgram& program) {
  Uses uses;
  for (const CollectiveUse& row : program.collectives()) {
    uses.push_back(use(row.kind.c_str(), row.count, row.wire_bytes));
  }
  return uses;
}

template <typename A, typename B>
void expect_same_leaves(const A& found, const B& wanted) {
  const std::vector<Array> x = tree_leaves(found);
  const std::vector<Array> y = tree_leaves(wanted);
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    SCOPED_TRACE("leaf " + std::to_string(i));
    expect_same_bits(x[i], y[i]);
  }
}

// --- tensor and sequence parallelism of a block

using layouts::Block;
using layouts::BlockConfig;

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kLength = 8;
constexpr std::int64_t kWidth = 64;
/// Bytes of the activations [B,T,F] of all devices together.
constexpr std::int64_t kActivations = kBatch * kLength * kWidth * 4;
/// Wire bytes of a reduce_scatter or an all_gather of activations over four devices.
constexpr std::int64_t kOnce = kActivations * 3 / 4;

BlockConfig block_config(bool has_fused_qkv) {
  return {.d_model = kWidth, .heads = 8, .d_ff = 4 * kWidth, .has_fused_qkv = has_fused_qkv};
}

/// y, and the gradients of sum(y^2 * cotangent) with respect to the parameters and x.
std::tuple<Array, std::tuple<Block, Array>> backward(const Block& block, const Array& x,
                                                     const Array& cotangent) {
  auto [loss, y, gradients] = value_and_grad<0, 1>([&](const Block& b, const Array& v) {
    const Array result = b(v);
    return std::tuple(sum(square(result) * cotangent), result);
  })(block, x);
  return {y, gradients};
}

void expect_near(const Array& found, const Array& wanted, float tolerance) {
  const std::vector<float> x = found.to_vector<float>();
  const std::vector<float> y = wanted.to_vector<float>();
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

template <typename A, typename B>
void expect_near_leaves(const A& found, const B& wanted, float tolerance) {
  const std::vector<Array> x = tree_leaves(found);
  const std::vector<Array> y = tree_leaves(wanted);
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    SCOPED_TRACE("leaf " + std::to_string(i));
    expect_near(x[i], y[i], tolerance);
  }
}

struct BlockUses {
  Uses forward;
  Uses both;
};

/// Runs forward and backward on the mesh. Expects the bits of one device, or in fast numerics
/// values close to them.
BlockUses run_block(const BlockConfig& config, const Mesh& mesh,
                    Numerics numerics = Numerics::exact) {
  const auto init = [&](Key key) { return Block(nn::Scope(key), config); };
  const Array x = numbers({kBatch, kLength, kWidth}, 1);
  const Array cotangent = numbers({kBatch, kLength, kWidth}, 2);
  const auto wanted = jit(backward)(jit(init)(Key(0)), x, cotangent);

  const use_mesh scope(mesh);
  const Block block = jit(init, {.out_shardings = from_annotations(mesh)})(Key(0));
  const P spec{config.batch, config.sequence};
  const Array placed_x = device_put(x, spec);
  const Array placed_cotangent = device_put(cotangent, spec);
  const auto step = jit(backward, {.out_shardings = {spec, Shardings(from_annotations(mesh), spec)},
                                   .numerics = numerics});
  const auto found = step(block, placed_x, placed_cotangent);
  if (numerics == Numerics::exact) {
    expect_same_leaves(found, wanted);
  } else {
    expect_near_leaves(found, wanted, 1e-2F);
  }
  const auto forward =
      jit([](const Block& b, const Array& v) { return b(v); }, {.numerics = numerics});
  return {.forward = uses_of(forward.lower(block, placed_x)), .both = uses_of(step.compiled())};
}

TEST(TensorParallel, TwoAllReducesEachWay) {
  const BlockUses uses = run_block(block_config(true), make_mesh({{"model", 4}}));
  EXPECT_EQ(uses.forward, Uses{use("all_reduce", 2, 2 * 2 * kOnce)});
  EXPECT_EQ(uses.both, Uses{use("all_reduce", 4, 4 * 2 * kOnce)});
}

/// q, k and v give one partial sum each. They are reduced over the devices before the three are
/// added, so that the bits do not depend on the mesh. One all_reduce takes all three.
TEST(TensorParallel, SeparateProjectionsSendThreeSumsAtOnce) {
  const BlockUses uses = run_block(block_config(false), make_mesh({{"model", 4}}));
  EXPECT_EQ(uses.forward, Uses{use("all_reduce", 2, 2 * 2 * kOnce)});
  EXPECT_EQ(uses.both, Uses{use("all_reduce", 4, 6 * 2 * kOnce)});
}

/// The three partial sums are added on each device, and only their sum is reduced.
TEST(TensorParallel, FastNumericsSendTheSumOfTheThree) {
  const BlockUses uses = run_block(block_config(false), make_mesh({{"model", 4}}), Numerics::fast);
  EXPECT_EQ(uses.forward, Uses{use("all_reduce", 2, 2 * 2 * kOnce)});
  EXPECT_EQ(uses.both, Uses{use("all_reduce", 4, 4 * 2 * kOnce)});
}

TEST(TensorParallel, WithDataParallelism) {
  BlockConfig config = block_config(true);
  config.batch = "data";
  const BlockUses uses = run_block(config, make_mesh({{"data", 2}, {"model", 4}}));
  EXPECT_EQ(uses.forward, Uses{use("all_reduce", 2, 2 * kOnce)});
  // One more all_reduce for all gradients: matrices with 12 F^2 elements are split four ways, norms
  // are replicated.
  const std::int64_t gradients = (12 * kWidth * kWidth / 4 + 4 * kWidth) * 4;
  EXPECT_EQ(uses.both, Uses{use("all_reduce", 5, 4 * kOnce + gradients)});
}

/// Gradients of the scales and biases of norms are sums over batch and sequence, which exact
/// numerics may split along the batch only. So an all_to_all moves the split of the terms from the
/// sequence to the features, and the sums are gathered.
constexpr std::int64_t kNorms = 4 * kWidth * 4 * 3 / 4;

TEST(SequenceParallel, ScattersAndGathersInstead) {
  BlockConfig config = block_config(true);
  config.sequence = "model";
  const BlockUses uses = run_block(config, make_mesh({{"model", 4}}));
  EXPECT_EQ(uses.forward,
            (Uses{use("all_gather", 2, 2 * kOnce), use("reduce_scatter", 2, 2 * kOnce)}));
  EXPECT_EQ(uses.both, (Uses{use("all_gather", 4 + 4, 4 * kOnce + kNorms),
                             use("all_to_all", 4, kOnce), use("reduce_scatter", 4, 4 * kOnce)}));
}

TEST(SequenceParallel, SeparateProjectionsSendThreeSumsAtOnce) {
  BlockConfig config = block_config(false);
  config.sequence = "model";
  const BlockUses uses = run_block(config, make_mesh({{"model", 4}}));
  EXPECT_EQ(uses.both, (Uses{use("all_gather", 4 + 4, 4 * kOnce + kNorms),
                             use("all_to_all", 4, kOnce), use("reduce_scatter", 4, 6 * kOnce)}));
}

/// Fast numerics may split sums over batch and sequence along both, so gradients of norms are
/// reduced directly.
TEST(SequenceParallel, FastNumericsReduceTheGradientsOfNorms) {
  BlockConfig config = block_config(false);
  config.sequence = "model";
  const BlockUses uses = run_block(config, make_mesh({{"model", 4}}), Numerics::fast);
  EXPECT_EQ(uses.both, (Uses{use("all_gather", 4, 4 * kOnce), use("all_reduce", 1, 2 * kNorms),
                             use("reduce_scatter", 4, 4 * kOnce)}));
}

TEST(SequenceParallel, WithDataParallelism) {
  BlockConfig config = block_config(true);
  config.batch = "data";
  config.sequence = "model";
  const BlockUses uses = run_block(config, make_mesh({{"data", 2}, {"model", 4}}));
  EXPECT_EQ(uses.forward, (Uses{use("all_gather", 2, kOnce), use("reduce_scatter", 2, kOnce)}));
  // The split of the terms for norms moves to the features, first over one axis and then over the
  // other.
  const std::int64_t tile = kActivations / 8;
  const std::int64_t norms = 4 * kWidth * 4 * 7 / 8;
  EXPECT_EQ(uses.both, (Uses{use("all_gather", 4 + 4, 2 * kOnce + norms),
                             use("all_reduce", 1, 12 * kWidth * kWidth / 4 * 4),
                             use("all_to_all", 4 + 4, 4 * (tile * 3 / 4 + tile / 2)),
                             use("reduce_scatter", 4, 2 * kOnce)}));
}

// --- ZeRO and FSDP

using layouts::Zero;

struct Mlp {
  nn::Dense up, down;

  explicit Mlp(const nn::Scope& scope) : up(scope / "up", 64, 256), down(scope / "down", 256, 64) {}
  Array operator()(const Array& x) const { return down(gelu(up(x))); }
  TESSERA_MODULE(up, down)
};
using MlpState = TrainState<Mlp>;

constexpr std::int64_t kParameters = (2 * 64 * 256 + 256 + 64) * 4;

MlpState init_mlp(const Key& key) { return {Mlp(nn::Scope(key)), optim::adam()}; }

template <typename State, typename PlaceGradients>
std::tuple<State, Array> train_step(const State& state, const Array& x, const Array& y,
                                    const PlaceGradients& place) {
  auto [loss, gradients] =
      value_and_grad([&](const auto& model) { return mean(square(model(x) - y)); })(state.params);
  return {state.apply_gradients(place(gradients)), loss};
}

struct StepPlan {
  Uses uses;
  MemoryPlan memory;
};

/// Two training steps on four devices, which must have the bits of one device.
StepPlan run_zero(Zero level) {
  const Array x = numbers({32, 64}, 1);
  const Array y = numbers({32, 64}, 2);
  const auto as_it_is = [](const Mlp& gradients) { return gradients; };
  const auto plain = jit([&](const MlpState& state, const Array& a, const Array& b) {
    return train_step(state, a, b, as_it_is);
  });
  auto [wanted, wanted_loss] = plain(std::get<0>(plain(jit(init_mlp)(Key(0)), x, y)), x, y);

  const Mesh mesh = make_mesh({{"data", 4}});
  const use_mesh scope(mesh);
  const Shardings shardings = layouts::zero_shardings(mesh, eval_shape(init_mlp, Key(0)), level);
  const auto place = [&](const Mlp& gradients) {
    return layouts::placed_gradients(mesh, gradients, level);
  };
  const auto step = jit([&](const MlpState& state, const Array& a,
                            const Array& b) { return train_step(state, a, b, place); },
                        {.out_shardings = {shardings, P{}}, .donate_argnums = {0}});
  MlpState state = jit(init_mlp, {.out_shardings = shardings})(Key(0));
  const Array placed_x = device_put(x, P{"data"});
  const Array placed_y = device_put(y, P{"data"});
  const auto compiled = step.lower(state, placed_x, placed_y).compile();
  Array loss;
  for (int i = 0; i < 2; ++i) std::tie(state, loss) = step(std::move(state), placed_x, placed_y);
  expect_same_leaves(state.params, wanted.params);
  expect_same_bits(loss, wanted_loss);
  return {.uses = uses_of(compiled), .memory = compiled.memory()};
}

constexpr std::int64_t kMoved = kParameters * 3 / 4;
constexpr std::int64_t kLossBytes = 4 * 2 * 3 / 4;
/// Bytes of the batch, the targets, and the step counters of state and optimiser.
constexpr std::int64_t kOtherArguments = 2 * 32 / 4 * 64 * 4 + 2 * 4;

TEST(Zero, OptimizerStateIsSplit) {
  const StepPlan plan = run_zero(Zero::optimizer);
  EXPECT_EQ(plan.uses,
            (Uses{use("all_gather", 4, kMoved), use("all_reduce", 2, 2 * kMoved + kLossBytes)}));
  EXPECT_EQ(plan.memory.arguments, kParameters + 2 * kParameters / 4 + kOtherArguments);
}

TEST(Zero, GradientsAreScattered) {
  const StepPlan plan = run_zero(Zero::gradients);
  EXPECT_EQ(plan.uses, (Uses{use("all_gather", 4, kMoved), use("all_reduce", 1, kLossBytes),
                             use("reduce_scatter", 1, kMoved)}));
  EXPECT_EQ(plan.memory.arguments, kParameters + 2 * kParameters / 4 + kOtherArguments);
}

TEST(Zero, ParametersAreGatheredWhereUsed) {
  const StepPlan plan = run_zero(Zero::parameters);
  EXPECT_EQ(plan.uses, (Uses{use("all_gather", 4, kMoved), use("all_reduce", 1, kLossBytes),
                             use("reduce_scatter", 1, kMoved)}));
  EXPECT_EQ(plan.memory.arguments, 3 * kParameters / 4 + kOtherArguments);
}

TEST(Zero, EachLevelNeedsLessMemory) {
  const MemoryPlan optimizer = run_zero(Zero::optimizer).memory;
  const MemoryPlan gradients = run_zero(Zero::gradients).memory;
  const MemoryPlan parameters = run_zero(Zero::parameters).memory;
  // The gradients, and either the new parameters or the gradients before their reduction. The
  // higher levels hold only a quarter of one of these.
  EXPECT_EQ(optimizer.temporaries, 2 * kParameters);
  EXPECT_EQ(gradients.temporaries, kParameters + kParameters / 4);
  EXPECT_EQ(parameters.temporaries, kParameters + kParameters / 4);
  for (const MemoryPlan& plan : {optimizer, gradients, parameters}) {
    EXPECT_EQ(plan.peak, plan.arguments + plan.temporaries + 4);  // the loss
  }
  EXPECT_EQ(optimizer.peak - gradients.peak, kMoved);
  EXPECT_EQ(gradients.peak - parameters.peak, kMoved);
}

// --- two dimensions

TEST(FsdpAndTensorParallel, BothMoveWhatTheyMoveAlone) {
  BlockConfig config = block_config(true);
  config.batch = "data";
  config.storage = "data";
  const BlockUses uses = run_block(config, make_mesh({{"data", 2}, {"model", 4}}));
  // The four matrices have 12 F^2 elements. Each device gathers the quarter that it needs over
  // `data`.
  const std::int64_t weights = 12 * kWidth * kWidth / 4 * 4 / 2;
  EXPECT_EQ(uses.forward, (Uses{use("all_gather", 4, weights), use("all_reduce", 2, 2 * kOnce)}));
  const std::int64_t norms = 4 * kWidth * 4;
  EXPECT_EQ(uses.both, (Uses{use("all_gather", 4, weights), use("all_reduce", 5, 4 * kOnce + norms),
                             use("reduce_scatter", 1, weights)}));
}

// --- experts

using layouts::ExpertConfig;
using layouts::Experts;

constexpr std::int64_t kTokens = 32;

template <typename F>
auto experts_with_gradients(const Experts& experts, const Array& x, const Array& cotangent,
                            const F& f) {
  auto [loss, y, gradients] = value_and_grad<0, 1>([&](const Experts& e, const Array& v) {
    const Array result = f(e, v);
    return std::tuple(sum(result * cotangent, {0, 1}), result);
  })(experts, x);
  return std::tuple(y, gradients);
}

BlockUses run_experts(std::int64_t capacity) {
  const ExpertConfig config{.capacity = capacity};
  const auto init = [&](Key key) { return Experts(nn::Scope(key), config); };
  const Array x = numbers({kTokens, config.d_model}, 1);
  const Array cotangent = numbers({kTokens, config.d_model}, 2);
  const auto dense = jit([](const Experts& e, const Array& v, const Array& ct) {
    return experts_with_gradients(e, v, ct, [](const Experts& experts, const Array& tokens) {
      return experts.evaluate_densely(tokens, 4);
    });
  });
  const auto [wanted, wanted_gradients] = dense(jit(init)(Key(0)), x, cotangent);

  const Mesh mesh = make_mesh({{"expert", 4}});
  const use_mesh scope(mesh);
  const Experts experts = jit(init, {.out_shardings = from_annotations(mesh)})(Key(0));
  const Array placed_x = device_put(x, P{"expert"});
  const auto forward = jit([](const Experts& e, const Array& v) { return e(v); });
  const auto step = jit([](const Experts& e, const Array& v, const Array& ct) {
    return experts_with_gradients(
        e, v, ct, [](const Experts& inner, const Array& tokens) { return inner(tokens); });
  });
  const auto [y, gradients] = step(experts, placed_x, device_put(cotangent, P{"expert"}));
  // A token's sums have only one nonzero term, so only the signs of zeros may differ.
  EXPECT_EQ(y.to_vector<float>(), wanted.to_vector<float>());
  expect_near_leaves(gradients, wanted_gradients, 2e-5F);
  return {.forward = uses_of(forward.lower(experts, placed_x)), .both = uses_of(step.compiled())};
}

TEST(Experts, TokensGoThereAndBack) {
  for (std::int64_t capacity : {2, 4, 8}) {  // per 8 tokens; below 8, some may be dropped
    SCOPED_TRACE(capacity);
    const BlockUses uses = run_experts(capacity);
    const std::int64_t places = 8 * capacity * 16 * 4 * 3 / 4;  // wire bytes of all experts' slots
    EXPECT_EQ(uses.forward, Uses{use("all_to_all", 2, 2 * places)});
    const std::int64_t router = 2 * 16 * 8 * 4 * 3 / 4;
    EXPECT_EQ(uses.both, (Uses{use("all_reduce", 1, router), use("all_to_all", 4, 4 * places)}));
  }
}

// --- ring attention

struct Attention {
  Array q, k, v;
  TESSERA_TREE(q, k, v)
};

template <typename F>
std::tuple<Array, Attention> attention_with_gradients(const Attention& a, const Array& cotangent,
                                                      const F& f) {
  auto [loss, y, gradients] = value_and_grad([&](const Attention& in) {
    const Array result = f(in);
    return std::tuple(sum(result * cotangent), result);
  })(a);
  return {y, gradients};
}

TEST(RingAttention, OnlyPermutesKeysAndValues) {
  const Shape shape{2, 16, 3, 4};
  const Attention whole{numbers(shape, 1), numbers(shape, 2), numbers(shape, 3)};
  const Array cotangent = numbers(shape, 4);
  for (bool is_causal : {false, true}) {
    SCOPED_TRACE(is_causal);
    const auto plain = jit([&](const Attention& a, const Array& ct) {
      return attention_with_gradients(a, ct, [&](const Attention& in) {
        return nn::dot_product_attention(in.q, in.k, in.v, is_causal);
      });
    });
    const auto wanted = plain(whole, cotangent);

    const Mesh mesh = make_mesh({{"sequence", 4}});
    const use_mesh scope(mesh);
    const P spec{none, "sequence"};
    const auto around = [&](const Attention& in) {
      return shard_map(
          [&](const Array& q, const Array& k, const Array& v) {
            return layouts::ring_attention(q, k, v, "sequence", is_causal);
          },
          {.in_specs = {spec, spec, spec}, .out_specs = spec})(in.q, in.k, in.v);
    };
    const auto forward = jit(around);
    const auto step = jit([&](const Attention& a, const Array& ct) {
      return attention_with_gradients(a, ct, around);
    });
    const Attention placed = device_put(whole, Shardings(spec));
    expect_near_leaves(step(placed, device_put(cotangent, spec)), wanted, 1e-5F);
    // Three rounds for four devices. The keys and values of a device are 2 x (2 x 4 x 3 x 4)
    // numbers.
    const std::int64_t round = 2 * 2 * 4 * 3 * 4 * 4;
    EXPECT_EQ(uses_of(forward.lower(placed)), Uses{use("permute", 3, 3 * round)});
    EXPECT_EQ(uses_of(step.compiled()), Uses{use("permute", 6, 6 * round)});
  }
}

// --- vocabulary

constexpr std::int64_t kVocabulary = 64;

/// The loss, and gradients of table [V,F] and head [F,V].
std::tuple<Array, std::tuple<Array, Array>> vocabulary_step(const Array& table, const Array& head,
                                                            const Array& ids,
                                                            const Array& targets) {
  return value_and_grad<0, 1>([&](const Array& rows, const Array& columns) {
    return layouts::vocabulary_loss(rows, columns, ids, targets);
  })(table, head);
}

TEST(VocabularyParallel, NothingOfItsSizeMoves) {
  const Array table = numbers({kVocabulary, 16}, 1);
  const Array head = numbers({16, kVocabulary}, 2);
  const Array ids = random::randint(Key(3), {2, 8}, 0, kVocabulary);
  const Array targets = random::randint(Key(4), {2, 8}, 0, kVocabulary);
  const auto wanted = jit(vocabulary_step)(table, head, ids, targets);

  const use_mesh scope(make_mesh({{"model", 4}}));
  const Shardings shardings(P{}, Shardings(P{"model"}, P{none, "model"}));
  const auto step = jit(vocabulary_step, {.out_shardings = shardings});
  const Array rows = device_put(table, P{"model"});
  const Array columns = device_put(head, P{none, "model"});
  expect_same_leaves(step(rows, columns, ids, targets), wanted);
  // The reductions are of the looked-up rows, the gradient of x and, for each token, a maximum, a
  // sum, the target's log-probability and a sum of its derivative.
  const std::int64_t features = 2 * 8 * 16 * 4;
  const std::int64_t per_token = 2 * 8 * 4;
  EXPECT_EQ(uses_of(step.compiled()),
            Uses{use("all_reduce", 6, 2 * (2 * features + 4 * per_token) * 3 / 4)});
  const auto lookup = jit([](const Array& t, const Array& at) { return take(t, at); });
  EXPECT_EQ(uses_of(lookup.lower(rows, ids)), Uses{use("all_reduce", 1, 2 * features * 3 / 4)});
}

/// One table for both ends, as in language models with tied embeddings, and the batch split over
/// another axis.
TEST(VocabularyParallel, TiedAndWithDataParallelism) {
  const auto both_ends = [](const Array& table, const Array& ids, const Array& targets) {
    return value_and_grad([&](const Array& t) {
      return layouts::vocabulary_loss(t, transpose(t), ids, targets);
    })(table);
  };
  const Array table = numbers({kVocabulary, 16}, 1);
  const Array ids = random::randint(Key(3), {4, 8}, 0, kVocabulary);
  const Array targets = random::randint(Key(4), {4, 8}, 0, kVocabulary);
  const auto wanted = jit(both_ends)(table, ids, targets);

  const use_mesh scope(make_mesh({{"data", 2}, {"model", 4}}));
  const auto step = jit(both_ends, {.out_shardings = {P{}, P{"model"}}});
  expect_same_leaves(step(device_put(table, P{"model"}), device_put(ids, P{"data"}),
                          device_put(targets, P{"data"})),
                     wanted);
  assert_no_collectives(step.compiled(), {"all_gather", "all_to_all", "collective_permute"});
}

}  // namespace
}  // namespace tessera::testing
