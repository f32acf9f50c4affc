#include "mesh/sharding.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include <tessera/error.h>

namespace tessera {
namespace {

std::string atoms_text(const std::string& mesh) {
  std::string text;
  for (const Atom& atom : atoms_of(parse_mesh(mesh))) {
    text += (text.empty() ? "" : " ") + std::to_string(atom.axis) + ":" + std::to_string(atom.size);
  }
  return text;
}

TEST(Atoms, ArePrimeFactorsFromTheFirstAxis) {
  EXPECT_EQ(atoms_text("none"), "");
  EXPECT_EQ(atoms_text("a=1,b=2"), "1:2");
  EXPECT_EQ(atoms_text("a=6"), "0:2 0:3");
  EXPECT_EQ(atoms_text("a=12"), "0:2 0:2 0:3");
  EXPECT_EQ(atoms_text("a=7,b=12,c=25"), "0:7 1:2 1:2 1:3 2:5 2:5");
}

TEST(Atoms, DigitsOfADeviceAreItsRowMajorNumber) {
  const std::vector<Atom> atoms = atoms_of(parse_mesh("a=6,b=4"));
  std::set<AtomDigits> seen;
  for (std::int64_t device = 0; device < 24; ++device) {
    const AtomDigits digits = position_digits(atoms, device);
    seen.insert(digits);
    std::int64_t number = 0;
    for (std::size_t i = 0; i < atoms.size(); ++i) {
      EXPECT_LT(digits[i], atoms[i].size);
      number = number * atoms[i].size + digits[i];
    }
    EXPECT_EQ(number, device);
  }
  EXPECT_EQ(seen.size(), 24U);
}

Sharding sharding_of(const Mesh& mesh, const P& spec, Shape shape) {
  return to_sharding(mesh, spec, {DType::f32, std::move(shape)}, "test", {});
}

TEST(Sharding, SpecRoundTrip) {
  const Mesh mesh = parse_mesh("a=6,b=4,c=1");
  for (const P& spec :
       {P{}, P{"a"}, P{none, "b"}, P{{"a", "b"}}, P{{"b", "a"}, none, none}, P{"b", none, "a"}}) {
    std::vector<SpecEntry> entries = spec.entries();
    while (!entries.empty() && entries.back().axes.empty()) entries.pop_back();
    EXPECT_EQ(to_spec(mesh, sharding_of(mesh, spec, {7, 8, 9})), P(entries)) << to_string(spec);
  }
  EXPECT_EQ(sharding_of(mesh, P{"b", {"a", "c"}}, {7, 8, 9}), (Sharding{{{2, 3}, {0, 1}, {}}, {}}));
  EXPECT_EQ(to_spec(mesh, {{{1}, {3, 2}}, {}}), (P{"a#1", {"b#1", "b#0"}}));
}

TEST(Sharding, SpecsThatDoNotFit) {
  const Mesh mesh = parse_mesh("a=2,b=2");
  EXPECT_THROW(sharding_of(mesh, P{none, none}, {4}), UserError);
  EXPECT_THROW(sharding_of(mesh, P{"a"}, {}), UserError);
  EXPECT_THROW(sharding_of(mesh, P{"x"}, {4}), UserError);
  EXPECT_THROW(sharding_of(mesh, P{"a", "a"}, {4, 4}), UserError);
}

TEST(Sharding, Text) {
  const Mesh mesh = parse_mesh("data=4,model=6");
  EXPECT_EQ(to_string(mesh, replicated_sharding(0)), "");
  EXPECT_EQ(to_string(mesh, replicated_sharding(2)), "{},{}");
  EXPECT_EQ(to_string(mesh, {{{0, 1}, {2}}, {3}}), "{data},{model#0}+{model#1}");
  EXPECT_EQ(to_string(mesh, {{{2, 3, 0, 1}}, {}}), "{model data}");
  EXPECT_EQ(to_string(mesh, {{}, {1, 2, 3}}), "+{data#1 model}");
}

TEST(Sharding, OpenDimensions) {
  const Mesh mesh = parse_mesh("data=4,model=6");
  const Type type{DType::f32, {8, 8, 8}};
  const Sharding open = to_constraint(mesh, P{unconstrained, "model"}, type, "test", {});
  EXPECT_EQ(open, (Sharding{{{}, {2, 3}, {}}, {}, {0}}));
  EXPECT_TRUE(is_open(open, 0));
  EXPECT_FALSE(is_open(open, 2));
  EXPECT_EQ(to_string(mesh, open), "{?},{model},{}");
  EXPECT_EQ(to_string(mesh, {{{0, 1}, {}}, {}, {0, 1}}), "{data ?},{?}");
  EXPECT_THROW(to_sharding(mesh, P{unconstrained, "model"}, type, "test", {}), UserError);
}

TEST(Sharding, ReplicatedMeansNoAtoms) {
  EXPECT_TRUE(is_replicated(replicated_sharding(3)));
  EXPECT_FALSE(is_replicated({{{}, {0}}, {}}));
  EXPECT_FALSE(is_replicated({{{}, {}}, {0}}));
  EXPECT_EQ(used_atoms({{{2}, {0, 3}}, {1}}), (AtomList{2, 0, 3, 1}));
}

TEST(Sharding, DigitsOfDevicesInAnyOrder) {
  const Mesh mesh = parse_mesh("a=2,b=2@3,1,0,2");
  EXPECT_EQ(device_digits(mesh, 3), (AtomDigits{0, 0}));
  EXPECT_EQ(device_digits(mesh, 0), (AtomDigits{1, 0}));
  EXPECT_EQ(device_digits(mesh, 2), (AtomDigits{1, 1}));
  EXPECT_EQ(device_digits(Mesh(), 5), AtomDigits());
}

// --- layouts -------------------------------------------------------------------------------------

const Sharding kShardings[] = {{{{}, {}}, {}},      {{{0, 1}, {}}, {}},      {{{1}, {3, 2}}, {}},
                               {{{2, 0}, {1}}, {}}, {{{}, {1, 0, 2}}, {}},   {{{3}, {}}, {0}},
                               {{{}, {}}, {2, 3}},  {{{0, 1, 2, 3}, {}}, {}}};

TEST(Layout, TilesAndDigitsInvertEachOther) {
  const Mesh mesh = parse_mesh("a=6,b=4");
  for (const Sharding& sharding : kShardings) {
    const Layout layout(mesh, sharding, {10, 65});
    std::int64_t count = 1;
    for (AtomId atom : used_atoms(sharding)) count *= atoms_of(mesh)[atom].size;
    EXPECT_EQ(layout.num_tiles(), count);
    for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
      const AtomDigits digits = layout.digits(tile);
      EXPECT_EQ(layout.tile_at(digits), tile);
      for (AtomId atom = 0; atom < 4; ++atom) {
        const AtomList used = used_atoms(sharding);
        const bool is_used = std::find(used.begin(), used.end(), atom) != used.end();
        EXPECT_EQ(digits[atom] >= 0, is_used);
      }
    }
  }
  const Layout split(mesh, {{{0}, {}}, {}}, {10, 65});
  EXPECT_THROW(split.tile_at({-1, 0, 0, 0}), InternalError);
  EXPECT_THROW(Layout(mesh, replicated_sharding(1), {10, 65}), InternalError);
}

TEST(Layout, TilesCoverEveryIndexOnce) {
  const Mesh mesh = parse_mesh("a=6,b=4");
  for (const Sharding& sharding : kShardings) {
    for (const Shape& shape : {Shape{10, 65}, Shape{24, 24}, Shape{1, 3}, Shape{0, 5}}) {
      const Layout layout(mesh, sharding, shape);
      std::int64_t copies = 1;
      for (AtomId atom : sharding.partial) copies *= atoms_of(mesh)[atom].size;
      std::vector<std::int64_t> hits(static_cast<std::size_t>(num_elements(shape)), 0);
      for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
        const Box box = layout.box(tile);
        for (std::int64_t i = 0; i < box.size[0]; ++i) {
          for (std::int64_t j = 0; j < box.size[1]; ++j) {
            const std::int64_t at = (box.start[0] + i) * shape[1] + box.start[1] + j;
            hits.at(static_cast<std::size_t>(at)) += 1;
          }
        }
        for (std::size_t d = 0; d < 2; ++d) EXPECT_LE(box.size[d], layout.max_tile_shape()[d]);
      }
      for (std::int64_t count : hits) ASSERT_EQ(count, copies) << to_string(mesh, sharding);
    }
  }
}

TEST(Layout, MajorAtomsMakeTheLargerSteps) {
  // {a#1 a#0} visits 3 shards of 2: tiles are ordered by digits, and boxes follow in index order.
  const Layout layout(parse_mesh("a=6"), {{{1, 0}}, {}}, {13});
  EXPECT_EQ(layout.num_shards_of(0), 6);
  const AtomDigits second{0, 1};  // a#1 = 1 and a#0 = 0: shard 2 of 6
  EXPECT_EQ(layout.shard(0, second), 2);
  EXPECT_EQ(layout.box(layout.tile_at(second)), (Box{{4}, {2}}));
  EXPECT_EQ(layout.max_tile_shape(), Shape{3});
}

TEST(Layout, WindowsAreWhatIndexRangesRead) {
  const Mesh mesh = parse_mesh("x=4");
  // Row 2 i + k - 1 of 17 rows is read, for i below 8, split over x, and for k below 3.
  const Window::Term places{.size = 8, .step = 2, .num_atoms = 2};
  const Window::Term around{.size = 3, .step = 1, .num_atoms = 0};
  const Sharding windows{
      .dims = {{0, 1}}, .partial = {}, .open = {}, .windows = {{0, -1, {places, around}}}};
  EXPECT_EQ(to_string(mesh, windows), "[-1+2*8{x}+3]");
  const Layout layout(mesh, windows, {17});
  const std::vector<Box> boxes = {{{0}, {4}}, {{3}, {5}}, {{7}, {5}}, {{11}, {5}}};
  for (std::int64_t tile = 0; tile < 4; ++tile) {
    EXPECT_EQ(layout.box(tile), boxes[static_cast<std::size_t>(tile)]);
  }
  EXPECT_EQ(layout.max_tile_shape(), Shape{5});
  // The shards begin at rows 0, 4, 8 and 12, so the second one lacks row 3.
  EXPECT_EQ(most_received(mesh, Layout(mesh, {{{0, 1}}, {}}, {17}), layout), 1);
}

TEST(Layout, WindowsMayRunBackwardsAndBeEmpty) {
  const Mesh mesh = parse_mesh("x=4");
  const auto box = [&](const Window& window, std::int64_t tile) {
    const Sharding windows{.dims = {{0, 1}}, .partial = {}, .open = {}, .windows = {window}};
    return Layout(mesh, windows, {8}).box(tile);
  };
  const Window reversed{0, 7, {{.size = 8, .step = -1, .num_atoms = 2}}};
  EXPECT_EQ(box(reversed, 0), (Box{{6}, {2}}));
  EXPECT_EQ(box(reversed, 3), (Box{{0}, {2}}));
  // The window reads row (i - 3) / 2.
  const Window halves{0, -3, {{.size = 20, .step = 1, .num_atoms = 2}}, 2};
  EXPECT_EQ(box(halves, 0), (Box{{0}, {1}}));
  EXPECT_EQ(box(halves, 1), (Box{{1}, {3}}));
  EXPECT_EQ(box(halves, 3), (Box{{6}, {2}}));
  const Window few{0, 0, {{.size = 2, .step = 1, .num_atoms = 2}}};
  EXPECT_EQ(box(few, 0).size, Shape{0});
  EXPECT_EQ(box(few, 1), (Box{{0}, {1}}));
  const Window before{0, -5, {{.size = 8, .step = 1, .num_atoms = 2}}};
  EXPECT_EQ(box(before, 0).size, Shape{0});
  EXPECT_EQ(box(before, 2), (Box{{0}, {1}}));
}

TEST(Layout, CutsNest) {
  // A split by more atoms refines the split by the first atoms, even for uneven sizes.
  for (std::int64_t size : {10, 65, 50257}) {
    for (std::int64_t coarse : {1, 2, 3, 4, 6}) {
      for (std::int64_t finer : {2, 3, 4}) {
        for (std::int64_t j = 0; j <= coarse; ++j) {
          EXPECT_EQ(shard_start(j, coarse, size), shard_start(j * finer, coarse * finer, size));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
