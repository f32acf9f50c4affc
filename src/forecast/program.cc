#include "forecast/program.h"

#include <algorithm>
#include <map>

#include <tessera/error.h>

#include "ops/control/mpmd.h"
#include "ops/ops.h"

namespace tessera::forecast {

namespace {

using ir::Equation;
using ir::Function;
using ir::ValueId;

constexpr std::uint32_t kNoItem = ~std::uint32_t{0};

bool reduces(const Equation& equation) {
  return equation.op == &ops::all_reduce_op || equation.op == &ops::reduce_scatter_op;
}

/// All seconds of a program, one after the other.
double total_seconds(const Program& program) {
  double seconds = 0;
  for (const Item& item : program.items) {
    seconds += item.seconds + item.exchange.seconds;
    for (const Rounds& rounds : item.rounds)
      seconds += static_cast<double>(rounds.count) * total_seconds(*rounds.program);
  }
  return seconds;
}

/// Finds which items make the values of a function.
class Makers {
 public:
  explicit Makers(const run::Executable& executable)
      : function_(*executable.source),
        definition_(function_.values.size(), kNoItem),
        item_(function_.equations.size(), kNoItem) {
    for (std::uint32_t i = 0; i < executable.instructions.size(); ++i) {
      for (const std::uint32_t index : executable.instructions[i].equations) item_[index] = i;
    }
    for (std::uint32_t index = 0; index < function_.equations.size(); ++index) {
      for (const ValueId id : function_.equations[index].results) definition_[id] = index;
    }
  }

  /// The items whose results an instruction reads, also through views, which have no item.
  std::vector<std::uint32_t> read_by(const run::Instruction& instruction) const {
    std::vector<std::uint32_t> makers;
    for (const std::uint32_t index : instruction.equations) {
      for (const ValueId id : function_.equations[index].operands) {
        add(id, instruction.equations, makers);
      }
    }
    std::sort(makers.begin(), makers.end());
    makers.erase(std::unique(makers.begin(), makers.end()), makers.end());
    return makers;
  }

  /// The equation that made a partial value, before other reductions.
  const Equation* maker_of_partial(const Equation& reduction) const {
    const Equation* maker = definition(reduction.operands[0]);
    while (maker != nullptr && reduces(*maker)) maker = definition(maker->operands[0]);
    return maker;
  }

  /// The first equation that reads one of the results and is not a collective.
  const Equation* reader_of(const Equation& collective) const {
    std::vector<ValueId> ids = collective.results;
    for (const Equation& equation : function_.equations) {
      const bool reads = std::any_of(equation.operands.begin(), equation.operands.end(),
                                     [&](ValueId id) { return contains(ids, id); });
      if (!reads) continue;
      if (!equation.span.file.empty()) return &equation;
      ids.insert(ids.end(), equation.results.begin(), equation.results.end());
    }
    return nullptr;
  }

 private:
  static bool contains(const std::vector<ValueId>& ids, ValueId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }

  const Equation* definition(ValueId id) const {
    return definition_[id] == kNoItem ? nullptr : &function_.equations[definition_[id]];
  }

  /// `own` are the equations of the item that reads the value. It may compute values that other
  /// items compute too.
  void add(ValueId id, const std::vector<std::uint32_t>& own,
           std::vector<std::uint32_t>& makers) const {
    const std::uint32_t index = definition_[id];
    if (index == kNoItem || std::find(own.begin(), own.end(), index) != own.end()) return;
    if (item_[index] != kNoItem) {
      makers.push_back(item_[index]);
      return;
    }
    for (const ValueId operand : function_.equations[index].operands) add(operand, own, makers);
  }

  const Function& function_;
  std::vector<std::uint32_t> definition_;  // per value: its equation
  std::vector<std::uint32_t> item_;        // per equation: the last one that computes it
};

class Builder {
 public:
  Builder(std::int64_t group, const Cluster& cluster) : group_(group), cluster_(cluster) {}

  Program build(const run::Executable& executable) {
    Program program;
    if (executable.source == nullptr) {  // copies the initial or final values of a loop
      for (const run::Instruction& instruction : executable.instructions)
        program.items.push_back(compute_item(instruction));
      return program;
    }
    std::vector<const run::Control*> controls(executable.instructions.size(), nullptr);
    for (const run::Task& task : executable.tasks) {
      if (task.control != nullptr) controls[task.instruction] = task.control.get();
    }
    const Makers makers(executable);
    for (std::size_t i = 0; i < executable.instructions.size(); ++i) {
      const run::Instruction& instruction = executable.instructions[i];
      Item item = item_of(instruction, controls[i], *executable.source, makers);
      item.after = makers.read_by(instruction);
      program.communicates |= has_collectives(item);
      program.items.push_back(std::move(item));
    }
    return program;
  }

 private:
  Item item_of(const run::Instruction& instruction, const run::Control* control,
               const Function& function, const Makers& makers) {
    Item item = compute_item(instruction);
    const Equation* equation =
        instruction.equations.empty() ? nullptr : &function.equations[instruction.equations[0]];
    if (control != nullptr) {
      item = {.kind = Item::Kind::control, .name = item.name, .where = item.where};
      item.rounds = rounds_of(*control);
    } else if (equation != nullptr && ops::is_transfer(*equation)) {
      make_transfer(*equation, function, item);
    } else if (equation != nullptr && !instruction.collectives.empty()) {
      make_collective(*equation, instruction, function, item);
      item.where = line_of(*equation, makers);
    }
    return item;
  }

  Item compute_item(const run::Instruction& instruction) const {
    Item item{.name = instruction.name, .where = instruction.span};
    item.flops = static_cast<double>(instruction.flops);
    item.bytes = static_cast<double>(instruction.bytes);
    item.seconds = std::max(item.flops / cluster_.flops, item.bytes / cluster_.memory_bandwidth);
    return item;
  }

  void make_collective(const Equation& equation, const run::Instruction& instruction,
                       const Function& function, Item& item) const {
    double wire_bytes = 0;
    for (const run::CollectiveUse& use : instruction.collectives)
      wire_bytes += static_cast<double>(use.wire_bytes);
    item = {.kind = Item::Kind::collective, .name = instruction.collectives[0].kind};
    item.exchange =
        exchange(item.name, wire_bytes, reach_of(function, equation, group_, cluster_), cluster_);
  }

  void make_transfer(const Equation& equation, const Function& function, Item& item) const {
    const std::int64_t from = equation.attributes.integer("from");
    const std::int64_t to = equation.attributes.integer("to");
    const bool sends = from == group_;
    const Type& type = function.type(equation.results[0]);
    const Layout layout(function.mesh, function.sharding(equation.results[0]), type.shape);
    const auto bytes = static_cast<double>(size_bytes(Type{type.dtype, layout.max_tile_shape()}));
    item = {.kind = sends ? Item::Kind::send : Item::Kind::receive,
            .name = "transfer",
            .where = item.where};
    item.peer = static_cast<int>(sends ? to : from);
    item.exchange =
        exchange(item.name, bytes, reach_of_transfer(function.mesh, from, to, cluster_), cluster_);
  }

  static Span line_of(const Equation& collective, const Makers& makers) {
    const Equation* cause =
        reduces(collective) ? makers.maker_of_partial(collective) : makers.reader_of(collective);
    return cause != nullptr && !cause->span.file.empty() ? cause->span : collective.span;
  }

  void add(const run::Nested& nested, std::int64_t count, std::vector<Rounds>& rounds) {
    if (nested.executable == nullptr || count == 0) return;
    std::shared_ptr<const Program>& known = built_[nested.executable.get()];
    if (known == nullptr) known = std::make_shared<const Program>(build(*nested.executable));
    rounds.push_back({known, count});
  }

  std::vector<Rounds> rounds_of(const run::Control& control) {
    std::vector<Rounds> rounds;
    add(control.begin, 1, rounds);
    add(control.condition, 1, rounds);
    if (control.kind == run::Control::Kind::cond) {
      std::vector<Rounds> branches;
      for (const run::Nested& body : control.bodies) add(body, 1, branches);
      const auto dearest =
          std::max_element(branches.begin(), branches.end(), [](const auto& a, const auto& b) {
            return total_seconds(*a.program) < total_seconds(*b.program);
          });
      if (dearest != branches.end()) rounds.push_back(*dearest);
    } else {
      const bool is_scan = control.kind == run::Control::Kind::scan;
      for (const run::Nested& body : control.bodies)
        add(body, is_scan ? control.length : 1, rounds);
    }
    add(control.end, 1, rounds);
    return rounds;
  }

  std::int64_t group_;
  const Cluster& cluster_;
  std::map<const run::Executable*, std::shared_ptr<const Program>> built_;
};

}  // namespace

bool has_collectives(const Item& item) {
  return item.kind == Item::Kind::collective ||
         std::any_of(item.rounds.begin(), item.rounds.end(),
                     [](const Rounds& rounds) { return rounds.program->communicates; });
}

Program program_of(const run::Executable& executable, std::int64_t group, const Cluster& cluster) {
  return Builder(group, cluster).build(executable);
}

}  // namespace tessera::forecast
