#include "tests/fuzz/case.h"

#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>

#include "batch/batch.h"
#include "differentiate/differentiate.h"
#include "ir/text.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "tests/fuzz/program.h"

namespace tessera::fuzz {

namespace {

/// A mesh of up to 8 devices on up to 3 axes.
Mesh random_mesh(Random& random) {
  static const std::vector<std::vector<std::int64_t>> sizes = {
      {2},    {3},    {4},    {8},    {8},    {5},    {6},       {2, 2},    {2, 3},   {3, 2},
      {2, 4}, {2, 4}, {4, 2}, {4, 2}, {1, 4}, {8, 1}, {2, 2, 2}, {2, 2, 2}, {2, 1, 3}};
  static const std::vector<std::string> names = {"a", "b", "c"};
  std::vector<MeshAxis> axes;
  for (std::int64_t size : random.choose(sizes)) axes.push_back({names[axes.size()], size});
  return make_mesh(axes);
}

/// Mostly values that nothing uses, so that little of the program is dead code.
std::vector<ValueId> random_outputs(Program& program) {
  const ir::Function& function = program.function();
  std::vector<bool> is_used(function.values.size(), false);
  for (const ir::Equation& equation : function.equations) {
    for (ValueId id : equation.operands) is_used[id] = true;
  }
  std::vector<ValueId> outputs;
  for (const ir::Equation& equation : function.equations) {
    for (ValueId id : equation.results) {
      if (!is_used[id] && program.random().chance(80)) outputs.push_back(id);
    }
  }
  if (outputs.empty() || program.random().chance(20)) {
    outputs.push_back(static_cast<ValueId>(program.random().pick(function.values.size())));
  }
  program.random().shuffle(outputs);
  return outputs;
}

/// Whether there is an op such as `while`.
bool has_op_without_derivative(const ir::Function& function) {
  bool is_found = false;
  for_each_equation(function, [&](const ir::Equation& equation, const auto&) {
    is_found = is_found || !equation.op->vjp.is_differentiable();
  });
  return is_found;
}

/// The derivative, or the function itself if an op without a derivative prevents it.
ir::Function derivative_of(const ir::Function& function, const std::vector<std::size_t>& wrt) {
  try {
    return differentiate::value_and_grad(function, wrt);
  } catch (const UserError&) {
    if (!has_op_without_derivative(function)) throw;
    return function;
  }
}

/// sum(x * w), where the weights w are a new input.
ValueId weighted_total(Program& program, ValueId x) {
  const Type type = program.type(x);
  Ints dims;
  for (std::int64_t i = 0; i < type.rank(); ++i) dims.push_back(i);
  program.random().shuffle(dims);
  const ValueId weighted = ops::mul(program.builder(), x, program.add_input({.type = type}));
  return ops::reduce_sum(program.builder(), ops::convert(program.builder(), weighted, DType::f32),
                         dims);
}

/// Some float values, mostly ones that nothing else uses.
std::vector<ValueId> floats_for_loss(Program& program) {
  std::vector<ValueId> floats;
  for (ValueId id : random_outputs(program)) {
    if (is_float(program.type(id).dtype)) floats.push_back(id);
  }
  const ValueId recent = program.recent([](const Type& type) { return type.dtype == DType::f32; });
  if (recent != ir::kNoValue) floats.push_back(recent);
  const auto most = static_cast<std::size_t>(program.random().between(1, 4));
  floats.resize(std::min(floats.size(), most));
  return floats;
}

/// A loss that sums some float values, with its gradient with respect to some inputs.
ir::Function with_gradient(Program& program) {
  Random& random = program.random();
  ValueId loss = ir::kNoValue;
  for (ValueId x : floats_for_loss(program)) {
    const ValueId total = weighted_total(program, x);
    loss = loss == ir::kNoValue ? total : ops::add(program.builder(), loss, total);
  }
  if (loss == ir::kNoValue) {
    program.builder().set_outputs(random_outputs(program));
    return program.function();
  }
  std::vector<std::size_t> wrt;
  for (std::size_t i = 0; i < program.function().inputs.size(); ++i) {
    const Type& input = program.type(program.function().inputs[i]);
    if (is_float(input.dtype) && random.chance(60)) wrt.push_back(i);
  }
  std::vector<ValueId> outputs = {loss};
  if (random.chance(50)) outputs.push_back(random_outputs(program)[0]);
  program.builder().set_outputs(outputs);
  return derivative_of(program.function(), wrt);
}

/// Counts the ops with nested functions, and special scans, with `prefix` before each name.
void count_constructs(const ir::Function& function, const std::string& prefix,
                      std::map<std::string, int>& constructs) {
  for_each_equation(function, [&](const ir::Equation& equation, const auto& around) {
    if (equation.op->bodies == nullptr) return;
    const std::string name = prefix + *equation.op->name;
    ++constructs[name];
    if (!around.empty()) ++constructs[name + " nested"];
    if (around.size() > 1) ++constructs["three deep"];
    if (equation.op != &ops::scan_op) return;
    const std::int64_t length = equation.attributes.integer("length");
    if (length < 2) ++constructs[fmt::format("scan of length {}", length)];
    if (equation.attributes.get<bool>("reverse")) ++constructs["scan reversed"];
  });
}

/// A batch of `size` arrays. The first is `row`, the others are drawn anew.
ops::HostArray batch_of(const ops::HostArray& row, const ops::SampleOperand& drawn_from,
                        std::int64_t size, Random& random) {
  Type type = row.type();
  type.shape.insert(type.shape.begin(), size);
  ops::HostArray batch(type);
  for (std::int64_t i = 0; i < size; ++i) {
    const ops::HostArray drawn =
        i == 0 ? row : testing::random_array(random.generator(), drawn_from);
    std::copy(drawn.bytes().begin(), drawn.bytes().end(),
              batch.bytes().begin() + i * static_cast<std::ptrdiff_t>(row.bytes().size()));
  }
  return batch;
}

/// Turns some of the inputs into batches.
void add_batch(Case& c, const Program& program, Random& random) {
  c.batch_size = random.between(1, 3);
  if (program.axis()) {
    c.axis = program.axis()->name;
    c.batch_size = program.axis()->size;
  }
  const std::size_t count = c.inputs.size();
  for (std::size_t i = 0; i < count; ++i) c.is_batched.push_back(random.chance(60));
  if (count == 0) return;
  c.is_batched[random.pick(count)] = true;
  for (std::size_t i = 0; i < count; ++i) {
    if (!c.is_batched[i]) continue;
    c.inputs[i] = batch_of(c.inputs[i], program.drawn_from(i), c.batch_size, random);
  }
}

testing::Placed random_placement(const ir::Function& function, Random& random) {
  testing::Placed placed;
  for (ValueId id : function.inputs) {
    placed.inputs.push_back(random_sharding(random, function.mesh, function.type(id).shape));
    placed.is_storage.push_back(random.chance(30));
  }
  std::vector<bool> is_taken(function.inputs.size(), false);
  for (ValueId id : function.outputs) {
    placed.outputs.emplace_back();
    placed.output_alias.push_back(-1);
    if (random.chance(50)) {
      placed.outputs.back() = random_sharding(random, function.mesh, function.type(id).shape);
    }
    for (std::size_t i = 0; i < function.inputs.size(); ++i) {
      const bool fits = function.type(function.inputs[i]) == function.type(id);
      if (!fits || is_taken[i] || !random.chance(40)) continue;
      is_taken[i] = true;
      placed.output_alias.back() = static_cast<int>(i);
      if (random.chance(70)) placed.outputs.back() = placed.inputs[i];
      break;
    }
  }
  return placed;
}

std::string data_text(const ops::HostArray& array) {
  if (num_elements(array.type().shape) > 24) return "...";
  return ops::dispatch(array.type().dtype, [&](auto zero) {
    using T = decltype(zero);
    std::string text;
    using Shown = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;
    for (T element : array.data<T>()) text += fmt::format(" {}", Shown{element});
    return text;
  });
}

}  // namespace

ir::Function program_of(const Case& c) {
  if (c.is_batched.empty() && c.axis.empty()) return c.function;
  const std::vector<bool> all_outputs(c.function.outputs.size(), true);
  return batch::batch(c.function, c.is_batched, c.batch_size, all_outputs, {.name = c.axis})
      .function;
}

namespace {

void visit_all(const ir::Function& function, std::vector<const ir::Equation*>& around,
               const Visit& visit) {
  for (const ir::Equation& equation : function.equations) {
    visit(equation, around);
    around.push_back(&equation);
    for (const ir::Function* body : ir::bodies_of(equation)) visit_all(*body, around, visit);
    around.pop_back();
  }
}

}  // namespace

void for_each_equation(const ir::Function& function, const Visit& visit) {
  std::vector<const ir::Equation*> around;
  visit_all(function, around, visit);
}

Case make_case(std::uint64_t seed) {
  Random random(seed);
  const Mesh mesh = random_mesh(random);
  static const std::vector<std::int64_t> grains = {8, 8, 8, 8, 8, 8, 1, 2, 3, 6, 16, 24};
  const bool is_special = random.chance(30);
  Program program(mesh, random.choose(grains),
                  is_special ? testing::Values::special : testing::Values::ordinary, random);
  const bool is_large = random.chance(4);
  if (is_large) program.grow();
  if (!is_large && random.chance(8)) program.map_over({"rows", random.between(1, 8)});
  const auto count = static_cast<std::size_t>(random.between(5, is_large ? 10 : 40));
  while (program.function().equations.size() < count) add_random_equation(program);
  Case c;
  c.seed = seed;
  const bool is_gradient = random.chance(30);
  if (is_gradient) {
    c.function = with_gradient(program);
  } else {
    program.builder().set_outputs(random_outputs(program));
    c.function = program.function();
  }
  const ir::Function live = ir::without_dead_code(program.function());
  count_constructs(live, "", c.constructs);
  if (is_gradient) count_constructs(live, "gradient of ", c.constructs);
  c.inputs = program.inputs();
  if (program.axis() || (!is_large && random.chance(12))) {
    add_batch(c, program, random);
    if (program.axis()) ++c.constructs["mapped axis"];
    count_constructs(live, "batch of ", c.constructs);
  }
  c.placed = random_placement(program_of(c), random);
  return c;
}

std::string to_string(const Case& c) {
  const ir::Function function = program_of(c);
  std::string text = fmt::format("seed {}, mesh {}\n", c.seed, to_string(function.mesh));
  if (!c.is_batched.empty()) {
    text += fmt::format("a batch of {}{}, inputs {} of\n{}", c.batch_size,
                        c.axis.empty() ? "" : " named " + c.axis, fmt::join(c.is_batched, " "),
                        ir::print(c.function));
  }
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    text += fmt::format("input %{}: {} <{}>{}:{}\n", function.inputs[i],
                        to_string(c.inputs[i].type()), to_string(function.mesh, c.placed.inputs[i]),
                        c.placed.is_storage[i] ? " storage" : "", data_text(c.inputs[i]));
  }
  for (std::size_t i = 0; i < function.outputs.size(); ++i) {
    const auto& asked = c.placed.outputs[i];
    text += fmt::format("output %{}: {}", function.outputs[i],
                        asked ? "<" + to_string(function.mesh, *asked) + ">" : "open");
    if (c.placed.output_alias[i] >= 0)
      text += fmt::format(" takes input {}", c.placed.output_alias[i]);
    text += "\n";
  }
  return text + ir::print(function);
}

}  // namespace tessera::fuzz
