#include "mesh/blocks.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace tessera {
namespace {

std::vector<Mesh> meshes() {
  return {make_mesh({{"a", 4}, {"b", 3}}), make_mesh({{"a", 2}, {"b", 6}}),
          make_mesh({{"a", 12}}, {7, 3, 9, 0, 11, 5, 1, 2, 10, 4, 6, 8})};
}

std::vector<P> specs(const Mesh& mesh) {
  if (mesh.axes().size() == 1) return {P{}, P{"a"}, P{none, "a"}};
  return {P{}, P{"a"}, P{"b"}, P{"a", "b"}, P{"b", "a"}, P{none, SpecEntry{"b", "a"}}};
}

TEST(Blocks, HoldTheTilesOfTheirDevices) {
  for (const Mesh& mesh : meshes()) {
    for (const std::int64_t count : {1, 2, 3, 4, 6, 12}) {
      const Blocks blocks(mesh, count);
      ASSERT_EQ(blocks.devices_per_block(), 12 / count);
      for (const P& spec : specs(mesh)) {
        const Sharding sharding = to_sharding(mesh, spec, Shape{7, 13}, "test", {});
        const Layout layout(mesh, sharding, {7, 13});
        const Holders holders(blocks, layout);
        for (std::int64_t device = 0; device < 12; ++device) {
          EXPECT_EQ(blocks.digits(device), device_digits(mesh, device));
          EXPECT_EQ(blocks.block_at(blocks.digits(device)), device / (12 / count));
        }
        for (std::int64_t block = 0; block < count; ++block) {
          std::vector<std::int64_t> wanted;
          for (std::int64_t d = 0; d < 12 / count; ++d) {
            wanted.push_back(layout.tile_at(device_digits(mesh, block * (12 / count) + d)));
          }
          const std::vector<std::int64_t> tiles = blocks.tiles(block, layout);
          for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
            const bool is_held = std::count(wanted.begin(), wanted.end(), tile) > 0;
            EXPECT_EQ(holders.has(block, tile), is_held);
            EXPECT_EQ(std::count(tiles.begin(), tiles.end(), tile), is_held ? 1 : 0);
            if (is_held) {
              EXPECT_EQ(tiles[static_cast<std::size_t>(holders.place(block, tile))], tile);
            }
            const auto& of_tile = holders.of(tile);
            const auto holder = std::find_if(of_tile.begin(), of_tile.end(),
                                             [&](const auto& h) { return h.block == block; });
            ASSERT_EQ(holder != of_tile.end(), is_held);
            if (is_held) {
              EXPECT_EQ(layout.tile_at(holder->digits), tile);
            }
          }
        }
      }
    }
  }
}

TEST(Blocks, SourcesHoldWhatIsReadFromThem) {
  for (const Mesh& mesh : meshes()) {
    for (const std::int64_t count : {2, 3, 6, 12}) {
      const Blocks blocks(mesh, count);
      for (const P& spec : specs(mesh)) {
        const Layout layout(mesh, to_sharding(mesh, spec, Shape{24, 24}, "test", {}), {24, 24});
        const Holders holders(blocks, layout);
        std::vector<int> reads(static_cast<std::size_t>(count), 0);
        for (std::int64_t device = 0; device < 12; ++device) {
          for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
            const std::int64_t reader = blocks.block_of(device);
            const std::int64_t source = holders.source(reader, blocks.digits(device), tile);
            EXPECT_TRUE(holders.has(source, tile));
            if (holders.has(reader, tile)) {
              EXPECT_EQ(source, reader);
            }
            if (source != reader) ++reads[static_cast<std::size_t>(source)];
          }
        }
        // With one device per block, all blocks serve equally many readers.
        if (count == 12) {
          EXPECT_EQ(*std::min_element(reads.begin(), reads.end()),
                    *std::max_element(reads.begin(), reads.end()));
        }
      }
    }
  }
}

TEST(Blocks, EveryBlockHoldsWhatHasNoMesh) {
  const Blocks blocks(Mesh(), 3);
  const Layout layout(Mesh(), replicated_sharding(2), {4, 5});
  const Holders holders(blocks, layout);
  ASSERT_EQ(holders.of(0).size(), 3U);
  for (std::int64_t block = 0; block < 3; ++block) {
    EXPECT_EQ(blocks.tiles(block, layout), std::vector<std::int64_t>{0});
    EXPECT_EQ(holders.source(block, {}, 0), block);
  }
}

}  // namespace
}  // namespace tessera
