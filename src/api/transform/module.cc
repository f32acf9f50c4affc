#include "api/transform/module.h"

#include <algorithm>

#include <tessera/error.h>

#include "api/program.h"
#include "api/transform/over_mesh.h"
#include "ir/bodies.h"
#include "partition/partition.h"
#include "stablehlo/bytecode/module.h"
#include "stablehlo/import/import.h"
#include "stablehlo/stablehlo.h"

namespace tessera::detail {

namespace {

ir::Function with_settings(ir::Function function, const Settings& settings) {
  const auto adapt = [&](ir::Function part) {
    part.grains = settings.grains;
    part.numerics = settings.numerics;
    return part;
  };
  return adapt(ir::with_changed_bodies(std::move(function), adapt));
}

/// A module without a mesh computes the same on all devices.
void check_mesh(ir::Function& function, std::int64_t num_devices, const Span& where) {
  if (function.mesh.num_devices() == num_devices) return;
  if (function.mesh.axes().empty()) {
    function = ir::with_mesh(std::move(function), Mesh({{"devices", num_devices}}));
    return;
  }
  throw UserError({.what = "stablehlo: the mesh of the program has the wrong number of devices",
                   .where = where,
                   .found = to_string(function.mesh),
                   .wanted = "a mesh of " + std::to_string(num_devices) + " devices",
                   .cure = "use all devices of the call in the mesh of the program"});
}

/// Whether JAX can name it: whole axes, one after the other, and tiles of equal size.
bool is_regular(const Placement& placement) {
  const std::vector<Atom> atoms = atoms_of(placement.mesh);
  for (std::size_t dim = 0; dim < placement.sharding.dims.size(); ++dim) {
    const AtomList& list = placement.sharding.dims[dim];
    if (placement.type.shape[dim] % num_shards(atoms, list) != 0) return false;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::size_t atom = list[i];
      const bool is_first = atom == 0 || atoms[atom - 1].axis != atoms[atom].axis;
      const bool is_last = atom + 1 == atoms.size() || atoms[atom + 1].axis != atoms[atom].axis;
      if (!is_first && (i == 0 || list[i - 1] != atom - 1)) return false;
      if (!is_last && (i + 1 == list.size() || list[i + 1] != atom + 1)) return false;
    }
  }
  return true;
}

/// The sharding without the dimensions that are not regular.
Sharding regular(const Placement& placement) {
  Sharding result = placement.sharding;
  for (std::size_t dim = 0; dim < result.dims.size(); ++dim) {
    Placement one = placement;
    one.sharding = replicated_sharding(placement.type.rank());
    one.sharding.dims[dim] = result.dims[dim];
    if (!is_regular(one)) result.dims[dim] = {};
  }
  return result;
}

std::shared_ptr<Program> program_of(stablehlo::Imported imported, const Settings& settings,
                                    const std::vector<std::optional<Sharding>>& asked) {
  auto program = std::make_shared<Program>();
  ir::Function function = with_settings(std::move(imported.function), settings);
  program->name = imported.name;
  program->engine = settings.engine;
  program->dot_unit = settings.dot_unit;
  program->target = target_of(settings);
  program->passes = pass_options({}, imported.name);
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    ir::Value& value = function.values[function.inputs[i]];
    const bool is_argument = i < imported.donated.size();
    Sharding sharding = value.sharding.value_or(replicated_sharding(value.type.rank()));
    sharding.open.clear();
    program->inputs.push_back(placement_of(value.type, function.mesh, sharding));
    program->input_infos.push_back(nullptr);
    // An argument that the results replace is state, as parameters are.
    program->is_storage.push_back(is_argument && imported.donated[i]);
    program->is_donated.push_back(is_argument && imported.donated[i]);
    if (is_argument) paths.push_back(std::to_string(i));
    value.sharding.reset();
  }
  for (const stablehlo::ConstantArray& constant : imported.constants) {
    const PlacementPtr placement = replicated_placement(constant.type, function.mesh);
    auto buffer = std::make_shared<run::Buffer>(static_cast<std::int64_t>(constant.bytes.size()));
    std::copy_n(reinterpret_cast<const std::byte*>(constant.bytes.data()), constant.bytes.size(),
                buffer->data());
    program->captured.push_back(make_concrete(placement, {std::move(buffer)}));
  }
  program->paths = std::make_shared<const std::vector<std::string>>(std::move(paths));
  const std::size_t count = function.outputs.size();
  program->output_infos.resize(count);
  program->asked_groups.resize(count);
  program->output_replaces.assign(count, -1);
  for (std::size_t i = 0; i < count; ++i) program->result_paths.push_back("result");
  program->asked_outputs = asked;
  program->asked_outputs.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int from = imported.replaces[i];
    if (from >= 0) program->output_replaces[i] = from;
  }
  program->traced = std::move(function);
  simplify(*program);
  return program;
}

/// The functions as equations call them.
stablehlo::FindHostCall in_ir(const FindHostCall& find) {
  using Call = ir::HostCallback::Call;
  return [find](std::int64_t number, const Span& where) -> std::shared_ptr<const Call> {
    const HostCall call = find(number, where);
    if (!call) return nullptr;
    return std::make_shared<const Call>(
        [call](std::span<const Type> /*types*/, std::span<const std::byte* const> operands,
               std::span<std::byte* const> results) { call(operands, results); });
  };
}

bool has_host_calls(const ir::Function& function) {
  return std::ranges::any_of(function.equations, [](const ir::Equation& equation) {
    const std::string_view op = ir::op_name(*equation.op);
    return op == "host_callback" || op == "pure_callback" ||
           std::ranges::any_of(ir::bodies_of(equation),
                               [](const ir::Function* body) { return has_host_calls(*body); });
  });
}

/// The placements of all results, those that are arguments included.
std::vector<PlacementPtr> placements_of_results(const Program& program) {
  std::vector<PlacementPtr> result;
  std::size_t next = 0;
  for (const int input : program.forwarded) {
    result.push_back(input < 0 ? program.outputs[next++]
                               : program.inputs[static_cast<std::size_t>(input)]);
  }
  return result;
}

}  // namespace

ModuleProgram::ModuleProgram(std::string_view bytes, std::int64_t num_devices,
                             const FindHostCall& find_host_call) {
  const auto module = stablehlo::bytecode::read_module(std::string(bytes));
  stablehlo::Imported imported =
      stablehlo::import_module(*module, map_tiles, in_ir(find_host_call));
  check_mesh(imported.function, num_devices, imported.where);
  donated_ = imported.donated;
  argument_terms_ = imported.argument_terms;
  result_terms_ = imported.result_terms;
  argument_is_complex_ = imported.argument_is_complex;
  result_is_complex_ = imported.result_is_complex;
  argument_narrow_ = imported.argument_narrow;
  result_narrow_ = imported.result_narrow;
  result_memory_kinds_ = imported.result_memory_kinds;
  const Settings settings = current_settings();
  program_ = program_of(imported, settings, {});
  arguments_.assign(program_->inputs.begin(),
                    program_->inputs.begin() + static_cast<std::ptrdiff_t>(donated_.size()));
  lower(*program_);
  results_ = placements_of_results(*program_);
  const auto fits = [](const PlacementPtr& placement) { return is_regular(*placement); };
  if (!std::all_of(results_.begin(), results_.end(), fits)) {
    std::vector<std::optional<Sharding>> asked;
    for (const PlacementPtr& placement : results_) asked.emplace_back(regular(*placement));
    program_ = program_of(std::move(imported), settings, asked);
    lower(*program_);
    results_ = placements_of_results(*program_);
  }
  compile(*program_);
}

const std::string& ModuleProgram::name() const { return program_->name; }

std::string ModuleProgram::text() const {
  return ir::print(program_->traced.outputs.empty() ? program_->traced : program_->partitioned);
}

std::string ModuleProgram::explain() const {
  return partition::explain_text(program_->partitioned, {});
}

std::string ModuleProgram::stablehlo() const {
  const Program& program = *program_;
  // Captured arrays would be arguments of the text, and terms of sums dimensions.
  const auto has_terms = [](const stablehlo::TermDims& terms) { return terms.count > 0; };
  if (!program.captured.empty() || std::ranges::any_of(argument_terms_, has_terms) ||
      std::ranges::any_of(result_terms_, has_terms)) {
    return {};
  }
  ir::Function function = program.partitioned;
  std::vector<ir::ValueId> outputs;
  std::size_t next = 0;
  for (const int input : program.forwarded) {
    outputs.push_back(input < 0 ? function.outputs[next++]
                                : function.inputs[static_cast<std::size_t>(input)]);
  }
  function.outputs = std::move(outputs);
  try {
    return tessera::stablehlo::emit(function, {.donated = program.is_donated});
  } catch (const UserError&) {
    return {};
  }
}

DeviceBytes ModuleProgram::memory() const {
  DeviceBytes memory;
  const auto bytes_of = [](const PlacementPtr& placement) {
    return size_bytes(Type{placement->type.dtype, placement->layout.max_tile_shape()});
  };
  for (const PlacementPtr& each : arguments_) memory.arguments += bytes_of(each);
  for (std::size_t i = 0; i < program_->outputs.size(); ++i) {
    memory.outputs += bytes_of(program_->outputs[i]);
    if (program_->output_alias[i] >= 0) memory.aliased += bytes_of(program_->outputs[i]);
  }
  if (program_->executable != nullptr) {
    memory.temporaries = program_->executable->device_arena_bytes;
  }
  return memory;
}

std::int64_t ModuleProgram::flops() const {
  std::int64_t sum = 0;
  if (program_->executable == nullptr) return 0;
  for (const run::Instruction& each : program_->executable->instructions) sum += each.flops;
  return sum;
}

std::int64_t ModuleProgram::bytes() const {
  std::int64_t sum = 0;
  if (program_->executable == nullptr) return 0;
  for (const run::Instruction& each : program_->executable->instructions) sum += each.bytes;
  return sum;
}

bool ModuleProgram::has_loops() const {
  const run::Executable* executable = program_->executable.get();
  const auto is_control = [](const run::Task& task) { return task.control != nullptr; };
  return executable != nullptr &&
         std::any_of(executable->tasks.begin(), executable->tasks.end(), is_control);
}

bool ModuleProgram::calls_host() const { return has_host_calls(program_->traced); }

std::vector<run::Tiles> ModuleProgram::run(std::vector<run::Tiles> arguments) const {
  Program& program = *program_;
  for (const Array& constant : program.captured) {
    arguments.push_back(tiles_of(constant, Span()).tiles);
  }
  std::vector<run::Tiles> results(program.forwarded.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const int input = program.forwarded[i];
    if (input >= 0) results[i] = arguments[static_cast<std::size_t>(input)];
  }
  if (program.runnable == nullptr) return results;
  const std::unique_lock<std::mutex> memory = check_memory(program, Span());
  drop_unread(program, arguments);
  if (program.executable != nullptr) note_program(program);
  std::vector<run::Tiles> computed = program.runnable->execute(arguments, [] {});
  std::size_t next = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (program.forwarded[i] < 0) results[i] = std::move(computed[next++]);
  }
  return results;
}

}  // namespace tessera::detail
