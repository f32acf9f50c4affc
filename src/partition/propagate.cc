#include "partition/propagate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "ops/ops.h"
#include "partition/rebuilt.h"

namespace tessera::partition {

using ir::Equation;
using ir::Function;
using ir::ValueId;
using ops::FactorKind;

namespace {

enum Level {
  kElementwise,  // equations in which every tensor has all factors
  kPass,         // factors that pass through, of any equation
  kFree,         // conflicts between free dimensions of products
  kAll,          // reduced factors as well
  kResolve,      // broadcasts forward, and conflicts between factors
  kNumLevels,
};

/// Equations, and outputs with a requested sharding, as relations between tensors.
struct Edge {
  const EquationFactors* factors;
  std::vector<ValueId> tensors;                 // operands, then results
  std::vector<const ops::Factors::Dims*> dims;  // per tensor
  std::size_t first_result = 0;
  Level level = kPass;
  bool is_broadcast = false;
  bool is_identity = false;  // a value and the same value, or a slice of it, elsewhere
  bool has_reduced = false;
  bool is_uniform = false;  // all tensors have the same factors in the same positions
};

/// Whether the equation behaves like an elementwise one: every tensor that has dimensions has all
/// factors.
bool is_elementwise(const Edge& edge) {
  if (!edge.factors->rule.windows.empty()) return false;
  const std::size_t count = edge.factors->rule.factors.size();
  for (const ops::Factor& factor : edge.factors->rule.factors) {
    if (factor.kind != FactorKind::pass) return false;
  }
  for (const ops::Factors::Dims* dims : edge.dims) {
    std::size_t named = 0;
    for (const std::vector<int>& dim : *dims) named += dim.size();
    if (!dims->empty() && named != count) return false;
  }
  return true;
}

class Propagator {
 public:
  Propagator(const FlatFunction& flat, const PartitionOptions& options)
      : flat_(flat),
        function_(flat.function),
        options_(options),
        atoms_(atoms_of(function_.mesh)) {}

  Propagated run() {
    result_.is_constant = find_constants(function_);
    result_.is_late.assign(function_.values.size(), false);
    result_.factors = all_factors(function_);
    moved_size_ = find_moved_sizes(function_);
    choose_outputs();
    find_annotations();
    build_edges();
    spread_stored();
    for (const auto& [id, sharding] : annotated_) state_[id] = sharding;
    for (const auto& [id, dims] : open_dims_) is_open_[id] = true;
    settled_.assign(edges_.size(), -1);
    run_levels();  // the batch
    if (!stored_.empty()) {
      find_batch_atoms();
      take_up_stored(true);
      run_levels();  // tensor parallel weights
      take_up_stored(false);
      run_levels();  // weights that are only stored split
    }
    state_.resize(function_.values.size());
    result_.wanted = std::move(state_);
    return std::move(result_);
  }

 private:
  void choose_outputs();
  void find_annotations();
  void find_stored();
  void spread_stored();
  void find_batch_atoms();
  void take_up_stored(bool is_without_batch);
  void run_levels();
  void build_edges();
  void add_identity(ValueId whole, ValueId other);
  void add_edge(Edge edge);
  void run_level(Level level);
  static int rule_of(const Edge& edge, Level level);
  bool is_settled(const Edge& edge) const;
  void visit(const Edge& edge, Level level);
  void project_all(const Edge& edge);
  Assignment joined_lists(const Edge& edge);
  bool takes_part(const Edge& edge, std::size_t factor, Level level) const;
  AtomList agreed_atoms(const Edge& edge, std::size_t factor) const;
  struct Claim {
    std::size_t factor;
    AtomList atoms;
    std::int64_t size;  // of the tensor that is split this way
  };
  Claim strongest_claim(const Edge& edge, std::size_t factor) const;
  std::size_t uncontested(const Edge& edge, std::size_t tensor, std::size_t factor,
                          const AtomList& list) const;
  void write_back(const Edge& edge, std::size_t factor, const AtomList& list, Level level);
  std::size_t fitting(const Edge& edge, std::size_t tensor, std::size_t dim,
                      const AtomList& list) const;
  bool extend(const Edge& edge, std::size_t tensor, std::size_t factor, const AtomList& list);

  const FlatFunction& flat_;
  const Function& function_;
  const PartitionOptions& options_;
  const std::vector<Atom> atoms_;
  Propagated result_;
  // Values, then one pseudo-value per output.
  std::vector<Sharding> state_;
  std::vector<bool> is_open_;
  std::map<std::size_t, std::vector<std::size_t>> open_dims_;  // of constraints
  using Annotation = std::pair<std::size_t, Sharding>;
  std::vector<Annotation> annotated_;        // inputs, constraints, requested outputs
  std::vector<Annotation> stored_;           // state, and values computed from it elementwise
  std::vector<std::int64_t> moved_size_;     // per value, in elements
  AtomList batch_;                           // atoms over which the batch is split
  std::vector<AtomList> claimed_;            // per state entry: atoms that split what it computes
  std::deque<EquationFactors> own_factors_;  // of edges that are not equations
  std::vector<Edge> edges_;
  std::vector<std::vector<std::size_t>> edges_of_;  // per state entry
  /// Per edge: the strongest rule that had no effect since a tensor of the edge changed; -1: none.
  std::vector<int> settled_;
  std::deque<std::size_t> queue_;
  std::vector<bool> is_queued_;
  std::vector<std::size_t> changed_;   // edges of values that changed in the last visit
  std::vector<Assignment> projected_;  // scratch: per tensor of the current edge, and more
};

void Propagator::choose_outputs() {
  for (std::size_t i = 0; i < function_.outputs.size(); ++i) {
    const int followed = i < options_.output_follows.size() ? options_.output_follows[i] : -1;
    std::optional<Sharding> asked;
    if (i < options_.outputs.size()) asked = options_.outputs[i];
    if (!asked && followed >= 0) asked = options_.inputs[static_cast<std::size_t>(followed)];
    result_.outputs.push_back(std::move(asked));
  }
}

/// Inputs, outputs and constraints are fixed, except that the open dimensions of constraints take
/// part once the batch is propagated. Everything else starts unsplit and open.
void Propagator::find_annotations() {
  for (const ir::Value& value : function_.values) {
    state_.push_back(replicated_sharding(value.type.rank()));
  }
  for (ValueId id : function_.outputs) state_.push_back(state_[id]);
  is_open_.assign(state_.size(), true);
  find_stored();
  const auto fix = [&](std::size_t id, const Sharding& sharding) {
    if (!is_open_[id]) return;
    is_open_[id] = false;
    annotated_.emplace_back(id, sharding);
    if (!sharding.open.empty()) open_dims_[id] = std::exchange(annotated_.back().second.open, {});
  };
  for (std::size_t i = 0; i < function_.inputs.size(); ++i) {
    fix(function_.inputs[i], options_.inputs[i]);
  }
  for (const Equation& equation : function_.equations) {
    if (equation.op != &ops::sharding_constraint_op || asks_nothing(equation)) continue;
    fix(equation.results[0], equation.attributes.get<Sharding>("sharding"));
  }
  for (std::size_t i = 0; i < function_.outputs.size(); ++i) {
    if (result_.outputs[i]) fix(function_.values.size() + i, *result_.outputs[i]);
  }
}

/// Stored inputs that are split, and the outputs that follow them.
void Propagator::find_stored() {
  std::vector<std::pair<const Type*, const Sharding*>> kinds;  // those of such inputs, each once
  const auto is_known = [&](const Type& type, const Sharding& sharding) {
    return std::any_of(kinds.begin(), kinds.end(), [&](const auto& kind) {
      return *kind.first == type && *kind.second == sharding;
    });
  };
  for (std::size_t i = 0; i < options_.is_storage.size(); ++i) {
    if (!options_.is_storage[i] || is_replicated(options_.inputs[i])) continue;
    const Type& type = function_.type(function_.inputs[i]);
    if (!is_known(type, options_.inputs[i])) kinds.emplace_back(&type, &options_.inputs[i]);
    stored_.emplace_back(function_.inputs[i], options_.inputs[i]);
  }
  for (std::size_t i = 0; i < function_.outputs.size(); ++i) {
    // An output with a type and requested sharding of stored state is the next state.
    const auto& asked = result_.outputs[i];
    const bool follows = asked && is_known(function_.type(function_.outputs[i]), *asked);
    if (follows) stored_.emplace_back(function_.values.size() + i, *result_.outputs[i]);
  }
  for (const Annotation& entry : stored_) is_open_[entry.first] = false;
}

/// Values that stored state reaches only through elementwise equations (gradients and the updates
/// of weights) get the sharding of the state. They are fixed like the state and, like it, hidden
/// until the batch has been propagated.
void Propagator::spread_stored() {
  if (stored_.empty()) return;
  for (const auto& [id, sharding] : stored_) state_[id] = sharding;
  settled_.assign(edges_.size(), -1);
  run_level(kElementwise);
  for (std::size_t id = 0; id < state_.size(); ++id) {
    if (is_open_[id] && !is_replicated(state_[id])) {
      is_open_[id] = false;
      stored_.emplace_back(id, state_[id]);
    }
    for (AtomList& list : state_[id].dims) list.clear();
  }
}

/// Per factor of the edge, the atoms by which some tensor is split.
Assignment Propagator::joined_lists(const Edge& edge) {
  project_all(edge);
  Assignment all(edge.factors->rule.factors.size());
  for (std::size_t t = 0; t < edge.tensors.size(); ++t) {
    for (std::size_t factor = 0; factor < all.size(); ++factor) {
      for (AtomId atom : projected_[t][factor]) {
        if (!contains(all[factor], atom)) all[factor].push_back(atom);
      }
    }
  }
  return all;
}

/// An atom counts as splitting the batch if it is on a factor that the stored tensor does not have.
/// On a factor of the weight itself, such as a contracting dimension, it is tensor parallel, even
/// if it splits the batch elsewhere, as in sequence parallelism.
void Propagator::find_batch_atoms() {
  claimed_.resize(state_.size());
  std::vector<bool> is_stored(state_.size(), false);
  for (const auto& entry : stored_) is_stored[entry.first] = true;
  std::vector<bool> is_batch(atoms_.size(), false);
  for (const Edge& edge : edges_) {
    const auto first_result = edge.tensors.begin() + static_cast<std::ptrdiff_t>(edge.first_result);
    if (std::none_of(edge.tensors.begin(), first_result,
                     [&](ValueId id) { return is_stored[id]; })) {
      continue;
    }
    const Assignment all = joined_lists(edge);
    for (std::size_t t = 0; t < edge.first_result; ++t) {
      if (!is_stored[edge.tensors[t]]) continue;
      std::vector<bool> has_factor(all.size(), false);
      for (const std::vector<int>& dim : *edge.dims[t]) {
        for (int factor : dim) has_factor[static_cast<std::size_t>(factor)] = true;
      }
      AtomList& claimed = claimed_[edge.tensors[t]];
      for (std::size_t factor = 0; factor < all.size(); ++factor) {
        for (AtomId atom : all[factor]) {
          if (!has_factor[factor]) {
            is_batch[atom] = true;
          } else if (!contains(claimed, atom)) {
            claimed.push_back(atom);
          }
        }
      }
    }
  }
  for (std::size_t atom = 0; atom < atoms_.size(); ++atom) {
    if (is_batch[atom]) batch_.push_back(static_cast<AtomId>(atom));
  }
}

/// Sets the shardings of stored tensors; at first only atoms that do not split the batch.
void Propagator::take_up_stored(bool is_without_batch) {
  const std::vector<bool>& is_input = flat_.is_input;
  for (const auto& [id, sharding] : stored_) {
    for (std::size_t e : edges_of_[id]) settled_[e] = -1;
    state_[id] = sharding;
    for (AtomList& list : state_[id].dims) {
      const auto first = std::find_if(list.begin(), list.end(), [&](AtomId atom) {
        return contains(batch_, atom) && !contains(claimed_[id], atom);
      });
      if (first == list.end()) continue;
      if (is_without_batch) list.erase(first, list.end());
      if (id < is_input.size() && is_input[id]) result_.is_late[id] = true;
    }
  }
}

void Propagator::run_levels() {
  for (int level = 0; level < kNumLevels; ++level) run_level(static_cast<Level>(level));
}

void Propagator::build_edges() {
  edges_of_.resize(state_.size());
  for (std::size_t i = 0; i < function_.equations.size(); ++i) {
    const Equation& equation = function_.equations[i];
    Edge edge{.factors = result_.factors[i].get(), .tensors = {}, .dims = {}};
    edge.first_result = equation.operands.size();
    edge.tensors.reserve(equation.operands.size() + equation.results.size());
    edge.dims.reserve(equation.operands.size() + equation.results.size());
    edge.tensors = equation.operands;
    edge.tensors.insert(edge.tensors.end(), equation.results.begin(), equation.results.end());
    for (const auto& dims : edge.factors->rule.operands) edge.dims.push_back(&dims);
    for (const auto& dims : edge.factors->rule.results) edge.dims.push_back(&dims);
    edge.is_broadcast = equation.op == &ops::broadcast_in_dim_op;
    add_edge(std::move(edge));
  }
  for (const Identity& identity : flat_.identities) add_identity(identity.whole, identity.slice);
  for (std::size_t i = 0; i < function_.outputs.size(); ++i) {
    if (!result_.outputs[i]) continue;
    add_identity(function_.outputs[i], static_cast<ValueId>(function_.values.size() + i));
  }
}

/// `other` is an output, or a value of the flat function.
void Propagator::add_identity(ValueId whole, ValueId other) {
  const Shape& shape = function_.type(whole).shape;
  const bool is_slice =
      other < function_.values.size() && function_.type(other).shape.size() < shape.size();
  EquationFactors factors;
  ops::Factors::Dims dims;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    dims.push_back({static_cast<int>(dim)});
    const bool is_whole = is_slice && dim == 0;
    factors.rule.factors.push_back(
        {.size = shape[dim], .kind = is_whole ? FactorKind::replicate : FactorKind::pass});
  }
  factors.rule.operands = {dims};
  if (is_slice) dims.erase(dims.begin());
  factors.rule.results = {std::move(dims)};
  factors.must_divide.assign(shape.size(), false);
  own_factors_.push_back(std::move(factors));
  const EquationFactors& kept = own_factors_.back();
  add_edge({.factors = &kept,
            .tensors = {whole, other},
            .dims = {&kept.rule.operands[0], &kept.rule.results[0]},
            .first_result = 1,
            .is_identity = true});
}

void Propagator::add_edge(Edge edge) {
  edge.level = edge.is_identity || is_elementwise(edge) ? kElementwise : kPass;
  // Constants and scalars carry no sharding.
  std::size_t kept = 0;
  for (std::size_t t = 0; t < edge.tensors.size(); ++t) {
    const ValueId id = edge.tensors[t];
    const bool is_constant = id < function_.values.size() && result_.is_constant[id];
    if (t == edge.first_result) edge.first_result = kept;
    if (is_constant || edge.dims[t]->empty()) continue;
    edge.tensors[kept] = id;
    edge.dims[kept++] = edge.dims[t];
  }
  edge.first_result = std::min(edge.first_result, kept);
  if (kept < 2) return;
  edge.tensors.resize(kept);
  edge.dims.resize(kept);
  const std::vector<ops::Factor>& all = edge.factors->rule.factors;
  edge.has_reduced = std::any_of(all.begin(), all.end(), [](const ops::Factor& factor) {
    return factor.kind == FactorKind::reduce;
  });
  edge.is_uniform = std::all_of(edge.dims.begin(), edge.dims.end(),
                                [&](const auto* dims) { return *dims == *edge.dims[0]; });
  for (ValueId id : edge.tensors) edges_of_[id].push_back(edges_.size());
  edges_.push_back(std::move(edge));
}

void Propagator::run_level(Level level) {
  is_queued_.assign(edges_.size(), false);
  const auto push = [&](std::size_t e) {
    if (is_queued_[e] || edges_[e].level > level) return;
    is_queued_[e] = true;
    queue_.push_back(e);
  };
  for (std::size_t e = 0; e < edges_.size(); ++e) push(e);
  while (!queue_.empty()) {
    const std::size_t e = queue_.front();
    queue_.pop_front();
    is_queued_[e] = false;
    const Edge& edge = edges_[e];
    const int rule = rule_of(edge, level);
    if (settled_[e] >= rule) continue;
    settled_[e] = rule;
    if (is_settled(edge)) continue;
    visit(edge, level);
    for (std::size_t other : changed_) {
      settled_[other] = -1;
      push(other);
    }
    changed_.clear();
  }
}

/// The strongest rule that applies to this edge at this level.
int Propagator::rule_of(const Edge& edge, Level level) {
  if (level == kResolve) return 3;
  if (!edge.has_reduced || level < kFree) return 0;
  return level == kFree ? 1 : 2;
}

/// Whether the tensors of the edge cannot change each other.
bool Propagator::is_settled(const Edge& edge) const {
  const std::vector<AtomList>& first = state_[edge.tensors[0]].dims;
  if (edge.is_uniform) {
    return std::all_of(edge.tensors.begin() + 1, edge.tensors.end(),
                       [&](ValueId id) { return state_[id].dims == first; });
  }
  return std::all_of(edge.tensors.begin(), edge.tensors.end(),
                     [&](ValueId id) { return is_replicated(state_[id]); });
}

/// Fills projected_ for the tensors of the edge. Memory is kept for longer edges.
void Propagator::project_all(const Edge& edge) {
  const std::size_t num_factors = edge.factors->rule.factors.size();
  if (projected_.size() < edge.tensors.size()) projected_.resize(edge.tensors.size());
  for (std::size_t t = 0; t < edge.tensors.size(); ++t) {
    Assignment& lists = projected_[t];
    if (lists.size() < num_factors) lists.resize(num_factors);
    for (std::size_t factor = 0; factor < num_factors; ++factor) lists[factor].clear();
    project(*edge.factors, *edge.dims[t], state_[edge.tensors[t]], atoms_, lists);
  }
}

void Propagator::visit(const Edge& edge, Level level) {
  const std::size_t num_factors = edge.factors->rule.factors.size();
  project_all(edge);
  for (std::size_t factor = 0; factor < num_factors; ++factor) {
    if (!takes_part(edge, factor, level)) continue;
    AtomList list = agreed_atoms(edge, factor);
    for (std::size_t t = 0; t < edge.tensors.size(); ++t) {
      list.resize(uncontested(edge, t, factor, list));
    }
    if (!list.empty()) write_back(edge, factor, list, level);
  }
  if (level < kResolve && !(level == kFree && edge.has_reduced)) return;
  // If two factors want the same atom, the factor of the larger tensor gets it, and the smaller
  // tensor moves.
  std::vector<Claim> claims;
  for (std::size_t factor = 0; factor < num_factors; ++factor) {
    if (takes_part(edge, factor, level)) claims.push_back(strongest_claim(edge, factor));
  }
  std::stable_sort(claims.begin(), claims.end(),
                   [](const Claim& a, const Claim& b) { return a.size > b.size; });
  for (const Claim& claim : claims) {
    if (!claim.atoms.empty()) write_back(edge, claim.factor, claim.atoms, level);
  }
}

bool Propagator::takes_part(const Edge& edge, std::size_t factor, Level level) const {
  switch (edge.factors->rule.factors[factor].kind) {
    case FactorKind::pass:
    case FactorKind::permute:
      return true;
    case FactorKind::replicate:
      // The equation gathers the dimension, or moves its split; the result may then have the split
      // again.
      return level == kResolve && !edge.is_identity;
    case FactorKind::reduce:
      break;
  }
  return level >= kAll && (edge.factors->is_order_free ||
                           static_cast<int>(factor) == edge.factors->outermost_reduced);
}

/// The longest list that is consistent with the lists of all tensors.
AtomList Propagator::agreed_atoms(const Edge& edge, std::size_t factor) const {
  AtomList list;
  while (true) {
    int next = -1;
    for (std::size_t t = 0; t < edge.tensors.size(); ++t) {
      const AtomList& own = projected_[t][factor];
      if (own.size() <= list.size()) continue;
      const int atom = own[list.size()];
      if (next >= 0 && next != atom) return list;
      next = atom;
    }
    if (next < 0) break;
    list.push_back(static_cast<AtomId>(next));
  }
  list.resize(splittable_prefix(*edge.factors, static_cast<int>(factor), atoms_, list));
  return list;
}

/// The list of the tensor that is split most along the factor; among equals, of the largest tensor.
Propagator::Claim Propagator::strongest_claim(const Edge& edge, std::size_t factor) const {
  std::size_t best = 0;
  std::int64_t best_size = 0;
  for (std::size_t t = 0; t < edge.tensors.size(); ++t) {
    const std::size_t length = projected_[t][factor].size();
    if (length == 0 || length < projected_[best][factor].size()) continue;
    const ValueId id = edge.tensors[t];
    const std::int64_t size = id < function_.values.size() ? moved_size_[id] : 0;
    if (length == projected_[best][factor].size() && size <= best_size) continue;
    best = t;
    best_size = size;
  }
  AtomList list = projected_[best][factor];
  list.resize(splittable_prefix(*edge.factors, static_cast<int>(factor), atoms_, list));
  return {.factor = factor, .atoms = list, .size = best_size};
}

/// The length of the prefix of `list` whose atoms the tensor uses for no other factor.
std::size_t Propagator::uncontested(const Edge& edge, std::size_t tensor, std::size_t factor,
                                    const AtomList& list) const {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (uses_atom(state_[edge.tensors[tensor]], list[i]) &&
        !contains(projected_[tensor][factor], list[i])) {
      return i;
    }
  }
  return list.size();
}

void Propagator::write_back(const Edge& edge, std::size_t factor, const AtomList& list,
                            Level level) {
  for (std::size_t t = 0; t < edge.tensors.size(); ++t) {
    const bool is_result = t >= edge.first_result;
    if (!is_open_[edge.tensors[t]]) continue;
    if (edge.is_broadcast && is_result && level < kResolve) continue;
    AtomList mine = list;
    mine.resize(uncontested(edge, t, factor, list));
    const AtomList& own = projected_[t][factor];
    if (mine.size() <= own.size() || !is_prefix(own, mine)) continue;
    if (!extend(edge, t, factor, mine)) continue;
    projected_[t][factor] = std::move(mine);
    const std::vector<std::size_t>& others = edges_of_[edge.tensors[t]];
    changed_.insert(changed_.end(), others.begin(), others.end());
  }
}

/// The length of the prefix of `list` that leaves at least one element in every shard of dimension
/// `dim`. This matters only for windows, whose size differs from that of their factor.
std::size_t Propagator::fitting(const Edge& edge, std::size_t tensor, std::size_t dim,
                                const AtomList& list) const {
  if (edge.factors->rule.windows.empty()) return list.size();
  const std::int64_t size = function_.type(edge.tensors[tensor]).shape[dim];
  std::int64_t count = 1;
  for (std::size_t i = 0; i < list.size(); ++i) {
    count *= atoms_[list[i]].size;
    if (count > size) return i;
  }
  return list.size();
}

/// Sets the atoms of one factor of a tensor. Returns false if the tensor cannot be split like this.
bool Propagator::extend(const Edge& edge, std::size_t tensor, std::size_t factor,
                        const AtomList& list) {
  const ops::Factors::Dims& dims = *edge.dims[tensor];
  const auto open = open_dims_.find(edge.tensors[tensor]);
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    if (open != open_dims_.end() &&
        !std::binary_search(open->second.begin(), open->second.end(), dim)) {
      continue;
    }
    AtomList atoms;
    for (int f : dims[dim]) {
      const auto index = static_cast<std::size_t>(f);
      if (index == factor) {
        atoms.insert(atoms.end(), list.begin(), list.end());
        atoms.resize(fitting(edge, tensor, dim, atoms));
        AtomList& current = state_[edge.tensors[tensor]].dims[dim];
        if (atoms.size() <= current.size() || !is_prefix(current, atoms)) return false;
        current = std::move(atoms);
        return true;
      }
      const AtomList& major = projected_[tensor][index];
      if (num_shards(atoms_, major) != edge.factors->rule.factors[index].size) break;
      atoms.insert(atoms.end(), major.begin(), major.end());
    }
  }
  return false;
}

}  // namespace

bool asks_nothing(const Equation& constraint) {
  const auto& sharding = constraint.attributes.get<Sharding>("sharding");
  return sharding.open.size() == sharding.dims.size();
}

Propagated propagate(const FlatFunction& flat, const PartitionOptions& options) {
  return Propagator(flat, options).run();
}

}  // namespace tessera::partition
