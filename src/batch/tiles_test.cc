// Compares functions that work on the tiles of devices with the function called for each device.
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "batch/batch.h"
#include "compile/reference/interpret.h"
#include "ir/text.h"
#include "mesh/sharding.h"
#include "tests/ops/arrays.h"

namespace tessera::batch {
namespace {

using testing::array;
using testing::elements;
using Floats = std::vector<float>;
using Index = std::vector<std::int64_t>;

/// The position of a device along each axis.
using Position = std::map<std::string, std::int64_t>;

std::vector<Position> devices_of(const std::vector<MeshAxis>& axes) {
  std::vector<Position> devices = {{}};
  for (const MeshAxis& axis : axes) {
    std::vector<Position> more;
    for (const Position& device : devices) {
      for (std::int64_t i = 0; i < axis.size; ++i) {
        more.push_back(device);
        more.back()[axis.name] = i;
      }
    }
    devices = std::move(more);
  }
  return devices;
}

/// Visits the elements of a device's tile by their index in the whole array.
template <typename Visit>
void for_tile(const Mesh& mesh, const TileSpec& spec, const Shape& whole, const Position& device,
              const Visit& visit) {
  Index first, size;
  for (std::size_t dim = 0; dim < whole.size(); ++dim) {
    std::int64_t shard = 0, count = 1;
    for (const std::string& axis : spec[dim]) {
      shard = shard * mesh.axis_size(axis) + device.at(axis);
      count *= mesh.axis_size(axis);
    }
    size.push_back(whole[dim] / count);
    first.push_back(shard * size.back());
  }
  for (std::int64_t i = 0; i < size[0]; ++i) {
    for (std::int64_t k = 0; k < size[1]; ++k) {
      visit(static_cast<std::size_t>((first[0] + i) * whole[1] + first[1] + k));
    }
  }
}

Floats tile_of(const Mesh& mesh, const TileSpec& spec, const Shape& whole, const Position& device,
               const Floats& values) {
  Floats tile;
  for_tile(mesh, spec, whole, device, [&](std::size_t at) { tile.push_back(values[at]); });
  return tile;
}

Shape tile_shape(const Mesh& mesh, const TileSpec& spec, Shape whole) {
  for (std::size_t dim = 0; dim < whole.size(); ++dim) {
    for (const std::string& axis : spec[dim]) whole[dim] /= mesh.axis_size(axis);
  }
  return whole;
}

/// Splits two dimensions by some of the axes, in any order.
TileSpec random_spec(std::minstd_rand& random, const std::vector<MeshAxis>& axes) {
  TileSpec spec(2);
  for (const MeshAxis& axis : axes) {
    const auto where = random() % 3;
    if (where == 2) continue;
    auto& dim = spec[where];
    dim.insert(random() % 2 == 0 ? dim.begin() : dim.end(), axis.name);
  }
  return spec;
}

/// x * x + c, for a tile x and a value c that all devices share.
ir::Function function_of(const Mesh& mesh, const Shape& tile) {
  ir::Function function;
  function.mesh = mesh;
  function.grains = 8;
  ir::Builder b(function);
  const ir::ValueId x = b.add_input({DType::f32, tile});
  const ir::ValueId c = b.add_input({DType::f32, {}});
  const ir::ValueId square = b.emit("mul", {}, {x, x});
  const ir::ValueId all =
      b.emit("broadcast_in_dim", {{"dims", ir::Ints{}}, {"shape", ir::Ints(tile)}}, {c});
  b.set_outputs({b.emit("add", {}, {square, all}), all});
  return function;
}

TEST(TileMap, EveryDeviceComputesItsOwnTiles) {
  std::minstd_rand random(3);
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 3}, {"c", 2}});
  const Shape whole = {12, 12};
  const Span where;
  for (int repeat = 0; repeat < 60; ++repeat) {
    std::vector<MeshAxis> axes;
    for (const MeshAxis& axis : mesh.axes()) {
      if (random() % 4 != 0) axes.push_back(axis);
    }
    const TileSpec in = random_spec(random, axes);
    const Shape tile = tile_shape(mesh, in, whole);
    const ir::Function one = function_of(mesh, tile);
    const TileMap map(mesh, axes, where);
    ir::Function all = ir::empty_like(one);
    ir::Builder b(all);
    const ir::ValueId x = b.add_input({DType::f32, whole});
    const ir::ValueId c = b.add_input({DType::f32, {}});
    const OverDevices over = map.over_devices(one, {in});
    for (std::size_t i = 0; i < axes.size(); ++i) {
      EXPECT_EQ(over.varies[0][i], names_axis(in, axes[i].name));
      EXPECT_FALSE(over.varies[1][i]) << "what all devices share does not vary";
    }
    const std::vector<ir::ValueId> made =
        b.inline_function(over.function, {map.stack(b, x, in), c});
    // The first result has its tiles where the argument had them; the second is equal everywhere.
    b.set_outputs(
        {map.unstack(b, made[0], over.varies[0], in), map.unstack(b, made[1], over.varies[1], in)});
    Floats values(144);
    for (float& value : values) value = static_cast<float>(random() % 100);
    Floats wanted(144), shared(144, 7);
    for (const Position& device : devices_of(axes)) {
      const Floats own = tile_of(mesh, in, whole, device, values);
      const Floats result =
          elements<float>(compile::interpret(one, {array(own, tile), array(Floats{7}, {})})[0]);
      std::size_t next = 0;
      for_tile(mesh, in, whole, device, [&](std::size_t at) { wanted[at] = result[next++]; });
    }
    const auto found = compile::interpret(all, {array(values, whole), array(Floats{7}, {})});
    EXPECT_EQ(elements<float>(found[0]), wanted) << repeat;
    EXPECT_EQ(elements<float>(found[1]), shared) << repeat;
  }
}

TEST(TileMap, TakesTheFirstTileAlongAxesThatTheSpecLeavesOut) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 3}});
  const Span where;
  const std::vector<MeshAxis> axes = mesh.axes();
  const ir::Function one = function_of(mesh, {6, 2});
  const TileMap map(mesh, axes, where);
  ir::Function all = ir::empty_like(one);
  ir::Builder b(all);
  const ir::ValueId x = b.add_input({DType::f32, {12, 6}});
  const ir::ValueId c = b.add_input({DType::f32, {}});
  const TileSpec in = {{"a"}, {"b"}};
  const OverDevices over = map.over_devices(one, {in});
  EXPECT_EQ(over.varies[0], (std::vector<bool>{true, true}));
  const ir::ValueId made = b.inline_function(over.function, {map.stack(b, x, in), c})[0];
  b.set_outputs({map.unstack(b, made, over.varies[0], {{"a"}, {}})});
  Floats values(72);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto found = compile::interpret(all, {array(values, {12, 6}), array(Floats{0}, {})});
  Floats wanted;
  for (std::size_t row = 0; row < 12; ++row) {
    for (std::size_t column = 0; column < 2; ++column) {
      wanted.push_back(values[row * 6 + column] * values[row * 6 + column]);
    }
  }
  EXPECT_EQ(elements<float>(found[0]), wanted);
}

}  // namespace
}  // namespace tessera::batch
