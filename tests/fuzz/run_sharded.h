// Runs a function on the reference, on the host engine, and on the host engine over a mesh.
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
#include "run/executable.h"

namespace tessera::testing {

using Arrays = std::vector<ops::HostArray>;

/// Where inputs and outputs live on the mesh of the function.
struct Placed {
  std::vector<Sharding> inputs;
  std::vector<bool> is_storage = {};                  // per input; missing entries are false
  std::vector<std::optional<Sharding>> outputs = {};  // missing entries are inferred
  std::vector<int> output_alias = {};                 // missing entries are -1
};

/// The tiles of an array, in buffers of their own.
run::Tiles scatter(const ops::HostArray& array, const Layout& layout);
/// The array that tiles make; elements that no tile holds stay zero.
ops::HostArray gather(const run::Tiles& tiles, const Layout& layout, DType dtype);

/// The same function for one device: constraints ask for nothing.
ir::Function without_mesh(const ir::Function& function);

/// The same function, with all that is nested in it.
ir::Function with_numerics(const ir::Function& function, Numerics numerics);

/// The unit of products of bf16 in all runs: the best one of this machine.
DotUnit tested_dot_unit();

Arrays run_reference(const ir::Function& function, const Arrays& inputs);
/// Host engine, one device.
Arrays run_whole(const ir::Function& function, const Arrays& inputs);

/// What is made wrong on purpose before a function runs on a mesh; what is empty stays right.
struct Fault {
  std::function<void(std::vector<run::Tiles>&)> tiles = {};  // of the inputs
  std::function<void(ir::Function&)> program = {};           // after partitioning
  std::function<void(run::Executable&)> executable = {};
};
/// The partitioned function, verified after each pass.
ir::Function partition_verified(const ir::Function& function, const Placed& placed);
/// The aliases that shardings allow: an output takes an input's buffers only as they lie.
std::vector<int> possible_aliases(const ir::Function& partitioned, std::vector<int> output_alias);
/// Runs a function that has been partitioned; aliased inputs are donated.
Arrays run_partitioned(const ir::Function& partitioned, const std::vector<int>& output_alias,
                       const Arrays& inputs, const Fault& fault = {});
Arrays run_sharded(const ir::Function& function, const Placed& placed, const Arrays& inputs);

/// Floats between two floats; 0 for equal bits and for two NaNs, infinite for one NaN.
double ulps_between(float x, float y);
/// Describes the first element that differs by more than `max_ulp`; with 0 bits must be equal, but
/// all NaNs are one.
std::optional<std::string> first_difference(const ops::HostArray& found,
                                            const ops::HostArray& wanted, double max_ulp = 0.0);
std::optional<std::string> first_difference(const Arrays& found, const Arrays& wanted,
                                            double max_ulp = 0.0);

}  // namespace tessera::testing
