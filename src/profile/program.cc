#include "profile/program.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ops/control/mpmd.h"
#include "ops/record.h"

namespace tessera::profile {

std::string hlo_opcode(const ir::Equation& equation) {
  const std::string_view opcode = equation.op->hlo;
  return std::string(opcode.empty() ? "custom-call" : opcode);
}

Type Computation::local_type(ir::ValueId id) const {
  return {source->type(id).dtype, layouts[id].max_tile_shape()};
}

namespace {

std::vector<Type> local_types(const Computation& computation,
                              const std::vector<ir::ValueId>& values) {
  std::vector<Type> types;
  for (const ir::ValueId id : values) types.push_back(computation.local_type(id));
  return types;
}

/// The FLOPs and bytes of an instruction on one device.
class Costs {
 public:
  Costs(const Computation& computation, const run::Instruction& instruction)
      : c_(computation), f_(*computation.source), instruction_(instruction) {}

  std::int64_t flops() const {
    double sum = 0;
    for (const std::uint32_t index : instruction_.equations) {
      const ir::Equation& equation = f_.equations[index];
      // The FLOPs of nested functions are counted by their own ops.
      if (!ir::bodies_of(equation).empty()) continue;
      sum += (*equation.op->cost)(equation.attributes, local_types(c_, equation.operands),
                                  local_types(c_, equation.results));
    }
    return static_cast<std::int64_t>(sum);
  }

  /// Counts each array that is computed outside of the instruction once.
  std::int64_t bytes_read() const {
    std::set<ir::ValueId> counted;
    for (const std::uint32_t index : instruction_.equations) {
      const std::vector<ir::ValueId>& results = f_.equations[index].results;
      counted.insert(results.begin(), results.end());
    }
    std::int64_t sum = 0;
    for (const std::uint32_t index : instruction_.equations) {
      for (const ir::ValueId id : f_.equations[index].operands) {
        if (counted.insert(id).second) sum += read_bytes(id);
      }
    }
    return sum;
  }

  std::int64_t bytes_written(const std::vector<bool>& is_read_outside) const {
    std::int64_t sum = 0;
    for (const std::uint32_t index : instruction_.equations) {
      for (const ir::ValueId id : f_.equations[index].results) {
        if (is_read_outside[id]) sum += size_bytes(c_.local_type(id));
      }
    }
    return sum;
  }

 private:
  /// A view may be larger or smaller than its operand: only the smallest size counts.
  std::int64_t read_bytes(ir::ValueId id) const {
    std::int64_t bytes = size_bytes(c_.local_type(id));
    for (const ir::Equation* view = definition(id); view != nullptr && ops::is_view(*view);) {
      const ir::ValueId from = view->operands[0];
      bytes = std::min(bytes, size_bytes(c_.local_type(from)));
      view = definition(from);
    }
    return bytes;
  }

  const ir::Equation* definition(ir::ValueId id) const {
    return c_.definitions[id] == Computation::kInput ? nullptr : &f_.equations[c_.definitions[id]];
  }

  const Computation& c_;
  const ir::Function& f_;
  const run::Instruction& instruction_;
};

std::string module_of(const Computation& computation, const run::Instruction& instruction,
                      const Modules& modules) {
  std::string own;
  std::string last;
  for (const std::uint32_t index : instruction.equations) {
    const std::string& module = modules.equations[index];
    if (module.empty()) continue;
    last = module;
    const ir::Equation& equation = computation.source->equations[index];
    for (const ir::ValueId id : equation.operands) {
      if (modules.derived[id].empty()) continue;
      own = own.empty() ? modules.derived[id] : common_parent(own, modules.derived[id]);
    }
  }
  return own.empty() ? last : own;
}

bool is_reduction(const ir::Equation& equation) { return equation.op->hlo == "reduce"; }

std::string category_of(const ir::Function& function, const run::Instruction& instruction,
                        const std::string& opcode) {
  if (opcode == "fusion") {
    const bool reduces =
        std::any_of(instruction.equations.begin(), instruction.equations.end(),
                    [&](std::uint32_t index) { return is_reduction(function.equations[index]); });
    return reduces ? "reduce fusion" : "loop fusion";
  }
  const ir::Equation& equation = function.equations[instruction.equations[0]];
  if (opcode == "custom-call") return *equation.op->name;
  return *equation.op->pattern == ops::Pattern::elementwise ? "elementwise" : opcode;
}

std::string with_dots(std::string path) {
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

/// Per value: whether it is an output, or an instruction that does not compute it reads it.
std::vector<bool> read_outside(const run::Executable& executable, const ir::Function& function) {
  std::vector<bool> is_read(function.values.size(), false);
  std::vector<bool> is_in_instruction(function.equations.size(), false);
  for (const run::Instruction& instruction : executable.instructions) {
    std::set<ir::ValueId> computed;
    for (const std::uint32_t index : instruction.equations) {
      const ir::Equation& equation = function.equations[index];
      computed.insert(equation.results.begin(), equation.results.end());
      is_in_instruction[index] = true;
    }
    for (const std::uint32_t index : instruction.equations) {
      for (const ir::ValueId id : function.equations[index].operands) {
        if (!computed.contains(id)) is_read[id] = true;
      }
    }
  }
  // Views belong to no instruction.
  for (std::size_t i = 0; i < function.equations.size(); ++i) {
    if (is_in_instruction[i]) continue;
    for (const ir::ValueId id : function.equations[i].operands) is_read[id] = true;
  }
  for (const ir::ValueId id : function.outputs) is_read[id] = true;
  return is_read;
}

}  // namespace

void Program::add_ops(Computation& computation, const Modules& modules) {
  const run::Executable& executable = *computation.executable;
  const ir::Function* source = computation.source;
  const std::vector<bool> is_read =
      source == nullptr ? std::vector<bool>() : read_outside(executable, *source);
  for (const run::Instruction& instruction : executable.instructions) {
    Op op{.name = {}, .path = instruction.name, .opcode = "copy", .category = "copy"};
    op.where = instruction.span;
    op.symbol = ++num_ops_;
    std::string module;
    if (source != nullptr && !instruction.equations.empty()) {
      const Costs costs(computation, instruction);
      const bool is_one = instruction.equations.size() == 1;
      op.opcode = is_one ? hlo_opcode(source->equations[instruction.equations[0]]) : "fusion";
      op.category = category_of(*source, instruction, op.opcode);
      op.flops = costs.flops();
      op.bytes_read = costs.bytes_read();
      op.bytes_written = costs.bytes_written(is_read);
      module = module_of(computation, instruction, modules);
      if (!module.empty()) op.path = module + "/" + instruction.name;
    }
    const std::string kind = op.opcode == "fusion" ? "fusion" : instruction.name;
    op.name =
        with_dots((module.empty() ? "" : module + "/") + kind) + "." + std::to_string(op.symbol);
    computation.ops.push_back(std::move(op));
  }
}

void Program::add_nested(Computation& computation, const Modules& modules) {
  const run::Executable& executable = *computation.executable;
  for (std::uint32_t number = 0; number < executable.tasks.size(); ++number) {
    const run::Task& task = executable.tasks[number];
    if (task.control == nullptr) continue;
    const run::Instruction& instruction = executable.instructions[task.instruction];
    const ir::Equation* equation = computation.source == nullptr || instruction.equations.empty()
                                       ? nullptr
                                       : &computation.source->equations[instruction.equations[0]];
    std::vector<const run::Executable*> nested = {task.control->begin.executable.get(),
                                                  task.control->condition.executable.get(),
                                                  task.control->end.executable.get()};
    for (const run::Nested& body : task.control->bodies) nested.push_back(body.executable.get());
    for (const run::Executable* inner : nested) {
      if (inner == nullptr) continue;
      computation.nested[{number, inner}] =
          equation == nullptr ? build(*inner, {}, {}) : build_body(*inner, *equation, modules);
    }
  }
}

/// The last operands of an equation are the inputs of its bodies. A cond has the index of the
/// branch as an operand before them.
Computation* Program::build_body(const run::Executable& inner, const ir::Equation& equation,
                                 const Modules& modules) {
  if (inner.source == nullptr) return build(inner, {}, {});
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  const std::size_t count = inner.source->inputs.size();
  const std::size_t before = equation.operands.size() - std::min(count, equation.operands.size());
  for (std::size_t i = before; i < equation.operands.size(); ++i) {
    inputs.push_back(modules.derived[equation.operands[i]]);
  }
  if (inner.source->outputs.size() == equation.results.size()) {
    for (const ir::ValueId id : equation.results) outputs.push_back(modules.reaches[id]);
  }
  return build(inner, inputs, outputs);
}

Computation* Program::build(const run::Executable& executable,
                            const std::vector<std::string>& inputs,
                            const std::vector<std::string>& outputs) {
  const Key key{&executable, inputs, outputs};
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  auto computation = std::make_unique<Computation>();
  computation->executable = &executable;
  computation->source = executable.source.get();
  Modules modules;
  if (const ir::Function* source = computation->source) {
    modules = find_modules(*source, inputs, outputs);
    const auto atoms = std::make_shared<const std::vector<Atom>>(atoms_of(source->mesh));
    computation->definitions.assign(source->values.size(), Computation::kInput);
    for (std::size_t i = 0; i < source->equations.size(); ++i) {
      for (const ir::ValueId id : source->equations[i].results) computation->definitions[id] = i;
    }
    for (const ir::Value& value : source->values) {
      computation->layouts.emplace_back(atoms, value.sharding.value(), value.type.shape);
    }
  }
  add_ops(*computation, modules);
  add_nested(*computation, modules);
  computation->modules = std::move(modules.equations);
  computation->name = (computation->source == nullptr ? "copies" : computation->source->name) +
                      "." + std::to_string(computations_.size());
  Computation* const made = computation.get();
  known_.emplace(key, made);
  computations_.push_back(std::move(computation));
  return made;
}

namespace {

/// `blocks_0/Dense_0/kernel` -> `blocks_0/Dense_0`
std::vector<std::string> modules_of(std::vector<std::string> paths) {
  for (std::string& path : paths) {
    const std::size_t slash = path.rfind('/');
    path = slash == std::string::npos ? path : path.substr(0, slash);
  }
  return paths;
}

}  // namespace

Program::Program(const TracedProgram& traced, std::uint64_t id)
    : traced_(traced),
      id_(id),
      root_(build(*traced.executable, modules_of(traced.input_paths),
                  modules_of(traced.output_paths))) {}

}  // namespace tessera::profile
