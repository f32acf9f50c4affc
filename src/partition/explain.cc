// Lists the collectives of a partitioned program and traces each to what caused it.
#include <fmt/format.h>
#include <map>

#include "ops/ops.h"
#include "partition/flatten.h"
#include "partition/moves.h"
#include "partition/partition.h"
#include "partition/project.h"

namespace tessera::partition {

using ir::Equation;
using ir::Function;
using ir::ValueId;

namespace {

constexpr std::size_t kNowhere = ~std::size_t{0};

/// Explains one function, and those nested in it by explainers of their own.
class Explainer {
 public:
  /// `of` goes behind `input 3`; `count` is how often the function runs.
  Explainer(const Function& function, std::string of, std::int64_t count)
      : function_(function),
        of_(std::move(of)),
        count_(count),
        atoms_(atoms_of(function.mesh)),
        definition_(function.values.size(), kNowhere),
        first_use_(function.values.size(), kNowhere) {
    for (std::size_t i = 0; i < function.equations.size(); ++i) {
      for (ValueId id : function.equations[i].results) definition_[id] = i;
      for (ValueId id : function.equations[i].operands) {
        if (first_use_[id] == kNowhere) first_use_[id] = i;
      }
    }
  }

  /// Appends to `infos`, in program order.
  void run(std::vector<CollectiveInfo>& infos, std::size_t& number) const {
    for (std::size_t i = 0; i < function_.equations.size(); ++i) {
      const Equation& equation = function_.equations[i];
      for (const Function* body : bodies_of(equation)) {
        const std::int64_t rounds =
            equation.op == &ops::scan_op ? equation.attributes.integer("length") : 1;
        Explainer(*body, " of " + place(equation), count_ * rounds).run(infos, number);
      }
      const auto kind = kind_of(*equation.op);
      if (permuted_shards(function_, equation) > 1) {
        infos.push_back(describe_permute(equation));
        infos.back().equation = number++;
      }
      if (!kind || *kind == MoveKind::all_slice) continue;
      for (std::size_t k = 0; k < equation.operands.size(); ++k) {
        infos.push_back(describe(i, k, *kind));
        infos.back().equation = number;
      }
      ++number;
    }
  }

 private:
  CollectiveInfo describe_permute(const Equation& equation) const {
    const ValueId operand = equation.operands[0];
    const Sharding& sharding = function_.sharding(operand);
    const Type& type = function_.type(operand);
    const std::int64_t bytes =
        size_bytes(Type{type.dtype, Layout(function_.mesh, sharding, type.shape).max_tile_shape()});
    return {.kind = std::string(ir::op_name(*equation.op)),
            .type = type,
            .from = sharding,
            .to = sharding,
            .bytes = bytes,
            .wire_bytes = bytes,
            .group_size = permuted_shards(function_, equation),
            .span = equation.span,
            .because = place(equation) + " moves slices of a split dimension",
            .equation = 0,
            .count = count_};
  }

  CollectiveInfo describe(std::size_t index, std::size_t which, MoveKind kind) const {
    const Equation& equation = function_.equations[index];
    const ValueId operand = equation.operands[which];
    const ValueId result = equation.results[which];
    CollectiveInfo info{.kind = std::string(ir::op_name(*equation.op)),
                        .type = function_.type(operand),
                        .from = function_.sharding(operand),
                        .to = function_.sharding(result),
                        .bytes = 0,
                        .wire_bytes = 0,
                        .group_size = 1,
                        .span = equation.span,
                        .because = {},
                        .equation = 0,
                        .count = count_};
    const Sharding& whole = kind == MoveKind::all_gather ? info.to : info.from;
    info.bytes = size_bytes(
        Type{info.type.dtype, Layout(function_.mesh, whole, info.type.shape).max_tile_shape()});
    info.group_size = group_size(kind, info.from, info.to, atoms_);
    const std::int64_t others =
        kind == MoveKind::collective_permute ? info.group_size : info.group_size - 1;
    info.wire_bytes = info.bytes * others / info.group_size;
    if (kind == MoveKind::all_reduce) info.wire_bytes *= 2;
    if (is_reducing(kind)) {
      explain_reduction(operand, info);
    } else {
      info.because = needed_by(result) + "; " + held_because(operand, info.from, info.to);
    }
    return info;
  }

  std::string braced(const AtomList& list) const {
    return to_string(function_.mesh, Sharding{.dims = {list}, .partial = {}});
  }

  std::string place(const Equation& equation) const {
    std::string text(ir::op_name(*equation.op));
    if (!equation.span.file.empty()) text += " at " + to_string(equation.span);
    return text;
  }

  /// The equation that left the value partial, and the input that split what it reduces.
  void explain_reduction(ValueId operand, CollectiveInfo& info) const {
    const Equation* maker = &function_.equations[definition_[operand]];
    while (kind_of(*maker->op)) maker = &function_.equations[definition_[maker->operands[0]]];
    info.span = maker->span;
    info.because = place(*maker) + " reduces over " + braced(info.from.partial);
    for (std::size_t i = 0; i < maker->operands.size(); ++i) {
      const ValueId id = maker->operands[i];
      if (!uses_atom(function_.sharding(id), info.from.partial[0])) continue;
      info.because +=
          ", which splits operand " + std::to_string(i) + "; " + origin(id, info.from.partial[0]);
      return;
    }
  }

  /// Who uses the value, looking through the rest of a chain of collectives.
  std::string needed_by(ValueId value) const {
    while (first_use_[value] != kNowhere) {
      const Equation& user = function_.equations[first_use_[value]];
      std::size_t which = 0;
      while (user.operands[which] != value) ++which;
      if (!kind_of(*user.op)) {
        return "operand " + std::to_string(which) + " of " + place(user) + " is needed as " +
               shown(value);
      }
      value = user.results[which];
    }
    for (std::size_t i = 0; i < function_.outputs.size(); ++i) {
      if (function_.outputs[i] == value) {
        return "output " + std::to_string(i) + " is asked for as " + shown(value);
      }
    }
    return "its user was removed";
  }

  std::string shown(ValueId value) const {
    return to_string(function_.mesh, function_.sharding(value));
  }

  std::string held_because(ValueId operand, const Sharding& from, const Sharding& to) const {
    for (std::size_t dim = 0; dim < from.dims.size(); ++dim) {
      if (from.dims[dim].empty() || from.dims[dim] == to.dims[dim]) continue;
      return "held as " + shown(operand) + " because " + origin(operand, from.dims[dim].back());
    }
    return "held as " + shown(operand);
  }

  /// Follows an atom back to the input that brought it in.
  std::string origin(ValueId value, AtomId atom) const {
    const AtomList axis = axis_of(atom);
    while (definition_[value] != kNowhere) {
      const Equation& maker = function_.equations[definition_[value]];
      ValueId next = ir::kNoValue;
      for (ValueId id : maker.operands) {
        if (next == ir::kNoValue && uses_atom(function_.sharding(id), atom)) next = id;
      }
      if (next == ir::kNoValue) return place(maker) + " is split over " + braced(axis);
      value = next;
    }
    std::size_t input = 0;
    while (input < function_.inputs.size() && function_.inputs[input] != value) ++input;
    return "input " + std::to_string(input) + of_ + " is split over " + braced(axis);
  }

  AtomList axis_of(AtomId atom) const {
    AtomList axis;
    for (std::size_t other = 0; other < atoms_.size(); ++other) {
      if (atoms_[other].axis == atoms_[atom].axis) axis.push_back(static_cast<AtomId>(other));
    }
    return axis;
  }

  const Function& function_;
  std::string of_;
  std::int64_t count_;
  const std::vector<Atom> atoms_;
  std::vector<std::size_t> definition_;
  std::vector<std::size_t> first_use_;
};

}  // namespace

std::vector<CollectiveInfo> explain(const Function& partitioned) {
  std::vector<CollectiveInfo> infos;
  std::size_t number = 0;
  Explainer(partitioned, "", 1).run(infos, number);
  return infos;
}

std::string explain_text(const Function& partitioned) {
  struct Total {
    std::int64_t count = 0, bytes = 0, wire_bytes = 0;
  };
  const char* row = "{:<19} {:>14} {:>14} {:>5}  {:<28} {}\n";
  std::string text = fmt::format(fmt::runtime(row), "collective", "bytes", "wire bytes", "group",
                                 "array", "because");
  std::map<std::string, Total> totals;
  for (const CollectiveInfo& info : explain(partitioned)) {
    Total& total = totals[info.kind];
    total.count += info.count;
    total.bytes += info.bytes * info.count;
    total.wire_bytes += info.wire_bytes * info.count;
    text +=
        fmt::format(fmt::runtime(row), info.kind, info.bytes, info.wire_bytes, info.group_size,
                    to_string(info.type),
                    (info.count > 1 ? fmt::format("{} times: ", info.count) : "") + info.because);
  }
  if (totals.empty()) return "no collectives\n";
  for (const auto& [kind, total] : totals) {
    text += fmt::format("total {:<13} {:>14} {:>14}        {} arrays\n", kind, total.bytes,
                        total.wire_bytes, total.count);
  }
  return text;
}

}  // namespace tessera::partition
