// Runs a function on the reference engine, on the host engine, and on the host engine over a mesh.
//
//   const Arrays whole = run_whole(function, inputs);
//   const Arrays split = run_sharded(function, placed, inputs);
//   EXPECT_EQ(first_difference(split, whole), std::nullopt);
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/dot_unit.h"
#include "ir/ir.h"
#include "mesh/sharding.h"
#include "ops/host_array.h"
#include "ops/record.h"
#include "run/executable.h"

namespace tessera::testing {

using Arrays = std::vector<ops::HostArray>;

/// The shardings of inputs and outputs on the function's mesh.
struct Placed {
  std::vector<Sharding> inputs;
  std::vector<bool> is_storage = {};                  // per input; missing entries are false
  std::vector<std::optional<Sharding>> outputs = {};  // missing entries are inferred
  std::vector<int> output_alias = {};                 // missing entries are -1
};

/// Splits an array into tiles, each in its own buffer.
run::Tiles scatter(const ops::HostArray& array, const Layout& layout);
/// Assembles an array from its tiles. Elements that no tile holds are zero.
ops::HostArray gather(const run::Tiles& tiles, const Layout& layout, DType dtype);

/// The same function for one device; sharding constraints have no effect.
ir::Function without_mesh(const ir::Function& function);

/// The same function and its nested functions, with these numerics.
ir::Function with_numerics(const ir::Function& function, Numerics numerics);

/// The unit for bf16 products in all runs: the best one of this machine.
DotUnit tested_dot_unit();

Arrays run_reference(const ir::Function& function, const Arrays& inputs);
/// Runs on the host engine with one device.
Arrays run_whole(const ir::Function& function, const Arrays& inputs);

/// Faults to inject before a function runs on a mesh. Empty members change nothing.
struct Fault {
  std::function<void(std::vector<run::Tiles>&)> tiles = {};  // changes the tiles of the inputs
  std::function<void(ir::Function&)> program = {};           // after partitioning
  std::function<void(run::Executable&)> executable = {};
};
/// The partitioned function, verified after each pass.
ir::Function partition_verified(const ir::Function& function, const Placed& placed);
/// The aliases that shardings allow: an output can take over an input's buffers only if both have
/// the same sharding.
std::vector<int> possible_aliases(const ir::Function& partitioned, std::vector<int> output_alias);
/// Runs a partitioned function. Aliased inputs are donated.
Arrays run_partitioned(const ir::Function& partitioned, const std::vector<int>& output_alias,
                       const Arrays& inputs, const Fault& fault = {});
Arrays run_sharded(const ir::Function& function, const Placed& placed, const Arrays& inputs);

/// How many numbers y is away from x: 0 for equal bits and for two NaNs, infinite if only one is
/// NaN.
double ulps_between(float x, float y);
double ulps_between(double x, double y);
/// How much elements may differ, as in ops::Sample.
struct ErrorBound {
  double max_ulp = 0.0;
  double max_error = 0.0;

  static ErrorBound of(const ops::Sample& sample) {
    return {.max_ulp = sample.max_ulp, .max_error = sample.max_error};
  }
};
/// Describes the first element that differs by more than that, or nullopt. Without one, bits
/// must be equal, except that all NaNs are equal.
std::optional<std::string> first_difference(const ops::HostArray& found,
                                            const ops::HostArray& wanted,
                                            const ErrorBound& bound = {});
std::optional<std::string> first_difference(const Arrays& found, const Arrays& wanted,
                                            const ErrorBound& bound = {});

}  // namespace tessera::testing
