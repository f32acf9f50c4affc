#include "compile/host/control/small_loop.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compile/barriers.h"
#include "compile/host/control/loop_builder.h"
#include "ops/control/control.h"
#include "ops/emit.h"
#include "ops/ops.h"

namespace tessera::compile::host {

namespace {

using kernels::LoopProgram;

class LoopKernel final : public run::Kernel {
 public:
  LoopKernel(LoopProgram program, std::int64_t scratch_bytes)
      : plan_(std::move(program)), scratch_bytes_(scratch_bytes) {}
  std::int64_t scratch_bytes() const override { return scratch_bytes_; }
  void run(std::span<std::byte* const> buffers, int /*part*/) const override { plan_.run(buffers); }
  std::int64_t least_ns() const override {
    constexpr std::int64_t kStepNs = 2;
    const LoopProgram& program = plan_.program();
    if (program.decision >= 0) return std::numeric_limits<std::int64_t>::max();
    return program.length * kStepNs * static_cast<std::int64_t>(1 + program.body.size());
  }

 private:
  kernels::LoopPlan plan_;
  std::int64_t scratch_bytes_;
};

// --- branches

constexpr std::size_t kMostBranchEquations = 40;

/// Whether all branches are cheap enough to compute whichever one is chosen.
bool is_cheap(const Equation& cond) {
  std::size_t count = 0;
  for (const Function* branch : ir::bodies_of(cond)) {
    for (const Equation& equation : branch->equations) {
      const ops::Pattern pattern = *equation.op->pattern;
      const bool is_simple = pattern == ops::Pattern::elementwise ||
                             pattern == ops::Pattern::view ||
                             (pattern == ops::Pattern::generator && equation.operands.empty()) ||
                             ops::is(equation, ops::concatenate_op) ||
                             (ops::is(equation, ops::cond_op) && is_cheap(equation));
      if (!is_simple) return false;
      count += 1;
    }
  }
  return count <= kMostBranchEquations;
}

/// Computes all branches and selects the results of one.
std::vector<ValueId> select_branch(ir::Builder& b, const Equation& cond) {
  const std::vector<const Function*> branches = ir::bodies_of(cond);
  const std::vector<ValueId> arguments(cond.operands.begin() + 1, cond.operands.end());
  std::vector<ValueId> chosen = b.inline_function(*branches[0], arguments);
  for (std::size_t k = 1; k < branches.size(); ++k) {
    const ValueId number = ops::scalar(b, static_cast<double>(k), DType::i32);
    const ValueId is_wanted = ops::compare(b, "ge", cond.operands[0], number);
    const std::vector<ValueId> results = b.inline_function(*branches[k], arguments);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const Shape shape = b.type(chosen[i]).shape;
      chosen[i] = ops::select(b, ops::broadcast_scalar(b, is_wanted, shape), results[i], chosen[i]);
    }
  }
  return chosen;
}

/// The function with cheap branches turned into selects.
Function with_selects(const Function& function) {
  Function made = ir::empty_like(function);
  ir::Builder b(made);
  std::vector<ValueId> renamed(function.values.size(), ir::kNoValue);
  for (const ValueId id : function.inputs) renamed[id] = b.add_input(function.type(id));
  bool is_changed = false;
  for (Equation equation : function.equations) {
    for (ValueId& id : equation.operands) id = renamed[id];
    if (ops::is(equation, ops::cond_op) && is_cheap(equation)) {
      const std::vector<ValueId> results = select_branch(b, equation);
      for (std::size_t i = 0; i < results.size(); ++i) renamed[equation.results[i]] = results[i];
      is_changed = true;
      continue;
    }
    for (ValueId& id : equation.results) {
      id = renamed[id] = made.add_value(function.values[id]);
    }
    made.equations.push_back(std::move(equation));
  }
  for (const ValueId id : function.outputs) made.outputs.push_back(renamed[id]);
  for (ir::Value& value : made.values) value.sharding = replicated_sharding(value.type.rank());
  return is_changed ? with_selects(without_barriers(std::move(made)).function) : made;
}

// --- loops

struct Loop {
  std::size_t num_consts = 0;
  std::size_t num_carry = 0;
  const ops::ScanParts* scan = nullptr;  // null: a while loop

  bool is_carry(std::size_t operand) const {
    return operand >= num_consts && operand < num_consts + num_carry;
  }
};

/// The buffers of the task are the operands, then the results.
class LoopLowering {
 public:
  LoopLowering(const LowerContext& context, const Equation& equation, const Loop& loop)
      : equation_(equation), loop_(loop), builder_(context, program_) {}

  std::shared_ptr<const run::Kernel> build(const Function& body, const Function* condition) {
    std::vector<LoopValue> inputs;
    for (std::size_t i = 0; i < body.inputs.size(); ++i) {
      const ValueId id = body.inputs[i];
      const bool is_in_place = loop_.is_carry(i) ? is_held_in_place(body, id) : !is_small(body, id);
      inputs.push_back(builder_.add_register(body.type(id), is_in_place, loop_.is_carry(i)));
      add_input(i, static_cast<int>(program_.registers.size()) - 1,
                num_elements(body.type(id).shape));
    }
    if (condition != nullptr) {
      const auto decision = builder_.add(*condition, inputs, program_.condition);
      if (!decision) return nullptr;
      program_.decision = builder_.as_register(decision->front().elements);
    }
    const auto outputs = builder_.add(body, inputs, program_.body);
    if (!outputs || !add_outputs(*outputs)) return nullptr;
    if (loop_.scan != nullptr) {
      program_.length = loop_.scan->length;
      program_.is_reverse = loop_.scan->is_reverse;
    }
    return std::make_shared<LoopKernel>(std::move(program_), builder_.thread_scratch_bytes());
  }

 private:
  void add_input(std::size_t i, int reg, std::int64_t size) {
    const auto buffer = static_cast<int>(i);
    if (loop_.is_carry(i)) {
      program_.carries.push_back({.reg = reg, .from = buffer, .to = -1, .next = {}});
    } else {
      const std::int64_t stride = i < loop_.num_consts ? 0 : size;
      program_.loads.push_back({.reg = reg, .buffer = buffer, .stride = stride});
    }
  }

  bool add_outputs(const std::vector<LoopValue>& outputs) {
    auto buffer = static_cast<int>(equation_.operands.size());
    for (std::size_t i = 0; i < outputs.size(); ++i, ++buffer) {
      const auto& elements = outputs[i].elements;
      if (i >= loop_.num_carry) {
        if (elements.empty()) return false;
        program_.stores.push_back(
            {.elements = elements, .buffer = buffer, .stride = std::ssize(elements)});
        continue;
      }
      LoopProgram::Carry& carry = program_.carries[i];
      carry.to = buffer;
      carry.next = elements;
      const bool is_in_place = program_.registers[static_cast<std::size_t>(carry.reg)].is_in_place;
      if (is_in_place ? !builder_.is_last(outputs[i], carry.reg) : elements.empty()) return false;
    }
    return true;
  }

  const Equation& equation_;
  const Loop& loop_;
  LoopProgram program_;
  LoopBuilder builder_;
};

/// Carries are written after all operands have been read, and slices after the operand slices of
/// the same round have been read.
void find_shared_memory(const Function& function, const Equation& equation, const Loop& loop,
                        TileTask& task) {
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    for (std::size_t k = loop.num_consts; k < equation.operands.size(); ++k) {
      const bool is_carry = i < loop.num_carry;
      if (is_carry ? k != loop.num_consts + i : loop.is_carry(k)) continue;
      if (function.type(equation.results[i]) != function.type(equation.operands[k])) continue;
      const auto& reads = task.reads;
      if (std::count(reads.begin(), reads.end(), reads[k]) == 1) task.may_share.emplace_back(i, k);
    }
  }
}

/// Whether every value is whole, in nested functions too.
bool is_whole(const Function& function) {
  const auto is_value_whole = [](const ir::Value& value) {
    return !value.sharding || is_replicated(*value.sharding);
  };
  const auto are_bodies_whole = [](const Equation& equation) {
    const std::vector<const Function*> bodies = ir::bodies_of(equation);
    return std::all_of(bodies.begin(), bodies.end(),
                       [](const Function* f) { return is_whole(*f); });
  };
  return std::all_of(function.values.begin(), function.values.end(), is_value_whole) &&
         std::all_of(function.equations.begin(), function.equations.end(), are_bodies_whole);
}

bool has_one_tile(const LowerContext& context, ValueId id) {
  return context.tiles(id).size() == 1 && is_replicated(context.function().sharding(id));
}

}  // namespace

std::optional<TileTask> lower_small_loop(const LowerContext& context, const Equation& equation) {
  const auto is_one = [&](ValueId id) { return has_one_tile(context, id); };
  const std::vector<const Function*> bodies = ir::bodies_of(equation);
  if (!std::all_of(equation.operands.begin(), equation.operands.end(), is_one) ||
      !std::all_of(equation.results.begin(), equation.results.end(), is_one) ||
      !std::all_of(bodies.begin(), bodies.end(), [](const Function* f) { return is_whole(*f); })) {
    return std::nullopt;
  }
  const auto function_of = [&](const char* name) {
    return with_selects(
        without_barriers(ir::without_dead_code(equation.attributes.body(name))).function);
  };
  std::shared_ptr<const run::Kernel> kernel;
  Loop loop;
  ops::ScanParts parts;
  if (ops::is(equation, ops::scan_op)) {
    parts = ops::scan_parts(equation);
    loop = {.num_consts = parts.num_consts, .num_carry = parts.num_carry, .scan = &parts};
    kernel = LoopLowering(context, equation, loop).build(function_of("body"), nullptr);
  } else {
    loop = {.num_consts = static_cast<std::size_t>(equation.attributes.integer("num_consts")),
            .num_carry = equation.results.size()};
    const Function condition = function_of("condition");
    kernel = LoopLowering(context, equation, loop).build(function_of("body"), &condition);
  }
  if (kernel == nullptr) return std::nullopt;
  TileTask task;
  task.kernel = std::move(kernel);
  for (const ValueId id : equation.operands) {
    task.reads.push_back(context.read(id, context.layout(id).digits(context.tiles(id)[0])).tile);
  }
  for (const ValueId id : equation.results) task.writes.push_back({id, context.tiles(id)[0]});
  find_shared_memory(context.function(), equation, loop, task);
  return task;
}

}  // namespace tessera::compile::host
