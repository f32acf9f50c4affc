// Compares plans with a search that is as simple as possible, and therefore slow.
#include "partition/reshard/search_reshard.h"

#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

#include "base/sanitized.h"
#include "partition/project.h"
#include "partition/reshard/plan_reshard.h"

namespace tessera::partition {
namespace {

using Lists = std::vector<std::vector<int>>;  // atoms per dimension, then the partial ones

/// Dijkstra over all layouts, from the definitions of the collectives.
class SlowSearch {
 public:
  SlowSearch(const std::vector<Atom>& atoms, Type type, Lists from, Lists to)
      : atoms_(atoms), type_(std::move(type)), from_(std::move(from)), to_(std::move(to)) {
    bytes_ = static_cast<double>(size_bytes(type_));
  }

  /// The lowest price if it is below `bound`, otherwise `bound`.
  double least(double bound) {
    std::map<Lists, double> price{{from_, 0}};
    std::set<std::pair<double, Lists>> open{{0, from_}};
    while (!open.empty()) {
      const auto [cost, at] = *open.begin();
      open.erase(open.begin());
      if (at == to_) return cost;
      visit(at, bound - cost, [&](const Lists& next, double step) {
        if (cost + step >= bound || !fits(next)) return;
        const auto [place, is_new] = price.try_emplace(next, cost + step);
        if (!is_new) {
          if (place->second <= cost + step) return;
          open.erase({place->second, next});
          place->second = cost + step;
        }
        open.emplace(cost + step, next);
      });
    }
    return bound;
  }

 private:
  using Visit = std::function<void(const Lists&, double)>;

  double count(const std::vector<int>& list) const {
    double product = 1;
    for (int atom : list)
      product *= static_cast<double>(atoms_[static_cast<std::size_t>(atom)].size);
    return product;
  }
  double held(const Lists& lists) const {
    double local = bytes_;
    for (std::size_t dim = 0; dim + 1 < lists.size(); ++dim) local /= count(lists[dim]);
    return local;
  }
  bool fits(const Lists& lists) const {
    for (std::size_t dim = 0; dim < type_.shape.size(); ++dim) {
      const double most =
          std::max({static_cast<double>(type_.shape[dim]), count(from_[dim]), count(to_[dim])});
      if (count(lists[dim]) > most) return false;
    }
    return true;
  }

  void visit(const Lists& at, double bound, const Visit& go) const {
    if (!at.back().empty()) return reduce(at, go);
    std::vector<bool> is_used(atoms_.size(), false);
    for (const std::vector<int>& list : at) {
      for (int atom : list) is_used[static_cast<std::size_t>(atom)] = true;
    }
    for (std::size_t dim = 0; dim + 1 < at.size(); ++dim) {
      for (std::size_t atom = 0; atom < atoms_.size(); ++atom) {
        if (is_used[atom]) continue;
        Lists next = at;
        next[dim].push_back(static_cast<int>(atom));
        go(next, kSliceLatency);
      }
      exchange(at, dim, go);
    }
    gather(at, at, 0, go);
    if (at.size() > 1 && 512 + held(at) < bound) permute(at, go);
  }

  void reduce(const Lists& at, const Visit& go) const {
    const std::size_t size = at.back().size();
    for (std::size_t kept = 0; kept < size; ++kept) {
      const std::vector<int> taken(at.back().begin() + static_cast<std::ptrdiff_t>(kept),
                                   at.back().end());
      const double n = count(taken);
      const auto whole = static_cast<std::int64_t>(n);
      if (kept > 0 && (whole & (whole - 1)) != 0) continue;
      Lists next = at;
      next.back().resize(kept);
      const double part = held(at) * (n - 1) / n;
      go(next, 512 + 2 * part);
      for (std::size_t dim = 0; dim + 1 < at.size(); ++dim) {
        Lists scattered = next;
        scattered[dim].insert(scattered[dim].end(), taken.begin(), taken.end());
        go(scattered, 512 + part);
      }
    }
  }

  void exchange(const Lists& at, std::size_t dim, const Visit& go) const {
    for (std::size_t kept = 0; kept < at[dim].size(); ++kept) {
      for (std::size_t target = 0; target + 1 < at.size(); ++target) {
        if (target == dim) continue;
        Lists next = at;
        const auto first = next[dim].begin() + static_cast<std::ptrdiff_t>(kept);
        const std::vector<int> moved(first, next[dim].end());
        next[dim].erase(first, next[dim].end());
        next[target].insert(next[target].end(), moved.begin(), moved.end());
        go(next, 512 + held(at) * (1 - 1 / count(moved)));
      }
    }
  }

  void gather(const Lists& at, const Lists& so_far, std::size_t dim, const Visit& go) const {
    if (dim + 1 == at.size()) {
      if (so_far != at) go(so_far, 512 + held(so_far) - held(at));
      return;
    }
    for (std::size_t kept = 0; kept <= at[dim].size(); ++kept) {
      Lists next = so_far;
      next[dim].resize(kept);
      gather(at, next, dim + 1, go);
    }
  }

  void permute(const Lists& at, const Visit& go) const {
    Lists next(at.size());
    std::vector<bool> is_used(atoms_.size(), false);
    std::function<void(std::size_t)> fill = [&](std::size_t dim) {
      if (dim + 1 == at.size()) {
        if (next != at) go(next, 512 + held(at));
        return;
      }
      if (count(next[dim]) == count(at[dim])) return fill(dim + 1);
      for (std::size_t atom = 0; atom < atoms_.size(); ++atom) {
        if (is_used[atom]) continue;
        is_used[atom] = true;
        next[dim].push_back(static_cast<int>(atom));
        if (count(next[dim]) <= count(at[dim])) fill(dim);
        next[dim].pop_back();
        is_used[atom] = false;
      }
    };
    fill(0);
  }

  const std::vector<Atom>& atoms_;
  Type type_;
  Lists from_, to_;
  double bytes_;
};

Lists lists_of(const Sharding& sharding) {
  Lists lists;
  for (const AtomList& list : sharding.dims) lists.emplace_back(list.begin(), list.end());
  lists.emplace_back(sharding.partial.begin(), sharding.partial.end());
  return lists;
}

/// Random requests on one mesh.
class Requests {
 public:
  Requests(const Mesh& mesh, std::uint32_t seed) : mesh_(mesh), random_(seed) {}

  Type type() {
    constexpr std::int64_t kSizes[] = {1, 3, 4, 6, 8, 30, 64, 1000, 4096};
    Type type{DType::f32, {}};
    const int rank = 1 + below(3);
    for (int i = 0; i < rank; ++i) type.shape.push_back(kSizes[below(std::size(kSizes))]);
    return type;
  }
  Sharding sharding(const Type& type, bool may_be_partial) {
    Sharding sharding = replicated_sharding(type.rank());
    AtomList atoms;
    for (std::size_t i = 0; i < atoms_of(mesh_).size(); ++i)
      atoms.push_back(static_cast<AtomId>(i));
    std::shuffle(atoms.begin(), atoms.end(), random_);
    const bool is_partial = may_be_partial && below(3) == 0;
    const int spare = below(2);  // every atom is used, or about half of them
    for (AtomId atom : atoms) {
      if (spare == 1 && below(2) == 0) continue;
      const auto dim = static_cast<std::size_t>(below(static_cast<std::size_t>(type.rank())));
      (is_partial && below(2) == 0 ? sharding.partial : sharding.dims[dim]).push_back(atom);
    }
    return sharding;
  }

 private:
  int below(std::size_t end) { return static_cast<int>(random_() % end); }

  Mesh mesh_;
  std::mt19937 random_;
};

void expect_legal(ReshardPlanner& planner, const Sharding& from, const Sharding& to,
                  const ReshardPlan& plan) {
  const Sharding* state = &from;
  for (const ReshardStep& step : plan.steps) {
    ASSERT_TRUE(is_allowed(step.kind, *state, step.to, planner.atoms(), false));
    state = &step.to;
  }
  ASSERT_EQ(*state, to);
}

/// A request to a planner, and its answer.
struct Answer {
  ReshardPlanner& planner;
  const Type& type;
  const Sharding& from;
  const Sharding& to;
  const ReshardPlan& plan;
};

/// Plans random requests, each with a new planner, and checks that the plans are legal.
void for_each_plan(const Mesh& mesh, std::uint32_t seed, int count,
                   const std::function<void(const Answer&)>& check) {
  Requests requests(mesh, seed);
  for (int i = 0; i < count; ++i) {
    ReshardPlanner planner(mesh);
    const Type type = requests.type();
    const Sharding from = requests.sharding(type, true);
    const Sharding to = requests.sharding(type, false);
    SCOPED_TRACE(to_string(type) + " " + to_string(mesh, from) + " -> " + to_string(mesh, to));
    const ReshardPlan& plan = planner.plan(type, from, to);
    expect_legal(planner, from, to, plan);
    check({planner, type, from, to, plan});
    if (::testing::Test::HasFatalFailure()) return;
  }
}

struct MeshAndCount {
  const char* mesh;
  int count;
};
void PrintTo(const MeshAndCount& c, std::ostream* out) { *out << c.mesh; }

// The slow search takes minutes for six atoms in builds with sanitizers.
constexpr int kLarge = kIsSanitized ? 2 : 25;

class IsCheapest : public ::testing::TestWithParam<MeshAndCount> {};

TEST_P(IsCheapest, AmongAllPlans) {
  for_each_plan(parse_mesh(GetParam().mesh), 7, GetParam().count, [](const Answer& answer) {
    const auto& [planner, type, from, to, plan] = answer;
    EXPECT_EQ(planner.least_cost(type, from, to), plan.cost);
    // Just above the price of the plan: the slow search must find neither less nor more.
    const double bound = plan.cost * (1 + 1e-6) + 1e-3;
    SlowSearch slow(planner.atoms(), type, lists_of(from), lists_of(to));
    const double least = slow.least(bound);
    ASSERT_LT(least, bound);
    ASSERT_NEAR(least, plan.cost, 1e-6 * plan.cost);
  });
}

INSTANTIATE_TEST_SUITE_P(
    SearchReshard, IsCheapest,
    ::testing::Values(MeshAndCount{"a=2,b=2", 300}, MeshAndCount{"a=4,b=2", 300},
                      MeshAndCount{"a=2,b=3", 300}, MeshAndCount{"a=2,b=2,c=2", 300},
                      MeshAndCount{"a=12,b=2", 60}, MeshAndCount{"a=8,b=8", kLarge},
                      MeshAndCount{"a=4,b=4,c=4", kLarge}));

/// Beyond the limit of the exact search, plans are legal, never more expensive than gathering
/// everything and slicing, and within the bound that the planner reports.
TEST(SearchReshard, KeepsItsBoundOnLargeMeshes) {
  for_each_plan(parse_mesh("a=8,b=8,c=4"), 11, 40, [](const Answer& answer) {
    const auto& [planner, type, from, to, plan] = answer;
    EXPECT_LE(planner.least_cost(type, from, to), plan.cost);
    const Sharding whole = replicated_sharding(type.rank());
    const double gathered = planner.plan(type, from, whole).cost;
    const double sliced = planner.plan(type, whole, to).cost;
    EXPECT_LE(plan.cost, gathered + sliced);
  });
}

/// Swapping the axes of a matrix moves one tile per device; gathering would receive 63.
TEST(SearchReshard, SwapsAxesWithoutGathering) {
  const Mesh mesh = make_mesh({{"data", 8}, {"model", 8}});
  ReshardPlanner planner(mesh);
  const Type type{DType::f32, {4096, 4096}};
  const Sharding from{.dims = {{0, 1, 2}, {3, 4, 5}}, .partial = {}};
  const Sharding to{.dims = {{3, 4, 5}, {0, 1, 2}}, .partial = {}};
  const ReshardPlan& plan = planner.plan(type, from, to);
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].kind, MoveKind::collective_permute);
  EXPECT_EQ(plan.bytes, static_cast<double>(size_bytes(type)) / 64);
}

/// Latencies are weighed against the size of the array at hand: a large array does not get the plan
/// of a small one that was planned before.
TEST(SearchReshard, PlansEverySizeForItself) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}, {"c", 2}});
  ReshardPlanner shared(mesh);
  Requests requests(mesh, 3);
  for (int i = 0; i < 40; ++i) {
    const Sharding from = requests.sharding({DType::f32, {8, 8}}, false);
    const Sharding to = requests.sharding({DType::f32, {8, 8}}, false);
    for (std::int64_t size : {8, 64, 512, 4096}) {
      const Type type{DType::f32, {size, size}};
      EXPECT_EQ(shared.plan(type, from, to).cost, ReshardPlanner(mesh).plan(type, from, to).cost);
    }
  }
}

}  // namespace
}  // namespace tessera::partition
