// Arrays that are rolled along a split dimension: the last elements, then the others. Each shard
// sends its last elements to the next one in a ring, or its first ones to the one before.
#include "ops/emit.h"
#include "ops/ops.h"
#include "partition/split/sharded_builder.h"
#include "partition/split/splitter.h"

namespace tessera::partition {

using ir::Builder;

namespace {

/// Whether the equation is the part [start, limit) along one dimension, with the others whole.
bool is_part(const Function& function, const Equation& equation, std::size_t dim,
             std::int64_t start, std::int64_t limit) {
  if (!ops::is(equation, ops::slice_op)) return false;
  const Shape& shape = function.type(equation.operands[0]).shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (equation.attributes.ints("stride")[i] != 1) return false;
    if (equation.attributes.ints("start")[i] != (i == dim ? start : 0)) return false;
    if (equation.attributes.ints("limit")[i] != (i == dim ? limit : shape[i])) return false;
  }
  return true;
}

}  // namespace

struct Splitter::Roll {
  ValueId source;
  std::size_t dim;
  std::int64_t num_shards, shard_size;
  std::int64_t count;  // how many elements each shard sends
  bool is_forward;     // to the next shard
  Sharding held;
};

/// A concatenation of the end and the beginning of an array of equal shards, in which no element
/// moves further than to a neighbouring shard.
std::optional<Splitter::Roll> Splitter::find_roll(std::size_t index) const {
  const Equation& equation = function_.equations[index];
  if (!ops::is(equation, ops::concatenate_op) || equation.operands.size() != 2) {
    return std::nullopt;
  }
  for (ValueId id : equation.operands) {
    if (definition_[id] == kNoEquation || users_[id] != 1) return std::nullopt;
  }
  const Equation& end = function_.equations[definition_[equation.operands[0]]];
  const Equation& beginning = function_.equations[definition_[equation.operands[1]]];
  const auto dim = static_cast<std::size_t>(equation.attributes.integer("dim"));
  const std::int64_t size = function_.type(equation.results[0]).shape[dim];
  const std::int64_t shift = function_.type(equation.operands[0]).shape[dim];
  if (!is_part(function_, end, dim, size - shift, size) ||
      !is_part(function_, beginning, dim, 0, size - shift) ||
      end.operands[0] != beginning.operands[0] || is_constant(end.operands[0])) {
    return std::nullopt;
  }
  Roll roll{.source = end.operands[0],
            .dim = dim,
            .num_shards = 1,
            .shard_size = size,
            .count = shift,
            .is_forward = true,
            .held = layout_of(end.operands[0])};
  roll.num_shards = num_shards(planner_.atoms(), roll.held.dims[dim]);
  if (roll.num_shards == 1 || size % roll.num_shards != 0) return std::nullopt;
  if (!has_elements_everywhere(roll.source)) return std::nullopt;
  roll.shard_size = size / roll.num_shards;
  if (roll.count > roll.shard_size) {
    roll.is_forward = false;
    roll.count = size - shift;
  }
  if (roll.count > roll.shard_size || roll.count == 0) return std::nullopt;
  return roll;
}

bool Splitter::roll_in_shards(std::size_t index) {
  const std::optional<Roll> found = find_roll(index);
  if (!found) return false;
  const Roll& roll = *found;
  const Equation& equation = function_.equations[index];
  const ValueId x = in_sharding(roll.source, roll.held, equation.span);
  const Shape& shape = function_.type(roll.source).shape;
  // [.., shards, elements of a shard, ..]
  Shape cut = shape;
  cut[roll.dim] = roll.shard_size;
  cut.insert(cut.begin() + static_cast<std::ptrdiff_t>(roll.dim), roll.num_shards);
  Sharding in_shards = roll.held;
  in_shards.dims.insert(in_shards.dims.begin() + static_cast<std::ptrdiff_t>(roll.dim) + 1,
                        AtomList());
  ShardedBuilder emit_with(out_, equation.span);
  const ValueId rolled = emit_with(in_shards, [&](Builder& b) {
    const auto shard_dim = static_cast<std::int64_t>(roll.dim);
    const std::int64_t dim = shard_dim + 1;
    const std::int64_t size = roll.shard_size;
    const std::int64_t split = roll.is_forward ? size - roll.count : roll.count;
    const ValueId shards = ops::reshape(b, x, cut);
    ValueId low = ops::slice_dim(b, shards, dim, 0, split);
    ValueId high = ops::slice_dim(b, shards, dim, split, size);
    ir::Ints sources;
    for (std::int64_t shard = 0; shard < roll.num_shards; ++shard) {
      const std::int64_t source = shard + (roll.is_forward ? roll.num_shards - 1 : 1);
      sources.push_back(source % roll.num_shards);
    }
    ValueId& moved = roll.is_forward ? high : low;
    moved = ops::permute(b, moved, shard_dim, sources);
    if (roll.count == size) return moved;
    return ops::concatenate(b, {high, low}, dim);
  });
  versions_[equation.results[0]] = {
      emit_with(roll.held, [&](Builder& b) { return ops::reshape(b, rolled, shape); })};
  return true;
}

}  // namespace tessera::partition
