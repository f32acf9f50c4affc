// What happens to donated arrays when a call is refused, runs out of memory, or fails.
#include "api/call/donation.h"

#include <gtest/gtest.h>

#include <tessera/grad.h>
#include <tessera/jit.h>
#include <tessera/ops.h>

#include "api/test_support.h"
#include "run/test_graph.h"

namespace tessera {
namespace {

using testing::mistake_of;
using Floats = std::vector<float>;

struct State {
  Array weights;
  Param bias;
  Array step;
  TESSERA_TREE(weights, bias, step)
};

State make_state() { return {array({1.F, 2.F}), Param(array({3.F, 4.F}), "bias"), scalar(5)}; }

void expect_whole(const State& state) {
  for (const Array& leaf : tree_leaves(state)) EXPECT_FALSE(leaf.is_deleted());
  EXPECT_EQ(state.weights.to_vector<float>(), (Floats{1, 2}));
  EXPECT_EQ(state.bias.to_vector<float>(), (Floats{3, 4}));
  EXPECT_EQ(state.step.item<int>(), 5);
}

State next(const State& s, const Array& x) {
  return {s.weights + x, s.bias.with_value(s.bias * 2), s.step + 1};
}

/// More bytes than any machine can address.
Array too_large(const Array& x) {
  return broadcast_to(reshape(sum(x), {1, 1}), {std::int64_t{1} << 29, std::int64_t{1} << 29});
}

/// Turns the memory check off, so that a call without enough memory fails when it allocates.
class Overcommit {
 public:
  Overcommit() { set_overcommit(true); }
  ~Overcommit() { set_overcommit(false); }
  Overcommit(const Overcommit&) = delete;
  Overcommit& operator=(const Overcommit&) = delete;
};

TEST(Donation, RefusedCallsLeaveAllArraysAsTheyWere) {
  const auto f =
      jit([](State s, Array x, Array y) { return next(s, x * y); }, {.donate_argnums = {0, 1, 2}});
  const State state = make_state();
  const Array x = array({1.F, 1.F});
  const Mistake mistake = mistake_of([&] { f(state, x, x); });
  EXPECT_EQ(mistake.what, "an array was donated twice in one call");
  EXPECT_EQ(mistake.found, "arguments 1 and 2");
  expect_whole(state);
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 1}));
  // The arrays can still be donated.
  EXPECT_EQ(f(state, x, x + 0).weights.to_vector<float>(), (Floats{2, 3}));
  EXPECT_TRUE(state.weights.is_deleted());
}

TEST(Donation, ArraysThatWereGivenAwayBeforeDoNotTakeOthersWithThem) {
  const auto f = jit([](State s, Array x) { return next(s, x); }, {.donate_argnums = {0, 1}});
  const Array x = array({1.F, 1.F});
  f(make_state(), x);
  const State state = make_state();
  EXPECT_EQ(mistake_of([&] { f(state, x); }).what,
            "this array was donated and no longer has values");
  expect_whole(state);
}

TEST(Donation, ArraysAreKeptWhenThereIsNoMemory) {
  const auto f = jit([](State s, Array x) { return std::pair(next(s, x), too_large(x)); },
                     {.donate_argnums = {0}});
  const State state = make_state();
  const Array x = array({1.F, 1.F});
  EXPECT_EQ(mistake_of([&] { f(state, x); }).what,
            "the program needs more memory than this machine has left");
  expect_whole(state);
  const Overcommit scope;
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THROW(f(state, x), RuntimeFault);
    expect_whole(state);
  }
  const auto g = jit(next, {.donate_argnums = {0}});
  EXPECT_EQ(g(state, x).weights.to_vector<float>(), (Floats{2, 3}));
  EXPECT_TRUE(state.weights.is_deleted());
}

TEST(Donation, ArraysKeepTheirPlacesWhenThereIsNoMemory) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const Shardings split = NamedSharding(mesh, P{"data"});
  Shardings shardings;
  shardings.set("weights", NamedSharding(mesh, P{"data"}));
  shardings.set("bias", NamedSharding(mesh, P{}));
  shardings.set("step", NamedSharding(mesh, P{}));
  const auto f = jit([](State s, Array x) { return std::pair(next(s, x), too_large(x)); },
                     {.in_shardings = {shardings, split}, .donate_argnums = {0}});
  const State state = make_state();  // on no mesh, so the call moves or shares its tiles
  const Overcommit scope;
  const NamedSharding before = state.weights.sharding();
  EXPECT_THROW(f(state, array({1.F, 1.F})), RuntimeFault);
  expect_whole(state);
  EXPECT_EQ(state.weights.sharding(), before);
}

TEST(Donation, TheReferenceEngineGivesAwayToo) {
  set_engine("reference");
  const auto f = jit(next, {.donate_argnums = {0}});
  const State state = make_state();
  const State after = f(state, array({1.F, 1.F}));
  set_engine("host");
  EXPECT_EQ(after.weights.to_vector<float>(), (Floats{2, 3}));
  EXPECT_TRUE(state.bias.is_deleted());
}

TEST(Donation, OtherHoldersKeepTheirValues) {
  const auto f = jit(next, {.donate_argnums = {0}});
  const State state = make_state();
  const Param label(state.weights, "weights");  // a separate array with the same values
  const Array tile = state.weights.local_data(0);
  EXPECT_EQ(f(state, array({1.F, 1.F})).weights.to_vector<float>(), (Floats{2, 3}));
  EXPECT_EQ(label.to_vector<float>(), (Floats{1, 2}));
  EXPECT_EQ(tile.to_vector<float>(), (Floats{1, 2}));
}

/// A program of one task that overwrites its first input and then fails.
run::Executable failing(bool is_fault) {
  run::testing::Graph graph;
  graph.task(
      [is_fault](run::testing::Buffers buffers, int) {
        run::testing::number(buffers[0]) = -1;
        if (is_fault) throw RuntimeFault("the machine failed");
        throw InternalError("a rule");
      },
      {graph.output(0)});
  for (const std::int64_t bytes : {8, 8, 4}) {
    graph.executable.inputs.push_back({.tile_bytes = {bytes}, .is_donated = true});
  }
  graph.executable.outputs.push_back({.tile_bytes = {8}, .alias = 0});
  return graph.executable;
}

template <typename Failure>
std::string failure_of(const State& state, bool is_fault) {
  const auto arguments =
      detail::walked(std::tuple<const State&>(state), detail::Walk::Want::structure);
  detail::Program program;
  program.is_donated = {true, true, true};
  program.paths = std::make_shared<const std::vector<std::string>>(
      std::vector<std::string>{"0/weights", "0/bias", "0/step"});
  detail::Donation donation(program, arguments, Span());
  std::vector<run::Tiles> inputs;
  for (const Array& leaf : tree_leaves(state)) {
    inputs.push_back(detail::tiles_of(leaf, Span()).tiles);
  }
  try {
    const auto executable = std::make_shared<const run::Executable>(failing(is_fault));
    donation.run(run::HostRunnable(executable), std::move(inputs));
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "nothing was thrown";
}

TEST(Donation, FaultsSayWhatIsLost) {
  const State state = make_state();
  EXPECT_EQ(failure_of<RuntimeFault>(state, true),
            "the machine failed; these arguments were donated to the call and are lost: 0/weights, "
            "0/bias, 0/step");
  const Mistake mistake = mistake_of([&] { state.bias.to_vector<float>(); });
  EXPECT_EQ(mistake.what, "this array was donated and no longer has values");
  EXPECT_NE(mistake.found.find("where the call failed while it ran"), std::string::npos);
  EXPECT_EQ(mistake.cure, "restore it from a checkpoint or create it again");
}

TEST(Donation, OtherFailuresLoseArraysToo) {
  const State state = make_state();
  EXPECT_NE(failure_of<InternalError>(state, false).find("a rule"), std::string::npos);
  for (const Array& leaf : tree_leaves(state)) EXPECT_TRUE(leaf.is_deleted());
}

}  // namespace
}  // namespace tessera
