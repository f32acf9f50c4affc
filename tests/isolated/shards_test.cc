// The public array interface with one process per device. Ranks are device ids.
#include <gtest/gtest.h>
#include <stdexcept>

#include <tessera/tessera.h>

#include "tests/isolated/reports.h"

namespace tessera {
namespace {

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void check_shards(const Mesh& mesh) {
  const use_mesh scope(mesh);
  const Array x = device_put(arange(12), P{"a"});
  const Array y = jit([](Array v) { return v * 2; })(x);
  const std::vector<Shard> shards = y.addressable_shards();
  expect(shards.size() == 1, "a process holds one tile");
  const Shard& own = shards[0];
  expect(own.device == process_index(), "ranks are device ids");
  // The mesh positions 0 and 1 hold the first half of the array.
  const std::int64_t position = mesh.position_of(own.device);
  expect(own.index == std::vector<IndexRange>{position < 2 ? IndexRange{0, 6} : IndexRange{6, 12}},
         "another part " + to_string(own.index));
  expect(own.replica_id == position % 2, "another replica");
  expect(own.data.to_vector<std::int32_t>()[0] == (position < 2 ? 0 : 12), "other values");
  expect(array_equal(y, arange(12) * 2), "gathered values differ");
  expect(array_equal(y.local_data(mesh.device_ids()[3]), arange(6, 12, 1) * 2), "a tile differs");
  // The same tiles on a mesh with devices in order: most come from another process.
  const Mesh plain = make_mesh({{"a", 2}, {"b", 2}});
  const Array moved = device_put(y, NamedSharding(plain, P{"a"}));
  const std::int32_t first = process_index() < 2 ? 0 : 12;
  expect(moved.addressable_shards()[0].data.to_vector<std::int32_t>()[0] == first, "moved wrongly");
}

TEST(IsolatedShards, RanksAreDeviceIds) {
  for (const std::vector<std::int64_t>& ids :
       {std::vector<std::int64_t>{}, {2, 0, 3, 1}, {3, 2, 1, 0}}) {
    const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}}, ids);
    testing::ReportingProgram program([&] { check_shards(mesh); });
    EXPECT_EQ(run_isolated(program, {.num_processes = 4}), 0) << to_string(mesh);
  }
}

}  // namespace
}  // namespace tessera
