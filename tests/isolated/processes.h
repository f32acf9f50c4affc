// Runs partitioned functions in several processes and compares with one process for all devices.
#pragma once

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <sys/mman.h>

#include <tessera/error.h>

#include "compile/compile.h"
#include "mesh/blocks.h"
#include "partition/partition.h"
#include "run/engine.h"
#include "run/transport/processes.h"
#include "tests/fuzz/run_sharded.h"

namespace tessera::testing {

/// Runs `body` in `count` processes. Returns 0 if none of them fails.
inline int in_processes(int count, const std::function<void()>& body,
                        std::chrono::milliseconds timeout = std::chrono::seconds(60),
                        int num_groups = 1, int devices_per_process = 1) {
  return run::run_processes({.count = count,
                             .num_groups = num_groups,
                             .devices_per_process = devices_per_process,
                             .timeout = timeout,
                             .on_error =
                                 [](const std::exception_ptr& error, bool /*is_reporter*/) {
                                   try {
                                     std::rethrow_exception(error);
                                   } catch (const std::exception& what) {
                                     std::fprintf(stderr, "%s\n", what.what());
                                   }
                                   return 2;
                                 }},
                            body);
}

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// Whether the bits are equal, with all NaNs equal.
inline bool is_same(run::Buffer& a, run::Buffer& b, DType dtype) {
  const auto array_of = [&](run::Buffer& buffer) {
    ops::HostArray array({dtype, {buffer.size() / static_cast<std::int64_t>(size_bytes(dtype))}});
    std::copy_n(buffer.data(), buffer.size(), array.bytes().begin());
    return array;
  };
  return !first_difference(array_of(a), array_of(b));
}

/// A function compiled for all devices and for the devices of this process.
class BothWays {
 public:
  BothWays(const ir::Function& function, const std::vector<int>& output_alias)
      : function_(function) {
    options_.is_donated.assign(function.inputs.size(), false);
    options_.output_alias = possible_aliases(function, output_alias);
    options_.dot_unit = tested_dot_unit();
    for (int alias : options_.output_alias) {
      if (alias >= 0) options_.is_donated[static_cast<std::size_t>(alias)] = true;
    }
    shared = compile::compile(function, options_);
    options_.target.world = run::world();
    isolated = compile::compile(function, options_);
  }

  /// Runs both and compares outputs, collectives and bytes.
  void check(const Arrays& inputs) const {
    std::vector<run::Tiles> all;
    std::vector<run::Tiles> own;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Layout layout = layout_of(function_.inputs[i]);
      all.push_back(scatter(inputs[i], layout));
      own.push_back(own_of(scatter(inputs[i], layout), layout));
    }
    run::Engine& engine = run::Engine::instance();
    engine.reset_collective_counts();
    const std::vector<run::Tiles> wanted = engine.execute(*shared, std::move(all));
    const run::CollectiveCounts wanted_counts = engine.collective_counts();
    engine.reset_collective_counts();
    const std::int64_t before = run::transport()->received_bytes();
    const std::vector<run::Tiles> found = engine.execute(*isolated, std::move(own));
    compare_counts(engine.collective_counts(), wanted_counts);
    received_bytes = run::transport()->received_bytes() - before;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const run::Tiles own_wanted = own_of(wanted[i], layout_of(function_.outputs[i]));
      expect(found[i].size() == own_wanted.size(), fmt::format("number of tiles of output {}", i));
      for (std::size_t tile = 0; tile < own_wanted.size(); ++tile) {
        run::Buffer& a = *found[i][tile];
        run::Buffer& b = *own_wanted[tile];
        expect(a.size() == b.size(), fmt::format("size of tile {} of output {}", tile, i));
        expect(is_same(a, b, function_.type(function_.outputs[i]).dtype),
               fmt::format("rank {}: other bits in output {}", run::transport()->rank(), i));
      }
    }
  }

  std::shared_ptr<const run::Executable> shared, isolated;
  mutable std::int64_t received_bytes = 0;

 private:
  Layout layout_of(ir::ValueId id) const {
    return Layout(function_.mesh, function_.sharding(id), function_.type(id).shape);
  }
  run::Tiles own_of(const run::Tiles& all, const Layout& layout) const {
    run::Tiles own;
    const Blocks blocks(function_.mesh, run::world().size());
    for (const std::int64_t tile : blocks.tiles(run::world().rank(), layout)) {
      own.push_back(all[static_cast<std::size_t>(tile)]);
    }
    return own;
  }
  static void compare_counts(const run::CollectiveCounts& found,
                             const run::CollectiveCounts& wanted) {
    expect(found.size() == wanted.size(), "other kinds of collectives");
    for (const auto& [kind, count] : wanted) {
      expect(found.count(kind) == 1, kind + " is missing");
      const run::CollectiveCount& other = found.at(kind);
      expect(other.count == count.count && other.bytes == count.bytes &&
                 other.wire_bytes == count.wire_bytes,
             fmt::format("{}: {} times, {} and {} bytes; for all devices {} times, {} and {} bytes",
                         kind, other.count, other.bytes, other.wire_bytes, count.count, count.bytes,
                         count.wire_bytes));
    }
  }

  ir::Function function_;
  compile::CompileOptions options_;
};

/// Checks a function in every number of processes that divides its devices. The processes together
/// receive at most what they would with one device each.
inline void check_in_processes(const ir::Function& function, const std::vector<int>& alias,
                               const Arrays& inputs, const std::string& what) {
  const auto devices = static_cast<int>(function.mesh.num_devices());
  auto* const received = static_cast<std::int64_t*>(mmap(
      nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (int processes = devices; processes > 1; --processes) {
    if (devices % processes != 0) continue;
    const auto body = [&] {
      const BothWays both(function, alias);
      both.check(inputs);
      const auto all = run::all_values(both.received_bytes, {"bytes", "the test", {}});
      if (run::world().rank() == 0)
        *received = std::accumulate(all.begin(), all.end(), std::int64_t{0});
    };
    ASSERT_EQ(in_processes(processes, body), 0) << processes << " processes, " << what;
    ASSERT_LE(*received, most) << processes << " processes, " << what;
    if (processes == devices) most = *received;
  }
  munmap(received, sizeof(std::int64_t));
}

}  // namespace tessera::testing
