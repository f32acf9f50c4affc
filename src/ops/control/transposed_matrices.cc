// A product of few rows takes as long as reading its matrix. If the terms of each sum are adjacent
// in memory, rather than elements that belong to different sums, reading it takes two to four times
// as long. A loop that multiplies by such a matrix in each round, as the gradients of recurrent
// layers do, gets it transposed from outside.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "ops/control/control.h"
#include "ops/control/internal.h"
#include "ops/emit.h"
#include "ops/ops.h"
#include "ops/record.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

constexpr std::int64_t kMostRows = 16;
/// With fewer columns the sums do not fill a vector.
constexpr std::int64_t kLeastColumns = 16;
/// Transposing takes as long as a few rounds.
constexpr std::int64_t kLeastRounds = 16;
/// The copy of a larger matrix takes more memory than it is worth.
constexpr std::int64_t kMostBytes = std::int64_t{8} << 20;

struct Side {
  std::size_t operand;
  std::string name;

  std::string batch() const { return name + "_batch"; }
  std::string contract() const { return name + "_contract"; }
};

/// The constants of a loop and their transposes.
class Matrices {
 public:
  Matrices(const Function& body, std::size_t num_consts) : body_(body) {
    for (std::size_t i = 0; i < num_consts; ++i) {
      Ints& order = order_[body.inputs[i]];
      order.resize(body.type(body.inputs[i]).shape.size());
      std::iota(order.begin(), order.end(), 0);
    }
    for (const Equation& equation : body.equations) {
      if (*equation.op->name != "transpose") continue;
      const auto made_of = order_.find(equation.operands[0]);
      if (made_of == order_.end()) continue;
      const Ints places = inverse_of(equation.attributes.ints("permutation"));
      Ints order;
      for (const std::int64_t dim : made_of->second) order.push_back(places[at(dim)]);
      order_[equation.results[0]] = std::move(order);
    }
  }

  /// Which operand of a product of few rows is such a matrix, with adjacent terms. `b` knows the
  /// types of the operands, some of which may be new.
  std::optional<Side> transposed_side(const Builder& b, const Equation& product) const {
    if (product.op != &dot_general_op) return std::nullopt;
    const Side sides[] = {{0, "lhs"}, {1, "rhs"}};
    for (const Side& side : sides) {
      const Side& other = sides[1 - side.operand];
      const Type& type = b.type(product.operands[side.operand]);
      if ((type.dtype == DType::f32 || type.dtype == DType::f64) &&
          has_adjacent_terms(product, side) &&
          static_cast<std::int64_t>(size_bytes(type)) <= kMostBytes &&
          free_extent(type, product, side.name) >= kLeastColumns &&
          free_extent(b.type(product.operands[other.operand]), product, other.name) <= kMostRows) {
        return side;
      }
    }
    return std::nullopt;
  }

 private:
  bool has_adjacent_terms(const Equation& product, const Side& side) const {
    const auto order = order_.find(product.operands[side.operand]);
    if (order == order_.end()) return false;
    const Shape& shape = body_.type(order->first).shape;
    const auto last = std::find_if(order->second.rbegin(), order->second.rend(),
                                   [&](std::int64_t dim) { return shape[at(dim)] > 1; });
    const Ints& contract = product.attributes.ints(side.contract());
    return last != order->second.rend() && std::ranges::find(contract, *last) != contract.end();
  }

  const Function& body_;
  std::map<ValueId, Ints> order_;  // their dimensions in memory order, the outermost first
};

/// The order in which elements of different sums are adjacent: first the dimensions of the batch,
/// then those of the sum.
Ints permutation_for(const Equation& product, const Side& side, std::size_t rank) {
  Ints permutation = product.attributes.ints(side.batch());
  const Ints& contract = product.attributes.ints(side.contract());
  permutation.insert(permutation.end(), contract.begin(), contract.end());
  for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(rank); ++dim) {
    if (std::ranges::find(permutation, dim) == permutation.end()) permutation.push_back(dim);
  }
  return permutation;
}

/// The body whose products read transposed matrices, and these matrices.
struct Transposed {
  Function body;
  std::vector<ValueId> matrices;
};

Transposed transposed_in(const Function& body, std::size_t num_consts) {
  const Matrices matrices(body, num_consts);
  std::map<std::pair<ValueId, Ints>, ValueId> known;
  const auto replace = [&](Builder& b, Equation& product) -> std::optional<std::vector<ValueId>> {
    const std::optional<Side> side = matrices.transposed_side(b, product);
    if (!side) return std::nullopt;
    const ValueId matrix = product.operands[side->operand];
    const Ints permutation = permutation_for(product, *side, body.type(matrix).shape.size());
    b.set_span(product.span);
    ValueId& transposed = known.try_emplace({matrix, permutation}, ir::kNoValue).first->second;
    if (transposed == ir::kNoValue) transposed = transpose(b, matrix, permutation);
    const std::size_t num_batch = product.attributes.ints(side->batch()).size();
    const std::size_t num_terms = product.attributes.ints(side->contract()).size();
    Ints dims(num_batch + num_terms);
    std::iota(dims.begin(), dims.end(), 0);
    const auto end = dims.begin() + static_cast<std::ptrdiff_t>(num_batch);
    Attributes attributes = product.attributes;
    attributes.set(side->batch(), Ints(dims.begin(), end));
    attributes.set(side->contract(), Ints(end, dims.end()));
    std::vector<ValueId> operands = product.operands;
    operands[side->operand] = transposed;
    return std::vector<ValueId>{b.emit(dot_general_op, std::move(attributes), std::move(operands))};
  };
  Transposed result{with_replaced(body, replace), {}};
  for (const auto& [key, id] : known) result.matrices.push_back(id);
  std::ranges::sort(result.matrices);
  return result;
}

/// Transposes the matrices of one loop before it.
bool transpose_before(Equation& loop, Function& around) {
  if (loop.op == &scan_op && scan_parts(loop).length < kLeastRounds) return false;
  const FunctionPtr body = loop.attributes.shared_body("body");
  Transposed change =
      transposed_in(*body, static_cast<std::size_t>(loop.attributes.integer("num_consts")));
  if (change.matrices.empty()) return false;
  const auto changed = std::make_shared<const Function>(std::move(change.body));
  loop.attributes = ir::with_bodies(loop.attributes, [&](const FunctionPtr& function) {
    return function == body ? changed : function;
  });
  compute_before(loop, around, change.matrices);
  return true;
}

}  // namespace

Function transpose_before_loops(Function function) {
  const auto change = [](Function f) { return with_changed_loops(std::move(f), transpose_before); };
  return change(ir::with_changed_bodies(std::move(function), change));
}

}  // namespace tessera::ops
