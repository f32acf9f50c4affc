// Compares changes of sharding on large meshes with plans that slice, permute once and gather.
#include "partition/reshard/direct_reshard.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>

#include "partition/project.h"
#include "partition/reshard/plan_reshard.h"

namespace tessera::partition {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The lowest price of a plan that slices, permutes and gathers, computed from only the numbers of
/// shards.
class SlicePermuteGather {
 public:
  SlicePermuteGather(const Mesh& mesh, const Type& type, const Sharding& from, const Sharding& to)
      : num_devices_(mesh.num_devices()), type_(type) {
    for (std::size_t dim = 0; dim < type.shape.size(); ++dim) {
      from_.push_back(count(atoms_of(mesh), from.dims[dim]));
      to_.push_back(count(atoms_of(mesh), to.dims[dim]));
    }
  }

  double least() {
    visit(0, 1);
    return least_;
  }

 private:
  static std::int64_t count(const std::vector<Atom>& atoms, const AtomList& list) {
    std::int64_t product = 1;
    for (AtomId atom : list) product *= atoms[atom].size;
    return product;
  }

  /// Slicing can give any numbers of shards whose product divides the number of devices.
  void visit(std::size_t dim, std::int64_t shards) {
    if (dim == from_.size()) {
      least_ = std::min(least_, price(shards));
      return;
    }
    const std::int64_t step = std::lcm(from_[dim], to_[dim]);
    const std::int64_t most = std::max({type_.shape[dim], from_[dim], to_[dim]});
    for (std::int64_t n = step; n <= most && shards * n <= num_devices_; n += step) {
      if (num_devices_ % (shards * n) == 0) visit(dim + 1, shards * n);
    }
  }

  double price(std::int64_t shards) const {
    const auto bytes = static_cast<double>(size_bytes(type_));
    const auto wanted =
        std::accumulate(to_.begin(), to_.end(), std::int64_t{1}, std::multiplies<>());
    const auto start =
        std::accumulate(from_.begin(), from_.end(), std::int64_t{1}, std::multiplies<>());
    double price = 512 + bytes / static_cast<double>(shards);
    for (std::int64_t rest = shards / start, p = 2; rest > 1;) {
      if (rest % p == 0) {
        rest /= p;
        price += 0.25;
      } else {
        ++p;
      }
    }
    if (shards == wanted) return price;
    return price + 512 + bytes / static_cast<double>(wanted) - bytes / static_cast<double>(shards);
  }

  std::int64_t num_devices_;
  const Type& type_;
  std::vector<std::int64_t> from_, to_;  // shards per dimension
  double least_ = kInfinity;
};

class LargeMesh : public ::testing::TestWithParam<const char*> {
 protected:
  Type type() {
    constexpr std::int64_t kSizes[] = {64, 1000, 4096, 50257};
    Type type{DType::f32, {}};
    const std::size_t rank = 1 + below(3);
    for (std::size_t i = 0; i < rank; ++i) type.shape.push_back(kSizes[below(std::size(kSizes))]);
    return type;
  }
  /// A random sharding that places whole axes on dimensions, or single atoms.
  Sharding sharding(const Type& type, bool is_by_axis) {
    std::vector<AtomList> pieces;
    for (std::size_t i = 0; i < atoms_.size(); ++i) {
      const bool is_same = is_by_axis && i > 0 && atoms_[i].axis == atoms_[i - 1].axis;
      if (!is_same) pieces.emplace_back();
      pieces.back().push_back(static_cast<AtomId>(i));
    }
    std::shuffle(pieces.begin(), pieces.end(), random_);
    Sharding sharding = replicated_sharding(type.rank());
    const bool has_spare = below(3) > 0;
    for (const AtomList& piece : pieces) {
      if (has_spare && below(2) == 0) continue;
      const std::size_t dim = below(type.shape.size());
      AtomList& list = sharding.dims[dim];
      list.insert(list.end(), piece.begin(), piece.end());
      if (num_shards(atoms_, list) > type.shape[dim]) list.resize(list.size() - piece.size());
    }
    return sharding;
  }

  const Mesh mesh_ = parse_mesh(GetParam());
  const std::vector<Atom> atoms_ = atoms_of(mesh_);

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  std::mt19937 random_{29};
};

TEST_P(LargeMesh, IsNeverDearerThanToSlicePermuteAndGather) {
  int num_compared = 0;
  for (int i = 0; i < 50; ++i) {
    const Type type = this->type();
    const bool is_by_axis = i % 2 == 0;
    const Sharding from = sharding(type, is_by_axis);
    const Sharding to = sharding(type, is_by_axis);
    SCOPED_TRACE(to_string(type) + " " + to_string(mesh_, from) + " -> " + to_string(mesh_, to));
    ReshardPlanner planner(mesh_);
    const ReshardPlan& plan = planner.plan(type, from, to);
    const Sharding* state = &from;
    for (const ReshardStep& step : plan.steps) {
      ASSERT_TRUE(is_allowed(step.kind, *state, step.to, planner.atoms(), false));
      state = &step.to;
    }
    ASSERT_EQ(*state, to);
    const double bound = SlicePermuteGather(mesh_, type, from, to).least();
    num_compared += bound < kInfinity ? 1 : 0;
    ASSERT_LE(plan.cost, bound * (1 + 1e-9));
  }
  EXPECT_GE(num_compared, 10);
}

INSTANTIATE_TEST_SUITE_P(PlanReshard, LargeMesh,
                         ::testing::Values("a=128", "x=4,y=8,z=8", "a=16,b=16", "a=512",
                                           "a=10,b=10,c=10", "a=32,b=32", "a=16,b=8,c=8",
                                           "a=24,b=48", "a=64,b=64", "a=8,b=8,c=8,d=8"));

TEST(DirectReshard, SlicesBeforeItPermutes) {
  const Mesh mesh = parse_mesh("x=4,y=8,z=8");
  ReshardPlanner planner(mesh);
  const Sharding from{.dims = {{}, {0, 1}}, .partial = {}};
  const Sharding to{.dims = {{}, {2, 3, 4, 5, 6, 7, 0, 1}}, .partial = {}};
  const ReshardPlan& plan = planner.plan({DType::f32, {4096, 4096}}, from, to);
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(plan.steps[0].kind, MoveKind::all_slice);
  EXPECT_EQ(plan.steps[1].kind, MoveKind::collective_permute);
  EXPECT_EQ(plan.bytes, 262144);
}

/// Atoms that the target has elsewhere are moved there, not gathered.
TEST(DirectReshard, MovesWhatIsInTheWay) {
  const Mesh mesh = parse_mesh("a=8,b=8,c=8,d=8");
  ReshardPlanner planner(mesh);
  const Sharding from{.dims = {{0, 3, 1, 4}, {}, {6, 9}}, .partial = {}};
  const Sharding to{.dims = {{7, 5}, {1, 9, 8, 10}, {4, 6, 11, 0, 3, 2}}, .partial = {}};
  const ReshardPlan& plan = planner.plan({DType::f32, {65536, 64, 64}}, from, to);
  // A slice, then an all_to_all of four shards and a permute in either order.
  ASSERT_EQ(plan.steps.size(), 3U);
  EXPECT_EQ(plan.steps[0].kind, MoveKind::all_slice);
  EXPECT_EQ(plan.bytes, 262144 * 1.75);
}

/// A partial sum is resolved on the way.
TEST(DirectReshard, ResolvesFirst) {
  const Mesh mesh = parse_mesh("a=16,b=16");
  const std::vector<Atom> atoms = atoms_of(mesh);
  const Shape shape{4096, 4096};
  const Sharding from{.dims = {{0, 1, 2, 3}, {}}, .partial = {4, 5, 6, 7}};
  const Sharding to{.dims = {{}, {3, 2, 1, 0, 4, 5, 6, 7}}, .partial = {}};
  const std::vector<ReshardStep> steps = direct_reshard({.atoms = atoms,
                                                         .shape = shape,
                                                         .bytes = 67108864,
                                                         .from = from,
                                                         .to = to,
                                                         .is_order_free = false},
                                                        kInfinity);
  ASSERT_FALSE(steps.empty());
  const Sharding* state = &from;
  for (const ReshardStep& step : steps) {
    ASSERT_TRUE(is_allowed(step.kind, *state, step.to, atoms, false));
    state = &step.to;
  }
  EXPECT_EQ(*state, to);
  EXPECT_EQ(steps[0].kind, MoveKind::reduce_scatter);
}

}  // namespace
}  // namespace tessera::partition
