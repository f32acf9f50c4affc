// Lists the collectives of a partitioned program and traces each to what caused it.
#include <fmt/format.h>
#include <map>

#include "ir/bodies.h"
#include "ops/attention/attention.h"
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

/// An input as the user passes it; a body gets slices of the scanned inputs.
struct Source {
  std::string name;  // empty for computed values
  bool is_slice = false;
};

/// Explains one function. Nested functions have their own explainers.
class Explainer {
 public:
  /// `of` is appended to `input 3`; `count` is how often the function runs.
  Explainer(const Function& function, std::string of, std::int64_t count,
            std::vector<Source> sources)
      : function_(function),
        of_(std::move(of)),
        count_(count),
        sources_(std::move(sources)),
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
      const std::optional<ir::BodyFlow> flow = ir::body_flow(equation);
      for (const Function* body : bodies_of(equation)) {
        const std::int64_t iterations = flow ? flow->iterations : 1;
        Explainer(*body, " of " + place(equation), count_ * iterations, sources_of(equation, *body))
            .run(infos, number);
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
            .because = permuted_because(equation),
            .cure = {},
            .equation = 0,
            .count = count_};
  }

  std::string permuted_because(const Equation& equation) const {
    ValueId moved = equation.results[0];
    while (is_used(moved)) {
      const Equation& user = function_.equations[first_use_[moved]];
      if (ops::is(user, ops::attention_parts_op)) {
        const auto dim = static_cast<std::size_t>(equation.attributes.integer("dim"));
        const ValueId held = equation.operands[0];
        return place(user) + " needs the keys of the other devices, one after another; " +
               origin(held, function_.sharding(held).dims[dim].back());
      }
      if (!ops::is_view(user)) break;
      moved = user.results[0];
    }
    return place(equation) + " moves slices of a split dimension";
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
                        .cure = {},
                        .equation = 0,
                        .count = count_};
    const MoveSize size = move_size(kind, function_.mesh, info.type, info.from, info.to);
    info.bytes = size.bytes;
    info.wire_bytes = size.wire_bytes;
    info.group_size = size.group_size;
    if (is_reducing(kind)) {
      explain_reduction(operand, info);
    } else if (kind == MoveKind::halo_exchange) {
      info.because = windows_read(operand, result);
    } else {
      info.because = needed_by(result) + "; " + held_because(operand, info.from, info.to);
      info.cure = cure_of_move(operand, result);
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

  /// An operand that already is a sum over the atom, from another equation of this function.
  std::optional<ValueId> summed_operand(const Equation& maker, AtomId atom) const {
    if (is_control(maker)) return std::nullopt;
    for (ValueId id : maker.operands) {
      if (definition_[id] == kNowhere || !contains(function_.sharding(id).partial, atom)) continue;
      if (!function_.equations[definition_[id]].operands.empty()) return id;
    }
    return std::nullopt;
  }

  /// The equation that left the value partial, and the input that split what it reduces.
  void explain_reduction(ValueId operand, CollectiveInfo& info) const {
    const Equation* maker = &function_.equations[definition_[operand]];
    while (const std::optional<ValueId> sum = summed_operand(*maker, info.from.partial[0])) {
      maker = &function_.equations[definition_[*sum]];
    }
    info.span = maker->span;
    info.because = place(*maker) + " reduces over " + braced(info.from.partial);
    for (std::size_t i = 0; i < maker->operands.size(); ++i) {
      const ValueId id = maker->operands[i];
      if (!uses_atom(function_.sharding(id), info.from.partial[0])) continue;
      info.because +=
          ", which splits operand " + std::to_string(i) + "; " + origin(id, info.from.partial[0]);
      info.cure = cure_of_reduction(*maker, info.from.partial[0]);
      return;
    }
  }

  /// What the inputs of a body are outside the body.
  std::vector<Source> sources_of(const Equation& equation, const Function& body) const {
    const std::size_t first = equation.operands.size() - body.inputs.size();
    std::vector<Source> sources;
    for (std::size_t i = 0; i < body.inputs.size(); ++i) {
      const ValueId outer = equation.operands[first + i];
      Source source = source_of(outer);
      if (function_.type(outer).rank() > body.type(body.inputs[i]).rank()) {
        if (source.is_slice) source.name.clear();
        source.is_slice = true;
      }
      sources.push_back(std::move(source));
    }
    return sources;
  }

  /// The input that the value is a copy of, possibly moved by collectives.
  Source source_of(ValueId value) const {
    while (definition_[value] != kNowhere) {
      const Equation& maker = function_.equations[definition_[value]];
      if (!kind_of(*maker.op)) return {};
      value = maker.operands[0];
    }
    return sources_[input_index(value)];
  }

  std::size_t input_index(ValueId value) const {
    std::size_t input = 0;
    while (function_.inputs[input] != value) ++input;
    return input;
  }

  std::string spec_text(ValueId value, bool is_slice = false) const {
    Sharding sharding = function_.sharding(value);
    if (is_slice) sharding.dims.insert(sharding.dims.begin(), AtomList());
    return to_string(to_spec(function_.mesh, sharding));
  }

  /// The cure if the user decides the shardings at both ends of a sequence of moves.
  std::string cure_of_move(ValueId operand, ValueId result) const {
    const ValueId last = end_of_chain(result);
    const Source source = source_of(operand);
    if (is_used(last)) {
      if (source.name.empty()) return {};
      return "passing " + source.name + " as " + spec_text(last, source.is_slice);
    }
    if (!of_.empty()) return {};
    for (std::size_t i = 0; i < function_.outputs.size(); ++i) {
      if (function_.outputs[i] != last) continue;
      return "requesting output " + std::to_string(i) + " as " + spec_text(start_of_chain(operand));
    }
    return {};
  }

  /// Only if the atom comes from a single input.
  std::string cure_of_reduction(const Equation& maker, AtomId atom) const {
    std::vector<bool> is_seen(function_.values.size(), false);
    std::vector<ValueId> open = maker.operands;
    std::string name;
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      if (is_seen[value] || !uses_atom(function_.sharding(value), atom)) continue;
      is_seen[value] = true;
      const std::size_t definition = definition_[value];
      if (definition == kNowhere) {
        const std::string& found = sources_[input_index(value)].name;
        if (found.empty() || (!name.empty() && name != found)) return {};
        name = found;
        continue;
      }
      // A slice may have been requested, and constants are built as their users want them.
      const Equation& equation = function_.equations[definition];
      if (equation.op == &ops::all_slice_op) return {};
      open.insert(open.end(), equation.operands.begin(), equation.operands.end());
    }
    if (name.empty()) return {};
    const AtomList axis = axis_of(atom);
    return "passing " + name + " without " + braced(axis) + ", at " +
           std::to_string(num_shards(atoms_, axis)) + " times the work per device";
  }

  bool is_used(ValueId value) const { return first_use_[value] != kNowhere; }

  /// The value after the last of a sequence of collectives.
  ValueId end_of_chain(ValueId value) const {
    while (is_used(value)) {
      const Equation& user = function_.equations[first_use_[value]];
      if (!kind_of(*user.op)) break;
      value = user.results[0];
    }
    return value;
  }

  ValueId start_of_chain(ValueId value) const {
    while (definition_[value] != kNowhere) {
      const Equation& maker = function_.equations[definition_[value]];
      if (!kind_of(*maker.op) || is_reducing(*kind_of(*maker.op))) break;
      value = maker.operands[0];
    }
    return value;
  }

  /// The user of the value, after the remaining collectives of a sequence.
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
        return "output " + std::to_string(i) + " is requested as " + shown(value);
      }
    }
    return "its user was removed";
  }

  /// Names the equation whose windows reach into other shards, and the input that splits the
  /// dimension.
  std::string windows_read(ValueId operand, ValueId result) const {
    const Equation& user = function_.equations[first_use_[result]];
    std::size_t which = 0;
    while (user.operands[which] != result) ++which;
    std::string text = place(user) + " reads operand " + std::to_string(which) + " as " +
                       shown(result) + ", beyond its shards";
    for (const Window& window : function_.sharding(result).windows) {
      const AtomList& list = function_.sharding(operand).dims[window.dim];
      if (list.empty()) continue;
      return text + "; held as " + shown(operand) + " because " + origin(operand, list.back());
    }
    return text;
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
    const std::size_t input = input_index(value);
    const std::string name =
        of_.empty() ? sources_[input].name : "input " + std::to_string(input) + of_;
    return name + " is split over " + braced(axis);
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
  std::vector<Source> sources_;  // per input
  const std::vector<Atom> atoms_;
  std::vector<std::size_t> definition_;
  std::vector<std::size_t> first_use_;
};

}  // namespace

std::vector<std::string> collective_kinds() {
  std::vector<std::string> kinds;
  for (MoveKind kind :
       {MoveKind::all_gather, MoveKind::all_reduce, MoveKind::all_to_all,
        MoveKind::collective_permute, MoveKind::halo_exchange, MoveKind::reduce_scatter}) {
    kinds.emplace_back(ir::op_name(op_of(kind)));
  }
  kinds.emplace_back("permute");  // if the permuted dimension is split
  return kinds;
}

std::vector<CollectiveInfo> explain(const Function& partitioned,
                                    const std::vector<std::string>& names) {
  std::vector<CollectiveInfo> infos;
  std::size_t number = 0;
  std::vector<Source> sources;
  for (std::size_t i = 0; i < partitioned.inputs.size(); ++i) {
    sources.push_back({i < names.size() ? names[i] : "input " + std::to_string(i)});
  }
  Explainer(partitioned, "", 1, std::move(sources)).run(infos, number);
  return infos;
}

std::string explain_text(const Function& partitioned, const std::vector<std::string>& names) {
  struct Total {
    std::int64_t count = 0, bytes = 0, wire_bytes = 0;
  };
  const char* row = "{:<19} {:>14} {:>14} {:>5}  {:<28} {}\n";
  std::string text = fmt::format(fmt::runtime(row), "collective", "bytes", "wire bytes", "group",
                                 "array", "because");
  std::map<std::string, Total> totals;
  for (const CollectiveInfo& info : explain(partitioned, names)) {
    Total& total = totals[info.kind];
    total.count += info.count;
    total.bytes += info.bytes * info.count;
    total.wire_bytes += info.wire_bytes * info.count;
    text += fmt::format(fmt::runtime(row), info.kind, info.bytes, info.wire_bytes, info.group_size,
                        to_string(info.type),
                        (info.count > 1 ? fmt::format("{} times: ", info.count) : "") +
                            info.because + (info.cure.empty() ? "" : "; avoided by " + info.cure));
  }
  if (totals.empty()) return "no collectives\n";
  for (const auto& [kind, total] : totals) {
    text += fmt::format("total {:<13} {:>14} {:>14}        {} arrays\n", kind, total.bytes,
                        total.wire_bytes, total.count);
  }
  return text;
}

}  // namespace tessera::partition
