#include "compile/host/fuse/readings.h"

#include <algorithm>
#include <compare>
#include <map>
#include <numeric>
#include <utility>

#include "compile/host/dense/window_padding.h"
#include "compile/host/kernels/tile/tile_program.h"
#include "compile/host/lower.h"
#include "compile/host/orders.h"
#include "ops/control/mpmd.h"
#include "ops/ops.h"
#include "ops/rules.h"

namespace tessera::compile::host {

using ir::Equation;
using ir::Function;
using ir::ValueId;

bool is_elementwise(const Function& function, const Equation& equation) {
  return *equation.op->pattern == ops::Pattern::elementwise || is_generator(function, equation);
}

bool reads_whole_operands(const Function& function, const Equation& equation) {
  return is_generator(function, equation) && !equation.operands.empty();
}

namespace {

/// Decides which values are constants and which are read through views.
class ViewPass {
 public:
  ViewPass(const Function& function, bool transfers_move, Fusion& fusion)
      : f_(function),
        transfers_move_(transfers_move),
        fusion_(fusion),
        paddings_(paddings_of_windows(function)) {
    const std::size_t count = f_.values.size();
    fusion_.definition.assign(count, kNoEquation);
    fusion_.is_view.assign(count, false);
    fusion_.splat.assign(count, std::nullopt);
    fusion_.padding.assign(count, std::nullopt);
    fusion_.lies_as = transposes_to_write(f_);
    is_dense_.assign(count, true);
    is_number_.assign(count, false);
    for (std::size_t i = 0; i < f_.equations.size(); ++i) {
      const Equation& equation = f_.equations[i];
      for (ValueId id : equation.results) fusion_.definition[id] = i;
      if (!reads_numbers(equation)) continue;
      for (ValueId id : equation.operands) is_number_[id] = true;
    }
  }

  void run() {
    for (const Equation& equation : f_.equations) {
      if (transfers_move_ && ops::is_transfer(equation)) {
        // Both ends of the transfer do this, whatever they know about the operand.
        if (fusion_.splat[equation.operands[0]]) give_memory(equation.operands[0]);
      } else if (ops::is_view(equation)) {
        visit_view(equation);
      } else if (is_padding_left_out(equation)) {
        fusion_.is_view[equation.results[0]] = true;
        fusion_.padding[equation.results[0]] = fusion_.splat[equation.operands[1]];
      } else if (ops::is(equation, ops::constant_op)) {
        fusion_.splat[equation.results[0]] = equation.attributes.get<double>("value");
      } else if (!is_elementwise(f_, equation) || reads_whole_operands(f_, equation)) {
        visit_kernel(equation);
      }
    }
    for (ValueId id : f_.outputs) give_memory(id);
  }

 private:
  void visit_view(const Equation& equation) {
    const ValueId from = equation.operands[0];
    const ValueId to = equation.results[0];
    // After a bitcast, the bits of a constant mean another number.
    if (fusion_.splat[from] && *equation.op->host == "bitcast") give_memory(from);
    if (fusion_.splat[from]) {
      fusion_.splat[to] = fusion_.splat[from];
      return;
    }
    const std::string& view = *equation.op->host;
    const bool moves =
        view == "broadcast_in_dim" || view == "reverse" || view == "slice" || view == "transpose";
    if (view == "reshape" && !is_dense_[from]) give_memory(from);
    fusion_.is_view[to] = true;
    is_dense_[to] = fusion_.lies_as[from] == to || (!moves && is_dense_[from]);
  }

  bool is_padding_left_out(const Equation& equation) const {
    const auto padding =
        paddings_.find(equation.results.empty() ? ir::kNoValue : equation.results[0]);
    if (padding == paddings_.end()) return false;
    const ValueId from = equation.operands[0];
    const std::optional<double> fill = fusion_.splat[equation.operands[1]];
    return fill && !fusion_.splat[from] && is_dense_[from] &&
           std::all_of(padding->second.begin(), padding->second.end(),
                       [&](const Equation* reader) { return may_leave_out(*reader, *fill); });
  }

  void visit_kernel(const Equation& equation) {
    const bool wants_dense = reads_whole_operands(f_, equation) || reads_dense(equation);
    for (ValueId id : equation.operands) {
      if (fusion_.splat[id] && !wants_dense) store_as_made(id);
      if (fusion_.splat[id] || (wants_dense && !is_dense_[id])) give_memory(id);
    }
  }

  /// Whether the equation uses the constants that it reads as numbers, without memory for them.
  bool reads_numbers(const Equation& equation) const {
    if (ops::is(equation, ops::pad_op)) return true;
    return is_elementwise(f_, equation) && !reads_whole_operands(f_, equation);
  }

  /// Stores a constant in the order of the first of the views that lead to it, which the others
  /// reorder. So kernels find it in the same order as an array that is no constant.
  void store_as_made(ValueId id) {
    const std::size_t definition = fusion_.definition[id];
    if (definition == kNoEquation || !ops::is_view(f_.equations[definition])) return;
    const Equation& view = f_.equations[definition];
    const ValueId from = view.operands[0];
    if (num_elements(f_.type(from).shape) != num_elements(f_.type(id).shape)) return;
    if (fusion_.splat[from]) {
      if (is_number_[from]) return;
      store_as_made(from);
      if (fusion_.splat[from]) give_memory(from);
    }
    fusion_.splat[id].reset();
    visit_view(view);
  }

  /// The value is stored instead of being read through its operand.
  void give_memory(ValueId id) {
    fusion_.splat[id].reset();
    fusion_.is_view[id] = false;
    is_dense_[id] = true;
  }

  const Function& f_;
  bool transfers_move_;
  Fusion& fusion_;
  std::vector<bool> is_dense_;
  std::vector<bool> is_number_;  // per value: if it is constant, some equation uses the number
  std::map<ValueId, std::vector<const Equation*>> paddings_;
};

/// Determines how every value is read, and its index space.
class ReadingPass {
 public:
  ReadingPass(const Function& function, Fusion& fusion) : f_(function), fusion_(fusion) {}

  void run() {
    fusion_.readings.resize(f_.values.size());
    fusion_.spaces.resize(f_.values.size());
    strides_.resize(f_.values.size());
    for (ValueId id = 0; id < f_.values.size(); ++id) {
      fusion_.readings[id] = {.base = id, .kind = Reading::Kind::same};
      fusion_.spaces[id] = number_of(space_of(in_memory(id)));
      // Tiles that are windows do not match the tiles of any other value.
      if (!f_.sharding(id).windows.empty()) fusion_.spaces[id] = number_of_its_own();
    }
    for (const Equation& equation : f_.equations) {
      // No region may read the result as its own rows, even if the shapes are equal.
      if (is_column_sum(f_, equation)) fusion_.spaces[equation.results[0]] = number_of_its_own();
    }
    for (const Equation& equation : f_.equations) {
      if (fusion_.is_view[equation.results[0]]) visit(equation);
    }
    // Spaces of rows have rows themselves, so the list grows during the loop.
    for (std::size_t i = 0; i < spaces_.size(); ++i) {
      fusion_.rows_of.push_back(number_of_rows(spaces_[i]));
    }
  }

 private:
  struct Space {
    Shape extents;
    std::vector<AtomList> split;
    AtomList partial;
    auto operator<=>(const Space&) const = default;
  };

  Space space_of(ValueId id) const {
    const Shape& shape = f_.type(id).shape;
    const Sharding& sharding = f_.sharding(id);
    Space space{.extents = {}, .split = {}, .partial = sharding.partial};
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      if (has_one_index(f_, id, dim)) continue;
      space.extents.push_back(shape[dim]);
      space.split.push_back(sharding.dims[dim]);
    }
    return space;
  }

  /// The value in whose order the elements of a stored value are.
  ValueId in_memory(ValueId id) const {
    return fusion_.lies_as[id] == ir::kNoValue ? id : fusion_.lies_as[id];
  }

  int number_of(const Space& space) {
    const auto [found, is_new] = numbers_.emplace(space, static_cast<int>(spaces_.size()));
    if (is_new) spaces_.push_back(space);
    return found->second;
  }

  int number_of_its_own() {
    spaces_.emplace_back();
    return static_cast<int>(spaces_.size()) - 1;
  }

  int number_of_rows(Space space) {
    if (space.extents.size() < 2) return -1;
    // Rows without elements are never visited, but still have a sum.
    if (space.extents.back() == 0 || space.extents.back() > kernels::kMaxRowLength) return -1;
    if (!space.split.back().empty()) return -1;
    space.extents.pop_back();
    space.split.pop_back();
    return number_of(space);
  }

  static Box whole(const Shape& shape) {
    return {.start = std::vector<std::int64_t>(shape.size(), 0), .size = shape};
  }

  void visit(const Equation& view) {
    const ValueId from = view.operands[0];
    const ValueId to = view.results[0];
    const Reading before = fusion_.readings[from];
    const Shape& from_shape = f_.type(from).shape;
    StridedTile tile{.tile = {before.base, 0}, .offset = 0, .strides = strides_[from]};
    if (!fusion_.is_view[from]) tile.strides = strides_in_memory(f_, fusion_, from, from_shape);
    fusion_.readings[to] = {.base = before.base, .kind = Reading::Kind::other};
    if (tile.strides.size() != from_shape.size() || !ops::is_view(view)) return;
    tile = apply_view(f_, view, std::move(tile), whole(from_shape), whole(f_.type(to).shape));
    strides_[to] = tile.strides;
    if (tile.offset == 0) fusion_.readings[to].kind = kind_of(before.base, to);
  }

  Reading::Kind kind_of(ValueId base, ValueId view) const {
    const Shape& shape = f_.type(view).shape;
    std::vector<std::int64_t> strides;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      if (!has_one_index(f_, view, dim)) strides.push_back(strides_[view][dim]);
    }
    const Shape from = space_of(in_memory(base)).extents;
    Shape extents = space_of(view).extents;
    if (extents == from && strides == row_major_strides(from)) return Reading::Kind::same;
    if (extents.empty() || strides.back() != 0) return Reading::Kind::other;
    extents.pop_back();
    strides.pop_back();
    const bool is_rows = extents == from && strides == row_major_strides(from);
    return is_rows ? Reading::Kind::rows : Reading::Kind::other;
  }

  const Function& f_;
  Fusion& fusion_;
  std::map<Space, int> numbers_;
  std::vector<Space> spaces_;
  std::vector<std::vector<std::int64_t>> strides_;  // of views, in their base
};

}  // namespace

void find_readings(const Function& function, bool transfers_move, Fusion& fusion) {
  ViewPass(function, transfers_move, fusion).run();
  ReadingPass(function, fusion).run();
}

bool has_one_index(const Function& function, ValueId value, std::size_t dim) {
  return function.type(value).shape[dim] == 1 && function.sharding(value).dims[dim].empty();
}

ValueId iterated(const Equation& equation) {
  return *equation.op->host == "reduce" ? equation.operands[0] : equation.results[0];
}

Reading::Kind reading_within(const Function& function, const Fusion& fusion,
                             const Equation& equation, ValueId operand) {
  // A materialised view reads its operand at other indices, so it cannot join its producer.
  if (ops::is_view(equation) || reads_whole_operands(function, equation))
    return Reading::Kind::other;
  const auto [base, kind] = fusion.readings[operand];
  const int space = fusion.spaces[iterated(equation)];
  const int from = fusion.spaces[base];
  if (kind == Reading::Kind::same && from == space) return kind;
  if (kind == Reading::Kind::rows && from == fusion.rows_in(space)) return kind;
  return Reading::Kind::other;
}

bool is_row_reduction(const Function& function, const Fusion& fusion, const Equation& equation) {
  if (!ops::is(equation, ops::reduce_sum_op) && !ops::is(equation, ops::reduce_max_op) &&
      !ops::is(equation, ops::reduce_min_op)) {
    return false;
  }
  const Type& type = function.type(equation.operands[0]);
  return type.dtype == DType::f32 && type.rank() > 0 && type.shape.back() > 1 &&
         equation.attributes.ints("dims") == ir::Ints{type.rank() - 1} &&
         fusion.rows_in(fusion.spaces[equation.operands[0]]) >= 0;
}

bool sums_all(const Function& function, const Equation& equation) {
  return std::ssize(equation.attributes.ints("dims")) == function.type(equation.operands[0]).rank();
}

bool is_column_sum(const Function& function, const Equation& equation) {
  if (!ops::is(equation, ops::reduce_sum_op) || equation.attributes.has(ops::kGrains)) return false;
  const ValueId from = equation.operands[0];
  const Type& type = function.type(from);
  const std::int64_t last = type.rank() - 1;
  if (type.dtype != DType::f32 || last < 1 || num_elements(type.shape) == 0) return false;
  if (type.shape.back() > kernels::kMaxRowLength) return false;
  if (has_one_index(function, from, static_cast<std::size_t>(last))) return false;
  const bool is_over_last = sums_all(function, equation);
  const auto num_dims = static_cast<std::size_t>(is_over_last ? last + 1 : last);
  if (equation.attributes.ints("dims") != ops::dims_from(0, num_dims)) return false;
  // Every tile of the operand must have its own tile of the result.
  const Sharding& sharding = function.sharding(from);
  const Sharding& result = function.sharding(equation.results[0]);
  std::vector<AtomId> summed(sharding.partial.begin(), sharding.partial.end());
  bool has_rows = false;
  for (std::size_t dim = 0; dim < num_dims; ++dim) {
    const bool is_last = std::cmp_equal(dim, last);
    has_rows = has_rows || (!is_last && !has_one_index(function, from, dim));
    const AtomList& atoms = sharding.dims[dim];
    summed.insert(summed.end(), atoms.begin(), atoms.end());
  }
  return has_rows && sharding.windows.empty() &&
         (is_over_last || result.dims[0] == sharding.dims.back()) &&
         std::is_permutation(summed.begin(), summed.end(), result.partial.begin(),
                             result.partial.end());
}

}  // namespace tessera::compile::host
