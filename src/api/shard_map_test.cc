// shard_map and collectives over mapped axes. Expected values of small arrays are those that JAX
// gives.
#include <gtest/gtest.h>

#include <tessera/control.h>
#include <tessera/grad.h>
#include <tessera/ops.h>
#include <tessera/transform.h>

#include "api/test_support.h"

namespace tessera {
namespace {

using testing::expect_same_bits;
using testing::mistake_of;
using testing::numbers;

using Floats = std::vector<float>;

Mesh mesh_2x4() { return make_mesh({{"data", 2}, {"model", 4}}); }
Mesh ring(std::int64_t size = 4) { return make_mesh({{"model", size}}); }
Array counted(const Shape& shape) {
  return reshape(arange(num_elements(shape), DType::f32), shape);
}
const P kBoth{{"data", "model"}};

template <typename F>
Floats values(F f, const Array& x, const P& in, const P& out, const Mesh& mesh) {
  const Array y = shard_map(f, {.mesh = mesh, .in_specs = {in}, .out_specs = out})(x);
  return y.to_vector<float>();
}

TEST(ShardMap, SeesTilesAndPutsThemTogether) {
  const Array x = counted({8, 16});
  Shape local;
  auto doubled = [&](Array tile) {
    local = tile.shape();
    return tile * 2;
  };
  const Array y = shard_map(
      doubled,
      {.mesh = mesh_2x4(), .in_specs = {P{"data", "model"}}, .out_specs = P{"data", "model"}})(x);
  EXPECT_EQ(local, (Shape{4, 4}));
  EXPECT_EQ(to_string(y.sharding().spec), "P('data', 'model')");
  expect_same_bits(device_put(y, NamedSharding(mesh_2x4(), P{})),
                   device_put(x * 2, NamedSharding(mesh_2x4(), P{})));
}

TEST(ShardMap, TilesOfOtherOrdersAndTransposedResults) {
  const Array x = counted({8, 3});
  auto index = [](Array tile) { return tile * 0 + astype(axis_index("data"), DType::f32); };
  // The model axis is major, so devices with index 0 and 1 along data alternate.
  EXPECT_EQ(values([&](Array tile) { return index(tile)[0]; }, counted({8, 1}),
                   P{{"model", "data"}}, P{{"model", "data"}}, mesh_2x4()),
            (Floats{0, 1, 0, 1, 0, 1, 0, 1}));
  const Array y =
      shard_map([](Array tile) { return transpose(tile); },
                {.mesh = mesh_2x4(), .in_specs = {P{"model"}}, .out_specs = P{none, "model"}})(x);
  EXPECT_EQ(y.to_vector<float>(), transpose(x).to_vector<float>());
}

TEST(ShardMap, TellsDevicesApart) {
  const auto place = [](Array tile) { return tile * 0 + astype(axis_index("model"), DType::f32); };
  EXPECT_EQ(values(place, counted({4}), P{"model"}, P{"model"}, ring()), (Floats{0, 1, 2, 3}));
  const auto both = [](Array tile) {
    return tile * 0 + astype(axis_index({"data", "model"}), DType::f32);
  };
  EXPECT_EQ(values(both, counted({8}), kBoth, kBoth, mesh_2x4()), (Floats{0, 1, 2, 3, 4, 5, 6, 7}));
  const auto size = [](Array tile) { return tile * 0 + axis_size({"data", "model"}); };
  EXPECT_EQ(values(size, counted({8}), kBoth, kBoth, mesh_2x4()), Floats(8, 8.0F));
}

TEST(ShardMap, Reduces) {
  const Array x = counted({8});
  const auto over = [&](auto f, const P& out) { return values(f, x, kBoth, out, mesh_2x4()); };
  EXPECT_EQ(over([](Array t) { return psum(t, "model"); }, P{"data"}), (Floats{6, 22}));
  EXPECT_EQ(over([](Array t) { return psum(t, {"data", "model"}); }, P{}), (Floats{28}));
  EXPECT_EQ(over([](Array t) { return pmean(t, "model"); }, P{"data"}), (Floats{1.5, 5.5}));
  EXPECT_EQ(over([](Array t) { return pmax(t, "model"); }, P{"data"}), (Floats{3, 7}));
  EXPECT_EQ(over([](Array t) { return pmin(t, "model"); }, P{"data"}), (Floats{0, 4}));
  EXPECT_EQ(over([](Array t) { return t * psum(1.0, "model"); }, kBoth),
            (Floats{0, 4, 8, 12, 16, 20, 24, 28}));
}

TEST(ShardMap, Gathers) {
  const Mesh mesh = ring(8);
  const Array x = counted({8});
  const auto gathered = [&](AxisDim options) {
    return shard_map([&](Array t) { return all_gather(t, "model", options); },
                     {.mesh = mesh, .in_specs = {P{"model"}}, .out_specs = P{}})(x);
  };
  EXPECT_EQ(gathered({}).shape(), (Shape{8, 1}));
  EXPECT_EQ(gathered({.tiled = true}).to_vector<float>(), x.to_vector<float>());
  const Array columns = shard_map(
      [](Array t) { return all_gather(t, "model", {.dim = 1}); },
      {.mesh = ring(), .in_specs = {P{none, "model"}}, .out_specs = P{}})(counted({1, 8}));
  EXPECT_EQ(columns.shape(), (Shape{1, 4, 2}));
}

TEST(ShardMap, ScattersSums) {
  const auto tiled = [](Array t) { return psum_scatter(t, "model", {.tiled = true}); };
  EXPECT_EQ(values(tiled, counted({8}), P{}, P{"model"}, ring()),
            (Floats{0, 4, 8, 12, 16, 20, 24, 28}));
  const auto slices = [](Array t) { return reshape(psum_scatter(t, "model"), {1}); };
  EXPECT_EQ(values(slices, counted({4}), P{}, P{"model"}, ring()), (Floats{0, 4, 8, 12}));
}

TEST(ShardMap, Permutes) {
  const auto shifted = [](Array t) {
    return ppermute(t, "model", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
  };
  EXPECT_EQ(values(shifted, counted({4}), P{"model"}, P{"model"}, ring()), (Floats{3, 0, 1, 2}));
  const auto one = [](Array t) { return ppermute(t + 1, "model", {{0, 1}}); };
  EXPECT_EQ(values(one, counted({4}), P{"model"}, P{"model"}, ring()), (Floats{0, 1, 0, 0}));
}

TEST(ShardMap, ExchangesSlices) {
  const auto tiled = [](Array t) { return all_to_all(t, "model", 1, 0, true); };
  EXPECT_EQ(values(tiled, counted({4, 4}), P{"model"}, P{none, "model"}, ring()),
            counted({4, 4}).to_vector<float>());
  const auto stacked = [](Array t) { return all_to_all(t, "model", 0, 0); };
  EXPECT_EQ(values(stacked, counted({16}), P{"model"}, P{"model"}, ring()),
            (Floats{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}));
}

TEST(ShardMap, CollectivesAreThoseOfTheMesh) {
  const auto kinds = [](auto f, const P& in, const P& out, const Mesh& mesh) {
    auto mapped = jit(shard_map(f, {.mesh = mesh, .in_specs = {in}, .out_specs = out}));
    const Array x = device_put(numbers({8, 16}), NamedSharding(mesh, in));
    std::vector<std::string> found;
    for (const CollectiveUse& row : mapped.lower(x).compile().collectives()) {
      found.push_back(row.kind + " " + std::to_string(row.wire_bytes));
    }
    return found;
  };
  using Kinds = std::vector<std::string>;
  const std::int64_t tile = 2 * 16 * 4;
  EXPECT_EQ(kinds([](Array t) { return exp(t) * 2; }, P{"model"}, P{"model"}, ring()), Kinds());
  EXPECT_EQ(kinds([](Array t) { return psum(t, "model"); }, P{"model"}, P{}, ring()),
            Kinds{"all_reduce " + std::to_string(tile * 2 * 3 / 4)});
  EXPECT_EQ(kinds([](Array t) { return all_gather(t, "model"); }, P{"model"}, P{}, ring()),
            Kinds{"all_gather " + std::to_string(tile * 3)});
  EXPECT_EQ(kinds(
                [](Array t) {
                  return ppermute(t, "model", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
                },
                P{"model"}, P{"model"}, ring()),
            Kinds{"permute " + std::to_string(tile)});
  EXPECT_EQ(kinds([](Array t) { return all_to_all(t, "model", 1, 0, true); }, P{"model"},
                  P{none, "model"}, ring()),
            Kinds{"all_to_all " + std::to_string(tile * 3 / 4)});
  EXPECT_EQ(kinds([](Array t) { return psum_scatter(t, "model", {.dim = 1, .tiled = true}); },
                  P{"model"}, P{none, "model"}, ring()),
            Kinds{"reduce_scatter " + std::to_string(tile * 3 / 4)});
  // A constraint applies to the tile of each device.
  EXPECT_EQ(kinds([](Array t) { return with_sharding_constraint(t * 2, P{}); }, P{"model"},
                  P{"model"}, ring()),
            Kinds());
  // The compiler does not move the sum of the received elements in front of the all_to_all.
  EXPECT_EQ(kinds([](Array t) { return sum(all_to_all(t, "model", 1, 0, true), 0, keepdims); },
                  P{"model"}, P{none, "model"}, ring()),
            Kinds{"all_to_all " + std::to_string(tile * 3 / 4)});
}

TEST(ShardMap, ConstraintsAreOnAxesThatAreNotMapped) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const use_mesh scope(mesh);
  const Array x = numbers({8, 4});
  const auto mapped = [&](const P& asked) {
    return jit(shard_map([asked](Array t) { return with_sharding_constraint(t * 2, asked); },
                         {.in_specs = {P{"data"}}, .out_specs = P{"data"}, .axis_names = {"data"}}),
               {.passes = {.verify = true}});
  };
  expect_same_bits(mapped(P{none, "model"})(x), x * 2);
  for (const P& asked : {P{"data"}, P{none, "data"}, P{"model", "data"}}) {
    EXPECT_EQ(mistake_of([&] { mapped(asked)(x); }).what,
              "with_sharding_constraint: shard_map already maps the axis 'data'");
  }
  const auto placed = shard_map([](Array t) { return device_put(t, P{"data"}); },
                                {.in_specs = {P{"data"}}, .out_specs = P{"data"}});
  EXPECT_EQ(mistake_of([&] { placed(x); }).what,
            "device_put: shard_map already maps the axis 'data'");
  // The axis of a vmap is not an axis of the mesh, even if the names are equal.
  const auto rows = vmap([](Array t) { return with_sharding_constraint(t * 2, P{"data"}); },
                         {.axis_name = "data"});
  expect_same_bits(jit(rows)(x), x * 2);
}

TEST(ShardMap, AnAxisIsMappedOnce) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const use_mesh scope(mesh);
  const auto nested = [](const std::vector<std::string>& axes) {
    const auto inner = shard_map(
        [](Array t) { return t * 2; },
        {.in_specs = {P{none, "model"}}, .out_specs = P{none, "model"}, .axis_names = axes});
    return jit(
        shard_map(inner, {.in_specs = {P{"data"}}, .out_specs = P{"data"}, .axis_names = {"data"}}),
        {.passes = {.verify = true}});
  };
  const Array x = numbers({8, 4});
  expect_same_bits(nested({"model"})(x), x * 2);
  EXPECT_EQ(mistake_of([&] { nested({})(x); }).what, "shard_map: an axis is already mapped");
}

TEST(ShardMap, DerivativesFromOutside) {
  const use_mesh scope(ring());
  const Array x = counted({8});
  const auto loss = [](Array v) {
    return shard_map([](Array t) { return psum(sum(t * t), "model"); },
                     {.in_specs = {P{"model"}}, .out_specs = P{}})(v);
  };
  EXPECT_EQ(grad(loss)(x).to_vector<float>(), (Floats{0, 2, 4, 6, 8, 10, 12, 14}));
  const auto shared = [&](Array w) {
    return sum(
        shard_map([](Array scale, Array t) { return scale * t; },
                  {.mesh = ring(), .in_specs = {P{}, P{"model"}}, .out_specs = P{"model"}})(w, x));
  };
  EXPECT_EQ(grad(shared)(scalar(2.0F)).item<float>(), 28.0F);
  const auto moved = [&](Array v) {
    const auto f = [](Array t) {
      const Array next = ppermute(t, "model", {{0, 1}, {1, 2}, {2, 3}});
      return psum_scatter(all_gather(t * next, "model", {.tiled = true}), "model", {.tiled = true});
    };
    return sum(
        shard_map(f, {.mesh = ring(), .in_specs = {P{"model"}}, .out_specs = P{"model"}})(v));
  };
  // The gradient of four times the sum of x[i] * x[i - 2].
  EXPECT_EQ(grad(moved)(x).to_vector<float>(), (Floats{8, 12, 16, 24, 32, 40, 16, 20}));
}

TEST(ShardMap, DerivativesWithinAreOfTheSumOverDevices) {
  const auto f = [](Array t) {
    const Array g = grad([](Array v) { return sum(psum(v * v, "model")); })(t);
    return g;
  };
  // The sum of all devices' losses contains every device's term four times.
  EXPECT_EQ(values(f, counted({4}), P{"model"}, P{"model"}, ring()), (Floats{0, 8, 16, 24}));
}

TEST(ShardMap, AxesThatAreLeftOutAreLeftToTheCompiler) {
  const Mesh mesh = mesh_2x4();
  const Array x = device_put(numbers({8, 16}), NamedSharding(mesh, P{"data", "model"}));
  Shape local;
  auto f = [&](Array t) {
    local = t.shape();
    return psum(exp(t), "data");
  };
  auto mapped = jit(shard_map(
      f, {.mesh = mesh, .in_specs = {P{"data"}}, .out_specs = P{}, .axis_names = {"data"}}));
  const Array y = mapped(x);
  EXPECT_EQ(local, (Shape{4, 16}));
  EXPECT_EQ(to_string(y.sharding().spec), "P(None, 'model')");
  for (const CollectiveUse& use : mapped.compiled().collectives()) {
    EXPECT_EQ(use.kind, "all_reduce");
    EXPECT_EQ(use.wire_bytes, 4 * 4 * 4);
  }
  const Array whole = sum(reshape(exp(x), {2, 4, 16}), 0);
  EXPECT_EQ(y.to_vector<float>(), whole.to_vector<float>());
}

TEST(ShardMap, LoopsAndBranchesWithin) {
  // A reduction around the ring, written by hand.
  const auto around = [](Array t) {
    auto step = [](std::pair<Array, Array> carry, Array) {
      const Array next = ppermute(carry.second, "model", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
      return std::pair(std::pair(carry.first + next, next), Array(sum(next)));
    };
    const auto [last, all] = scan(step, std::pair(t, t), arange(3));
    const Array turn = cond(
        axis_index("model") < 2, [](Array v) { return v; }, [](Array v) { return -v; }, last.first);
    return turn;
  };
  EXPECT_EQ(values(around, counted({4}), P{"model"}, P{"model"}, ring()), (Floats{6, 6, -6, -6}));
}

TEST(ShardMap, TreesAndCapturedArrays) {
  const Array w = numbers({6, 5}, 1);
  const Array x = numbers({8, 6}, 2);
  const auto f = [&](const std::pair<Array, Array>& pair) {
    return std::pair(dot(pair.first, w) + pair.second, psum(sum(pair.first), "model"));
  };
  const auto [y, total] =
      shard_map(f, {.mesh = ring(),
                    .in_specs = {Shardings(P{"model"}, P{})},
                    .out_specs = Shardings(P{"model"}, P{})})(std::pair(x, ones({5})));
  EXPECT_EQ(y.to_vector<float>(), (dot(x, w) + 1).to_vector<float>());
  EXPECT_EQ(total.shape(), Shape());
}

TEST(Vmap, NamesItsAxis) {
  const auto f = [](Array row) {
    return row / psum(row, "i") + astype(axis_index("i"), DType::f32);
  };
  const Array x = counted({4, 2}) + 1;
  const Array found = vmap(f, {.axis_name = "i"})(x);
  const Array wanted = x / sum(x, 0) + astype(expand_dims(arange(4), 1), DType::f32);
  EXPECT_EQ(found.to_vector<float>(), wanted.to_vector<float>());
  const auto nested = [](Array row) {
    return vmap([](Array v) { return psum(v, "i") * 10 + psum(v, "j"); }, {.axis_name = "j"})(row);
  };
  EXPECT_EQ(vmap(nested, {.axis_name = "i"})(counted({2, 2})).to_vector<float>(),
            (Floats{21, 41, 25, 45}));
}

// --- mistakes

TEST(ShardMap, Mistakes) {
  const Array x = counted({10});
  const auto same = [](Array t) { return t; };
  const auto run = [&](const P& in, const P& out) {
    shard_map(same, {.mesh = ring(), .in_specs = {in}, .out_specs = out})(x);
  };
  EXPECT_EQ(mistake_of([&] { run(P{"model"}, P{"model"}); }).what,
            "shard_map: argument 0 cannot be cut into equal tiles");
  EXPECT_EQ(mistake_of([&] { run(P{"rows"}, P{}); }).what.substr(0, 21), "shard_map: argument 0");
  EXPECT_EQ(mistake_of([&] {
              run(P{none, "model"}, P{});
            }).what,
            "shard_map: the spec of argument 0 is too long");
  EXPECT_EQ(mistake_of([&] {
              shard_map([](Array t) { return t; },
                        {.mesh = ring(), .in_specs = {P{"model"}}, .out_specs = P{}})(counted({8}));
            }).what,
            "shard_map: the result differs along axis 'model'");
  EXPECT_EQ(mistake_of([&] { jit([&](Array) { return run(P{}, P{}), x; })(x); }).what,
            "shard_map: the enclosing program is for another mesh");
  EXPECT_EQ(mistake_of([&] { psum(x, "model"); }).what, "psum: no mapped axis has this name");
  EXPECT_EQ(mistake_of([&] {
              shard_map(
                  [](Array t) {
                    return ppermute(t, "model", {{0, 1}, {2, 1}});
                  },
                  {.mesh = ring(), .in_specs = {P{}}, .out_specs = P{"model"}})(x);
            }).what,
            "ppermute: element 1 cannot be a destination twice");
}

}  // namespace
}  // namespace tessera
