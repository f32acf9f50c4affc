// Random cases: a network, the groups of devices that train it, a schedule, and shardings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/mesh.h>
#include <tessera/schedule.h>

#include "tests/fuzz/pipeline/net.h"

namespace tessera::fuzz {

/// How parameters are sharded in a group.
enum class ParamLayout : std::uint8_t {
  replicated,
  fsdp,    // each split along its first largest dimension
  random,  // random axes along random dimensions
};

/// A case as plain values that determine everything else, so that it can be minimised value by
/// value.
struct StagedCase {
  std::uint64_t seed = 0;
  std::string model;  // the family of models that the layers were drawn from
  Net net;
  std::int64_t microbatches = 1;
  std::int64_t groups = 1;
  std::vector<MeshAxis> axes;  // of the devices of a group; the first one splits the rows
  std::int64_t grains = 8;
  std::string schedule;  // a built-in one, "auto", or "random": any order of tasks that is allowed
  ParamLayout layout = ParamLayout::replicated;
  bool splits_rows = true;       // of the arguments of the step
  bool asks_for_layout = false;  // requests shardings of the new parameters
  bool stacks_gradient = false;  // stacks the first parameter's gradients, one row per microbatch
  bool donates = false;
  bool is_isolated = false;  // in several processes
  int devices_per_process = 1;
  int steps = 1;
  int threads = 2;
  int threads_per_group = 0;

  std::int64_t num_stages() const { return static_cast<std::int64_t>(net.ends.size()); }
  std::int64_t num_devices() const;  // of all groups
};

StagedCase make_staged_case(std::uint64_t seed);
/// Several lines, which include the tasks.
std::string to_string(const StagedCase& c);

/// The tasks of the schedule; nullopt if it does not support these sizes.
std::optional<ScheduleTasks> tasks_of(const StagedCase& c);
MpmdMesh mesh_of(const StagedCase& c);
/// Shardings of the parameters, in the order of parameters_of().
std::vector<PartitionSpec> param_specs(const StagedCase& c);
/// The sharding of the activations of a microbatch.
PartitionSpec row_spec(const StagedCase& c);

/// Copies of the case, each with something made smaller.
std::vector<StagedCase> smaller_cases(const StagedCase& c);

}  // namespace tessera::fuzz
