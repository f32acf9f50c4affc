#include "profile/hlo.h"

#include <algorithm>
#include <numeric>
#include <protozero/pbf_writer.hpp>
#include <set>

#include <tessera/error.h>

#include "ops/factors.h"
#include "ops/record.h"
#include "profile/buffers.h"
#include "profile/hlo_instruction.h"

namespace tessera::profile {

namespace {

using Numbers = std::vector<std::int64_t>;
using ir::Equation;
using ir::ValueId;

/// Per atom: the dimension of a value that it splits, kPartial or kNowhere.
using Places = std::vector<int>;
constexpr int kNowhere = -2;
constexpr int kPartial = -1;

Places places_of(const Sharding& sharding, std::size_t num_atoms) {
  Places places(num_atoms, kNowhere);
  for (std::size_t dim = 0; dim < sharding.dims.size(); ++dim) {
    for (const AtomId atom : sharding.dims[dim]) places[atom] = static_cast<int>(dim);
  }
  for (const AtomId atom : sharding.partial) places[atom] = kPartial;
  return places;
}

/// The groups of devices that exchange data in a collective. The positions of a group's devices
/// differ only along the atoms that the collective moves.
std::vector<Numbers> groups_of(const ir::Function& f, const Equation& equation) {
  const std::vector<Atom> atoms = atoms_of(f.mesh);
  const Places from = places_of(f.sharding(equation.operands[0]), atoms.size());
  const Places to = places_of(f.sharding(equation.results[0]), atoms.size());
  std::map<Numbers, Numbers> groups;
  for (std::int64_t device = 0; device < f.mesh.num_devices(); ++device) {
    const AtomDigits digits = device_digits(f.mesh, device);
    Numbers key;
    for (std::size_t atom = 0; atom < atoms.size(); ++atom) {
      if (from[atom] == to[atom]) key.push_back(digits[atom]);
    }
    groups[key].push_back(device);
  }
  std::vector<Numbers> list;
  for (auto& [key, devices] : groups) list.push_back(std::move(devices));
  return list;
}

/// Makes the instructions of one HLO computation. Ids are unique in the module.
class Body {
 public:
  Body(const Computation& computation, std::int64_t& next_id)
      : c_(computation), f_(*computation.source), next_id_(next_id) {}

  HloComputation result;
  /// Per value with an instruction: that instruction and, if its result is a tuple, the element.
  std::map<ValueId, BufferPlace> places;

  std::int64_t add(HloInstruction instruction) {
    instruction.id = ++next_id_;
    instruction.name +=
        instruction.name.find('.') == std::string::npos ? "." + std::to_string(instruction.id) : "";
    result.instructions.push_back(std::move(instruction));
    return next_id_;
  }

  std::int64_t add_parameter(ValueId id, const std::string& name) {
    const auto number = static_cast<std::int64_t>(num_parameters_++);
    ids_[id] = add({.name = name,
                    .opcode = "parameter",
                    .types = {c_.local_type(id)},
                    .op_name = name,
                    .parameter = number});
    places[id] = {ids_[id], {}};
    return ids_[id];
  }

  bool has(ValueId id) const { return ids_.count(id) != 0; }

  /// The instruction that gives the value. A view without an instruction of its own is added when
  /// it is first read.
  std::int64_t id_of(ValueId id) {
    if (const auto found = ids_.find(id); found != ids_.end()) return found->second;
    const std::size_t index = c_.definitions[id];
    if (index == Computation::kInput) return add_received(id);
    add_equation(index, {});
    return ids_.at(id);
  }

  /// With a process per device, the equations of other groups are not known here. Values that this
  /// group receives from them have no operands.
  std::int64_t add_received(ValueId id) {
    const std::string name = "of_another_group";
    ids_[id] = add({.name = name,
                    .opcode = "custom-call",
                    .target = name,
                    .types = {c_.local_type(id)},
                    .op_type = name});
    return ids_[id];
  }

  /// Adds the equation as an instruction. `op`: its op; nullptr for a view or a part of a fusion.
  void add_equation(std::size_t index, const Op* op, const Numbers& called = {}) {
    const Equation& equation = f_.equations[index];
    HloInstruction instruction{.name = op == nullptr ? *equation.op->name : op->name};
    instruction.opcode = hlo_opcode(equation);
    instruction.op_type = *equation.op->name;
    instruction.op_name = op == nullptr ? c_.modules[index] : op->path;
    instruction.where = equation.span;
    instruction.called = called;
    for (const ValueId id : equation.operands) instruction.operands.push_back(id_of(id));
    for (const ValueId id : equation.results) instruction.types.push_back(c_.local_type(id));
    instruction.is_tuple = equation.results.size() != 1;
    fill(equation, instruction);
    if (instruction.opcode == "custom-call") instruction.target = *equation.op->name;
    add_results(equation.results, std::move(instruction));
  }

  /// Several results become the elements of a tuple.
  void add_results(const std::vector<ValueId>& results, HloInstruction instruction) {
    const bool is_tuple = instruction.is_tuple;
    const std::int64_t id = add(std::move(instruction));
    for (std::size_t i = 0; i < results.size(); ++i) {
      ids_[results[i]] = is_tuple ? add({.name = "get-tuple-element",
                                         .opcode = "get-tuple-element",
                                         .types = {c_.local_type(results[i])},
                                         .operands = {id},
                                         .tuple_index = static_cast<std::int64_t>(i)})
                                  : id;
      places[results[i]] = {id, is_tuple ? Numbers{static_cast<std::int64_t>(i)} : Numbers{}};
    }
  }

  /// Adds the root instruction: the only output, or a tuple of all outputs.
  void finish(const std::vector<ValueId>& outputs) {
    HloInstruction root{.name = "results", .opcode = outputs.size() == 1 ? "copy" : "tuple"};
    for (const ValueId id : outputs) {
      root.operands.push_back(id_of(id));
      root.types.push_back(c_.local_type(id));
    }
    root.is_tuple = outputs.size() != 1;
    add(std::move(root));
  }

 private:
  /// Sets the fields that the opcode needs besides operands. If the opcode cannot express the op,
  /// the instruction becomes a custom call.
  void fill(const Equation& equation, HloInstruction& instruction) {
    const std::string opcode = instruction.opcode;
    const ir::Attributes& attributes = equation.attributes;
    if (opcode == "broadcast") return fill_broadcast(equation, instruction);
    if (opcode == "slice") return fill_slice(equation, instruction);
    if (opcode == "all-gather" || opcode == "all-reduce") {
      return fill_collective(equation, instruction);
    }
    if (opcode == "reduce") return fill_reduce(equation, instruction);
    if (opcode == "constant") return fill_constant(equation, instruction);
    if (opcode == "transpose") instruction.dimensions = attributes.ints("permutation");
    if (opcode == "reverse") instruction.dimensions = attributes.ints("dims");
    if (opcode == "concatenate" || opcode == "iota") {
      instruction.dimensions = {attributes.integer("dim")};
    }
    if (opcode == "compare") {
      instruction.comparison = attributes.get<std::string>("direction");
      for (char& c : instruction.comparison) c = static_cast<char>(c - 'a' + 'A');
    }
    if (opcode == "dot") {
      instruction.dot = {
          .lhs_contract = attributes.ints("lhs_contract"),
          .rhs_contract = attributes.ints("rhs_contract"),
          .lhs_batch = attributes.ints("lhs_batch"),
          .rhs_batch = attributes.ints("rhs_batch"),
      };
    }
  }

  void fill_broadcast(const Equation& equation, HloInstruction& instruction) const {
    const Numbers& dims = equation.attributes.ints("dims");
    const Shape from = c_.local_type(equation.operands[0]).shape;
    const Shape& to = instruction.types[0].shape;
    const bool is_plain = std::equal(dims.begin(), dims.end(), from.begin(), from.end(),
                                     [&](std::int64_t dim, std::int64_t size) {
                                       return to[static_cast<std::size_t>(dim)] == size;
                                     });
    if (!is_plain) {
      instruction.opcode = "custom-call";
    } else {
      instruction.dimensions = dims;
    }
  }

  void fill_slice(const Equation& equation, HloInstruction& instruction) const {
    const Numbers& start = equation.attributes.ints("start");
    const Numbers& stride = equation.attributes.ints("stride");
    const Shape from = c_.local_type(equation.operands[0]).shape;
    const Shape& to = instruction.types[0].shape;
    for (std::size_t dim = 0; dim < to.size(); ++dim) {
      const std::int64_t limit =
          to[dim] == 0 ? start[dim] : start[dim] + (to[dim] - 1) * stride[dim] + 1;
      if (limit > from[dim]) instruction.opcode = "custom-call";
      instruction.slices.push_back({start[dim], limit, stride[dim]});
    }
    if (instruction.opcode == "custom-call") instruction.slices.clear();
  }

  void fill_constant(const Equation& equation, HloInstruction& instruction) {
    const double value = equation.attributes.get<double>("value");
    if (instruction.types[0].shape.empty()) {
      instruction.has_value = true;
      instruction.value = value;
      return;
    }
    instruction.operands = {scalar(instruction.types[0].dtype, value)};
    instruction.opcode = "broadcast";
  }

  std::int64_t scalar(DType dtype, double value) {
    return add({.name = "constant",
                .opcode = "constant",
                .types = {Type{dtype, {}}},
                .has_value = true,
                .value = value});
  }

  void fill_reduce(const Equation& equation, HloInstruction& instruction) {
    const std::string& name = *equation.op->name;
    const DType dtype = instruction.types[0].dtype;
    const bool is_sum = name == "reduce_sum";
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (!is_sum && !is_float(dtype)) {
      instruction.opcode = "custom-call";
      return;
    }
    const double start = is_sum ? 0 : name == "reduce_max" ? -kInfinity : kInfinity;
    instruction.operands.push_back(scalar(dtype, start));
    instruction.dimensions = equation.attributes.ints("dims");
    instruction.called = {combiner(is_sum                 ? "add"
                                   : name == "reduce_max" ? "maximum"
                                                          : "minimum",
                                   dtype)};
  }

  void fill_collective(const Equation& equation, HloInstruction& instruction) {
    if (equation.operands.size() != 1) {
      instruction.opcode = "custom-call";
      return;
    }
    const Shape from = c_.local_type(equation.operands[0]).shape;
    const Shape& to = instruction.types[0].shape;
    if (instruction.opcode == "all-gather") {
      for (std::size_t dim = 0; dim < to.size(); ++dim) {
        if (from[dim] != to[dim]) instruction.dimensions.push_back(static_cast<std::int64_t>(dim));
      }
      if (instruction.dimensions.size() != 1) instruction.opcode = "custom-call";
    } else {
      const std::string& reduction = equation.attributes.get<std::string>("reduction");
      const std::string opcode = reduction == "sum"   ? "add"
                                 : reduction == "max" ? "maximum"
                                 : reduction == "min" ? "minimum"
                                                      : "or";
      instruction.called = {combiner(opcode, instruction.types[0].dtype)};
    }
    if (instruction.opcode == "custom-call") {
      instruction.dimensions.clear();
      return;
    }
    instruction.groups = groups_of(f_, equation);
    instruction.is_channel = true;
  }

 public:
  /// Computations that combine two scalars, called by reductions.
  std::vector<HloComputation> combiners;

 private:
  std::int64_t combiner(const std::string& opcode, DType dtype) {
    HloComputation made{.id = ++next_id_, .name = opcode + "." + std::to_string(next_id_)};
    const Type type{dtype, {}};
    for (std::int64_t i = 0; i < 2; ++i) {
      const std::int64_t id = ++next_id_;
      made.instructions.push_back({.id = id,
                                   .name = "x." + std::to_string(id),
                                   .opcode = "parameter",
                                   .types = {type},
                                   .parameter = i});
    }
    const std::int64_t id = ++next_id_;
    made.instructions.push_back({.id = id,
                                 .name = opcode + "." + std::to_string(id),
                                 .opcode = opcode,
                                 .types = {type},
                                 .operands = {id - 2, id - 1}});
    combiners.push_back(std::move(made));
    return combiners.back().id;
  }

  const Computation& c_;
  const ir::Function& f_;
  std::int64_t& next_id_;
  std::size_t num_parameters_ = 0;
  std::map<ValueId, std::int64_t> ids_;
};

class ModuleWriter {
 public:
  explicit ModuleWriter(const Program& program) : program_(program) {}

  std::string write() {
    for (const auto& computation : program_.computations()) {
      if (computation->source != nullptr) add(*computation);
    }
    std::string data;
    protozero::pbf_writer writer(data);
    writer.add_message(1, module());
    writer.add_message(3, buffer_assignment(program_.root(), entry_places_, result_.back().name,
                                            instruction_names_));
    return data;
  }

 private:
  std::string module() const {
    const HloComputation& entry = result_.back();
    std::string data;
    protozero::pbf_writer writer(data);
    writer.add_string(1, program_.name());
    writer.add_string(2, entry.name);
    for (const HloComputation& computation : result_) {
      writer.add_message(3, to_message(computation));
    }
    writer.add_message(4, program_shape(entry));
    writer.add_int64(5, static_cast<std::int64_t>(program_.id()));
    writer.add_int64(6, entry.id);
    protozero::pbf_writer schedule(writer, 7);
    for (const HloComputation& computation : result_) {
      protozero::pbf_writer entry_of_map(schedule, 1);
      entry_of_map.add_int64(1, computation.id);
      protozero::pbf_writer sequence(entry_of_map, 2);
      Numbers ids;
      for (const HloInstruction& instruction : computation.instructions) {
        ids.push_back(instruction.id);
      }
      sequence.add_packed_int64(1, ids.begin(), ids.end());
    }
    return data;
  }

  void add(const Computation& computation) {
    const ir::Function& f = *computation.source;
    Body body(computation, next_id_);
    for (std::size_t i = 0; i < f.inputs.size(); ++i) {
      body.add_parameter(f.inputs[i], parameter_name(computation, i));
    }
    for (std::size_t i = 0; i < computation.ops.size(); ++i) add_op(computation, i, body);
    body.finish(f.outputs);
    body.result.id = ++next_id_;
    body.result.name = computation.name;
    ids_[&computation] = body.result.id;
    if (&computation == &program_.root()) {
      entry_places_ = body.places;
      for (const HloInstruction& instruction : body.result.instructions) {
        instruction_names_[instruction.id] = instruction.name;
      }
    }
    take(body);
  }

  void take(Body& body) {
    for (HloComputation& combiner : body.combiners) result_.push_back(std::move(combiner));
    result_.push_back(std::move(body.result));
  }

  std::string parameter_name(const Computation& computation, std::size_t number) const {
    const std::vector<std::string>& paths = program_.traced().input_paths;
    if (&computation == &program_.root() && number < paths.size() && !paths[number].empty()) {
      std::string name = paths[number];
      std::replace(name.begin(), name.end(), '/', '.');
      return name + "." + std::to_string(next_id_ + 1);
    }
    return "arg";
  }

  void add_op(const Computation& computation, std::size_t number, Body& body) {
    const run::Instruction& instruction = computation.executable->instructions[number];
    if (instruction.equations.empty()) return;
    const Op& op = computation.ops[number];
    if (instruction.equations.size() > 1) return add_fusion(computation, instruction, op, body);
    // If this is a view, id_of() may have added it for an earlier reader.
    const Equation& equation = computation.source->equations[instruction.equations[0]];
    if (body.has(equation.results.at(0))) return;
    body.add_equation(instruction.equations[0], &op, called_by(computation, number));
  }

  Numbers called_by(const Computation& computation, std::size_t instruction) const {
    std::set<std::int64_t> called;
    for (const auto& [place, nested] : computation.nested) {
      const run::Task& task = computation.executable->tasks[place.first];
      if (task.instruction == instruction && nested->source != nullptr) {
        called.insert(ids_.at(nested));
      }
    }
    return {called.begin(), called.end()};
  }

  void add_fusion(const Computation& computation, const run::Instruction& instruction, const Op& op,
                  Body& body) {
    const ir::Function& f = *computation.source;
    Body inner(computation, next_id_);
    std::set<ValueId> made;
    for (const std::uint32_t index : instruction.equations) {
      const std::vector<ValueId>& results = f.equations[index].results;
      made.insert(results.begin(), results.end());
    }
    HloInstruction fusion{
        .name = op.name, .opcode = "fusion", .op_name = op.path, .where = op.where};
    fusion.op_type = "fusion";
    const std::vector<ValueId> results = results_of(computation, instruction, made);
    for (const std::uint32_t index : instruction.equations) {
      for (const ValueId id : f.equations[index].operands) {
        if (made.count(id) != 0 || inner.has(id)) continue;
        fusion.operands.push_back(body.id_of(id));
        inner.add_parameter(id, "operand");
      }
    }
    for (const std::uint32_t index : instruction.equations) inner.add_equation(index, nullptr);
    inner.finish(results);
    inner.result.id = ++next_id_;
    inner.result.name = "fused." + std::to_string(inner.result.id);
    fusion.called = {inner.result.id};
    for (const ValueId id : results) fusion.types.push_back(computation.local_type(id));
    fusion.is_tuple = results.size() != 1;
    take(inner);
    body.add_results(results, std::move(fusion));
  }

  /// The values of the instruction that are outputs or are read by other instructions.
  static std::vector<ValueId> results_of(const Computation& computation,
                                         const run::Instruction& instruction,
                                         const std::set<ValueId>& made) {
    const ir::Function& f = *computation.source;
    std::set<std::size_t> inside(instruction.equations.begin(), instruction.equations.end());
    std::set<ValueId> read;
    for (std::size_t i = 0; i < f.equations.size(); ++i) {
      if (inside.count(i) != 0) continue;
      for (const ValueId id : f.equations[i].operands) {
        if (made.count(id) != 0) read.insert(id);
      }
    }
    for (const ValueId id : f.outputs) {
      if (made.count(id) != 0) read.insert(id);
    }
    return {read.begin(), read.end()};
  }

  const Program& program_;
  std::int64_t next_id_ = 0;
  std::vector<HloComputation> result_;  // called ones first, the entry last
  std::map<const Computation*, std::int64_t> ids_;
  std::map<ValueId, BufferPlace> entry_places_;
  std::map<std::int64_t, std::string> instruction_names_;
};

}  // namespace

std::string to_hlo(const Program& program) { return ModuleWriter(program).write(); }

}  // namespace tessera::profile
