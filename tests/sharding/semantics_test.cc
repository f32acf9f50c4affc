// Meshes, specs and placement behave as JAX users expect. Compared with values of JAX 0.10.2 on
// eight devices (tests/peers/golden/jax_semantics.json).
#include <gtest/gtest.h>
#include <set>

#include <tessera/tessera.h>

#include "tests/errors/grid.h"
#include "tests/peers/golden.h"

namespace tessera {
namespace {

using nlohmann::json;

const json& golden(const std::string& name) {
  static const json all = read_golden("jax_semantics.json");
  return all.at(name);
}

/// 0, 1, 2, ... in the shape of the golden arrays.
Array numbers() { return reshape(arange(128, DType::f32), {8, 16}); }
Array placed(const P& spec) { return device_put(numbers(), NamedSharding(grid(), spec)); }

/// Extracts `P(...)` from `NamedSharding(mesh=..., spec=P(...), memory_kind=device)`.
std::string spec_in(const std::string& repr) {
  const std::size_t begin = repr.rfind("spec=") + 5;
  return repr.substr(begin, repr.rfind(", memory_kind") - begin);
}

std::string spec_of(const Array& x) { return to_string(x.sharding().spec); }

/// Python's form of an index, `(slice(0, 4, None), slice(None, None, None))`. Whole dimensions have
/// no limits.
std::string python_index(const std::vector<IndexRange>& index, const Shape& shape) {
  std::string text = "(";
  for (std::size_t dim = 0; dim < index.size(); ++dim) {
    const bool is_whole = index[dim] == IndexRange{0, shape[dim]};
    text += dim > 0 ? ", " : "";
    text += is_whole ? "slice(None, None, None)"
                     : "slice(" + std::to_string(index[dim].start) + ", " +
                           std::to_string(index[dim].limit) + ", None)";
  }
  return text + ")";
}

// --- meshes and specs

TEST(Semantics, MeshTellsNamesAndSizes) {
  const json& want = golden("Mesh repr");
  std::string names;
  std::vector<std::int64_t> sizes;
  for (const MeshAxis& axis : grid().axes()) {
    names += (names.empty() ? "('" : ", '") + axis.name + "'";
    sizes.push_back(axis.size);
  }
  EXPECT_EQ(sizes, want[4].get<std::vector<std::int64_t>>());
  EXPECT_EQ(names + ")", want[3].get<std::string>());
  EXPECT_EQ(grid().num_devices(), want[2].get<std::int64_t>());
}

TEST(Semantics, MeshesAreEqualByDevicesAndNames) {
  const json& want = golden("Mesh equality/hash by devices+names+types");
  const Mesh same = make_mesh({{"data", 2}, {"model", 4}}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(grid() == same, want[0].get<bool>());
  EXPECT_EQ(grid() == make_mesh({{"a", 2}, {"b", 4}}), want[1].get<bool>());
  EXPECT_EQ(grid() == make_mesh({{"data", 2}, {"model", 4}}, {7, 6, 5, 4, 3, 2, 1, 0}),
            want[1].get<bool>());
}

TEST(Semantics, DeviceOrders) {
  const auto rows = [](const json& nested) {
    std::vector<std::int64_t> ids;
    const json flat = nested.flatten();
    for (const auto& [path, id] : flat.items()) ids.push_back(id);
    return ids;
  };
  EXPECT_EQ(grid().device_ids(), rows(golden("make_mesh device order")));
  const json& orders = golden("create_device_mesh orders");
  for (const Shape& shape :
       {Shape{8}, Shape{2, 4}, Shape{4, 2}, Shape{2, 2, 2}, Shape{1, 8}, Shape{8, 1}}) {
    std::string name;
    for (std::int64_t size : shape) name += (name.empty() ? "(" : ", ") + std::to_string(size);
    name += shape.size() == 1 ? ",)" : ")";
    EXPECT_EQ(create_device_mesh(shape).ids, rows(orders.at(name))) << name;
  }
  EXPECT_EQ(orders.size(), 6U);
}

TEST(Semantics, SpecsPrintAndCompare) {
  const json& want = golden("P repr/eq");
  EXPECT_EQ(to_string(P{"a", none}), want[0].get<std::string>());
  EXPECT_EQ(to_string(P{}), want[1].get<std::string>());
  EXPECT_EQ(P{"a"} == (P{"a", none}), want[2].get<bool>());
  EXPECT_EQ(to_string(P{{"a", "b"}, none}), want[3].get<std::string>());
  EXPECT_EQ(P(std::vector<SpecEntry>{SpecEntry{"a"}}) == P{"a"}, want[4].get<bool>());
  EXPECT_EQ(to_string(P{unconstrained}), want[5].get<std::string>());
  const P nested{"a", {"b", "c"}};
  EXPECT_EQ(nested.entries().size(), want[6].get<std::size_t>());
  EXPECT_EQ(nested.entries()[1].axes, want[7][1].get<std::vector<std::string>>());
}

TEST(Semantics, ShardingsCompare) {
  const json& want = golden("NamedSharding equality P(a) vs P(a,None)");
  const NamedSharding rows(grid(), P{"data"});
  const NamedSharding same(grid(), (P{"data", none}));
  EXPECT_EQ(rows == same, want[0].get<bool>());
  EXPECT_EQ(rows.is_equivalent_to(same, 2), want[1].get<bool>());
  EXPECT_EQ(NamedSharding(grid(), P{}).is_fully_replicated(), want[2].get<bool>());
  EXPECT_EQ(rows.is_fully_replicated(), want[3].get<bool>());
  EXPECT_EQ(rows.num_devices(), want[4].get<std::int64_t>());
}

TEST(Semantics, TheMajorAxisOfATupleStepsMost) {
  const NamedSharding sharding(grid(), P{{"model", "data"}});
  const std::vector<DeviceIndices> map = sharding.devices_indices_map({8});
  EXPECT_EQ(map[4], (DeviceIndices{4, {{1, 2}}}));
  EXPECT_EQ(map[1], (DeviceIndices{1, {{2, 3}}}));
}

// --- placement

TEST(Semantics, NewArraysLiveOnNoMesh) {
  EXPECT_FALSE(golden("default sharding of a new array")[1].get<bool>());  // not committed
  EXPECT_EQ(ones({2}).sharding(), NamedSharding());
}

TEST(Semantics, UnderAMeshNewArraysAreReplicated) {
  const json& want = golden("set_mesh effects");
  const use_mesh scope(grid());
  const Array x = ones({8, 16});
  EXPECT_EQ(x.sharding().mesh, grid());
  EXPECT_EQ(spec_of(x), spec_in(want[1]));
  EXPECT_EQ(spec_of(device_put(x, P{"data"})), want[2].get<std::string>());
  auto f = jit([](Array v) { return with_sharding_constraint(v, P{"data"}); });
  EXPECT_EQ(spec_of(f(x)), want[3].get<std::string>());
}

TEST(Semantics, DevicePut) {
  const json& want = golden("device_put");
  const Array x = placed(P{"data", "model"});
  EXPECT_EQ(spec_of(x), spec_in(want[0]));
  const Shard shard = x.addressable_shards().at(5);
  EXPECT_EQ(python_index(shard.index, x.shape()), want[2].get<std::string>());
  EXPECT_EQ(shard.device, want[3].get<std::int64_t>());
  EXPECT_EQ(shard.replica_id, want[4].get<std::int64_t>());
  EXPECT_EQ(shard.data.shape(), want[5].get<Shape>());
  EXPECT_TRUE(array_equal(shard.data, x.local_data(5)));
  EXPECT_EQ(x.sharding().shard_shape(x.shape()), want[5].get<Shape>());
}

TEST(Semantics, ReplicaIds) {
  const json& want = golden("replica_id for P(data)");
  const Array x = placed(P{"data"});
  const std::vector<Shard> shards = x.addressable_shards();
  ASSERT_EQ(shards.size(), want.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    EXPECT_EQ(shards[i].device, want[i][0].get<std::int64_t>());
    EXPECT_EQ(shards[i].replica_id, want[i][1].get<std::int64_t>());
    EXPECT_EQ(python_index(shards[i].index, x.shape()), want[i][2].get<std::string>());
  }
}

TEST(Semantics, ReplicasAreCountedInMeshOrder) {
  const Mesh turned = make_mesh({{"data", 2}, {"model", 2}}, {3, 2, 1, 0});
  const Array x = device_put(arange(4), NamedSharding(turned, P{"data"}));
  const std::vector<Shard> shards = x.addressable_shards();
  std::vector<std::vector<std::int64_t>> found;
  for (const Shard& shard : shards) {
    found.push_back({shard.device, shard.replica_id, shard.index[0].start});
  }
  EXPECT_EQ(found,
            (std::vector<std::vector<std::int64_t>>{{3, 0, 0}, {2, 1, 0}, {1, 0, 2}, {0, 1, 2}}));
  EXPECT_EQ(shards[2].data.to_vector<std::int32_t>(), (std::vector<std::int32_t>{2, 3}));
}

TEST(Semantics, AddressableData) {
  const json& want = golden("addressable_data(i)");
  const std::vector<Shard> shards = placed(P{"data"}).addressable_shards();
  ASSERT_EQ(shards.size(), want.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::vector<float> found = shards[i].data.to_vector<float>();
    EXPECT_EQ(std::vector<float>(found.begin(), found.begin() + 2),
              want[i].get<std::vector<float>>());
  }
}

TEST(Semantics, ShardsCoverTheArray) {
  const json& want = golden("global_shards len, nbytes");
  const Array x = placed(P{"data", "model"});
  EXPECT_EQ(x.addressable_shards().size(), want[0].get<std::size_t>());
  EXPECT_EQ(size_bytes(x.type()), want[1].get<std::int64_t>());
  EXPECT_TRUE(golden("np.asarray gathers")[0].get<bool>());
  EXPECT_EQ(x.to_vector<float>(), numbers().to_vector<float>());
}

TEST(Semantics, ArraysAreReadyAfterACall) {
  const Array x = placed(P{"data"});
  EXPECT_EQ(&x.block_until_ready(), &x);
  const auto tree = std::pair(x, std::vector<Array>{numbers()});
  EXPECT_EQ(block_until_ready(tree).first.node(), tree.first.node());
}

TEST(Semantics, EagerOpsKeepShardings) {
  const json& want = golden("eager op keeps sharding");
  const Array x = placed(P{"data", "model"});
  EXPECT_EQ(spec_of(x + 1), want[0].get<std::string>());
  EXPECT_EQ(spec_of(x * x), want[1].get<std::string>());
  EXPECT_EQ(spec_of(sum(x, {1})), want[2].get<std::string>());
  EXPECT_EQ(spec_of(sum(x, {0})), want[3].get<std::string>());
  EXPECT_EQ(spec_of(transpose(x)), want[4].get<std::string>());
}

TEST(Semantics, UpdatesKeepShardings) {
  const std::string want = golden("jax.Array.at sharded").get<std::string>();
  const Array x = placed(P{"data", "model"});
  EXPECT_EQ(spec_of(scatter(x, array({0}), zeros({1, 16}))), want);
  EXPECT_EQ(spec_of(scatter(x, array({0}), zeros({8, 1}), 1)), want);
  EXPECT_EQ(spec_of(scatter_add(x, array({0}), zeros({1, 16}))), want);
  EXPECT_EQ(spec_of(dynamic_update_slice(x, zeros({1, 16}), {3, 0})), want);
}

// --- jit

TEST(Semantics, DonatedArraysAreGone) {
  EXPECT_TRUE(golden("donation: same sharding reuses").get<bool>());
  Array x = placed(P{"data", "model"});
  auto f = jit([](Array v) { return v + 1; }, {.donate_argnums = {0}});
  const Array y = f(x);
  EXPECT_TRUE(x.is_deleted());
  EXPECT_EQ(y.sharding().spec, (P{"data", "model"}));
  EXPECT_THROW(x.to_vector<float>(), UserError);
}

TEST(Semantics, UnspecifiedOutShardingsAreInferred) {
  const Array x = placed(P{"data", "model"});
  auto f = jit([](Array v) { return v * 2; });
  EXPECT_EQ(spec_of(f(x)), spec_in(golden("jit unspecified out_shardings infers")));
  auto open = jit([](Array v) { return v * 2; }, {.out_shardings = {}});
  EXPECT_EQ(spec_of(open(x)), spec_in(golden("jit out_shardings=None means unspecified")));
}

TEST(Semantics, InShardings) {
  // JAX reports a sharding on one device.
  EXPECT_EQ(golden("jit in_shardings None uncommitted").get<std::string>().rfind("Single", 0), 0U);
  auto open = jit([](Array v) { return v * 2; }, {.in_shardings = {Shardings()}});
  EXPECT_EQ(open(numbers()).sharding(), NamedSharding());
  auto asked =
      jit([](Array v) { return v * 2; }, {.in_shardings = {NamedSharding(grid(), P{"data"})}});
  EXPECT_EQ(spec_of(asked(numbers())),
            spec_in(golden("jit in_shardings on uncommitted arg reshards")));
}

TEST(Semantics, TrailingNonesAreDropped) {
  auto f = jit([](Array v) { return v * 2; },
               {.out_shardings = NamedSharding(grid(), (P{"data", none}))});
  EXPECT_EQ(spec_of(f(numbers())), golden("jit output trailing None trimmed").get<std::string>());
}

TEST(Semantics, OutShardingsMoveArrays) {
  auto f =
      jit([](Array v) { return v; }, {.out_shardings = NamedSharding(grid(), (P{none, "data"}))});
  EXPECT_EQ(spec_of(f(placed(P{"data", "model"}))),
            golden("reshard via jit(out_shardings)").get<std::string>());
}

TEST(Semantics, CompiledProgramsTellTheirShardings) {
  const json& want = golden("compiled input/output shardings");
  auto f = jit([](Array v) { return sum(v, {1}); });
  const auto lowered = f.lower(placed(P{"data", "model"}));
  EXPECT_NE(want[0].get<std::string>().find(
                "spec=" + to_string(lowered.arguments().at(0).sharding.spec) + ","),
            std::string::npos);
  EXPECT_EQ(to_string(lowered.results().at(0).sharding.spec), spec_in(want[1]));
}

TEST(Semantics, UnconstrainedDimensionsFollow) {
  const Array x = placed(P{"data"});
  auto f = jit([](Array v) { return with_sharding_constraint(v, P{unconstrained, "model"}); });
  EXPECT_EQ(spec_of(f(x)), golden("wsc UNCONSTRAINED").get<std::string>());
}

/// The specs that `f` has reported, in the order of the reports.
template <typename F>
std::vector<std::string> inspected(const F& f) {
  std::vector<std::string> told;
  f([&](const NamedSharding& sharding) { told.push_back(to_string(sharding.spec)); });
  return told;
}

TEST(Semantics, InspectedShardings) {
  const Array x = placed(P{"data", "model"});
  const auto told = inspected([&](const ShardingCallback& tell) {
    inspect_array_sharding(x, tell);
    auto f = jit([&](Array v) {
      const Array y = sum(v, {1});
      inspect_array_sharding(y, tell);
      inspect_array_sharding(v * 3, tell);  // nothing depends on it
      return y + 1;
    });
    f(x);
    f(x);  // compiled already, so nothing is reported
  });
  const std::string want = spec_in(golden("inspect_array_sharding in jit")[0].get<std::string>());
  EXPECT_EQ(told, (std::vector<std::string>{"P('data', 'model')", want}));
}

TEST(Semantics, InspectedShardingsInsideOfLoopsAndDerivatives) {
  const Array x = placed(P{"data", "model"});
  const auto told = inspected([&](const ShardingCallback& tell) {
    auto f = jit([&](Array v) {
      return grad([&](const Array& w) {
        auto body = [&](const Array& carry, const std::tuple<>&) {
          const Array next = tanh(carry);
          inspect_array_sharding(next, tell);
          return std::pair(next, std::tuple<>());
        };
        const Array last = std::get<0>(scan(body, w, std::tuple<>(), {.length = 3}));
        inspect_array_sharding(last, tell);
        return sum(last * last);
      })(v);
    });
    f(x);
  });
  EXPECT_EQ(told, (std::vector<std::string>{"P('data', 'model')", "P('data', 'model')"}));
}

TEST(Semantics, UnevenConstraintsAreKept) {
  // JAX silently gives up and returns a replicated array.
  EXPECT_EQ(golden("uneven: wsc inside jit then returned (8-way on 10)").get<std::string>(), "P()");
  const use_mesh scope(grid());
  auto f = jit([](Array v) { return with_sharding_constraint(v * 2, P{{"data", "model"}}); });
  const Array y = f(arange(10));
  EXPECT_EQ(y.sharding().spec, (P{{"data", "model"}}));
  std::vector<std::int64_t> sizes;
  for (const Shard& shard : y.addressable_shards()) sizes.push_back(shard.data.size());
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{1, 1, 1, 2, 1, 1, 1, 2}));
  EXPECT_TRUE(array_equal(y, arange(10) * 2));
}

// --- nothing is forgotten

TEST(Semantics, EveryEntryIsTestedOrElsewhere) {
  const std::set<std::string> tested = {"Mesh repr",
                                        "Mesh equality/hash by devices+names+types",
                                        "P repr/eq",
                                        "NamedSharding equality P(a) vs P(a,None)",
                                        "default sharding of a new array",
                                        "device_put",
                                        "replica_id for P(data)",
                                        "addressable_data(i)",
                                        "global_shards len, nbytes",
                                        "eager op keeps sharding",
                                        "np.asarray gathers",
                                        "donation: same sharding reuses",
                                        "jit unspecified out_shardings infers",
                                        "jit out_shardings=None means unspecified",
                                        "jit in_shardings None uncommitted",
                                        "jit in_shardings on uncommitted arg reshards",
                                        "jit output trailing None trimmed",
                                        "compiled input/output shardings",
                                        "set_mesh effects",
                                        "make_mesh device order",
                                        "create_device_mesh orders",
                                        "jax.Array.at sharded",
                                        "reshard via jit(out_shardings)",
                                        "wsc UNCONSTRAINED",
                                        "inspect_array_sharding in jit",
                                        "uneven: wsc inside jit then returned (8-way on 10)"};
  const std::set<std::string> without_counterpart = {
      "donation: unusable donated buffer",  // a donated array is always consumed
      "set_mesh ctx & get_abstract_mesh", "make_mesh default axis types", "explicit types",
      "RulesFallback"};
  // Collectives under shard_map, and parameters, have tests of their own.
  const auto is_of = [](const std::string& name, std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](const char* word) { return name.rfind(word, 0) == 0; });
  };
  const json all = read_golden("jax_semantics.json");
  for (const auto& [name, value] : all.items()) {
    if (is_of(name, {"shard_map", "axis_", "psum", "pmean", "all_gather", "all_to_all", "ppermute",
                     "flax", "nnx"})) {
      continue;
    }
    EXPECT_EQ(tested.count(name) + without_counterpart.count(name), 1U) << name;
  }
}

}  // namespace
}  // namespace tessera
