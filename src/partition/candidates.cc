#include "partition/candidates.h"

#include <algorithm>

namespace tessera::partition {

using ops::FactorKind;

namespace {

// Variadic equations have many operands; only the first few shardings are tried.
constexpr std::size_t kMaxTensors = 4;

/// Adds the further splits of `added` whose atoms are still free.
void join(const Assignment& added, Assignment& base) {
  for (std::size_t factor = 0; factor < base.size(); ++factor) {
    const AtomList& list = added[factor];
    if (list.size() <= base[factor].size() || !is_prefix(base[factor], list)) continue;
    for (std::size_t i = base[factor].size(); i < list.size(); ++i) {
      if (uses_atom(base, list[i])) break;
      base[factor].push_back(list[i]);
    }
  }
}

Assignment projected(const CandidateContext& context, const TensorView& tensor) {
  Assignment assignment(context.factors.rule.factors.size());
  project(context.factors, *tensor.dims, *tensor.sharding, context.atoms, assignment);
  return assignment;
}

void sort_by_weight(std::vector<TensorView>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    if (a.is_late != b.is_late) return b.is_late;
    return a.size > b.size;
  });
}

/// Moves the atoms of factors of a kind to the factor `target`.
Assignment with_moved_to(const CandidateContext& context, FactorKind kind,
                         const Assignment& assignment, std::size_t target) {
  Assignment moved = assignment;
  AtomList atoms;
  for (std::size_t factor = 0; factor < moved.size(); ++factor) {
    if (context.factors.rule.factors[factor].kind != kind) continue;
    if (factor == target) continue;
    atoms.insert(atoms.end(), moved[factor].begin(), moved[factor].end());
    moved[factor].clear();
  }
  moved[target].insert(moved[target].end(), atoms.begin(), atoms.end());
  return moved;
}

bool is_split(const CandidateContext& context, FactorKind kind, const Assignment& assignment) {
  for (std::size_t factor = 0; factor < assignment.size(); ++factor) {
    if (assignment[factor].empty()) continue;
    if (context.factors.rule.factors[factor].kind == kind) return true;
  }
  return false;
}

int largest_pass_factor(const ops::Factors& rule) {
  int best = -1;
  for (std::size_t i = 0; i < rule.factors.size(); ++i) {
    if (rule.factors[i].kind != FactorKind::pass) continue;
    if (best < 0 || rule.factors[i].size > rule.factors[static_cast<std::size_t>(best)].size) {
      best = static_cast<int>(i);
    }
  }
  return best;
}

void add_unique(const CandidateContext& context, Assignment assignment,
                std::vector<Assignment>& candidates) {
  legalise(context.factors, context.atoms, context.grains, assignment);
  if (std::find(candidates.begin(), candidates.end(), assignment) == candidates.end()) {
    candidates.push_back(std::move(assignment));
  }
}

}  // namespace

Assignment merge_all(const CandidateContext& context, std::vector<TensorView> tensors) {
  sort_by_weight(tensors);
  Assignment merged(context.factors.rule.factors.size());
  for (const TensorView& tensor : tensors) join(projected(context, tensor), merged);
  legalise(context.factors, context.atoms, context.grains, merged);
  return merged;
}

std::vector<Assignment> merge_each(const CandidateContext& context,
                                   std::vector<TensorView> tensors) {
  sort_by_weight(tensors);
  if (tensors.size() > kMaxTensors) tensors.erase(tensors.begin() + kMaxTensors, tensors.end());
  std::vector<Assignment> raw;
  for (const TensorView& tensor : tensors) raw.push_back(projected(context, tensor));
  const std::size_t count = raw.size();
  for (std::size_t first = 0; first < count; ++first) {
    Assignment merged = raw[first];
    for (std::size_t other = 0; other < count; ++other) join(raw[other], merged);
    raw.push_back(std::move(merged));
  }
  return raw;
}

std::vector<Assignment> make_candidates(const CandidateContext& context,
                                        const std::vector<TensorView>& tensors) {
  std::vector<Assignment> candidates;
  const int outermost = context.factors.outermost_reduced;
  const int largest = largest_pass_factor(context.factors.rule);
  for (const Assignment& assignment : merge_each(context, tensors)) {
    add_unique(context, assignment, candidates);
    for (int target : {outermost, largest}) {
      if (target < 0) continue;
      for (FactorKind kind : {FactorKind::reduce, FactorKind::replicate}) {
        if (!is_split(context, kind, assignment)) continue;
        add_unique(context,
                   with_moved_to(context, kind, assignment, static_cast<std::size_t>(target)),
                   candidates);
      }
    }
  }
  return candidates;
}

double work_of(const ir::Function& function, const ir::Equation& equation) {
  double flops = (*equation.op->cost)(equation.attributes, operand_types(function, equation),
                                      result_types(function, equation));
  for (ir::ValueId id : equation.results) {
    flops += static_cast<double>(num_elements(function.type(id).shape));
  }
  return flops;
}

double split_between(const std::vector<Atom>& atoms, const Assignment& assignment) {
  double count = 1;
  for (const AtomList& list : assignment) count *= static_cast<double>(num_shards(atoms, list));
  return count;
}

}  // namespace tessera::partition
