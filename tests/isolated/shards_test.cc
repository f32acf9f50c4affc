// The public array interface in several processes, which own consecutive device ids.
#include <gtest/gtest.h>
#include <set>
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
  const std::int64_t own = 4 / process_count();  // devices
  expect(std::ssize(shards) == own, "a shard per device");
  std::set<std::int64_t> devices;
  for (const Shard& shard : shards) {
    expect(shard.device / own == process_index(), "devices are those of the rank");
    devices.insert(shard.device);
    // The mesh positions 0 and 1 hold the first half of the array.
    const std::int64_t position = mesh.position_of(shard.device);
    const IndexRange half = position < 2 ? IndexRange{0, 6} : IndexRange{6, 12};
    expect(shard.index == std::vector<IndexRange>{half}, "another part " + to_string(shard.index));
    expect(shard.replica_id == position % 2, "another replica");
    const std::int32_t first = position < 2 ? 0 : 12;
    expect(shard.data.to_vector<std::int32_t>()[0] == first, "other values");
  }
  expect(std::ssize(devices) == own, "every device once");
  expect(array_equal(y, arange(12) * 2), "gathered values differ");
  expect(array_equal(y.local_data(mesh.device_ids()[3]), arange(6, 12, 1) * 2), "a tile differs");
  // The same tiles on a mesh with devices in order: most come from another process.
  const Mesh plain = make_mesh({{"a", 2}, {"b", 2}});
  const Array moved = device_put(y, NamedSharding(plain, P{"a"}));
  for (const Shard& shard : moved.addressable_shards()) {
    const std::int32_t first = shard.device < 2 ? 0 : 12;
    expect(shard.data.to_vector<std::int32_t>()[0] == first, "moved wrongly");
  }
}

TEST(IsolatedShards, ProcessesHaveTheShardsOfTheirDevices) {
  for (const std::vector<std::int64_t>& ids :
       {std::vector<std::int64_t>{}, {2, 0, 3, 1}, {3, 2, 1, 0}}) {
    const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}}, ids);
    for (const int processes : {1, 2, 4}) {
      testing::ReportingProgram program([&] { check_shards(mesh); });
      EXPECT_EQ(run_isolated(program, {.num_processes = processes}), 0)
          << to_string(mesh) << " in " << processes;
    }
  }
}

}  // namespace
}  // namespace tessera
