#include "partition/reshard/plan_reshard.h"

#include <gtest/gtest.h>
#include <limits>
#include <queue>

#include "base/sanitized.h"
#include "partition/project.h"

namespace tessera::partition {
namespace {

constexpr MoveKind kKinds[] = {MoveKind::all_slice,      MoveKind::all_gather,
                               MoveKind::all_to_all,     MoveKind::collective_permute,
                               MoveKind::reduce_scatter, MoveKind::all_reduce};

/// All ways to place the atoms of a mesh on the lists of a sharding (the last one is `partial`).
std::vector<Sharding> all_shardings(std::size_t num_atoms, std::size_t rank) {
  std::vector<Sharding> result{replicated_sharding(static_cast<std::int64_t>(rank))};
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t atom = 0; atom < num_atoms; ++atom) {
      if (uses_atom(result[i], static_cast<AtomId>(atom))) continue;
      for (std::size_t list = 0; list <= rank; ++list) {
        Sharding next = result[i];
        (list < rank ? next.dims[list] : next.partial).push_back(static_cast<AtomId>(atom));
        if (std::find(result.begin(), result.end(), next) == result.end()) result.push_back(next);
      }
    }
  }
  return result;
}

/// The fewest bytes from `source` to every sharding, computed only from the definition of the
/// collectives.
std::vector<double> least_bytes(
    const std::vector<Sharding>& all, std::size_t source, const std::vector<Atom>& atoms,
    double bytes, const std::vector<std::vector<std::pair<std::size_t, MoveKind>>>& moves) {
  std::vector<double> least(all.size(), std::numeric_limits<double>::infinity());
  using Entry = std::pair<double, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  least[source] = 0;
  queue.emplace(0, source);
  while (!queue.empty()) {
    const auto [cost, at] = queue.top();
    queue.pop();
    if (cost > least[at]) continue;
    for (const auto& [next, kind] : moves[at]) {
      const double reached = cost + bytes_received(kind, all[at], all[next], atoms, bytes);
      if (reached >= least[next]) continue;
      least[next] = reached;
      queue.emplace(reached, next);
    }
  }
  return least;
}

void expect_optimal(const Mesh& mesh, const Shape& shape) {
  const Type type{DType::f32, shape};
  const auto bytes = static_cast<double>(size_bytes(type));
  ReshardPlanner planner(mesh);
  const std::vector<Atom>& atoms = planner.atoms();
  const std::vector<Sharding> all = all_shardings(atoms.size(), shape.size());
  std::vector<std::vector<std::pair<std::size_t, MoveKind>>> moves(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < all.size(); ++j) {
      for (MoveKind kind : kKinds) {
        if (is_allowed(kind, all[i], all[j], atoms, false)) moves[i].emplace_back(j, kind);
      }
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::vector<double> least = least_bytes(all, i, atoms, bytes, moves);
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (!all[j].partial.empty()) continue;
      const ReshardPlan& plan = planner.plan(type, all[i], all[j]);
      ASSERT_NEAR(plan.bytes, least[j], 1e-6 * bytes)
          << to_string(mesh, all[i]) << " -> " << to_string(mesh, all[j]);
      const Sharding* state = &all[i];
      for (const ReshardStep& step : plan.steps) {
        ASSERT_TRUE(is_allowed(step.kind, *state, step.to, atoms, false));
        state = &step.to;
      }
      ASSERT_EQ(*state, all[j]);
    }
  }
}

TEST(PlanReshard, IsOptimalOnSmallMeshes) {
  expect_optimal(make_mesh({{"a", 2}, {"b", 4}}), {4096, 4096});
  expect_optimal(make_mesh({{"a", 4}}), {1024, 512, 16});
  expect_optimal(make_mesh({{"a", 8}}), {1024, 512});
  expect_optimal(make_mesh({{"a", 6}}), {4096, 4097});
  expect_optimal(make_mesh({{"a", 3}}), {1000, 50, 77});
  if (!kIsSanitized) expect_optimal(make_mesh({{"a", 2}, {"b", 6}}), {4096, 4096});
}

TEST(PlanReshard, PrefersTwoAllToAllsToAPermute) {
  const Mesh mesh = make_mesh({{"x", 2}, {"y", 2}});
  const Type type{DType::f32, {1024, 1024}};
  ReshardPlanner planner(mesh);
  const ReshardPlan& plan = planner.plan(type, {.dims = {{}, {0, 1}}, .partial = {}},
                                         {.dims = {{1, 0}, {}}, .partial = {}});
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(plan.steps[0].kind, MoveKind::all_to_all);
  EXPECT_EQ(plan.steps[1].kind, MoveKind::all_to_all);
  EXPECT_DOUBLE_EQ(plan.bytes, 0.25 * static_cast<double>(size_bytes(type)));
}

TEST(PlanReshard, ResolvesMinorPartialAtomsFirst) {
  const Mesh mesh = make_mesh({{"x", 2}, {"y", 3}});
  const std::vector<Atom> atoms = atoms_of(mesh);
  // A group of three is not a subtree of six in a tree of powers of two.
  EXPECT_FALSE(may_resolve({0, 1}, 1, atoms, false));
  EXPECT_TRUE(may_resolve({0, 1}, 1, atoms, true));
  EXPECT_TRUE(may_resolve({1, 0}, 1, atoms, false));
  EXPECT_TRUE(may_resolve({0, 1}, 2, atoms, false));
  ReshardPlanner planner(make_mesh({{"x", 2}, {"y", 2}}));
  const ReshardPlan& plan =
      planner.plan({DType::f32, {1024, 1024}}, {.dims = {{}, {}}, .partial = {0, 1}},
                   {.dims = {{0}, {1}}, .partial = {}});
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(plan.steps[0].to, (Sharding{.dims = {{}, {1}}, .partial = {0}}));
  EXPECT_EQ(plan.steps[1].to, (Sharding{.dims = {{0}, {1}}, .partial = {}}));
}

TEST(PlanReshard, FallsBackBeyondTheLimit) {
  const Mesh mesh = make_mesh({{"a", 8}, {"b", 8}, {"c", 4}});
  ReshardPlanner planner(mesh, {.max_states = 1});
  const Sharding from{.dims = {{3, 4}, {0, 1, 2}, {}}, .partial = {6, 7}};
  const Sharding to{.dims = {{2, 1, 0, 6}, {5}, {3, 4}}, .partial = {}};
  const ReshardPlan& plan = planner.plan({DType::f32, {256, 256, 256}}, from, to);
  const Sharding* state = &from;
  for (const ReshardStep& step : plan.steps) {
    ASSERT_TRUE(is_allowed(step.kind, *state, step.to, planner.atoms(), false));
    state = &step.to;
  }
  EXPECT_EQ(*state, to);
}

}  // namespace
}  // namespace tessera::partition
