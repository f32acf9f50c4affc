// Logical names of dimensions, and the rules that turn them into mesh axes.
#include <algorithm>
#include <fmt/format.h>

#include <tessera/error.h>
#include <tessera/ops.h>
#include <tessera/shardings.h>

#include "api/operands.h"
#include "mesh/suggest_axis.h"

namespace tessera {

namespace {

constexpr int kUndecided = -1;

thread_local LogicalRules g_rules;

std::string rule_text(const LogicalRule& rule) {
  return fmt::format("('{}', {})", rule.name, to_string(rule.axes));
}

bool overlaps(const SpecEntry& a, const SpecEntry& b) {
  return std::any_of(a.axes.begin(), a.axes.end(), [&](const std::string& axis) {
    return std::count(b.axes.begin(), b.axes.end(), axis) != 0;
  });
}

void check_rules(const LogicalRules& rules, const std::string& subject, const Span& where) {
  for (const LogicalRule& rule : rules) {
    const std::vector<std::string>& axes = rule.axes.axes;
    const bool has_twice = std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) {
      return std::count(axes.begin(), axes.end(), axis) > 1;
    });
    if (!rule.name.empty() && !has_twice) continue;
    throw UserError({.what = subject + (has_twice ? ": a rule names a mesh axis twice"
                                                  : ": a rule has no logical name"),
                     .where = where,
                     .found = rule_text(rule),
                     .wanted = "a logical name and distinct mesh axes",
                     .cure = "write for example {\"batch\", {\"data\", \"fsdp\"}}, or {\"embed\", "
                             "none} for a dimension that is not split"});
  }
}

void check_names(const PartitionSpec& names, const std::string& subject, const Span& where) {
  std::vector<std::string> seen;
  for (const SpecEntry& entry : names.entries()) {
    if (entry.axes.empty()) continue;
    if (entry.axes.size() > 1 || entry.axes[0].empty()) {
      throw UserError(
          {.what = subject + ": a dimension must have one logical name, or none",
           .where = where,
           .found = to_string(entry) + " in " + to_string(names),
           .wanted = "for example {\"batch\", none, \"embed\"}",
           .cure = "write none for a dimension without a name; to split a dimension over several "
                   "mesh axes, write a rule: {\"batch\", {\"data\", \"fsdp\"}}"});
    }
    if (std::count(seen.begin(), seen.end(), entry.axes[0]) != 0) {
      throw UserError({.what = subject + ": two dimensions are named '" + entry.axes[0] + "'",
                       .where = where,
                       .found = to_string(names),
                       .wanted = "a different name for each dimension of an array",
                       .cure = "give one of them a name of its own, for example '" + entry.axes[0] +
                               "_out', with a rule of its own"});
    }
    seen.push_back(entry.axes[0]);
  }
}

/// The rule that decides each dimension, or kUndecided.
std::vector<int> decisions(const PartitionSpec& names, const LogicalRules& rules) {
  const std::vector<SpecEntry>& dims = names.entries();
  std::vector<int> decided(dims.size(), kUndecided);
  for (std::size_t r = 0; r < rules.size(); ++r) {
    const auto dim = std::find(dims.begin(), dims.end(), SpecEntry(rules[r].name)) - dims.begin();
    const auto place = static_cast<std::size_t>(dim);
    if (place == dims.size() || decided[place] != kUndecided) continue;
    const bool is_taken = std::any_of(decided.begin(), decided.end(), [&](int other) {
      return other != kUndecided &&
             overlaps(rules[static_cast<std::size_t>(other)].axes, rules[r].axes);
    });
    if (!is_taken) decided[place] = static_cast<int>(r);
  }
  return decided;
}

PartitionSpec spec_of(const std::vector<int>& decided, const LogicalRules& rules) {
  std::vector<SpecEntry> entries;
  for (int rule : decided) {
    entries.push_back(rule == kUndecided ? SpecEntry(none)
                                         : rules[static_cast<std::size_t>(rule)].axes);
  }
  return PartitionSpec(std::move(entries));
}

/// `'data' splits 'batch'`: the axes of rule `r` that earlier rules have used already.
std::string obstacles(const PartitionSpec& names, const LogicalRules& rules,
                      const std::vector<int>& decided, int r) {
  std::string text;
  for (std::size_t dim = 0; dim < decided.size(); ++dim) {
    if (decided[dim] == kUndecided || decided[dim] >= r) continue;
    const SpecEntry& taken = rules[static_cast<std::size_t>(decided[dim])].axes;
    for (const std::string& axis : rules[static_cast<std::size_t>(r)].axes.axes) {
      if (!overlaps(taken, SpecEntry(axis))) continue;
      text += fmt::format("{}'{}' already splits {}", text.empty() ? "" : ", ", axis,
                          to_string(names.entries()[dim]));
    }
  }
  return text;
}

/// Why rule `r`, which is about dimension `dim`, did or did not decide it.
std::string reason(const PartitionSpec& names, const LogicalRules& rules,
                   const std::vector<int>& decided, std::size_t dim, int r) {
  const LogicalRule& rule = rules[static_cast<std::size_t>(r)];
  const std::string subject = fmt::format("rule {} {}", r, rule_text(rule));
  if (decided[dim] == r) return subject + " fired";
  if (decided[dim] != kUndecided && decided[dim] < r)
    return subject + " did not: an earlier rule fired";
  return subject + " did not: " + obstacles(names, rules, decided, r);
}

/// `'embed' -> None: rule 0 ('embed', 'data') did not: 'data' splits 'batch'`.
std::string dimension_text(const PartitionSpec& names, const LogicalRules& rules,
                           const std::vector<int>& decided, std::size_t dim) {
  const SpecEntry& name = names.entries()[dim];
  const PartitionSpec spec = spec_of(decided, rules);
  std::string reasons;
  for (std::size_t r = 0; r < rules.size(); ++r) {
    if (SpecEntry(rules[r].name) != name) continue;
    reasons +=
        (reasons.empty() ? "" : "; ") + reason(names, rules, decided, dim, static_cast<int>(r));
  }
  if (name.axes.empty()) reasons = "has no name";
  if (reasons.empty()) reasons = "no rule has this name";
  return fmt::format("{} -> {}: {}", to_string(name), to_string(spec.entries()[dim]), reasons);
}

/// The mesh that a constraint on x refers to.
Mesh mesh_for(const Array& x) {
  if (const auto trace = trace::innermost()) return trace->mesh();
  if (!x.is_concrete()) return current_mesh();
  const Mesh& own = x.node()->placement->mesh;
  return own.axes().empty() ? current_mesh() : own;
}

/// Rules may name axes of other meshes, but the axes of rules that fired must be in this mesh.
void check_axes(const Mesh& mesh, const LogicalRules& rules, const std::vector<int>& decided,
                const Span& where) {
  for (int r : decided) {
    if (r == kUndecided) continue;
    const LogicalRule& rule = rules[static_cast<std::size_t>(r)];
    for (const std::string& axis : rule.axes.axes) {
      if (mesh.has_axis(axis)) continue;
      throw UserError({.what = "with_logical_constraint: the mesh has no axis named '" + axis + "'",
                       .where = where,
                       .found = "the rule " + rule_text(rule) + " on the mesh " + to_string(mesh),
                       .wanted = "rules that map to axes of the mesh",
                       .cure = with_axis_suggestion(
                           mesh, axis, "change the rule, or add this axis to make_mesh")});
    }
  }
}

void check_mesh(const LogicalConstraint& options, const Span& where) {
  const auto trace = trace::innermost();
  if (!options.mesh || trace == nullptr || trace->mesh().axes().empty()) return;
  if (*options.mesh == trace->mesh()) return;
  throw UserError({.what = "with_logical_constraint: .mesh is not the mesh of this function",
                   .where = where,
                   .found = to_string(*options.mesh),
                   .wanted = to_string(trace->mesh()),
                   .cure = "leave .mesh out, or pass arrays and shardings of that mesh"});
}

void check_rank(const Array& x, const PartitionSpec& names, const Span& where) {
  if (static_cast<std::int64_t>(names.entries().size()) <= x.rank()) return;
  throw UserError({.what = "with_logical_constraint: there are more names than dimensions",
                   .where = where,
                   .found = to_string(names) + " for " + to_string(x.type()),
                   .wanted = "no more names than dimensions: " + std::to_string(x.rank()),
                   .cure = "drop the extra names"});
}

/// The first dimension with a name that no rule decides, or the number of dimensions.
std::size_t first_undecided(const PartitionSpec& names, const std::vector<int>& decided) {
  std::size_t dim = 0;
  while (dim < decided.size() &&
         (decided[dim] != kUndecided || names.entries()[dim].axes.empty())) {
    ++dim;
  }
  return dim;
}

}  // namespace

logical_axis_rules::logical_axis_rules(LogicalRules rules, std::source_location where)
    : previous_(g_rules) {
  check_rules(rules, "logical_axis_rules", where);
  g_rules = std::move(rules);
}
logical_axis_rules::~logical_axis_rules() { g_rules = std::move(previous_); }
const LogicalRules& get_logical_axis_rules() { return g_rules; }

std::string to_string(const LogicalRules& rules) {
  std::string text;
  for (const LogicalRule& rule : rules) text += (text.empty() ? "" : ", ") + rule_text(rule);
  return text.empty() ? "none" : text;
}

PartitionSpec logical_to_mesh_axes(const PartitionSpec& names, const LogicalRules& rules,
                                   std::source_location where) {
  check_rules(rules, "logical_to_mesh_axes", where);
  check_names(names, "logical_to_mesh_axes", where);
  return spec_of(decisions(names, rules), rules);
}

Shardings logical_to_mesh(const Shardings& specs, const LogicalRules& rules,
                          std::source_location where) {
  check_rules(rules, "logical_to_mesh", where);
  Shardings result = specs;
  for (Shardings::Entry& entry : result.entries_) {
    if (entry.names != AxisNames::logical) continue;
    if (rules.empty()) {
      throw UserError(
          {.what = "logical_to_mesh: there are no rules",
           .where = where,
           .found = to_string(entry.spec) + (entry.path.empty() ? "" : " for ") + entry.path,
           .wanted = "rules that say which mesh axes split the logical names",
           .cure = "pass LogicalRules{{\"batch\", \"data\"}, ...}, or open `logical_axis_rules "
                   "scope(rules);` first"});
    }
    check_names(entry.spec,
                "logical_to_mesh" + (entry.path.empty() ? std::string() : " of " + entry.path),
                where);
    entry.spec = spec_of(decisions(entry.spec, rules), rules);
    entry.names = AxisNames::mesh;
  }
  return result;
}

std::string explain_rules(const PartitionSpec& names, const LogicalRules& rules,
                          std::source_location where) {
  check_rules(rules, "explain_rules", where);
  check_names(names, "explain_rules", where);
  const std::vector<int> decided = decisions(names, rules);
  std::string text = to_string(names) + " -> " + to_string(spec_of(decided, rules)) + "\n";
  for (std::size_t dim = 0; dim < decided.size(); ++dim) {
    text += "  " + dimension_text(names, rules, decided, dim) + "\n";
  }
  return text;
}

Array with_logical_constraint(Operand x, const PartitionSpec& names,
                              const LogicalConstraint& options) {
  const CallScope scope(x.where);
  const Span where = detail::call_span();
  const Array array = detail::as_array("with_logical_constraint", x);
  const LogicalRules& rules = options.rules ? *options.rules : g_rules;
  const Mesh mesh = options.mesh ? *options.mesh : mesh_for(array);
  if (rules.empty() || mesh.axes().empty()) return array;
  check_rules(rules, "with_logical_constraint", where);
  check_names(names, "with_logical_constraint", where);
  check_rank(array, names, where);
  check_mesh(options, where);
  const std::vector<int> decided = decisions(names, rules);
  const std::size_t undecided = first_undecided(names, decided);
  if (undecided < decided.size()) {
    if (options.fallback == RulesFallback::no_constraint) return array;
    if (options.fallback == RulesFallback::raise_error) {
      throw UserError({.what = "with_logical_constraint: no rule decides a dimension",
                       .where = where,
                       .found = dimension_text(names, rules, decided, undecided),
                       .wanted = "a rule for every name, as RulesFallback::raise_error requires",
                       .cure = "add a rule, or move one before the rule that takes its axes; a "
                               "rule that maps to none leaves the dimension whole"});
    }
  }
  check_axes(mesh, rules, decided, where);
  const PartitionSpec spec = spec_of(decided, rules);
  return options.mesh ? with_sharding_constraint(array, NamedSharding(mesh, spec))
                      : with_sharding_constraint(array, spec);
}

}  // namespace tessera
