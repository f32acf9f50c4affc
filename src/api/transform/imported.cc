// Programs of JAX as functions of arrays.
#include <cstring>
#include <numeric>

#include <tessera/error.h>
#include <tessera/transform.h>

#include "api/apply.h"
#include "api/transform/nested.h"
#include "api/transform/over_mesh.h"
#include "ops/control/control.h"
#include "ops/ops.h"
#include "stablehlo/bytecode/module.h"
#include "stablehlo/import/import.h"

namespace tessera {

struct ImportedProgram::State {
  ir::Function function;         // inputs: the arguments, then the constants
  std::vector<Array> constants;  // arrays of the program itself
  std::vector<Type> arguments;
  std::vector<Type> results;
  std::vector<bool> donated;
  std::vector<NamedSharding> shardings;
};

namespace {

/// Leaves every dimension of a constraint to the compiler, unless its mesh is that of the program.
/// Groups are those of one module: another one may have the same numbers.
void loosen_constraints(ir::Function& function, bool is_on_its_mesh) {
  for (ir::Equation& equation : function.equations) {
    if (equation.op != &ops::sharding_constraint_op) continue;
    auto sharding = equation.attributes.get<Sharding>("sharding");
    if (!is_on_its_mesh) {
      sharding = replicated_sharding(function.type(equation.results[0]).rank());
      sharding.open.resize(sharding.dims.size());
      std::iota(sharding.open.begin(), sharding.open.end(), std::size_t{0});
    }
    equation.attributes = {{"sharding", std::move(sharding)}};
  }
}

/// The function as a part of another one.
ir::Function as_part_of(const ir::Function& outer, const ir::Function& function) {
  const bool is_on_its_mesh = function.mesh == outer.mesh;
  const auto adapt = [&](ir::Function part) {
    part.grains = outer.grains;
    part.numerics = outer.numerics;
    // A nested function gets the shardings of its inputs from its caller.
    for (ir::Value& value : part.values) value.sharding.reset();
    loosen_constraints(part, is_on_its_mesh);
    return part;
  };
  return adapt(ir::with_changed_bodies(ir::with_mesh(function, outer.mesh), adapt));
}

std::string list_of(const std::vector<Type>& types) {
  std::string text;
  for (const Type& type : types) text += (text.empty() ? "" : ", ") + to_string(type);
  return text.empty() ? "none" : text;
}

void check_arguments(const std::vector<Type>& wanted, const std::vector<Array>& arguments,
                     const std::source_location& where) {
  std::vector<Type> found;
  for (const Array& array : arguments) found.push_back(array.type(where));
  if (found == wanted) return;
  throw UserError({.what = "ImportedProgram: the arguments do not match the program",
                   .where = Span(where),
                   .found = list_of(found),
                   .wanted = list_of(wanted),
                   .cure = "pass the arrays in the order of the leaves of JAX's arguments, with "
                           "their types"});
}

}  // namespace

ImportedProgram::ImportedProgram(std::shared_ptr<const State> state) : state_(std::move(state)) {}

const std::vector<Type>& ImportedProgram::arguments() const { return state_->arguments; }
const std::vector<Type>& ImportedProgram::results() const { return state_->results; }
const std::vector<bool>& ImportedProgram::donated() const { return state_->donated; }
const Mesh& ImportedProgram::mesh() const { return state_->function.mesh; }
const std::vector<NamedSharding>& ImportedProgram::shardings() const { return state_->shardings; }

std::vector<Array> ImportedProgram::operator()(const std::vector<Array>& arguments,
                                               std::source_location where) const {
  const CallScope scope(where);
  check_arguments(state_->arguments, arguments, where);
  std::vector<Array> operands = arguments;
  operands.insert(operands.end(), state_->constants.begin(), state_->constants.end());
  return detail::recorded(operands, Span(where), [&] {
    return detail::emit_all(operands, [&](ir::Builder& builder, const detail::Ids& ids) {
      const ir::Function part = as_part_of(builder.function(), state_->function);
      return ops::call(builder, "imported", detail::shared_function(part), ids);
    });
  });
}

namespace {

NamedSharding sharding_of(const ir::Function& function, ir::ValueId id) {
  NamedSharding named;
  named.mesh = function.mesh;
  const auto& sharding = function.values[id].sharding;
  if (sharding.has_value()) named.spec = to_spec(function.mesh, *sharding);
  return named;
}

Array array_of(const stablehlo::ConstantArray& constant) {
  return make_array_from_callback(
      constant.type, NamedSharding(),
      [&](const std::vector<IndexRange>& /*whole*/, std::span<std::byte> elements) {
        std::memcpy(elements.data(), constant.bytes.data(), elements.size());
      });
}

}  // namespace

ImportedProgram import_stablehlo(std::string_view bytes, std::source_location where) {
  const CallScope scope(where);
  stablehlo::Imported imported = stablehlo::import_module(
      *stablehlo::bytecode::read_module(std::string(bytes)), detail::map_tiles,
      [](std::int64_t /*number*/, const Span& /*where*/) { return nullptr; });
  auto state = std::make_shared<ImportedProgram::State>();
  for (const stablehlo::ConstantArray& constant : imported.constants) {
    state->constants.push_back(array_of(constant));
  }
  const ir::Function& function = imported.function;
  for (std::size_t i = 0; i < imported.donated.size(); ++i) {
    state->arguments.push_back(function.type(function.inputs[i]));
    state->shardings.push_back(sharding_of(function, function.inputs[i]));
  }
  for (const ir::ValueId id : function.outputs) state->results.push_back(function.type(id));
  state->donated = imported.donated;
  state->function = std::move(imported.function);
  return ImportedProgram(std::move(state));
}

}  // namespace tessera
