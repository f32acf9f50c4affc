#include "api/call/device_program.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include <tessera/error.h>

#include "ops/control/mpmd.h"
#include "run/devices/device_pipeline.h"
#include "run/transport/processes.h"
#include "run/world.h"
#include "stablehlo/stablehlo.h"

namespace tessera::detail {

namespace {

/// How a value lies on the devices from `first_device` on.
run::DevicePort port_of(const ir::Function& function, ir::ValueId id, std::int64_t first_device) {
  const Type& type = function.type(id);
  const Mesh& mesh = function.mesh;
  const Layout layout(mesh, function.sharding(id), type.shape);
  run::DevicePort port{.dtype = type.dtype, .room = layout.max_tile_shape(), .tiles = {}};
  for (std::int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
    port.tiles.push_back({.shape = layout.tile_shape(layout.digits(tile))});
  }
  for (std::int64_t device = 0; device < mesh.num_devices(); ++device) {
    const std::int64_t tile = layout.tile_at(device_digits(mesh, device));
    port.tiles[static_cast<std::size_t>(tile)].devices.push_back(first_device + device);
  }
  return port;
}

std::vector<run::DevicePort> ports_of(const ir::Function& function,
                                      const std::vector<ir::ValueId>& values,
                                      std::int64_t first_device) {
  std::vector<run::DevicePort> ports;
  for (const ir::ValueId id : values) ports.push_back(port_of(function, id, first_device));
  return ports;
}

/// `the result of mul at model.h:12 in train_step`
std::string origin_of(const ir::Equation& equation, const std::string& program) {
  const std::string line = to_string(equation.span);
  return fmt::format("the result of {}{}{} in {}", ir::op_name(*equation.op),
                     line.empty() ? "" : " at ", line, program);
}

std::vector<run::DevicePort> output_ports(const ir::Function& function, const std::string& program,
                                          std::int64_t first_device) {
  std::map<ir::ValueId, const ir::Equation*> made_by;
  for (const ir::Equation& equation : function.equations) {
    for (const ir::ValueId id : equation.results) made_by[id] = &equation;
  }
  std::vector<run::DevicePort> ports = ports_of(function, function.outputs, first_device);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const auto found = made_by.find(function.outputs[i]);
    if (found != made_by.end()) ports[i].origin = origin_of(*found->second, program);
  }
  return ports;
}

/// Smaller dimensions would take much more work if they were padded.
constexpr std::int64_t kPadsProductsFrom = 1024;

/// Compiles functions of one mesh for groups of devices. The devices of group g begin at g times
/// the number of devices of the mesh.
class DeviceCompiler {
 public:
  explicit DeviceCompiler(run::Backend& backend)
      : backend_(backend),
        widens_products_(backend.platform() == "cpu"),
        has_tensor_cores_(backend.has_tensor_cores()) {}

  /// Equal functions are compiled once for each group.
  std::shared_ptr<const run::Runnable> compile(const std::string& name,
                                               const ir::Function& function,
                                               const std::vector<bool>& is_donated,
                                               std::size_t group) {
    const std::string text = emit(function, is_donated, /*fuses_attention=*/has_tensor_cores_);
    std::shared_ptr<const run::Runnable>& known = programs_[{group, text}];
    if (known != nullptr) return known;
    const auto compiled = [&](const std::string& program) {
      const std::int64_t first = first_device(function, group);
      return backend_.compile({.name = name,
                               .text = program,
                               .first_device = first,
                               .num_devices = function.mesh.num_devices(),
                               .inputs = ports_of(function, function.inputs, first),
                               .outputs = output_ports(function, name, first),
                               .is_donated = is_donated});
    };
    try {
      known = compiled(text);
    } catch (const RuntimeFault&) {
      // Only its compiler knows whether this cuDNN has a kernel for these sizes.
      const std::string plain = emit(function, is_donated, /*fuses_attention=*/false);
      if (plain == text) throw;
      known = compiled(plain);
    }
    return known;
  }
  std::shared_ptr<const run::Runnable> transfer(const ir::Function& function, ir::ValueId value,
                                                std::size_t to) {
    return backend_.transfer(port_of(function, value, first_device(function, to)));
  }

 private:
  std::string emit(const ir::Function& function, const std::vector<bool>& is_donated,
                   bool fuses_attention) const {
    return stablehlo::emit(function,
                           {.donated = is_donated,
                            .widens_products = widens_products_,
                            .fuses_attention = fuses_attention,
                            .pads_products_from = has_tensor_cores_ ? kPadsProductsFrom : 0});
  }
  static std::int64_t first_device(const ir::Function& function, std::size_t group) {
    return static_cast<std::int64_t>(group) * function.mesh.num_devices();
  }

  run::Backend& backend_;
  bool widens_products_;
  bool has_tensor_cores_;
  std::map<std::pair<std::size_t, std::string>, std::shared_ptr<const run::Runnable>> programs_;
};

/// Makes the steps of a pipeline: a program for each task and each view, and the transfers.
class PipelineSteps {
 public:
  PipelineSteps(const Program& program, DeviceCompiler& compiler)
      : program_(program),
        function_(program.partitioned),
        groups_(ops::groups_of(function_)),
        compiler_(compiler) {
    plan_.num_groups = program.pipeline->tasks.size();
    plan_.is_donated = program.is_donated;
    for (const ir::ValueId id : function_.inputs) inputs_[id] = new_value(id);
    for (std::size_t i = 0; i < function_.equations.size(); ++i) {
      for (const ir::ValueId id : function_.equations[i].results) made_by_[id] = i;
    }
  }

  run::DevicePipeline::Plan plan() {
    for (std::size_t i = 0; i < function_.equations.size(); ++i) {
      const int group = groups_.of_equation[i];
      if (group != ops::Groups::kNone) add(i, static_cast<std::size_t>(group));
    }
    for (const ir::ValueId id : function_.outputs) {
      const int group = groups_.of_value[id];
      plan_.outputs.push_back(number_of(id, static_cast<std::size_t>(std::max(group, 0))));
    }
    return std::move(plan_);
  }

 private:
  std::size_t new_value(ir::ValueId id) {
    const Type& type = function_.type(id);
    const Layout layout(function_.mesh, function_.sharding(id), type.shape);
    plan_.bytes.push_back(size_bytes(Type{type.dtype, layout.max_tile_shape()}));
    return plan_.bytes.size() - 1;
  }

  /// A value as a group has it. What belongs to no group is computed by each that reads it.
  std::size_t number_of(ir::ValueId id, std::size_t group) {
    if (const auto input = inputs_.find(id); input != inputs_.end()) return input->second;
    const auto known = values_.find({id, group});
    if (known != values_.end()) return known->second;
    add(made_by_.at(id), group);
    return values_.at({id, group});
  }

  void add(std::size_t number, std::size_t group) {
    const ir::Equation& equation = function_.equations[number];
    run::DevicePipeline::Step step{
        .program = nullptr, .group = group, .operands = {}, .results = {}};
    const bool is_transfer = ops::is_transfer(equation);
    const auto reader =
        is_transfer ? static_cast<std::size_t>(equation.attributes.integer("from")) : group;
    for (const ir::ValueId id : equation.operands) step.operands.push_back(number_of(id, reader));
    step.program = is_transfer ? compiler_.transfer(function_, equation.operands[0], group)
                   : ops::is_task(equation) ? compiled_task(equation, group)
                                            : compiled_view(equation, group);
    for (const ir::ValueId id : equation.results) {
      step.results.push_back(values_[{id, group}] = new_value(id));
    }
    plan_.steps.push_back(std::move(step));
  }

  std::shared_ptr<const run::Runnable> compiled_task(const ir::Equation& equation,
                                                     std::size_t group) {
    const ops::TaskParts parts = ops::task_parts(equation);
    std::vector<bool> is_donated(equation.operands.size(), false);
    for (const std::int64_t operand : parts.shares) {
      if (operand >= 0) is_donated[static_cast<std::size_t>(operand)] = true;
    }
    const ir::Function body = ir::with_mesh(*ir::bodies_of(equation)[0], function_.mesh);
    return compiler_.compile(parts.name, body, is_donated, group);
  }

  /// A function of the equation alone.
  std::shared_ptr<const run::Runnable> compiled_view(const ir::Equation& equation,
                                                     std::size_t group) {
    ir::Function alone = ir::empty_like(function_);
    ir::Equation copy = equation;
    const auto take = [&](std::vector<ir::ValueId>& ids) {
      for (ir::ValueId& id : ids) id = alone.add_value(function_.values[id]);
      return ids;
    };
    alone.inputs = take(copy.operands);
    alone.outputs = take(copy.results);
    alone.equations.push_back(std::move(copy));
    return compiler_.compile(program_.name, alone, std::vector<bool>(alone.inputs.size(), false),
                             group);
  }

  const Program& program_;
  const ir::Function& function_;
  ops::Groups groups_;
  DeviceCompiler& compiler_;
  run::DevicePipeline::Plan plan_;
  std::map<ir::ValueId, std::size_t> inputs_;
  std::map<ir::ValueId, std::size_t> made_by_;                         // equation
  std::map<std::pair<ir::ValueId, std::size_t>, std::size_t> values_;  // by value and group
};

}  // namespace

std::shared_ptr<const run::Runnable> compile_for_backend(const Program& program) {
  if (run::transport() != nullptr) {
    throw UserError({.what = "the engine pjrt computes for all devices in one process",
                     .found = "a run of several processes",
                     .wanted = "one process",
                     .cure = "start the program without a launcher and without --isolated"});
  }
  DeviceCompiler compiler(*program.engine.backend);
  if (program.pipeline) {
    return std::make_shared<run::DevicePipeline>(PipelineSteps(program, compiler).plan());
  }
  return compiler.compile(program.name, program.partitioned, program.is_donated, 0);
}

}  // namespace tessera::detail
