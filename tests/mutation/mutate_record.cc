#include "tests/mutation/mutate_record.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/rules.h"
#include "partition/moves.h"
#include "tests/ops/conformance.h"

namespace tessera::mutation {

namespace {

using ir::ValueId;
using ops::FactorKind;
using ops::Factors;
using ops::OpRecord;
using testing::Case;

/// The fields in which a mutant differs from the record that it copies.
struct Change {
  std::optional<ops::VjpRule> vjp = {};
  std::optional<ops::BatchRule> batch = {};
  std::optional<ops::FactorRule> factors = {};
  std::optional<ops::Reference> reference = {};
};

std::unique_ptr<const OpRecord> copy_of(const OpRecord& op, const Change& change = {}) {
  return std::unique_ptr<const OpRecord>(
      new OpRecord{.name = *op.name,
                   .doc = *op.doc,
                   .source = *op.source,
                   .attributes = *op.attributes,
                   .types = *op.types,
                   .num_typed = op.num_typed,
                   .shape = *op.shape,
                   .vjp = change.vjp.value_or(op.vjp),
                   .batch = change.batch.value_or(op.batch),
                   .factors = change.factors.value_or(*op.factors),
                   .pattern = op.pattern,
                   .host = op.host,
                   .stablehlo = op.stablehlo,
                   .reference = change.reference.value_or(*op.reference),
                   .cost = *op.cost,
                   .samples = ops::Samples(*op.samples),
                   .bodies = op.bodies,
                   .optional_attributes = op.optional_attributes,
                   .add_usual = op.add_usual});
}

std::vector<Case> cases_of(const OpRecord& op) {
  std::vector<Case> cases;
  for (std::size_t i = 0; i < op.samples->size(); ++i) cases.push_back({&op, i});
  return cases;
}

// --- derivatives

/// Operands for which the rule gives a cotangent in some sample.
std::vector<bool> operands_with_cotangent(const OpRecord& op) {
  std::vector<bool> has_cotangent;
  for (const Case& c : cases_of(op)) {
    if (!testing::has_derivative(c)) continue;
    ir::Function function = testing::function_of(op, c.sample());
    ir::Builder b(function);
    const ir::Equation equation = function.equations[0];
    std::vector<ValueId> cotangents;
    for (ValueId id : function.outputs) {
      const bool is_wanted = is_float(b.type(id).dtype);
      cotangents.push_back(is_wanted ? b.add_input(Type(b.type(id))) : ir::kNoValue);
    }
    ops::VjpContext context{
        .b = b, .equation = equation, .cotangents = cotangents, .is_wanted = {}};
    for (ValueId id : equation.operands) context.is_wanted.push_back(is_float(b.type(id).dtype));
    const ops::Cotangents given = op.vjp(context);
    has_cotangent.resize(std::max(has_cotangent.size(), given.size()), false);
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i] != ir::kNoValue) has_cotangent[i] = true;
    }
  }
  return has_cotangent;
}

using ChangeCotangent = ValueId (*)(ir::Builder&, ValueId);

ops::VjpRule changed_vjp(const OpRecord& op, std::size_t operand, ChangeCotangent change) {
  return [&op, operand, change](ops::VjpContext& c) {
    ops::Cotangents cotangents = op.vjp(c);
    if (operand < cotangents.size() && cotangents[operand] != ir::kNoValue) {
      cotangents[operand] = change(c.b, cotangents[operand]);
    }
    return cotangents;
  };
}

void add_vjp_mutants(const OpRecord& op, std::vector<Mutant>& mutants) {
  const bool has_rule = op.vjp.is_differentiable() && op.bodies == nullptr;
  if (!has_rule) return;
  static const std::pair<const char*, ChangeCotangent> changes[] = {
      {"negated", [](ir::Builder& b, ValueId x) { return ops::neg(b, x); }},
      {"doubled", [](ir::Builder& b, ValueId x) { return ops::add(b, x, x); }},
      {"left out", [](ir::Builder&, ValueId) { return ir::kNoValue; }}};
  const std::vector<bool> has_cotangent = operands_with_cotangent(op);
  for (std::size_t i = 0; i < has_cotangent.size(); ++i) {
    if (!has_cotangent[i]) continue;
    for (const auto& [what, change] : changes) {
      mutants.push_back({fmt::format("cotangent of operand {} {}", i, what), Rule::vjp,
                         copy_of(op, {.vjp = changed_vjp(op, i, change)})});
    }
  }
}

// --- batches

/// Whether attributes name dimensions. A batch dimension in front shifts their numbers.
bool names_dimensions(const OpRecord& op) {
  for (const ops::Sample& sample : *op.samples) {
    for (const auto& [name, value] : sample.attributes.items()) {
      const bool is_list = std::holds_alternative<ir::Ints>(value);
      if (is_list || name == "dim" || name == "num_batch" || name == "sharding") return true;
    }
  }
  return false;
}

std::vector<ValueId> batch_without_shift(ops::BatchContext& c) {
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < c.operands.size(); ++i) operands.push_back(c.batched(i));
  return c.b.emit_all(*c.equation.op, c.equation.attributes, operands);
}

void add_batch_mutants(const OpRecord& op, std::vector<Mutant>& mutants) {
  const auto cases = cases_of(op);
  if (std::none_of(cases.begin(), cases.end(), testing::has_batch_rule)) return;
  const auto add = [&](const char* what, const ops::BatchRule& rule) {
    mutants.push_back(
        {fmt::format("batch rule {}", what), Rule::batch, copy_of(op, {.batch = rule})});
  };
  add("with its rows in reverse", [&op](ops::BatchContext& c) {
    std::vector<ValueId> results = op.batch(c);
    for (ValueId& id : results) id = ops::reverse(c.b, id, {0});
    return results;
  });
  add("with the first row everywhere", [&op](ops::BatchContext& c) {
    std::vector<ValueId> results = op.batch(c);
    for (ValueId& id : results) {
      Shape row = c.b.type(id).shape;
      row.erase(row.begin());
      const ValueId first = ops::reshape(c.b, ops::slice_dim(c.b, id, 0, 0, 1), row);
      id = ops::repeat(c.b, first, c.size);
    }
    return results;
  });
  if (names_dimensions(op)) add("without a shift of dimensions", batch_without_shift);
}

// --- factors

Factors factors_of(const Case& c) {
  const ir::Function function = testing::function_of(*c.op, c.sample());
  const ir::Equation& equation = function.equations[0];
  return (*c.op->factors)(equation.attributes, ir::operand_types(function, equation),
                          ir::result_types(function, equation));
}

using ChangeFactors = std::function<void(Factors&)>;

ops::FactorRule changed_factors(const OpRecord& op, const ChangeFactors& change) {
  return [&op, change](const ops::Attributes& attributes, const std::vector<Type>& operands,
                       const std::vector<Type>& results) {
    Factors factors = (*op.factors)(attributes, operands, results);
    change(factors);
    return factors;
  };
}

void set_kind(Factors& factors, std::size_t i, FactorKind kind) {
  if (i >= factors.factors.size()) return;
  const int factor = static_cast<int>(i);
  factors.factors[i].kind = kind;
  std::erase(factors.reduced, factor);
  if (kind == FactorKind::reduce) factors.reduced.push_back(factor);
}

/// The kinds that the factor has in those samples in which it can be split.
std::vector<FactorKind> kinds_of(const OpRecord& op, std::size_t i) {
  std::vector<FactorKind> kinds;
  for (const Case& c : cases_of(op)) {
    const Factors factors = factors_of(c);
    if (i >= factors.factors.size() || factors.factors[i].size < 2) continue;
    const FactorKind kind = factors.factors[i].kind;
    if (std::count(kinds.begin(), kinds.end(), kind) == 0) kinds.push_back(kind);
  }
  return kinds;
}

/// Whether swapping dimensions 0 and 1 of an operand changes how it may be split in some sample.
bool has_different_dims(const OpRecord& op, std::size_t operand) {
  for (const Case& c : cases_of(op)) {
    const Factors factors = factors_of(c);
    if (operand >= factors.operands.size() || factors.operands[operand].size() < 2) continue;
    const auto may_split = [&](int factor) {
      const ops::Factor& one = factors.factors[static_cast<std::size_t>(factor)];
      return one.kind != FactorKind::replicate && one.size > 1;
    };
    for (std::size_t dim : {std::size_t{0}, std::size_t{1}}) {
      const std::vector<int>& list = factors.operands[operand][dim];
      if (std::any_of(list.begin(), list.end(), may_split)) return true;
    }
  }
  return false;
}

void add_factor_mutants(const OpRecord& op, std::vector<Mutant>& mutants) {
  // For these ops the partitioner uses no factors: it looks into bodies, and it handles constraints
  // and collectives itself.
  const bool is_known = *op.pattern == ops::Pattern::control ||
                        &op == &ops::sharding_constraint_op || partition::kind_of(op);
  if (is_known) return;
  const auto add = [&](std::string name, const ChangeFactors& change) {
    mutants.push_back(
        {std::move(name), Rule::factors, copy_of(op, {.factors = changed_factors(op, change)})});
  };
  std::size_t num_factors = 0;
  std::size_t num_operands = 0;
  std::size_t num_windows = 0;
  for (const Case& c : cases_of(op)) {
    const Factors factors = factors_of(c);
    num_factors = std::max(num_factors, factors.factors.size());
    num_operands = std::max(num_operands, factors.operands.size());
    num_windows = std::max(num_windows, factors.windows.size());
  }
  for (std::size_t i = 0; i < num_factors; ++i) {
    for (FactorKind kind : kinds_of(op, i)) {
      const FactorKind other = kind == FactorKind::pass ? FactorKind::reduce : FactorKind::pass;
      add(fmt::format("factor {} {}", i,
                      kind == FactorKind::pass ? "reduced instead of passed" : "passed"),
          [=](Factors& factors) {
            if (i < factors.factors.size() && factors.factors[i].kind == kind) {
              set_kind(factors, i, other);
            }
          });
    }
  }
  for (std::size_t i = 0; i < num_windows; ++i) {
    add(fmt::format("window {} one row off", i), [=](Factors& factors) {
      if (i < factors.windows.size()) ++factors.windows[i].offset;
    });
  }
  for (std::size_t operand = 0; operand < num_operands; ++operand) {
    if (!has_different_dims(op, operand)) continue;
    add(fmt::format("dimensions 0 and 1 of operand {} swapped", operand), [=](Factors& factors) {
      if (operand >= factors.operands.size() || factors.operands[operand].size() < 2) return;
      std::swap(factors.operands[operand][0], factors.operands[operand][1]);
    });
  }
}

// --- reference

template <typename T>
T changed_element(T x, bool is_negated) {
  if constexpr (std::is_same_v<T, bool>) {
    return !x;
  } else {
    const auto one = static_cast<T>(1.0F);
    return is_negated ? static_cast<T>(T{} - x) : static_cast<T>(x + one);
  }
}

/// Negates all elements, or changes the last one by one.
ops::Reference changed_reference(const OpRecord& op, bool is_negated) {
  return [&op, is_negated](const ops::ReferenceContext& c) {
    std::vector<ops::HostArray> results = (*op.reference)(c);
    for (ops::HostArray& result : results) {
      ops::dispatch(result.type().dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto data = result.data<T>();
        const std::size_t first = is_negated || data.empty() ? 0 : data.size() - 1;
        for (T& element : data.subspan(first)) element = changed_element(element, is_negated);
      });
    }
    return results;
  };
}

void add_reference_mutants(const OpRecord& op, std::vector<Mutant>& mutants) {
  for (bool is_negated : {true, false}) {
    mutants.push_back({is_negated ? "reference negated" : "reference off by one", Rule::reference,
                       copy_of(op, {.reference = changed_reference(op, is_negated)})});
  }
}

}  // namespace

Mutant unchanged(const OpRecord& op) { return {"unchanged", Rule::none, copy_of(op)}; }

std::vector<Mutant> mutants_of(const OpRecord& op) {
  std::vector<Mutant> mutants;
  add_vjp_mutants(op, mutants);
  add_batch_mutants(op, mutants);
  add_factor_mutants(op, mutants);
  add_reference_mutants(op, mutants);
  return mutants;
}

}  // namespace tessera::mutation
