// The public array interface in several processes, which own consecutive device ids.
#include <atomic>
#include <gtest/gtest.h>
#include <set>
#include <stdexcept>

#include <tessera/data.h>
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
  const std::int64_t own = 4 / process_count();  // devices of this process
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

/// Record i is the row [3 i, 3 i + 1, 3 i + 2].
class Rows final : public data::Source {
 public:
  explicit Rows(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  data::Record read(std::int64_t record, data::RecordRandom& /*random*/) const override {
    ++reads;
    const auto first = static_cast<float>(3 * record);
    return {{.shape = {3}, .values = std::vector<float>{first, first + 1, first + 2}}};
  }
  mutable std::atomic<std::int64_t> reads = 0;

 private:
  std::int64_t size_;
};

void check_batches(const Mesh& mesh, std::int64_t records, const PartitionSpec& spec) {
  const auto source = std::make_shared<Rows>(records);
  data::Batches batches = data::Dataset(source) | data::batch(8, data::Remainder::keep, 0);
  const data::Tokens tokens(arange(3 * records).to_vector<std::int32_t>(), 3);
  batches.place(NamedSharding(mesh, spec));
  const std::int64_t before = source->reads;
  std::int64_t first = 0;
  while (const auto batch = batches.next()) {
    const std::int64_t size = batch->at(0).dim(0);
    const Array wanted =
        device_put(reshape(arange(3 * first, 3 * (first + size), 1), {size, 3}), spec);
    expect(batch->at(0).sharding() == wanted.sharding(), "another sharding");
    expect(array_equal(batch->at(0), astype(wanted, DType::f32)), "other records");
    expect(array_equal(tokens.batch(first, size, NamedSharding(mesh, spec)), wanted), "other rows");
    first += size;
  }
  expect(first == records, "records are missing");
  const bool is_split = !spec.entries().empty() && !spec.entries()[0].axes.empty();
  const std::int64_t most = is_split ? (records + 7) / 8 * (8 / process_count()) : records;
  expect(source->reads - before <= most, "records of other processes were read");
}

TEST(IsolatedBatches, ProcessesReadTheirRecordsOnly) {
  const Mesh mesh = make_mesh({{"a", 4}, {"b", 2}});
  for (const PartitionSpec& spec : {P{"a"}, P{"a", "b"}, P{none, "b"}, P{{"b", "a"}}, P{}}) {
    for (const int processes : {1, 2, 4}) {
      for (const std::int64_t records : {16, 21}) {
        testing::ReportingProgram program([&] {
          const use_mesh scope(mesh);
          check_batches(mesh, records, spec);
        });
        EXPECT_EQ(run_isolated(program, {.num_processes = processes}), 0)
            << to_string(spec) << " in " << processes << ", records: " << records;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
