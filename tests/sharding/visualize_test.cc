// Pictures of shardings: the same as JAX draws for ranks 1 and 2, and others that JAX does not
// draw.
#include <gtest/gtest.h>

#include <tessera/tessera.h>

#include "tests/errors/grid.h"
#include "tests/peers/golden.h"

namespace tessera {
namespace {

/// Parses `P('batch', None)`, with the axis names of the mesh batch=..,model=..
PartitionSpec parse_spec(const std::string& text) {
  std::vector<SpecEntry> entries;
  bool is_tuple = false;
  for (std::size_t at = text.find('(') + 1; at < text.size(); ++at) {
    if (text[at] == '(') {
      is_tuple = true;
      entries.emplace_back(none);
    } else if (text[at] == ')') {
      is_tuple = false;
    } else if (text[at] == 'N') {
      entries.emplace_back(none);
      at += 3;
    } else if (text[at] == '\'') {
      const std::size_t end = text.find('\'', at + 1);
      if (!is_tuple) entries.emplace_back(none);
      entries.back().axes.push_back(text.substr(at + 1, end - at - 1));
      at = end;
    }
  }
  return PartitionSpec(std::move(entries));
}

TEST(Visualize, DrawsWhatJaxDraws) {
  const nlohmann::json golden = read_golden("visualize.json");
  ASSERT_EQ(golden.size(), 8U);
  for (const auto& [name, picture] : golden.items()) {
    const std::vector<std::int64_t> sizes = picture["mesh"];
    const Mesh mesh = make_mesh({{"batch", sizes[0]}, {"model", sizes[1]}});
    const PartitionSpec spec = parse_spec(picture["spec"]);
    EXPECT_EQ(to_string(spec), picture["spec"].get<std::string>());
    const Shape shape = picture["shape"];
    const NamedSharding sharding(mesh, spec);
    EXPECT_EQ(visualize_sharding(shape, sharding), picture["plain"].get<std::string>()) << name;
    const Array x = device_put(zeros(shape), sharding);
    EXPECT_EQ(visualize_array_sharding(x), picture["plain"].get<std::string>()) << name;
  }
}

TEST(Visualize, NamesDevicesNotPositions) {
  const Mesh ring = make_mesh({{"data", 4}}, {0, 2, 3, 1});
  EXPECT_EQ(visualize_sharding({8}, NamedSharding(ring, P{"data"})),
            "┌───────┬───────┬───────┬───────┐\n"
            "│ CPU 0 │ CPU 2 │ CPU 3 │ CPU 1 │\n"
            "└───────┴───────┴───────┴───────┘\n");
  EXPECT_EQ(
      visualize_sharding({8}, NamedSharding(make_mesh({{"a", 2}, {"b", 2}}, {3, 0, 2, 1}), P{"a"}),
                         {.device_kind = "Host"}),
      "┌────────┬────────┐\n"
      "│Host 0,3│Host 1,2│\n"
      "└────────┴────────┘\n");
}

TEST(Visualize, WidePicturesShareTheirWidth) {
  EXPECT_EQ(visualize_sharding({4, 1024}, NamedSharding(grid(), P{none, "data"}),
                               {.scale = 0.3, .max_width = 40}),
            "┌──────────────────┬───────────────────┐\n"
            "│   CPU 0,1,2,3    │    CPU 4,5,6,7    │\n"
            "│                  │                   │\n"
            "└──────────────────┴───────────────────┘\n");
}

TEST(Visualize, ScalarsAndUnevenTiles) {
  EXPECT_EQ(visualize_sharding({}, NamedSharding(make_mesh({{"data", 2}}), P{})),
            "┌───────┐\n"
            "│CPU 0,1│\n"
            "└───────┘\n");
  // Shards of 2 and of 3 of the 5 rows.
  EXPECT_EQ(visualize_sharding({5, 2}, NamedSharding(make_mesh({{"data", 2}}), P{"data"})),
            "┌────────┐\n"
            "│        │\n"
            "│ CPU 0  │\n"
            "│        │\n"
            "├────────┤\n"
            "│        │\n"
            "│        │\n"
            "│ CPU 1  │\n"
            "│        │\n"
            "│        │\n"
            "└────────┘\n");
}

TEST(Visualize, HigherRanksShowDimensionsThatAreSplit) {
  EXPECT_EQ(visualize_sharding({3, 8, 5, 8}, NamedSharding(grid(), P{none, "data", none, "model"}),
                               {.scale = 0.4}),
            "[:, down, :, across] of [3,8,5,8]\n"
            "┌───────┬───────┬───────┬───────┐\n"
            "│ CPU 0 │ CPU 1 │ CPU 2 │ CPU 3 │\n"
            "├───────┼───────┼───────┼───────┤\n"
            "│ CPU 4 │ CPU 5 │ CPU 6 │ CPU 7 │\n"
            "└───────┴───────┴───────┴───────┘\n");
  const Mesh cube = make_mesh({{"a", 2}, {"b", 2}, {"c", 2}});
  EXPECT_EQ(visualize_sharding({4, 4, 5}, NamedSharding(cube, P{"a", "b", "c"}), {.scale = 0.4}),
            "[down, across, 0:2] of [4,4,5]\n"
            "┌───────┬───────┐\n"
            "│ CPU 0 │ CPU 2 │\n"
            "├───────┼───────┤\n"
            "│ CPU 4 │ CPU 6 │\n"
            "└───────┴───────┘\n"
            "[down, across, 2:5] of [4,4,5]\n"
            "┌───────┬───────┐\n"
            "│ CPU 1 │ CPU 3 │\n"
            "├───────┼───────┤\n"
            "│ CPU 5 │ CPU 7 │\n"
            "└───────┴───────┘\n");
}

TEST(Visualize, ColorsOnRequest) {
  const NamedSharding sharding(make_mesh({{"data", 2}}), P{"data"});
  EXPECT_EQ(visualize_sharding({8}, sharding, {.use_color = true}),
            "┌───────┬───────┐\n"
            "│\x1b[30;48;5;152m CPU 0 \x1b[0m│\x1b[30;48;5;223m CPU 1 \x1b[0m│\n"
            "└───────┴───────┘\n");
}

}  // namespace
}  // namespace tessera
