// A program under construction together with the data of all its values.
//
// Each equation is computed by its op's reference as it is added, so that values which have become
// useless for finding bugs (all NaN, too large) are not built upon.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ops/axis/axis.h"
#include "ops/record.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/ops/sample_inputs.h"

namespace tessera::fuzz {

using ir::Ints;
using ir::ValueId;

class Program {
 public:
  Program(Mesh mesh, std::int64_t grains, testing::Values values, Random& random);
  /// A function nested in an equation of `outer`.
  explicit Program(Program* outer);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// From here on arrays may be so large that kernels work in several parts.
  void grow() { max_elements_ = 120000; }
  /// Collectives over this axis may stand in the function from here on.
  void map_over(ops::NamedAxis axis) { axis_ = std::move(axis); }
  const std::optional<ops::NamedAxis>& axis() const { return axis_; }
  bool has_grown() const { return max_elements_ > kMaxElements; }
  /// How many functions stand around this one.
  int depth() const { return depth_; }

  Random& random() { return random_; }
  ir::Builder& builder() { return b_; }
  const ir::Function& function() const { return function_; }
  ir::Function& function() { return function_; }
  const Type& type(ValueId id) const { return function_.type(id); }
  const Shape& shape(ValueId id) const { return type(id).shape; }
  const std::vector<ValueId>& pool() const { return pool_; }
  const ops::HostArray& data(ValueId id) const { return data_[id]; }
  testing::Arrays inputs() const;
  /// What the data of an input was drawn from.
  const ops::SampleOperand& drawn_from(std::size_t input) const { return drawn_from_[input]; }

  // Random sizes and types.
  std::int64_t size();
  Shape shape_of_rank(std::int64_t rank);
  Shape any_shape();

  // Values to build on.
  ValueId add_input(const ops::SampleOperand& operand);
  ValueId add_input(ops::HostArray data);
  /// A recent value that fits, or nothing.
  ValueId recent(const std::function<bool(const Type&)>& fits);
  /// A recent value of this dtype and at least this rank, or a new input.
  ValueId any(DType dtype, std::int64_t min_rank = 0);
  /// As any(), of a random dtype.
  ValueId any(std::int64_t min_rank = 0);
  /// A value of exactly the type of a sample's operand: an old one, a constant, a count or a new
  /// input.
  ValueId like(const ops::SampleOperand& operand);
  ValueId of_type(Type type) { return like({.type = std::move(type)}); }

  /// Appends an equation; without effect where its results would be too large. Results that are
  /// worth it can be built on.
  std::vector<ValueId> emit(std::string_view op, ir::Attributes attributes,
                            std::vector<ValueId> operands);
  /// Appends an equation, however large its results are.
  std::vector<ValueId> emit_anyway(std::string_view op, ir::Attributes attributes,
                                   std::vector<ValueId> operands);

 private:
  void keep(ValueId id, ops::HostArray data);

  static constexpr std::int64_t kMaxElements = 3000;

  Random& random_;
  testing::Values values_;
  std::int64_t max_elements_ = kMaxElements;
  std::optional<ops::NamedAxis> axis_;
  int depth_ = 0;
  ir::Function function_;
  ir::Builder b_{function_};
  std::vector<ops::HostArray> data_;            // per value
  std::vector<ops::SampleOperand> drawn_from_;  // per input
  std::vector<ValueId> pool_;
};

/// How one op is put to use: appends an equation, or nothing where none fits.
struct Recipe {
  int weight;
  std::function<void(Program&)> add;
};
/// axes.cc, equations.cc, nested.cc, windows.cc: recipes of the ops that their samples are not
/// enough for.
using Recipes = std::map<std::string_view, Recipe>;
Recipes leaf_recipes();
Recipes window_and_index_recipes();
Recipes axis_recipes();
Recipes control_recipes();

/// Appends one random equation, with what its operands need. Ops are drawn by weight.
void add_random_equation(Program& program);
/// One dimension of `x`, whose rank is 1 or more.
std::int64_t any_dim(Program& program, ValueId x);
/// f32, now and then bf16.
DType any_float(Program& program);
/// `x`, as f32 where the op takes no bf16.
ValueId fitting(Program& program, const ops::OpRecord& op, ValueId x);
/// Indices into [0, size) with repeats, and now and then some outside.
ValueId indices(Program& program, Shape shape, std::int64_t size);
/// A sharding of an array: axes, or now and then parts of axes; mostly not more shards than
/// elements.
Sharding random_sharding(Random& random, const Mesh& mesh, const Shape& shape);

}  // namespace tessera::fuzz
