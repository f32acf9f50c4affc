// A traced function with the shardings requested for its inputs and outputs, and its way through
// the stages of the compiler.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tessera/jit.h>

#include "api/array_node.h"
#include "api/context/settings.h"
#include "base/once.h"
#include "ir/pass.h"
#include "pipeline/pipeline.h"
#include "run/devices/backend.h"

namespace tessera::detail {

class Donation;

struct Program {
  std::string name;  // of the jitted function; empty for ops outside of one
  // The traced function. Its inputs are the leaves of the arguments, then the captured arrays.
  ir::Function traced;
  std::vector<Array> captured;
  std::string structure;                                  // of the arguments
  std::shared_ptr<const std::vector<std::string>> paths;  // of the arguments' leaves
  std::vector<std::string> result_paths;
  std::shared_ptr<const void> result;  // as traced, with abstract leaves
  // What the caller asks for. After simplify(), per-output entries exist for computed outputs only.
  std::vector<PlacementPtr> inputs;
  std::vector<ParamInfoPtr> input_infos;   // nullptr unless a parameter
  std::vector<ParamInfoPtr> output_infos;  // likewise
  std::vector<ParamInfoPtr> result_infos;  // likewise, of all leaves of the result
  std::vector<bool> is_storage;            // parameters
  std::vector<bool> is_donated;
  std::vector<std::optional<Sharding>> asked_outputs;
  std::vector<HolderGroups> asked_groups;   // per output: the groups to hold it; nullptr: any
  std::vector<HolderGroups> result_groups;  // likewise, of all leaves of the result
  std::vector<int> output_replaces;  // per output: the argument whose next value it is, or -1
  EngineChoice engine;
  DotUnit dot_unit = DotUnit::portable;
  run::Target target;
  bool check_finite = false;
  ir::PassOptions passes;
  std::optional<pipeline::PipelineOptions> pipeline;  // of a step that runs on groups of devices
  // Outputs that are inputs are returned without being computed.
  std::vector<int> forwarded;            // per output: that input, or -1
  std::vector<ir::ValueId> all_outputs;  // of `traced`
  // The results of the stages of the compiler; each stage runs once.
  Once partition_once, compile_once;
  ir::Function partitioned;
  pipeline::GroupsOfPorts groups;            // of a pipeline
  std::vector<pipeline::OutputCopy> copies;  // per output of `partitioned`
  bool has_own_outputs = false;  // `partitioned` computes what the group of this process keeps
  ScheduleCosts stage_costs = {.stages = {}};  // of a pipeline, estimated
  std::vector<PlacementPtr> outputs;
  std::vector<int> output_alias;  // per output: the donated input whose buffer it takes, or -1
  std::shared_ptr<const run::Runnable> runnable;      // nullptr if all outputs are inputs
  std::shared_ptr<const run::Executable> executable;  // what the host engine runs
  std::atomic<bool> is_compared = false;              // with the programs of other ranks
  std::atomic<bool> is_memory_checked = false;
  std::atomic<double> seconds = 0.0;
};

/// Throws UserError for a disabled pass that does not exist or is not optional.
ir::PassOptions pass_options(const PassSettings& settings, const std::string& subject);
/// Prepares `traced` for lowering: removes dead code, repeated code, unused captures, and outputs
/// that are inputs.
void simplify(Program& program);
/// Throws UserError for callbacks, whose order a schedule would change.
void refuse_effects(const ir::Function& function);
/// check_finite computes a function again, without its effects. Throws UserError if the function
/// uses results of these effects.
void refuse_to_repeat(const ir::Function& function, const std::string& name);
/// Partitions the program over its mesh, once.
void lower(Program& program);
/// Compiles the program for the device with the largest tiles in each group, as the process of that
/// device would. These executables cannot run.
std::vector<std::shared_ptr<const run::Executable>> compile_for_devices(Program& program);
/// The groups of a pipeline that hold a leaf of its result. Empty if the leaf is an input that no
/// group reads.
const std::vector<std::int64_t>& groups_of_result(const Program& program, std::size_t number);
/// The output of the executable that this process returns for an output of the program; nullopt if
/// only other groups have it.
std::optional<std::size_t> own_copy(const Program& program, std::size_t output);
/// Sends an input to the groups of a pipeline that read it. Other groups drop it.
Tiled bring_input(const Program& program, std::size_t input, Tiled x);
/// Throws UserError if a compiled program needs more memory than the machine has left. A program
/// that has passed is not checked again. With one process per device, this is a collective. Hold
/// the result until the program has run, so that the next check sees the memory that it has taken.
[[nodiscard]] std::unique_lock<std::mutex> check_memory(Program& program, const Span& where);
/// Drops the tiles of inputs that the host engine does not read.
void drop_unread(const Program& program, std::vector<run::Tiles>& inputs);
/// Must be called before a compiled program is executed. Adds the program to the trace that is
/// being recorded, if there is one.
void note_program(const Program& program);
/// Runs the program on tiles with the placements in program.inputs. A pipeline runs on all groups,
/// any other program on the groups that hold all inputs.
std::vector<Array> execute(Program& program, std::vector<Tiled> inputs, Donation& donation);

/// The number of the argument that contains the leaf.
std::size_t argument_number(const Walk& arguments, std::size_t leaf);
/// The path without the number of the argument: `0/params/kernel` -> `params/kernel`.
std::string inner_path(const std::string& path);

/// The single mesh that arrays, shardings and the scope must agree on.
class MeshChoice {
 public:
  /// Starts with the current mesh.
  explicit MeshChoice(Span where);
  MeshChoice(const Mesh& mesh, Span where, std::string subject = "the use_mesh scope");
  /// Throws UserError when another mesh was chosen before.
  void add(const Mesh& mesh, const std::string& subject);
  const Mesh& mesh() const { return mesh_; }

 private:
  Mesh mesh_;
  std::string subject_;
  Span where_;
};

/// The sharding over `mesh` that `shardings` asks for a leaf, if any.
std::optional<Sharding> asked_sharding(const Shardings& shardings, const std::string& path,
                                       const ParamInfo* info, const Type& type, const Mesh& mesh,
                                       const std::string& subject, const Span& where);
/// Throws UserError if an entry of `shardings` applies to none of these paths.
void check_paths(const Shardings& shardings, const std::vector<std::string>& paths,
                 const std::string& subject, const Span& where);

}  // namespace tessera::detail
