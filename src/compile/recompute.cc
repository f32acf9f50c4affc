#include "compile/recompute.h"

#include <algorithm>
#include <optional>

#include <tessera/error.h>

#include "compile/min_cut.h"
#include "compile/pressure.h"
#include "ops/ops.h"
#include "ops/record.h"

namespace tessera::compile {

namespace {

using host::Fusion;
using ir::Equation;
using ir::Function;
using ir::ValueId;
using ops::HostRule;

constexpr int kMostRounds = 8;
/// A round that lowers the peak by less than this part of it is not worth its work.
constexpr std::int64_t kLeastGain = 32;
/// Flops that are worth a byte of the peak. Elementwise work runs at the speed of memory.
constexpr double kDotFlopsPerByte = 64;
constexpr double kTileFlopsPerByte = 16;
/// A contraction of more terms is not computed twice.
constexpr std::int64_t kMostTerms = 128;
/// A value that is needed again by equations farther apart than this, and by the first of them
/// sooner than that, would be held nearly as long as if it had been kept.
constexpr std::size_t kNear = 64;

double flops_of(const Function& f, const Equation& equation) {
  return (*equation.op->cost)(equation.attributes, operand_types(f, equation),
                              result_types(f, equation));
}

bool is_cheap_dot(const Function& f, const Equation& equation) {
  if (equation.op != &ops::dot_general_op) return false;
  if (equation.attributes.ints("lhs_batch").empty()) return false;
  std::int64_t terms = 1;
  for (const std::int64_t dim : equation.attributes.ints("lhs_contract")) {
    terms *= f.type(equation.operands[0]).shape[static_cast<std::size_t>(dim)];
  }
  return terms <= kMostTerms;
}

/// What computing the equation again costs, in bytes; nothing where that is out of the question.
std::optional<double> price(const Function& f, const Equation& equation) {
  const auto is_partial = [&](ValueId id) { return !f.sharding(id).partial.empty(); };
  if (equation.results.size() != 1 || is_partial(equation.results[0]) ||
      std::any_of(equation.operands.begin(), equation.operands.end(), is_partial)) {
    return std::nullopt;
  }
  const HostRule& host = equation.op->host;
  const auto elements = [&](ValueId id) {
    return static_cast<double>(num_elements(f.type(id).shape));
  };
  switch (host.kind) {
    case HostRule::Kind::view:
      return 0.0;
    case HostRule::Kind::generator:
      if (*equation.op->name == "constant") return 0.0;
      [[fallthrough]];
    case HostRule::Kind::tile:
      return std::max(flops_of(f, equation), elements(equation.results[0])) / kTileFlopsPerByte;
    case HostRule::Kind::kernel:
      if (host.name == "reduce") return elements(equation.operands[0]) / kTileFlopsPerByte;
      if (is_cheap_dot(f, equation)) return flops_of(f, equation) / kDotFlopsPerByte;
      return std::nullopt;
    case HostRule::Kind::control:
      return std::nullopt;
  }
  return std::nullopt;
}

/// What is held and what is computed again where the program is cut in two.
class Cut {
 public:
  /// Equations before `place` come first.
  Cut(const Phased& program, const Fusion& fusion, std::size_t place, double scale)
      : f_(program.function),
        phases_(program.phases),
        fusion_(fusion),
        place_(place),
        scale_(scale) {
    definition_.assign(f_.values.size(), host::kNoEquation);
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      for (const ValueId id : f_.equations[i].results) definition_[id] = i;
    }
    find_prices();
    find_needs();
    choose();
  }

  /// Flops of all that is computed again.
  double work() const;
  Phased rewritten() const;

 private:
  struct Needs {
    std::size_t first = ~std::size_t{0};
    std::size_t last = 0;
    bool any() const { return first <= last; }
    void add(const Needs& other) {
      first = std::min(first, other.first);
      last = std::max(last, other.last);
    }
  };

  bool is_before(ValueId id) const {
    return definition_[id] == host::kNoEquation || definition_[id] < place_;
  }

  void find_prices();
  void find_needs();
  void choose();
  void add_value(MinCut& graph, ValueId id);
  std::int64_t bytes_to_hold(ValueId id) const;
  /// Whether an input that nothing reads late may give its memory to an output by then.
  bool may_be_overwritten(ValueId input) const;

  const Function& f_;
  const std::vector<int>& phases_;
  const Fusion& fusion_;
  std::size_t place_;
  double scale_;  // of all prices
  std::vector<std::size_t> definition_;
  std::vector<std::optional<double>> prices_;  // per equation before the place
  std::vector<bool> is_read_late_;             // per value: by an equation behind the place
  std::vector<Needs> needs_;                   // per value before the place
  std::vector<std::size_t> nodes_;             // per value: its node and, next, that of its memory
  std::vector<bool> is_again_;                 // per value: computed again behind the place
};

void Cut::find_prices() {
  prices_.resize(place_);
  for (std::size_t i = 0; i < place_; ++i) prices_[i] = price(f_, f_.equations[i]);
}

/// From the last equation to the first: who needs a value if all that can be is computed again.
/// A value that is needed both soon and late is held instead.
void Cut::find_needs() {
  needs_.resize(f_.values.size());
  is_read_late_.assign(f_.values.size(), false);
  for (std::size_t i = place_; i < f_.equations.size(); ++i) {
    for (const ValueId id : f_.equations[i].operands) {
      is_read_late_[id] = true;
      needs_[id].add({.first = i, .last = i});
    }
  }
  for (std::size_t i = place_; i-- > 0;) {
    if (!prices_[i]) continue;
    const ValueId result = f_.equations[i].results[0];
    const Needs& needs = needs_[result];
    if (!needs.any()) continue;
    const std::size_t apart = needs.last - needs.first;
    const bool is_free = fusion_.is_view[result] || fusion_.splat[result];
    if (!is_free && apart > std::max(kNear, needs.first - place_)) {
      prices_[i].reset();
      continue;
    }
    for (const ValueId id : f_.equations[i].operands) needs_[id].add(needs);
  }
}

bool Cut::may_be_overwritten(ValueId input) const {
  if (is_read_late_[input]) return false;
  return std::any_of(f_.outputs.begin(), f_.outputs.end(), [&](ValueId output) {
    return definition_[output] < place_ && f_.type(output) == f_.type(input);
  });
}

std::int64_t Cut::bytes_to_hold(ValueId id) const {
  if (fusion_.splat[id]) return 0;
  if (definition_[id] == host::kNoEquation) return may_be_overwritten(id) ? bytes_of(f_, id) : 0;
  const bool is_output = std::find(f_.outputs.begin(), f_.outputs.end(), id) != f_.outputs.end();
  return is_output ? 0 : bytes_of(f_, id);
}

/// The edge between the two nodes of a value is cut where it is held, the one from the source where
/// it is computed again.
void Cut::add_value(MinCut& graph, ValueId id) {
  if (nodes_[id] != 0) return;
  nodes_[id] = graph.add_node();
  graph.add_node();
  const std::size_t index = definition_[id];
  const bool can_repeat = index != host::kNoEquation && prices_[index];
  const bool has_memory = !fusion_.is_view[id] || !can_repeat;
  graph.add_edge(nodes_[id], nodes_[id] + 1, has_memory ? bytes_to_hold(id) : MinCut::kUncut);
  const double cost = can_repeat ? *prices_[index] * scale_ : 0.0;
  graph.add_edge(MinCut::kSource, nodes_[id],
                 can_repeat ? static_cast<std::int64_t>(cost) : MinCut::kUncut);
}

void Cut::choose() {
  MinCut graph;
  nodes_.assign(f_.values.size(), 0);
  std::vector<ValueId> waiting;
  for (ValueId id = 0; id < f_.values.size(); ++id) {
    if (!is_read_late_[id] || !is_before(id)) continue;
    add_value(graph, id);
    graph.add_edge(nodes_[id] + 1, MinCut::kSink, MinCut::kUncut);
    waiting.push_back(id);
  }
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const std::size_t index = definition_[waiting[i]];
    if (index == host::kNoEquation || !prices_[index]) continue;
    for (const ValueId operand : f_.equations[index].operands) {
      if (nodes_[operand] == 0) waiting.push_back(operand);
      add_value(graph, operand);
      graph.add_edge(nodes_[operand] + 1, nodes_[waiting[i]], MinCut::kUncut);
    }
  }
  graph.solve();
  is_again_.assign(f_.values.size(), false);
  for (const ValueId id : waiting) is_again_[id] = graph.is_on_sink_side(nodes_[id]);
}

double Cut::work() const {
  double flops = 0;
  for (std::size_t i = 0; i < place_; ++i) {
    if (!prices_[i] || !is_again_[f_.equations[i].results[0]]) continue;
    const bool is_dot = f_.equations[i].op == &ops::dot_general_op;
    flops += *prices_[i] * kDotFlopsPerByte;
    static_cast<void>(is_dot);
  }
  return flops;
}

/// The program with all that is computed again where it is needed first, and without what nobody
/// needs any more.
class Rewriter {
 public:
  Rewriter(const Function& f, const std::vector<int>& phases, std::size_t place,
           const std::vector<bool>& is_again, const std::vector<std::size_t>& definition)
      : f_(f),
        phases_(phases),
        place_(place),
        is_again_(is_again),
        definition_(definition),
        again_(f.values.size(), ir::kNoValue) {
    result_.function = f;
    result_.function.equations.clear();
  }

  Phased run() {
    for (std::size_t i = 0; i < place_; ++i) add(f_.equations[i], phases_[i]);
    for (std::size_t i = place_; i < f_.equations.size(); ++i) {
      Equation equation = f_.equations[i];
      for (ValueId& id : equation.operands) id = late(id, phases_[i] + 1);
      add(std::move(equation), phases_[i] + 1);
    }
    drop_unused();
    return std::move(result_);
  }

 private:
  void add(Equation equation, int phase) {
    result_.function.equations.push_back(std::move(equation));
    result_.phases.push_back(phase);
  }

  /// What stands for a value behind the place, computed by equations of `phase` if need be.
  ValueId late(ValueId id, int phase) {
    if (!is_again_[id]) return id;
    if (again_[id] != ir::kNoValue) return again_[id];
    Equation equation = f_.equations[definition_[id]];
    for (ValueId& operand : equation.operands) operand = late(operand, phase);
    equation.results = {result_.function.add_value(f_.values[id])};
    again_[id] = equation.results[0];
    add(std::move(equation), phase);
    return again_[id];
  }

  void drop_unused() {
    std::vector<bool> is_used(result_.function.values.size(), false);
    for (const ValueId id : result_.function.outputs) is_used[id] = true;
    Phased kept{.function = std::move(result_.function), .phases = {}};
    std::vector<Equation> equations = std::move(kept.function.equations);
    kept.function.equations.clear();
    for (std::size_t i = equations.size(); i-- > 0;) {
      const auto uses = [&](ValueId id) { return is_used[id]; };
      const auto& results = equations[i].results;
      const bool is_kept = equations[i].op->host.kind == HostRule::Kind::control ||
                           std::any_of(results.begin(), results.end(), uses);
      if (!is_kept) continue;
      for (const ValueId id : equations[i].operands) is_used[id] = true;
      kept.function.equations.push_back(std::move(equations[i]));
      kept.phases.push_back(result_.phases[i]);
    }
    std::reverse(kept.function.equations.begin(), kept.function.equations.end());
    std::reverse(kept.phases.begin(), kept.phases.end());
    result_ = std::move(kept);
  }

  const Function& f_;
  const std::vector<int>& phases_;
  std::size_t place_;
  const std::vector<bool>& is_again_;
  const std::vector<std::size_t>& definition_;
  std::vector<ValueId> again_;  // per value
  Phased result_;
};

Phased Cut::rewritten() const {
  return Rewriter(f_, phases_, place_, is_again_, definition_).run();
}

}  // namespace

Function recompute(const Function& function, const RecomputeOptions& options) {
  Phased program = without_barriers(function);
  if (program.function.equations.empty()) return function;
  Pressure pressure = pressure_of(program);
  bool is_changed = false;
  for (int round = 0; round < kMostRounds && pressure.peak >= options.least_bytes; ++round) {
    if (pressure.place >= program.function.equations.size()) break;
    const Cut cut(program, pressure.fusion, pressure.place, 1.0);
    Phased next = cut.rewritten();
    Pressure lower = pressure_of(next);
    if (getenv("TT")) fprintf(stderr, "round %d place %zu of %zu peak %.1f behind %.1f -> %.1f work %.3g\n", round, pressure.place, program.function.equations.size(), double(pressure.peak) / 1048576.0, double(pressure.across) / 1048576.0, double(lower.peak) / 1048576.0, cut.work());
    if (lower.peak > pressure.peak - pressure.peak / kLeastGain) break;
    program = std::move(next);
    pressure = std::move(lower);
    is_changed = true;
  }
  return is_changed ? ir::without_dead_code(with_barriers(program)) : function;
}

}  // namespace tessera::compile
