// Groups of devices in several processes: the same bits, counts and bytes as in one process.
#include "ops/control/mpmd.h"

#include <gtest/gtest.h>
#include <numeric>

#include "ir/text.h"
#include "tests/fuzz/case.h"
#include "tests/fuzz/pipelines.h"
#include "tests/fuzz/tasks.h"
#include "tests/isolated/processes.h"

namespace tessera::testing {
namespace {

using ir::Function;

/// A program of groups, compiled for all devices and for the devices of this process.
class GroupsBothWays {
 public:
  GroupsBothWays(const Function& function, const std::vector<int>& alias)
      : function_(function),
        groups_(ops::groups_of(function)),
        num_processes_(run::world().processes_per_group()),
        group_(run::world().group()),
        blocks_(function.mesh, num_processes_) {
    options_.is_donated.assign(function.inputs.size(), false);
    options_.output_alias = possible_aliases(function, alias);
    options_.dot_unit = tested_dot_unit();
    for (int input : options_.output_alias) {
      if (input >= 0) options_.is_donated[static_cast<std::size_t>(input)] = true;
    }
  }

  void check(const Arrays& inputs) {
    const auto shared = compile::compile(function_, options_);
    std::vector<run::Tiles> all;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      all.push_back(scatter(inputs[i], layout_of(function_.inputs[i])));
    }
    run::Engine& engine = run::Engine::instance();
    engine.reset_collective_counts();
    const std::vector<run::Tiles> wanted = engine.execute(*shared, std::move(all));
    const run::CollectiveCounts wanted_counts = engine.collective_counts();

    options_.target.world = run::world();
    const auto isolated = compile::compile(function_, options_);
    engine.reset_collective_counts();
    const std::int64_t before = run::transport()->received_bytes();
    const std::vector<run::Tiles> found = engine.execute(*isolated, own_tiles(*isolated, inputs));
    const std::int64_t received = run::transport()->received_bytes() - before;
    for (std::size_t i = 0; i < wanted.size(); ++i) compare_output(i, found[i], wanted[i]);
    compare_counts(engine.collective_counts(), wanted_counts, received);
    check_peaks(*isolated);
  }

 private:
  std::vector<run::Tiles> own_tiles(const run::Executable& executable, const Arrays& inputs) const {
    std::vector<run::Tiles> own;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Layout layout = layout_of(function_.inputs[i]);
      run::Tiles& tiles = own.emplace_back();
      if (!executable.inputs[i].tile_bytes.empty())
        tiles = own_of(scatter(inputs[i], layout), layout);
    }
    return own;
  }

  void compare_output(std::size_t i, const run::Tiles& found, const run::Tiles& wanted) const {
    const ir::ValueId id = function_.outputs[i];
    const int home = groups_.of_value[id];
    const bool is_here = home == group_ || home == ops::Groups::kNone;
    expect(found.empty() != is_here, fmt::format("output {} is made in group {}", i, home));
    if (!is_here) return;
    const run::Tiles own = own_of(wanted, layout_of(id));
    expect(found.size() == own.size(), fmt::format("number of tiles of output {}", i));
    for (std::size_t tile = 0; tile < own.size(); ++tile) {
      expect(found[tile]->size() == own[tile]->size() &&
                 is_same(*found[tile], *own[tile], function_.type(id).dtype),
             fmt::format("rank {}: other bits in output {}", run::transport()->rank(), i));
    }
  }

  /// Summed over the groups, the counts of each group's first device must equal those of one
  /// process for all devices.
  void compare_counts(const run::CollectiveCounts& found, const run::CollectiveCounts& wanted,
                      std::int64_t received) const {
    for (const char* kind : {"all_gather", "all_reduce", "reduce_scatter", "transfer"}) {
      const auto sum = [&](std::int64_t run::CollectiveCount::*field) {
        const auto mine = found.find(kind);
        const auto values = run::all_values(mine == found.end() ? 0 : mine->second.*field,
                                            {.kind = "counts", .op = kind, .span = {}});
        std::int64_t total = 0;
        for (std::size_t rank = 0; rank < values.size();
             rank += static_cast<std::size_t>(num_processes_)) {
          total += values[rank];
        }
        return total;
      };
      const auto all = wanted.find(kind);
      const run::CollectiveCount none;
      const run::CollectiveCount& total = all == wanted.end() ? none : all->second;
      expect(sum(&run::CollectiveCount::count) == total.count, fmt::format("number of {}", kind));
      expect(sum(&run::CollectiveCount::bytes) == total.bytes, fmt::format("bytes of {}", kind));
    }
    if (function_.mesh.num_devices() > 1) return;
    const auto mine = found.find("transfer");
    expect(received == (mine == found.end() ? 0 : mine->second.wire_bytes),
           "bytes received are those of the transfers");
  }

  void check_peaks(const run::Executable& isolated) const {
    for (std::size_t group = 0; group < isolated.group_peak_bytes.size(); ++group) {
      const std::int64_t peak = isolated.group_peak_bytes[group];
      if (static_cast<int>(group) != group_) {
        expect(peak == 0, "only its own group is planned");
        continue;
      }
      expect(peak == isolated.device_peak_bytes, "one group is all of it");
    }
  }

  Layout layout_of(ir::ValueId id) const {
    return Layout(function_.mesh, function_.sharding(id), function_.type(id).shape);
  }
  run::Tiles own_of(const run::Tiles& all, const Layout& layout) const {
    run::Tiles own;
    for (const std::int64_t tile : blocks_.tiles(run::world().rank() % num_processes_, layout)) {
      own.push_back(all[static_cast<std::size_t>(tile)]);
    }
    return own;
  }

  Function function_;
  ops::Groups groups_;
  int num_processes_;  // per group
  int group_;
  Blocks blocks_;
  compile::CompileOptions options_;
};

Arrays inputs_of(const Function& function) {
  fuzz::Random random(11);
  Arrays inputs;
  for (ir::ValueId id : function.inputs) {
    ops::HostArray& array = inputs.emplace_back(function.type(id));
    for (float& value : array.data<float>()) {
      value = static_cast<float>(random.between(-1000, 1000)) / 2048.0F;
    }
  }
  return inputs;
}

/// Runs a program of groups with every possible number of devices per process.
void check(const Function& f, int num_groups, const std::vector<int>& alias, const Arrays& inputs,
           const std::string& what) {
  const auto devices = static_cast<int>(f.mesh.num_devices());
  for (int processes = 1; processes <= devices; ++processes) {
    if (devices % processes != 0) continue;
    ASSERT_EQ(in_processes(
                  processes * num_groups, [&] { GroupsBothWays(f, alias).check(inputs); },
                  std::chrono::seconds(60), num_groups, devices / processes),
              0)
        << processes << " processes per group\n"
        << what;
  }
}

TEST(IsolatedMpmd, PipelinesGiveTheSameBits) {
  for (const Pipeline& pipeline :
       {Pipeline{2, 2, 3, false}, Pipeline{2, 4, 3, true}, Pipeline{3, 3, 4, true}}) {
    const Function f = pipeline_step(pipeline);
    const std::vector<int> kept(f.outputs.size(), -1);
    std::vector<int> updates(f.outputs.size());
    std::iota(updates.begin(), updates.end(), pipeline.num_microbatches);
    for (const std::vector<int>& alias : {kept, updates}) {
      check(f, pipeline.num_groups, alias, inputs_of(f), "");
    }
  }
}

/// The programs have tiles of all sizes, and values that the sender reads through views.
TEST(IsolatedMpmd, RandomProgramsGiveTheSameBits) {
  int num_run = 0;
  for (std::uint64_t seed = 1; num_run < 120; ++seed) {
    const fuzz::Case c = fuzz::make_case(seed);
    const auto devices = static_cast<int>(c.function.mesh.num_devices());
    if (devices > 4) continue;
    const Function partitioned = partition_verified(fuzz::program_of(c), c.placed);
    fuzz::Random random(seed);
    const int num_groups = devices > 2 ? 2 : 3;
    const Function f = fuzz::as_tasks(partitioned, num_groups, random);
    if (ops::groups_of(f).count < 2) continue;
    ++num_run;
    check(f, num_groups, c.placed.output_alias, c.inputs, fuzz::to_string(c) + ir::print(f));
  }
}

TEST(IsolatedMpmd, WhatIsSentMayBeAView) {
  const Function f = ir::parse(R"(function main[mesh="none", grains=8](%0: f32[4,6]<{},{}>) {
  %1: f32[4,6]<{},{}> = task[body={(%0: f32[4,6]<{},{}>) {
    %1: f32[4,6]<{},{}> = neg %0
    return %1
  }}, group=0, microbatch=-1, name="a", shares=[-1], stage=-1] %0
  %2: f32[6,4]<{},{}> = transpose[permutation=[1,0]] %1
  %3: f32[6,4]<{},{}> = transfer[from=0, to=1] %2
  %4: f32[24]<{}> = reshape[shape=[24]] %3
  %5: f32[24]<{}> = task[body={(%0: f32[24]<{}>) {
    %1: f32[24]<{}> = add %0, %0
    return %1
  }}, group=1, microbatch=-1, name="b", shares=[0], stage=-1] %4
  return %5, %1, %3
})");
  check(f, 2, {-1, -1, -1}, inputs_of(f), "");
}

}  // namespace
}  // namespace tessera::testing
