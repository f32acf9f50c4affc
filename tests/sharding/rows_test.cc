// Ops that read or write rows, lines or slices by index, on arrays that are split along the indexed
// dimension. Each device works on the part that it holds, with the bits of one device.
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>

#include <tessera/engine.h>
#include <tessera/grad.h>
#include <tessera/jit.h>
#include <tessera/ops.h>
#include <tessera/shardings.h>
#include <tessera/transform.h>

#include "api/test_support.h"
#include "tests/sharding/placed.h"

namespace tessera::testing {
namespace {

/// Rows split over one axis, over two in either order, together with columns, and over more devices
/// than there are rows.
const std::vector<std::pair<Mesh, P>>& row_splits() {
  static const std::vector<std::pair<Mesh, P>> splits = {
      {make_mesh({{"a", 2}, {"b", 4}}), P{"a"}},
      {make_mesh({{"a", 2}, {"b", 4}}), P{{"a", "b"}}},
      {make_mesh({{"a", 2}, {"b", 4}}), P{{"b", "a"}}},
      {make_mesh({{"a", 2}, {"b", 4}}), P{"b", "a"}},
      {make_mesh({{"a", 3}}), P{"a"}},
      {make_mesh({{"a", 16}}), P{"a"}}};
  return splits;
}

Array floats_of_bits(std::vector<std::uint32_t> bits, Shape shape) {
  std::vector<float> values(bits.size());
  std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
  return array(values, std::move(shape));
}

TEST(SplitRows, KeepEveryBit) {
  // NaNs with a payload, with a sign, and signaling; both zeros; infinities; denormals.
  const Array table = floats_of_bits(
      {0x7fc00000, 0xffc12345, 0x7f800001, 0xff80beef, 0x80000000, 0,          0x7f800000,
       0xff800000, 0x80000001, 1,          0x7fffffff, 0x3f800000, 0xbf800000, 0x80000000,
       0x7fc00001, 0x00800000, 0x80000000, 0x80000000, 0x7f812345, 0xffffffff},
      {10, 2});
  // Few ids at a time: many rows would be read from a gathered table.
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
  for (const Array& ids : {array({0, 1, 9}), array({2, 3, 3}), array({-1, 4, 5}), array({6, 7, 8}),
                           array({8, 10, 11}), array({0, kMost, kLeast})}) {
    for (const auto& [mesh, spec] : row_splits()) {
      const auto read = [](const std::vector<Array>& in) { return take(in[0], in[1]); };
      const Uses uses = run_placed(mesh, read, {table, ids}, {spec});
      // With more devices than rows, the rows are gathered.
      EXPECT_EQ(uses.at(0).substr(0, 10), mesh.num_devices() > 10 ? "all_gather" : "all_reduce");
    }
  }
}

TEST(SplitRows, OfIntegers) {
  const Array table = random::randint(Key(1), {10, 3}, -50, 50);
  const Array ids = array({9, 0, -7, 10, 3, 3, 5});
  for (const auto& [mesh, spec] : row_splits()) {
    run_placed(mesh, [](const std::vector<Array>& in) { return take(in[0], in[1]); }, {table, ids},
               {spec});
  }
}

const Mesh& four() {
  static const Mesh mesh = make_mesh({{"model", 4}});
  return mesh;
}

TEST(SplitRows, AreJoinedAfterTheyAreRead) {
  const Uses uses =
      run_placed(four(), [](const std::vector<Array>& in) { return take(in[0], in[1]); },
                 {numbers({100, 16}), array({7, 0, 99, 7, 31})}, {P{"model"}});
  EXPECT_EQ(uses, Uses{fmt::format("all_reduce x1: {} bytes", 2 * 5 * 16 * 4 * 3 / 4)});
}

TEST(SplitRows, OfASmallTableAreGatheredInstead) {
  const Array ids = random::randint(Key(2), {4096}, 0, 8);
  const Uses uses =
      run_placed(four(), [](const std::vector<Array>& in) { return take(in[0], in[1]); },
                 {numbers({8, 16}), ids}, {P{"model"}});
  EXPECT_EQ(uses, Uses{fmt::format("all_gather x1: {} bytes", 8 * 16 * 4 * 3 / 4)});
}

TEST(SplitRows, OfUpdatesStayWhereTheyAre) {
  const Array x = numbers({100, 16}, 1);
  const Array ids = array({7, 0, 99, 7, 31, -1, 100, 7});  // scatter keeps a row's last update
  const Array updates = numbers({8, 16}, 2);
  for (const auto& f : {scatter_add, +[](Operand a, Operand b, Operand c) {
                          return scatter(std::move(a), std::move(b), std::move(c), 0);
                        }}) {
    const auto update = [&](const std::vector<Array>& in) { return f(in[0], in[1], in[2]); };
    EXPECT_EQ(run_placed(four(), update, {x, ids, updates}, {P{"model"}}), Uses{});
    for (const auto& [mesh, spec] : row_splits()) {
      run_placed(mesh, update, {numbers({10, 16}, 1), ids, updates}, {spec});
    }
  }
}

TEST(SplitRows, OfSegmentsTakeTheRowsThatTheyHold) {
  Array x = numbers({64, 6});
  x = where(less(x, -1), -0.0F, where(greater(x, 1), NAN, x));
  const Array ids = random::randint(Key(6), {64}, -1, 13);
  using Segment = Array (*)(Operand, Operand, std::int64_t);
  for (const Segment segment : {Segment(segment_sum), Segment(segment_max), Segment(segment_min)}) {
    const auto all = [=](const std::vector<Array>& in) { return segment(in[0], in[1], 12); };
    const auto slope = [=](const std::vector<Array>& in) {
      return grad([&](const Array& rows) {
        const Array each = segment(rows, in[1], 12);
        return sum(where(is_finite(each), square(each), 0));
      })(in[0]);
    };
    for (const auto& [mesh, spec] : row_splits()) {
      run_placed(mesh, all, {x, ids}, {spec});
      run_placed(mesh, slope, {x, ids}, {spec});
    }
    // Each device combines the rows that it holds. The results are then combined over the devices.
    const Uses uses = run_placed(four(), all, {x, ids}, {P{"model"}, P{"model"}});
    EXPECT_EQ(uses, Uses{fmt::format("all_reduce x1: {} bytes", 2 * 12 * 6 * 4 * 3 / 4)});
  }
}

TEST(SplitRows, OfGradientsAreSummedWhereTheyAre) {
  const auto gradient = [](const std::vector<Array>& in) {
    return grad([&](const Array& table) { return sum(square(take(table, in[1]))); })(in[0]);
  };
  // Many ids repeat. Their gradients must be summed in the order of one device.
  const Array ids = random::randint(Key(3), {64}, 0, 100);
  const Uses uses = run_placed(four(), gradient, {numbers({200, 16}), ids}, {P{"model"}});
  EXPECT_EQ(uses, Uses{fmt::format("all_reduce x1: {} bytes", 2 * 64 * 16 * 4 * 3 / 4)});
}

TEST(SplitLines, AreReadAndWrittenWhereTheyLie) {
  const Array x = numbers({8, 100});
  const Array ids = random::randint(Key(4), {8, 1}, 0, 100);
  const auto read = [](const std::vector<Array>& in) { return take_along_axis(in[0], in[1]); };
  const std::string read_lines = fmt::format("all_reduce x1: {} bytes", 2 * 8 * 4 * 3 / 4);
  EXPECT_EQ(run_placed(four(), read, {x, ids}, {P{none, "model"}}), Uses{read_lines});
  const auto gradient = [](const std::vector<Array>& in) {
    return grad([&](const Array& v) { return sum(square(take_along_axis(v, in[1]))); })(in[0]);
  };
  EXPECT_EQ(run_placed(four(), gradient, {x, ids}, {P{none, "model"}}), Uses{read_lines});
}

TEST(SplitParts, AreReadAndWrittenWhereTheyLie) {
  const Array x = numbers({100, 8});
  const Array part = numbers({7, 8}, 1);
  for (std::int32_t start : {-3, 0, 20, 22, 47, 93, 120}) {
    const Array at = scalar(start);
    const auto read = [](const std::vector<Array>& in) {
      return dynamic_slice(in[0], {in[1], 0}, {7, 8});
    };
    EXPECT_EQ(run_placed(four(), read, {x, at}, {P{"model"}}),
              Uses{fmt::format("all_reduce x1: {} bytes", 2 * 7 * 8 * 4 * 3 / 4)});
    const auto write = [](const std::vector<Array>& in) {
      return dynamic_update_slice(in[0], in[2], {in[1], 0});
    };
    EXPECT_EQ(run_placed(four(), write, {x, at, part}, {P{"model"}}), Uses{});
    for (const auto& [mesh, spec] : row_splits()) run_placed(mesh, read, {x, at}, {spec});
    for (const auto& [mesh, spec] : row_splits()) run_placed(mesh, write, {x, at, part}, {spec});
  }
}

}  // namespace
}  // namespace tessera::testing
