// A program under construction, with the data of all its values.
//
// Each equation is evaluated by its op's reference as soon as it is added. Values that could not
// reveal a bug, such as all NaN or very large ones, are not used as operands later.
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

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Program {
 public:
  Program(Mesh mesh, std::int64_t grains, testing::Values values, Random& random);
  /// A function nested in an equation of `outer`.
  explicit Program(Program* outer);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// From here on, arrays may be so large that kernels split their work into several parts.
  void grow() { max_elements_ = 120000; }
  /// From here on, the function may contain collectives over this axis.
  void map_over(ops::NamedAxis axis) { axis_ = std::move(axis); }
  const std::optional<ops::NamedAxis>& axis() const { return axis_; }
  bool has_grown() const { return max_elements_ > kMaxElements; }
  /// The number of functions that this one is nested in.
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
  /// The type and range that an input's data was drawn from.
  const ops::SampleOperand& drawn_from(std::size_t input) const { return drawn_from_[input]; }

  // Random sizes and types.
  std::int64_t size();
  Shape shape_of_rank(std::int64_t rank);
  Shape any_shape();

  // Values to build on.
  ValueId add_input(const ops::SampleOperand& operand);
  ValueId add_input(ops::HostArray data);
  /// A recent value for which `fits` is true, or kNoValue.
  ValueId recent(const std::function<bool(const Type&)>& fits);
  /// A recent value of this dtype and of rank `min_rank` or more, or a new input.
  ValueId any(DType dtype, std::int64_t min_rank = 0);
  /// The same, of a random dtype.
  ValueId any(std::int64_t min_rank = 0);
  /// A value of exactly the type of a sample's operand: an existing value, a constant, a broadcast
  /// input or a new input.
  ValueId like(const ops::SampleOperand& operand);
  ValueId of_type(Type type) { return like({.type = std::move(type)}); }

  /// Appends an equation and returns its results. Appends nothing and returns {} if they would be
  /// too large. Later equations may use results that have enough finite elements.
  std::vector<ValueId> emit(std::string_view op, ir::Attributes attributes,
                            std::vector<ValueId> operands);
  /// The same, however large the results are.
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

/// How equations of one op are generated: `add` appends one, or nothing if no value fits.
struct Recipe {
  int weight;
  std::function<void(Program&)> add;
};
/// Recipes of the ops whose samples do not cover enough, defined in equations.cc, axes.cc,
/// windows.cc and nested.cc.
using Recipes = std::map<std::string_view, Recipe>;
Recipes leaf_recipes();
Recipes window_and_index_recipes();
Recipes axis_recipes();
Recipes control_recipes();

/// Appends one random equation, and whatever its operands need. Ops are drawn by weight.
void add_random_equation(Program& program);
/// A random dimension of `x`, whose rank must be 1 or more.
std::int64_t any_dim(Program& program, ValueId x);
/// f32, sometimes bf16.
DType any_float(Program& program);
/// `x`, converted to f32 if the op takes no bf16.
ValueId fitting(Program& program, const ops::OpRecord& op, ValueId x);
/// Indices into [0, size) with repeats, and sometimes some outside.
ValueId indices(Program& program, Shape shape, std::int64_t size);
/// A sharding of an array, by axes or sometimes by parts of axes. Mostly with no more shards than
/// elements.
Sharding random_sharding(Random& random, const Mesh& mesh, const Shape& shape);

}  // namespace tessera::fuzz
