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

using ir::Equation;
using ir::Function;
using ir::ValueId;
using ops::Pattern;

constexpr int kMostRounds = 8;
/// The number of flops that are worth one byte of the peak. Elementwise work runs at memory speed.
constexpr double kDotFlopsPerByte = 64;
constexpr double kTileFlopsPerByte = 16;
/// The largest factor by which prices rise while too much would be computed again.
constexpr double kMostScale = 64;
/// A contraction with more terms than this is not computed twice.
constexpr std::int64_t kMostTerms = 128;
/// If the late uses of a value are farther apart than this, and the first of them comes within this
/// distance, the value would be held nearly as long as if it had been kept.
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

/// The cost of computing the equation again, in bytes; empty if that is not possible.
std::optional<double> price(const Function& f, const Equation& equation) {
  const auto is_partial = [&](ValueId id) { return !f.sharding(id).partial.empty(); };
  if (equation.results.size() != 1 || is_partial(equation.results[0]) ||
      std::any_of(equation.operands.begin(), equation.operands.end(), is_partial)) {
    return std::nullopt;
  }
  const auto elements = [&](ValueId id) {
    return static_cast<double>(num_elements(f.type(id).shape));
  };
  switch (*equation.op->pattern) {
    case Pattern::view:
      return 0.0;
    case Pattern::generator:
      if (ops::is(equation, ops::constant_op)) return 0.0;
      [[fallthrough]];
    case Pattern::elementwise:
      return std::max(flops_of(f, equation), elements(equation.results[0])) / kTileFlopsPerByte;
    case Pattern::opaque:
      if (*equation.op->host == "reduce") return elements(equation.operands[0]) / kTileFlopsPerByte;
      if (is_cheap_dot(f, equation)) return flops_of(f, equation) / kDotFlopsPerByte;
      return std::nullopt;
    case Pattern::control:
      return std::nullopt;
  }
  return std::nullopt;
}

/// Removes equations whose results are not read, except those with side effects.
void drop_unused(Phased& program) {
  std::vector<bool> is_used(program.function.values.size(), false);
  for (const ValueId id : program.function.outputs) is_used[id] = true;
  std::vector<Equation>& equations = program.function.equations;
  std::size_t kept = equations.size();
  for (std::size_t i = equations.size(); i-- > 0;) {
    const auto& results = equations[i].results;
    const bool is_kept =
        *equations[i].op->pattern == Pattern::control ||
        std::any_of(results.begin(), results.end(), [&](ValueId id) { return is_used[id]; });
    if (!is_kept) continue;
    for (const ValueId id : equations[i].operands) is_used[id] = true;
    --kept;
    if (kept == i) continue;
    equations[kept] = std::move(equations[i]);
    program.phases[kept] = program.phases[i];
  }
  equations.erase(equations.begin(), equations.begin() + static_cast<std::ptrdiff_t>(kept));
  program.phases.erase(program.phases.begin(),
                       program.phases.begin() + static_cast<std::ptrdiff_t>(kept));
}

/// A growing program. A clone is a view or a constant if the original is.
struct Program {
  Phased phased;
  std::vector<Atom> atoms;     // of the mesh
  std::vector<bool> is_view;   // per value: is a view of its operand
  std::vector<bool> is_splat;  // per value: is a constant that is not stored
};

/// Decides what is held across a point and what is computed again after it, and rewrites the
/// program.
class Cut {
 public:
  /// The point is where `phase` begins.
  Cut(Program& program, int phase)
      : program_(program),
        f_(program.phased.function),
        phases_(program.phased.phases),
        place_(static_cast<std::size_t>(std::lower_bound(phases_.begin(), phases_.end(), phase) -
                                        phases_.begin())),
        definition_(f_.values.size(), host::kNoEquation),
        prices_(place_),
        needs_(f_.values.size()) {
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      for (const ValueId id : f_.equations[i].results) definition_[id] = i;
    }
    is_output_.resize(f_.values.size(), false);
    for (const ValueId id : f_.outputs) is_output_[id] = true;
  }

  /// Prices are multiplied by `scale`.
  void choose(double scale);
  /// The price of everything that is computed again.
  double work() const { return work_; }
  /// The bytes that are held.
  std::int64_t held() const { return held_; }
  void rewrite();

 private:
  /// The equations that need a value if everything possible is computed again.
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
  bool can_repeat(ValueId id) const {
    return definition_[id] != host::kNoEquation && prices_[definition_[id]].has_value();
  }

  void find_needs();
  void add_value(MinCut& graph, ValueId id, double scale);
  std::vector<ValueId> add_values(MinCut& graph, double scale);
  std::int64_t bytes_to_hold(ValueId id) const;
  bool may_be_overwritten(ValueId input) const;
  ValueId late(ValueId id, int phase);

  Program& program_;
  Function& f_;
  std::vector<int>& phases_;
  std::size_t place_;  // equations before it
  std::vector<std::size_t> definition_;
  std::vector<std::optional<double>> prices_;  // per equation before the place
  std::vector<Needs> needs_;                   // per value
  std::vector<bool> is_read_late_;             // per value: by an equation after the place
  std::vector<bool> is_output_;
  std::vector<std::size_t> nodes_;  // per value: its node; the next one is that of its memory
  std::vector<bool> is_again_;      // per value: computed again after the place
  std::vector<ValueId> again_;      // per value: the value that replaces it there
  double work_ = 0;
  std::int64_t held_ = 0;
};

/// Goes from the last equation to the first. A value that is needed both soon and late is held
/// instead of being computed again.
void Cut::find_needs() {
  is_read_late_.assign(f_.values.size(), false);
  for (std::size_t i = place_; i < f_.equations.size(); ++i) {
    for (const ValueId id : f_.equations[i].operands) {
      is_read_late_[id] = true;
      needs_[id].add({.first = i, .last = i});
    }
  }
  for (std::size_t i = place_; i-- > 0;) {
    const Equation& equation = f_.equations[i];
    const ValueId result = equation.results[0];
    const Needs needs = needs_[result];
    if (equation.results.size() != 1 || !needs.any()) continue;
    const bool is_free = program_.is_view[result] || program_.is_splat[result];
    const std::size_t apart = needs.last - needs.first;
    if (!is_free && apart > std::max(kNear, needs.first - place_)) continue;
    prices_[i] = price(f_, equation);
    if (!prices_[i]) continue;
    for (const ValueId id : equation.operands) needs_[id].add(needs);
  }
}

/// Whether an input that is not read late may have given its memory to an output by then.
bool Cut::may_be_overwritten(ValueId input) const {
  if (is_read_late_[input]) return false;
  return std::any_of(f_.outputs.begin(), f_.outputs.end(), [&](ValueId output) {
    return is_before(output) && f_.type(output) == f_.type(input);
  });
}

std::int64_t Cut::bytes_to_hold(ValueId id) const {
  const bool has_memory_anyway = program_.is_splat[id] || is_output_[id] ||
                                 (definition_[id] == host::kNoEquation && !may_be_overwritten(id));
  return has_memory_anyway ? 0 : bytes_of(f_, program_.atoms, id);
}

/// The edge between the two nodes of a value is cut if the value is held; the edge from the source
/// is cut if it is computed again.
void Cut::add_value(MinCut& graph, ValueId id, double scale) {
  if (nodes_[id] != 0) return;
  nodes_[id] = graph.add_node();
  graph.add_node();
  const bool is_only_view = program_.is_view[id] && can_repeat(id);
  graph.add_edge(nodes_[id], nodes_[id] + 1, is_only_view ? MinCut::kUncut : bytes_to_hold(id));
  const double cost = can_repeat(id) ? *prices_[definition_[id]] * scale : 0.0;
  graph.add_edge(MinCut::kSource, nodes_[id],
                 can_repeat(id) ? static_cast<std::int64_t>(cost) : MinCut::kUncut);
}

/// Everything that is read late, and what it can be computed from.
std::vector<ValueId> Cut::add_values(MinCut& graph, double scale) {
  nodes_.assign(f_.values.size(), 0);
  std::vector<ValueId> values;
  for (ValueId id = 0; id < f_.values.size(); ++id) {
    if (!is_read_late_[id] || !is_before(id)) continue;
    add_value(graph, id, scale);
    graph.add_edge(nodes_[id] + 1, MinCut::kSink, MinCut::kUncut);
    values.push_back(id);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!can_repeat(values[i])) continue;
    for (const ValueId operand : f_.equations[definition_[values[i]]].operands) {
      if (nodes_[operand] == 0) values.push_back(operand);
      add_value(graph, operand, scale);
      graph.add_edge(nodes_[operand] + 1, nodes_[values[i]], MinCut::kUncut);
    }
  }
  return values;
}

void Cut::choose(double scale) {
  find_needs();
  MinCut graph;
  const std::vector<ValueId> values = add_values(graph, scale);
  graph.solve();
  is_again_.assign(f_.values.size(), false);
  for (const ValueId id : values) {
    is_again_[id] = graph.is_on_sink_side(nodes_[id]);
    if (is_again_[id])
      work_ += *prices_[definition_[id]];
    else if (graph.is_on_sink_side(nodes_[id] + 1))
      held_ += bytes_to_hold(id);
  }
}

/// The value that replaces a value after the point; equations of `phase` compute it if necessary.
ValueId Cut::late(ValueId id, int phase) {
  if (!is_before(id) || !is_again_[id]) return id;
  if (again_[id] != ir::kNoValue) return again_[id];
  Equation equation = f_.equations[definition_[id]];
  for (ValueId& operand : equation.operands) operand = late(operand, phase);
  ir::Value value = f_.values[id];
  again_[id] = f_.add_value(std::move(value));
  equation.results = {again_[id]};
  program_.is_view.push_back(program_.is_view[id]);
  program_.is_splat.push_back(program_.is_splat[id]);
  f_.equations.push_back(std::move(equation));
  phases_.push_back(phase);
  return again_[id];
}

/// Values are computed again where they are first needed.
void Cut::rewrite() {
  again_.assign(f_.values.size(), ir::kNoValue);
  const auto begin = static_cast<std::ptrdiff_t>(place_);
  std::vector<Equation> behind(std::make_move_iterator(f_.equations.begin() + begin),
                               std::make_move_iterator(f_.equations.end()));
  const std::vector<int> phases(phases_.begin() + begin, phases_.end());
  f_.equations.resize(place_);
  phases_.resize(place_);
  for (std::size_t i = 0; i < behind.size(); ++i) {
    for (ValueId& id : behind[i].operands) id = late(id, phases[i]);
    f_.equations.push_back(std::move(behind[i]));
    phases_.push_back(phases[i]);
  }
  drop_unused(program_.phased);
}

/// The sum of the prices of all equations.
double work_of(const Function& f) {
  double work = 0;
  for (const Equation& equation : f.equations) {
    const auto own = price(f, equation);
    work += own ? *own : flops_of(f, equation) / kDotFlopsPerByte;
  }
  return work;
}

/// An upper bound of every peak.
std::int64_t bytes_of_all(const Function& f) {
  const std::vector<Atom> atoms = atoms_of(f.mesh);
  std::int64_t bytes = 0;
  for (ValueId id = 0; id < f.values.size(); ++id) bytes += bytes_of(f, atoms, id);
  return bytes;
}

/// The bytes that a round has to save.
std::int64_t least_gain(const Pressure& pressure, const RecomputeOptions& options) {
  return static_cast<std::int64_t>(static_cast<double>(pressure.peak) * options.least_gain);
}

/// Begins a new phase at each point. Returns the numbers of these phases.
std::vector<int> begin_phases(std::vector<int>& phases, const std::vector<Hump>& humps) {
  std::vector<int> begun;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const bool begins = begun.size() < humps.size() && humps[begun.size()].place == i;
    phases[i] += static_cast<int>(begun.size()) + (begins ? 1 : 0);
    if (begins) begun.push_back(phases[i]);
  }
  return begun;
}

/// The program with a cut at each local maximum; empty if that saves nothing.
std::optional<Phased> cut_at_humps(const Phased& phased, const Pressure& pressure, double most_work,
                                   const RecomputeOptions& options) {
  Program program{.phased = phased,
                  .atoms = atoms_of(phased.function.mesh),
                  .is_view = pressure.fusion.is_view,
                  .is_splat = {}};
  for (const auto& splat : pressure.fusion.splat) program.is_splat.push_back(splat.has_value());
  const std::vector<int> phases = begin_phases(program.phased.phases, pressure.humps);
  bool is_changed = false;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    for (double scale = 1; scale <= kMostScale; scale *= 4) {
      Cut cut(program, phases[i]);
      cut.choose(scale);
      if (cut.work() > most_work) continue;
      if (pressure.humps[i].across - cut.held() < least_gain(pressure, options)) break;
      most_work -= cut.work();
      cut.rewrite();
      is_changed = true;
      break;
    }
  }
  if (!is_changed) return std::nullopt;
  return std::move(program.phased);
}

}  // namespace

Function recompute(Function function, const RecomputeOptions& options) {
  if (bytes_of_all(function) < options.least_bytes) return function;
  Phased program = without_barriers(function);
  if (program.function.equations.empty()) return function;
  Pressure pressure = pressure_of(program);
  if (pressure.peak < options.least_bytes) return function;
  const double most_work = work_of(program.function) * options.most_work;
  bool is_changed = false;
  for (int round = 0; round < kMostRounds; ++round) {
    std::optional<Phased> next = cut_at_humps(program, pressure, most_work, options);
    if (!next) break;
    Pressure lower = pressure_of(*next);
    if (lower.peak > pressure.peak - least_gain(pressure, options)) break;
    program = *std::move(next);
    pressure = std::move(lower);
    is_changed = true;
  }
  if (!is_changed) return function;
  return ir::without_dead_code(with_barriers(std::move(program)));
}

}  // namespace tessera::compile
