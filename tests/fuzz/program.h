// A program under construction together with the data of all its values.
//
// Each equation is computed by its op's reference as it is added, so that values which have become
// useless for finding bugs (all NaN, too large) are not built upon.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/builder.h"
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

  /// From here on arrays may be so large that kernels work in several parts.
  void grow() { max_elements_ = 120000; }

  Random& random() { return random_; }
  ir::Builder& builder() { return b_; }
  const ir::Function& function() const { return function_; }
  ir::Function& function() { return function_; }
  const Type& type(ValueId id) const { return function_.type(id); }
  const Shape& shape(ValueId id) const { return type(id).shape; }
  const std::vector<ValueId>& pool() const { return pool_; }
  testing::Arrays inputs() const;

  // Random sizes and types.
  std::int64_t size();
  Shape shape_of_rank(std::int64_t rank);
  Shape any_shape();

  // Values to build on.
  ValueId add_input(const ops::SampleOperand& operand);
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
  std::vector<ValueId> emit(const ops::OpRecord& op, ir::Attributes attributes,
                            std::vector<ValueId> operands);

 private:
  void keep(ValueId id, ops::HostArray data);

  Random& random_;
  testing::Values values_;
  std::int64_t max_elements_ = 3000;
  ir::Function function_;
  ir::Builder b_{function_};
  std::vector<ops::HostArray> data_;  // per value
  std::vector<ValueId> pool_;
};

/// Appends one random equation, with what its operands need. Ops are drawn by weight.
void add_random_equation(Program& program);
/// A sharding of an array: axes, or now and then parts of axes; mostly not more shards than
/// elements.
Sharding random_sharding(Random& random, const Mesh& mesh, const Shape& shape);

}  // namespace tessera::fuzz
