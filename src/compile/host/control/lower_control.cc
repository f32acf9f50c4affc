// Lowerings of ops with bodies. A body becomes a nested executable, which one task runs on tiles of
// its operands and results. Slices and carries are read and written in place.

#include <algorithm>
#include <cstring>

#include <tessera/error.h>

#include "compile/barriers.h"
#include "compile/body_pool.h"
#include "compile/host/control/overwritten.h"
#include "compile/host/control/small_loop.h"
#include "compile/host/kernels/parts.h"
#include "compile/host/lower.h"
#include "compile/stored_outputs.h"
#include "ops/control/control.h"

namespace tessera::compile::host {

namespace {

using run::Control;
using run::Nested;
using run::TileBinding;
using Tiles = std::vector<TileBinding>;

/// Copies a buffer. Does nothing if the planner put both in the same place.
class BytesKernel final : public run::Kernel {
 public:
  BytesKernel(std::int64_t bytes, int num_workers)
      : bytes_(bytes),
        num_parts_(kernels::num_parts_for(num_workers, bytes, kMinPartBytes, bytes)) {}
  int num_parts() const override { return num_parts_; }
  void run(std::span<std::byte* const> buffers, int part) const override {
    if (buffers[0] == buffers[1]) return;
    const std::int64_t first = bytes_ * part / num_parts_;
    const std::int64_t end = bytes_ * (part + 1) / num_parts_;
    std::copy(buffers[0] + first, buffers[0] + end, buffers[1] + first);
  }

 private:
  static constexpr std::int64_t kMinPartBytes = 1 << 19;

  std::int64_t bytes_;
  int num_parts_;
};

/// Copies tiles to tiles, under construction.
class Copies {
 public:
  explicit Copies(int num_workers) : num_workers_(num_workers) {}

  void add(Tiles from, Tiles to, const std::vector<std::int64_t>& bytes) {
    for (std::uint32_t tile = 0; tile < bytes.size(); ++tile) add_task(tile, bytes[tile]);
    executable_.inputs.push_back({.tile_bytes = bytes});
    executable_.outputs.push_back({.tile_bytes = bytes});
    nested_.binding.inputs.push_back(std::move(from));
    nested_.binding.outputs.push_back(std::move(to));
  }

  Nested finish() {
    if (executable_.tasks.empty()) return {};
    executable_.instructions = {{.name = "copy", .span = {}, .collectives = {}}};
    executable_.is_short_body = bytes_ <= kShortBytes;
    nested_.executable = std::make_shared<const run::Executable>(std::move(executable_));
    return std::move(nested_);
  }

 private:
  void add_task(std::uint32_t tile, std::int64_t bytes) {
    using Space = run::Place::Space;
    const auto port = static_cast<std::uint32_t>(executable_.inputs.size());
    const auto place = static_cast<std::uint32_t>(executable_.places.size());
    executable_.places.push_back({.space = Space::input, .port = port, .tile = tile});
    executable_.places.push_back({.space = Space::output, .port = port, .tile = tile});
    executable_.tasks.push_back({.kernel = std::make_shared<BytesKernel>(bytes, num_workers_),
                                 .instruction = 0,
                                 .places = {place, place + 1},
                                 .successors = {}});
    bytes_ += bytes;
  }

  static constexpr std::int64_t kShortBytes = 10'000;  // sharing them between threads takes longer

  int num_workers_;
  std::int64_t bytes_ = 0;
  run::Executable executable_;
  Nested nested_;
};

/// The task of a control equation, and the numbers of its buffers.
class ControlTask {
 public:
  ControlTask(const LowerContext& context, const Equation& equation)
      : context_(context), equation_(equation) {
    for (ValueId id : equation.operands) {
      operands_.push_back(number_of_buffers());
      const Layout& layout = context.layout(id);
      for (std::int64_t tile : context.tiles(id)) {
        task_.reads.push_back(context.read(id, layout.digits(tile)).tile);
      }
    }
    for (ValueId id : equation.results) {
      results_.push_back(number_of_buffers());
      for (std::int64_t tile : context.tiles(id)) {
        task_.writes.push_back({id, tile});
      }
    }
  }

  /// The tiles of an operand or a result. `stride`: per tile, the bytes of a slice.
  Tiles operand(std::size_t i, const std::vector<std::int64_t>& stride = {}) const {
    return tiles(operands_[i], equation_.operands[i], stride);
  }
  Tiles result(std::size_t i, const std::vector<std::int64_t>& stride = {}) const {
    return tiles(results_[i], equation_.results[i], stride);
  }
  std::vector<std::int64_t> result_bytes(std::size_t i) const {
    const ValueId id = equation_.results[i];
    const Layout& layout = context_.layout(id);
    std::vector<std::int64_t> bytes;
    for (std::int64_t tile : context_.tiles(id)) {
      bytes.push_back(tile_bytes(context_.function(), layout, id, tile));
    }
    return bytes;
  }

  std::uint32_t add_scratch(std::int64_t bytes, std::int64_t device_bytes) {
    task_.scratch.push_back(bytes);
    task_.device_scratch_bytes += device_bytes;
    return number_of_buffers() - 1;
  }
  Tiles add_scratch_tiles(const std::vector<std::int64_t>& bytes) {
    task_.device_scratch_bytes += *std::max_element(bytes.begin(), bytes.end());
    Tiles tiles;
    for (std::int64_t size : bytes) {
      const std::uint32_t number = add_scratch(size, 0);
      tiles.push_back({.even = number, .odd = number});
    }
    return tiles;
  }

  /// The result may be computed in the memory of the operand, since no other operand reads its
  /// tiles.
  void may_share(std::size_t result, std::size_t operand) {
    const std::size_t count = context_.tiles(equation_.results[result]).size();
    for (std::size_t offset = 0; offset < count; ++offset) {
      const std::size_t read = operands_[operand] + offset;
      const auto& reads = task_.reads;
      if (std::count(reads.begin(), reads.end(), reads[read]) != 1) continue;
      task_.may_share.emplace_back(results_[result] - reads.size() + offset, read);
    }
  }

  /// The bodies share an arena, one after the other.
  std::vector<TileTask> finish(Control control) {
    std::vector<Nested*> all = {&control.condition};
    for (Nested& body : control.bodies) all.push_back(&body);
    std::int64_t bytes = 0;
    std::int64_t device_bytes = 0;
    for (const Nested* nested : all) {
      if (nested->executable == nullptr) continue;
      bytes = std::max(bytes, nested->executable->arena_bytes);
      device_bytes = std::max(device_bytes, nested->executable->device_arena_bytes);
      task_.communicates = task_.communicates || nested->executable->communicates;
    }
    const std::uint32_t arena = add_scratch(bytes, device_bytes);
    for (Nested* nested : all) nested->binding.arena = arena;
    task_.control = std::make_shared<const Control>(std::move(control));
    return {std::move(task_)};
  }

 private:
  std::uint32_t number_of_buffers() const {
    return static_cast<std::uint32_t>(task_.reads.size() + task_.writes.size() +
                                      task_.scratch.size());
  }
  Tiles tiles(std::uint32_t first, ValueId id, const std::vector<std::int64_t>& stride) const {
    Tiles tiles;
    const auto count = static_cast<std::uint32_t>(context_.tiles(id).size());
    for (std::uint32_t tile = 0; tile < count; ++tile) {
      tiles.push_back(
          {.even = first + tile, .odd = first + tile, .stride = stride.empty() ? 0 : stride[tile]});
    }
    return tiles;
  }

  const LowerContext& context_;
  const Equation& equation_;
  TileTask task_;
  std::vector<std::uint32_t> operands_;  // first buffer of each
  std::vector<std::uint32_t> results_;
};

/// Checks that a value has the same sharding inside and outside of a body. With `is_stacked` it is
/// stacked outside, along a dimension that is not split.
void check_boundary(const Function& outer, ValueId outside, const Function& body, ValueId inside,
                    bool is_stacked = false) {
  Sharding sharding = outer.sharding(outside);
  if (is_stacked) {
    require(sharding.dims[0].empty(), "arrays that are scanned are whole along dimension 0");
    sharding.dims.erase(sharding.dims.begin());
  }
  require(sharding == body.sharding(inside), "a nested function takes tiles as they lie");
}

std::shared_ptr<const run::Executable> compile_body(const LowerContext& context,
                                                    const Function& body,
                                                    const std::vector<int>& output_alias) {
  CompileOptions options{.is_donated = std::vector<bool>(body.inputs.size(), false),
                         .output_alias = output_alias,
                         .target = context.target(),
                         .dot_unit = context.dot_unit(),
                         .bodies = &context.bodies()};
  for (int input : output_alias) {
    if (input >= 0) options.is_donated[static_cast<std::size_t>(input)] = true;
  }
  return context.bodies().get(body, options);
}

/// A loop: constants and carries.
struct LoopParts {
  std::size_t num_consts;
  std::size_t num_carry;
  /// Whether the number of the last iteration, from 0, is even.
  bool ends_even;
};

struct LoweredLoop {
  Nested body;
  Copies begin;
  Copies end;
};

/// Carry i is in the tiles of result i, which each iteration updates in place. If that is not
/// possible, two buffers alternate so that the last iteration writes the result.
void lower_carry(ControlTask& task, const LoopParts& parts, std::size_t i, LoweredLoop& loop) {
  const std::vector<std::int64_t> bytes = task.result_bytes(i);
  const Tiles operand = task.operand(parts.num_consts + i);
  const Tiles result = task.result(i);
  if (loop.body.executable->outputs[i].alias >= 0) {
    loop.begin.add(operand, result, bytes);
    loop.body.binding.inputs.push_back(result);
    loop.body.binding.outputs.push_back(result);
    task.may_share(i, parts.num_consts + i);
    return;
  }
  const Tiles second = task.add_scratch_tiles(bytes);
  const Tiles& first = parts.ends_even ? second : result;
  const Tiles& other = parts.ends_even ? result : second;
  Tiles reads = first;
  Tiles writes = other;
  for (std::size_t tile = 0; tile < bytes.size(); ++tile) {
    reads[tile].odd = other[tile].even;
    writes[tile].odd = first[tile].even;
  }
  loop.begin.add(operand, first, bytes);
  loop.end.add(second, result, bytes);
  loop.body.binding.inputs.push_back(std::move(reads));
  loop.body.binding.outputs.push_back(std::move(writes));
}

/// `alias`: per output of the body, the input whose buffers it may reuse, or -1. Carries are filled
/// in here.
LoweredLoop lower_loop(const LowerContext& context, const Equation& equation, ControlTask& task,
                       const LoopParts& parts, std::vector<int> alias) {
  const Function& body = equation.attributes.body("body");
  for (std::size_t i = 0; i < parts.num_carry; ++i) {
    const std::size_t input = parts.num_consts + i;
    check_boundary(context.function(), equation.results[i], body, body.inputs[input]);
    check_boundary(context.function(), equation.results[i], body, body.outputs[i]);
    alias[i] = static_cast<int>(input);
  }
  const int num_workers = context.num_workers();
  LoweredLoop loop{.body = {}, .begin = Copies(num_workers), .end = Copies(num_workers)};
  loop.body.executable = compile_body(context, body, alias);
  for (std::size_t i = 0; i < parts.num_consts + parts.num_carry; ++i) {
    check_boundary(context.function(), equation.operands[i], body, body.inputs[i]);
    if (i < parts.num_consts) {
      loop.body.binding.inputs.push_back(task.operand(i));
    } else {
      lower_carry(task, parts, i - parts.num_consts, loop);
    }
  }
  return loop;
}

/// Per output of the body: the input whose slices it may overwrite, because the stacked result may
/// overwrite the scanned array; -1 if none.
std::vector<int> overwritten_slices(const LowerContext& context, const Equation& equation,
                                    const ops::ScanParts& parts) {
  const Function& body = equation.attributes.body("body");
  const std::vector<ValueId> stored = stored_outputs(without_barriers(body).function);
  const std::vector<ValueId>& operands = equation.operands;
  const auto first = operands.begin() + static_cast<std::ptrdiff_t>(parts.first_scanned());
  std::vector<int> alias(stored.size(), -1);
  for (std::size_t i = parts.num_carry; i < stored.size(); ++i) {
    const auto stack = context.overwritten(equation.results[i]);
    if (!stack) continue;
    // An input that is returned is copied: it is in place only if the stacked result is.
    const bool is_input = std::count(body.inputs.begin(), body.inputs.end(), stored[i]) != 0;
    const auto found = std::find(first, operands.end(), *stack);
    if (is_input || found == operands.end()) continue;
    const auto input = static_cast<std::size_t>(found - operands.begin());
    if (body.values[body.outputs[i]] == body.values[body.inputs[input]])
      alias[i] = static_cast<int>(input);
  }
  return alias;
}

std::vector<TileTask> lower_scan(const LowerContext& context, const Equation& equation) {
  if (auto task = lower_small_loop(context, equation)) return {*std::move(task)};
  const ops::ScanParts parts = ops::scan_parts(equation);
  const Function& body = equation.attributes.body("body");
  ControlTask task(context, equation);
  LoweredLoop loop = lower_loop(context, equation, task,
                                {.num_consts = parts.num_consts,
                                 .num_carry = parts.num_carry,
                                 .ends_even = parts.length % 2 == 1},
                                overwritten_slices(context, equation, parts));
  for (std::size_t i = parts.first_scanned(); i < equation.operands.size(); ++i) {
    check_boundary(context.function(), equation.operands[i], body, body.inputs[i], true);
    const std::vector<std::int64_t>& slice = loop.body.executable->inputs[i].tile_bytes;
    loop.body.binding.inputs.push_back(task.operand(i, slice));
  }
  for (std::size_t i = parts.num_carry; i < equation.results.size(); ++i) {
    check_boundary(context.function(), equation.results[i], body, body.outputs[i], true);
    const std::vector<std::int64_t>& slice = loop.body.executable->outputs[i].tile_bytes;
    loop.body.binding.outputs.push_back(task.result(i, slice));
    const int alias = loop.body.executable->outputs[i].alias;
    if (alias >= 0) task.may_share(i, static_cast<std::size_t>(alias));
  }
  return task.finish({.kind = Control::Kind::scan,
                      .length = parts.length,
                      .is_reverse = parts.is_reverse,
                      .begin = loop.begin.finish(),
                      .condition = {},
                      .bodies = {std::move(loop.body)},
                      .end = {}});
}

std::vector<TileTask> lower_while(const LowerContext& context, const Equation& equation) {
  if (auto task = lower_small_loop(context, equation)) return {*std::move(task)};
  const auto num_consts = static_cast<std::size_t>(equation.attributes.integer("num_consts"));
  const Function& test = equation.attributes.body("condition");
  ControlTask task(context, equation);
  LoweredLoop loop = lower_loop(
      context, equation, task,
      {.num_consts = num_consts, .num_carry = equation.results.size(), .ends_even = false},
      std::vector<int>(equation.results.size(), -1));
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    check_boundary(context.function(), equation.operands[i], test, test.inputs[i]);
  }
  require(is_replicated(test.sharding(test.outputs[0])),
          "a condition has the same bool everywhere");
  const std::uint32_t decision = task.add_scratch(1, 1);
  Nested condition{.executable = compile_body(context, test, {-1}),
                   .binding = {.inputs = loop.body.binding.inputs,
                               .outputs = {{{.even = decision, .odd = decision}}}}};
  return task.finish({.kind = Control::Kind::while_loop,
                      .decision = decision,
                      .begin = loop.begin.finish(),
                      .condition = std::move(condition),
                      .bodies = {std::move(loop.body)},
                      .end = loop.end.finish()});
}

/// The branches of a cond, compiled.
struct LoweredBranches {
  std::vector<std::shared_ptr<const run::Executable>> executables;
  /// Per result: the operand that it may share memory with, because every branch that reads the
  /// operand overwrites or returns it; -1 if none.
  std::vector<int> shares;
};

/// The input of a branch that gets an operand of the cond.
ValueId input_of(const Function& branch, int operand) {
  return branch.inputs[static_cast<std::size_t>(operand) - 1];
}

LoweredBranches lower_branches(const LowerContext& context, const Equation& equation) {
  const auto& branches = equation.attributes.get<ir::Bodies>("branches").functions;
  LoweredBranches lowered{.executables = {},
                          .shares = overwritten_operands(context.function(), equation)};
  std::vector<int>& shares = lowered.shares;
  std::vector<Function> without;
  std::vector<std::vector<ValueId>> stored;
  for (const ops::FunctionPtr& branch : branches) {
    without.push_back(without_barriers(*branch).function);
    stored.push_back(stored_outputs(without.back()));
  }
  while (true) {
    lowered.executables.clear();
    bool is_settled = true;
    for (std::size_t n = 0; n < branches.size(); ++n) {
      const Function& read = without[n];
      std::vector<int> alias(shares.size(), -1);
      for (std::size_t i = 0; i < shares.size(); ++i) {
        if (shares[i] < 0) continue;
        const bool is_returned = stored[n][i] == input_of(read, shares[i]);
        if (!is_returned) alias[i] = shares[i] - 1;
      }
      lowered.executables.push_back(compile_body(context, *branches[n], alias));
      const std::vector<int> uses = ir::count_uses(read);
      for (std::size_t i = 0; i < shares.size(); ++i) {
        if (alias[i] < 0 || lowered.executables.back()->outputs[i].alias >= 0) continue;
        if (uses[input_of(read, shares[i])] == 0) continue;
        shares[i] = -1;
        is_settled = false;
      }
    }
    if (is_settled) return lowered;
  }
}

/// A result may take the memory of an operand if no branch reads the operand after it has written
/// the result. If the operand is needed elsewhere, both have their own memory.
std::vector<TileTask> lower_cond(const LowerContext& context, const Equation& equation) {
  require(is_replicated(context.function().sharding(equation.operands[0])),
          "a cond has the same number everywhere");
  ControlTask task(context, equation);
  Control control{.kind = Control::Kind::cond,
                  .decision = task.operand(0)[0].even,
                  .begin = {},
                  .condition = {},
                  .bodies = {},
                  .end = {}};
  for (const ops::FunctionPtr& branch : equation.attributes.get<ir::Bodies>("branches").functions) {
    for (std::size_t i = 1; i < equation.operands.size(); ++i) {
      check_boundary(context.function(), equation.operands[i], *branch, branch->inputs[i - 1]);
    }
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      check_boundary(context.function(), equation.results[i], *branch, branch->outputs[i]);
    }
  }
  LoweredBranches lowered = lower_branches(context, equation);
  for (auto& executable : lowered.executables) {
    Nested nested{.executable = std::move(executable), .binding = {}};
    for (std::size_t i = 1; i < equation.operands.size(); ++i) {
      nested.binding.inputs.push_back(task.operand(i));
    }
    for (std::size_t i = 0; i < equation.results.size(); ++i) {
      nested.binding.outputs.push_back(task.result(i));
    }
    control.bodies.push_back(std::move(nested));
  }
  for (std::size_t i = 0; i < lowered.shares.size(); ++i) {
    if (lowered.shares[i] >= 0) task.may_share(i, static_cast<std::size_t>(lowered.shares[i]));
  }
  return task.finish(std::move(control));
}

/// One run of the body. A result that shares the memory of an operand is computed in place. If the
/// operand is still needed elsewhere, it is first copied to the memory of the result.
std::vector<TileTask> lower_task(const LowerContext& context, const Equation& equation) {
  const Function& body = equation.attributes.body("body");
  const ir::Ints& shares = equation.attributes.ints("shares");
  ControlTask task(context, equation);
  Nested nested;
  nested.executable = compile_body(context, body, std::vector<int>(shares.begin(), shares.end()));
  Copies begin(context.num_workers());
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    check_boundary(context.function(), equation.operands[i], body, body.inputs[i]);
    nested.binding.inputs.push_back(task.operand(i));
  }
  for (std::size_t i = 0; i < equation.results.size(); ++i) {
    check_boundary(context.function(), equation.results[i], body, body.outputs[i]);
    nested.binding.outputs.push_back(task.result(i));
    if (nested.executable->outputs[i].alias < 0) continue;
    const auto operand = static_cast<std::size_t>(shares[i]);
    begin.add(task.operand(operand), task.result(i), task.result_bytes(i));
    nested.binding.inputs[operand] = task.result(i);
    task.may_share(i, operand);
  }
  return task.finish({.kind = Control::Kind::scan,
                      .length = 1,
                      .begin = begin.finish(),
                      .condition = {},
                      .bodies = {std::move(nested)},
                      .end = {}});
}

}  // namespace

Lowerings control_lowerings() {
  return {{"cond", lower_cond, true},
          {"scan", lower_scan, true},
          {"task", lower_task, true},
          {"while", lower_while, true}};
}

}  // namespace tessera::compile::host
