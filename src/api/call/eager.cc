#include "api/call/eager.h"

#include <cstring>

#include "api/apply.h"
#include "api/call/donation.h"
#include "api/context/context.h"
#include "api/operands.h"
#include "api/program.h"
#include "ir/hash.h"
#include "ops/reference/numeric_convert.h"
#include "run/engine.h"
#include "run/transport/processes.h"

namespace tessera::detail {

namespace {

template <typename T>
void append(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// An accelerator would compile every op for a tenth of a second: the host runs single ops.
EngineKind engine_of(const Settings& settings) {
  return settings.engine.kind == EngineKind::pjrt ? EngineKind::host : settings.engine.kind;
}

std::shared_ptr<Program> make_program(ir::Function function, std::vector<PlacementPtr> inputs,
                                      const Settings& settings) {
  auto program = std::make_shared<Program>();
  const std::size_t num_outputs = function.outputs.size();
  program->traced = std::move(function);
  program->input_infos.assign(inputs.size(), nullptr);
  program->output_infos.assign(num_outputs, nullptr);
  program->is_storage.assign(inputs.size(), false);
  program->is_donated.assign(inputs.size(), false);
  program->inputs = std::move(inputs);
  program->asked_outputs.resize(num_outputs);
  program->asked_groups.resize(num_outputs);
  program->output_replaces.assign(num_outputs, -1);
  program->engine = {.kind = engine_of(settings)};
  program->dot_unit = settings.dot_unit;
  program->target = target_of(settings);
  simplify(*program);
  return program;
}

/// The program of a recorded function, from the cache or new.
std::shared_ptr<Program> program_of(ir::Function function, const std::vector<PlacementPtr>& inputs,
                                    const Settings& settings) {
  std::string key = "function";
  ir::append_key(key, function);
  append(key, engine_of(settings));
  append(key, settings.dot_unit);
  for (const PlacementPtr& input : inputs) append_address(key, input);
  EagerPrograms& programs = current_context().eager_programs;
  if (std::shared_ptr<Program> program = programs.find(key)) return program;
  EagerProgram made{.program = nullptr, .placements = inputs, .attributes = {}};
  for (const ir::Equation& equation : function.equations) {
    made.attributes.push_back(equation.attributes);
  }
  made.program = make_program(std::move(function), inputs, settings);
  programs.insert(key, made);
  return made.program;
}

/// Compiles and runs the program on tiles with the placements in program.inputs.
std::vector<Array> run_once(Program& program, std::vector<Tiled> inputs, const Span& where) {
  compile(program);
  // With one process per device the check is a collective, which is too slow for every op.
  std::unique_lock<std::mutex> memory;
  if (run::transport() == nullptr) memory = check_memory(program, where);
  Donation nothing;
  return execute(program, std::move(inputs), nothing);
}

Array as_array(const std::shared_ptr<const void>& captured) {
  return Array(
      std::const_pointer_cast<ArrayNode>(std::static_pointer_cast<const ArrayNode>(captured)));
}

/// Of an operand on the mesh of the call.
PlacementPtr placement_on(const Mesh& mesh, const ArrayNode& node) {
  const bool is_placed = !node.placement->mesh.axes().empty();
  return is_placed ? node.placement : replicated_placement(node.type, mesh);
}

// --- ops with numbers

run::BufferPtr element_of(const Operand& number, DType dtype) {
  auto buffer = std::make_shared<run::Buffer>(static_cast<std::int64_t>(size_bytes(dtype)));
  const double value = number_value(number);
  ops::dispatch(dtype, [&](auto zero) {
    const auto element = ops::convert_value<decltype(zero)>(value);
    std::memcpy(buffer->data(), &element, sizeof(element));
  });
  return buffer;
}

/// One call of an op.
class OpCall {
 public:
  using Body = std::function<Array(const std::vector<Operand>&)>;

  OpCall(const EagerCall& call, std::span<const Operand> operands, std::span<const DType> dtypes)
      : call_(call), operands_(operands), dtypes_(dtypes) {}

  Array run(const Body& body) {
    const std::shared_ptr<Program> program = find_program(body);
    compile(*program);
    std::unique_lock<std::mutex> memory;
    if (is_plain(*program)) {
      if (!program->is_memory_checked) memory = check_memory(*program, call_span());
      if (run::Engine::instance().is_traced()) note_program(*program);
      std::vector<run::Tiles> inputs = tiles();
      drop_unread(*program, inputs);
      std::vector<run::Tiles> made =
          run::Engine::instance().execute(*program->executable, inputs, [] {});
      return make_concrete(program->outputs[0], std::move(made[0]));
    }
    return run_once(*program, tiled(*program), call_span())[0];
  }

 private:
  bool has_values() const {
    return std::all_of(operands_.begin(), operands_.end(), [](const Operand& operand) {
      return operand.is_number() || operand.array.is_concrete();
    });
  }

  std::shared_ptr<Program> find_program(const Body& body) {
    thread_local std::string key;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].is_number()) check_number(call_.name, operands_[i], dtypes_[i]);
    }
    if (!has_values()) return make(body);  // throws
    write_key(key);
    if (std::shared_ptr<Program> program = current_context().eager_programs.find(key)) {
      return program;
    }
    const std::string own_key = key;
    EagerProgram made{.program = make(body), .placements = {}, .attributes = {}};
    for (const Operand& operand : operands_) {
      if (!operand.is_number()) made.placements.push_back(operand.array.node()->placement);
    }
    current_context().eager_programs.insert(own_key, made);
    return made.program;
  }

  void write_key(std::string& key) const {
    key = "op ";
    key += call_.op;
    key += ' ';
    key += call_.variant;
    key += '\0';
    append(key, engine_of(settings_));
    append(key, settings_.dot_unit);
    append(key, settings_.grains);
    append(key, settings_.numerics);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Operand& operand = operands_[i];
      append(key, operand.is_number());
      if (operand.is_number()) {
        append(key, dtypes_[i]);
      } else {
        append_address(key, operand.array.node()->placement);
      }
    }
    if (!current_mesh().axes().empty()) key += to_string(current_mesh());
  }

  /// Records `body` with a new input for each operand.
  std::shared_ptr<Program> make(const Body& body) const {
    const Span where = call_span();
    auto trace =
        std::make_shared<trace::Trace>(current_mesh(), settings_.grains, settings_.numerics);
    std::vector<Operand> inputs;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Operand& operand = operands_[i];
      Type type{dtypes_[i], {}};
      ParamInfoPtr info;
      if (!operand.is_number()) {
        trace::Trace check(trace->function());
        lift(check, operand.array, where);  // throws for arrays without values
        type = operand.array.type();
        info = operand.array.node()->info;
      }
      Array input = make_traced(trace, trace->add_input(std::move(type)));
      input.node()->info = info;
      inputs.emplace_back(input, operand.where);
    }
    std::vector<ir::ValueId> outputs;
    {
      const trace::Tracing tracing(trace, where);
      outputs.push_back(lift(*trace, body(inputs), where));
    }
    ir::Function function = trace->finish(std::move(outputs));
    MeshChoice choice(where);
    for (const Operand& operand : operands_) {
      if (operand.is_number()) continue;
      choice.add(operand.array.node()->placement->mesh, "operand " + describe(operand.array));
    }
    function = ir::with_mesh(std::move(function), choice.mesh());
    std::vector<PlacementPtr> placements;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      placements.push_back(operands_[i].is_number()
                               ? replicated_placement({dtypes_[i], {}}, choice.mesh())
                               : placement_on(choice.mesh(), *operands_[i].array.node()));
    }
    return make_program(std::move(function), std::move(placements), settings_);
  }

  /// Whether the engine of the host may run it without more ado.
  bool is_plain(const Program& program) const {
    return program.executable != nullptr && program.forwarded[0] < 0 &&
           run::transport() == nullptr &&
           std::all_of(operands_.begin(), operands_.end(), [](const Operand& operand) {
             return operand.is_number() || operand.array.node()->groups == nullptr;
           });
  }

  std::vector<run::Tiles> tiles() const {
    std::vector<run::Tiles> inputs;
    inputs.reserve(operands_.size());
    const run::Transport* const transport = settings_.world.transport;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].is_number()) {
        inputs.push_back({element_of(operands_[i], dtypes_[i])});
        continue;
      }
      const ArrayNode& node = *operands_[i].array.node();
      const std::lock_guard<std::mutex> lock(donation_mutex());
      if (node.donation != nullptr) fail_if_donated(node, call_span());
      if (node.transport != transport) fail_if_elsewhere(node, call_span());
      inputs.push_back(node.tiles);
    }
    return inputs;
  }

  std::vector<Tiled> tiled(const Program& program) const {
    std::vector<run::Tiles> tiles_of_inputs = tiles();
    std::vector<Tiled> inputs;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const bool is_number = operands_[i].is_number();
      inputs.push_back({program.inputs[i], std::move(tiles_of_inputs[i]),
                        is_number ? nullptr : operands_[i].array.node()->groups});
    }
    return inputs;
  }

  const EagerCall& call_;
  std::span<const Operand> operands_;
  std::span<const DType> dtypes_;
  const Settings settings_ = current_settings();
};

}  // namespace

Array run_op(const EagerCall& call, std::span<const Operand> operands,
             std::span<const DType> dtypes, const OpCall::Body& body) {
  return OpCall(call, operands, dtypes).run(body);
}

std::vector<Array> run_traced(const Mesh& mesh, const std::function<std::vector<Array>()>& body) {
  const Span where = call_span();
  const Settings settings = current_settings();
  auto trace = std::make_shared<trace::Trace>(mesh, settings.grains, settings.numerics);
  std::vector<ir::ValueId> outputs;
  {
    const trace::Tracing tracing(trace, where);
    for (const Array& output : body()) outputs.push_back(lift(*trace, output, where));
  }
  std::vector<Array> arrays;
  for (const auto& outer : trace->captured()) arrays.push_back(as_array(outer));
  return run_function(trace->finish(std::move(outputs)), arrays, where);
}

std::vector<Array> run_function(ir::Function function, const std::vector<Array>& arrays,
                                const Span& where) {
  const Settings settings = current_settings();
  MeshChoice choice(function.mesh, where);
  for (const Array& array : arrays) {
    choice.add(array.node()->placement->mesh, "operand " + describe(array));
  }
  function = ir::with_mesh(std::move(function), choice.mesh());
  std::vector<PlacementPtr> inputs;
  std::vector<Tiled> tiled;
  for (const Array& array : arrays) {
    inputs.push_back(placement_on(function.mesh, *array.node()));
    tiled.push_back(tiles_of(array, where));
    tiled.back().placement = inputs.back();
  }
  const std::shared_ptr<Program> program = program_of(std::move(function), inputs, settings);
  return run_once(*program, std::move(tiled), where);
}

}  // namespace tessera::detail
