// The public interface on meshes: the same bits on every mesh, and the reports of programs.
#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/tessera.h>

namespace tessera {
namespace {

struct Mlp {
  Param up, bias, down;
  explicit Mlp(const Key& key)
      : up(random::normal(random::fold_in(key, 1), {6, 16}), "up/kernel", P{none, "model"}),
        bias(zeros({16}), "up/bias"),
        down(random::normal(random::fold_in(key, 2), {16, 3}), "down/kernel") {}
  Array operator()(Array x) const {
    x = with_sharding_constraint(gelu(dot(x, up) + bias), P{"data"});
    return dot(x, down);
  }
  TESSERA_MODULE(up, bias, down)
};

struct State {
  Mlp params;
  Array step;
  explicit State(const Key& key) : params(key), step(scalar(0)) {}
  TESSERA_TREE(params, step)
};

State init(Key key) { return State(key); }

std::tuple<State, Array> train_step(State state, Array x) {
  auto [loss, grads] =
      value_and_grad([&](const Mlp& model) { return mean(square(model(x))); })(state.params);
  state.params = tree_map([](Array p, Array g) { return p - 0.01 * g; }, state.params, grads);
  state.step += 1;
  return std::tuple(state, loss);
}

struct Training {
  State state;
  std::vector<float> losses;
  CompiledProgram program;
};

Training train(const Mesh& mesh, const Shardings& shardings) {
  State state = jit(init, {.out_shardings = shardings})(Key(0));
  auto step = jit(train_step, {.donate_argnums = {0}});
  Training run{state, {}, CompiledProgram(nullptr)};
  for (int i = 0; i < 3; ++i) {
    Array x = random::normal(Key(7), {8, 6});
    if (!mesh.axes().empty()) x = device_put(x, NamedSharding(mesh, P{"data"}));
    Array loss;
    std::tie(state, loss) = step(std::move(state), x);
    run.losses.push_back(loss.item<float>());
  }
  EXPECT_EQ(step.num_traces(), 1);
  run.state = state;
  run.program = step.compiled();
  return run;
}

TEST(Meshes, GiveTheSameBits) {
  const Training alone = train(Mesh(), {});
  EXPECT_LT(alone.losses[2], alone.losses[0]);
  const State shapes = eval_shape(init, Key(0));
  const Mesh data = make_mesh({{"data", 4}});
  const Mesh both = make_mesh({{"data", 2}, {"model", 2}});
  for (const Training& run :
       {train(data, replicated(data, shapes)), train(data, fsdp_shardings(data, shapes)),
        train(both, from_annotations(both))}) {
    EXPECT_EQ(run.losses, alone.losses);
    const std::vector<Array> expected = tree_leaves(alone.state);
    const std::vector<Array> found = tree_leaves(run.state);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(array_equal(found[i], expected[i]));
  }
}

TEST(Meshes, DeviceOrderChangesNoBits) {
  const Training alone = train(Mesh(), {});
  const State shapes = eval_shape(init, Key(0));
  const Mesh ring = make_mesh({{"data", 4}}, {0, 2, 3, 1});
  const Training run = train(ring, fsdp_shardings(ring, shapes));
  EXPECT_EQ(run.losses, alone.losses);
  const Array& up = run.state.params.up;
  EXPECT_EQ(up.sharding().mesh, ring);
  EXPECT_TRUE(array_equal(up, alone.state.params.up));
  // The second tile is on device 2.
  EXPECT_TRUE(array_equal(up.local_data(2), alone.state.params.up.slice(1, 4, 8)));
  const Array there = device_put(up, NamedSharding(make_mesh({{"data", 4}}), P{none, "data"}));
  EXPECT_TRUE(array_equal(there.local_data(1), up.local_data(2)));
}

TEST(Meshes, ConstraintsLeaveUnconstrainedDimensionsOpen) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const Array x = device_put(ones({8, 4}), NamedSharding(mesh, P{"data"}));
  auto f = jit([](Array v) { return with_sharding_constraint(v, P{unconstrained, "model"}); });
  EXPECT_EQ(f(x).sharding().spec, (P{"data", "model"}));
  const Array closed = jit([](Array v) {
    return with_sharding_constraint(v, P{none, "model"});
  })(x);
  EXPECT_EQ(closed.sharding().spec, (P{none, "model"}));
  // Outside jit, open dimensions keep their sharding, unless its axis is needed elsewhere.
  EXPECT_EQ(with_sharding_constraint(x, P{unconstrained, "model"}).sharding().spec,
            (P{"data", "model"}));
  EXPECT_EQ(with_sharding_constraint(x, P{unconstrained, "data"}).sharding().spec,
            (P{none, "data"}));
}

TEST(Meshes, VmapLeavesTheBatchToPropagation) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const Array x = device_put(ones({6, 4, 8}), NamedSharding(mesh, P{"data"}));
  auto f = jit([](Array v) {
    return vmap([](Array row) { return with_sharding_constraint(row, P{none, "model"}); })(v);
  });
  EXPECT_EQ(f(x).sharding().spec, (P{"data", none, "model"}));
}

TEST(Meshes, StateKeepsItsSharding) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const Shardings shardings = fsdp_shardings(mesh, eval_shape(init, Key(0)));
  const Training run = train(mesh, shardings);
  EXPECT_EQ(run.state.params.up.sharding(), NamedSharding(mesh, (P{none, "data"})));
  EXPECT_EQ(run.state.params.down.sharding(), NamedSharding(mesh, P{"data"}));
  EXPECT_EQ(run.state.params.up.local_data(0).shape(), (Shape{6, 4}));
}

TEST(Meshes, ProgramsExplainThemselves) {
  if (engine() != "host") GTEST_SKIP() << "other engines execute no collectives";
  const Mesh mesh = make_mesh({{"data", 4}});
  const Shardings shardings = fsdp_shardings(mesh, eval_shape(init, Key(0)));
  const Training run = train(mesh, shardings);
  EXPECT_NE(run.program.explain().find("mesh_test.cc:"), std::string::npos);
  EXPECT_NE(run.program.partitioned_ir().find("reduce_scatter"), std::string::npos);
  EXPECT_GT(run.program.device_peak_bytes(), 0);
  EXPECT_GT(run.program.compile_seconds(), 0.0);

  auto step = jit(train_step);
  const State state = device_put(init(Key(0)), shardings);
  const Array x = device_put(random::normal(Key(1), {8, 6}), NamedSharding(mesh, P{"data"}));
  step(state, x);
  reset_collective_counts();
  step(state, x);
  EXPECT_EQ(collective_counts(), step.compiled().collectives());
}

TEST(Meshes, UnderUseMeshNewArraysLiveOnIt) {
  const use_mesh scope(make_mesh({{"data", 2}}));
  EXPECT_EQ(array({1.F, 2.F}).sharding().mesh, current_mesh());
  EXPECT_EQ((ones({4}) + 1).sharding().mesh, current_mesh());
  auto f = jit([](Array x) { return x * 2; }, {.in_shardings = {P{"data"}}});
  Array x;
  {
    const use_mesh none_at_all{Mesh()};
    x = array({1.F, 2.F});
  }
  EXPECT_EQ(f(x).sharding().spec, P{"data"});
  const Array other = device_put(x, P{});
  EXPECT_THROW(f(other), UserError);
  EXPECT_EQ(device_put(std::pair(x, x), {P{"data"}, P{}}).first.sharding().spec, P{"data"});
}

}  // namespace
}  // namespace tessera
