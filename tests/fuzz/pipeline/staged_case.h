// Random cases: a network, the groups of devices that train it, a schedule, and where arrays live.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/mesh.h>
#include <tessera/schedule.h>

#include "tests/fuzz/pipeline/net.h"

namespace tessera::fuzz {

/// Where parameters live in a group.
enum class ParamLayout : std::uint8_t {
  replicated,
  fsdp,    // each split along its first largest dimension
  random,  // axes along any dimensions
};

/// Plain values, from which all else follows: so that a case is made smaller value by value.
struct StagedCase {
  std::uint64_t seed = 0;
  std::string model;  // what the layers were drawn for
  Net net;
  std::int64_t microbatches = 1;
  std::int64_t groups = 1;
  std::vector<MeshAxis> axes;  // of the devices of a group; the first one is for rows
  std::int64_t grains = 8;
  std::string schedule;  // a built-in one, "auto", or "random": tasks in any order that is allowed
  ParamLayout layout = ParamLayout::replicated;
  bool splits_rows = true;       // of what the step is given
  bool asks_for_layout = false;  // of the new parameters
  bool stacks_gradient = false;  // the first parameter's, a row for each microbatch
  bool donates = false;
  bool is_isolated = false;  // a process per device
  int steps = 1;
  int threads = 2;
  int threads_per_group = 0;

  std::int64_t num_stages() const { return static_cast<std::int64_t>(net.ends.size()); }
  std::int64_t num_devices() const;  // of all groups
};

StagedCase make_staged_case(std::uint64_t seed);
/// Several lines, the tasks too.
std::string to_string(const StagedCase& c);

/// Nothing where the schedule is not made for such sizes.
std::optional<ScheduleTasks> tasks_of(const StagedCase& c);
MpmdMesh mesh_of(const StagedCase& c);
/// Of the parameters, which are a std::vector<Array>.
std::vector<PartitionSpec> param_specs(const StagedCase& c);
/// Of the activations of a microbatch.
PartitionSpec row_spec(const StagedCase& c);

/// The same case with something less.
std::vector<StagedCase> smaller_cases(const StagedCase& c);

}  // namespace tessera::fuzz
