// Ops that claim to be linear in some operands really are: they may be applied to each part of a
// sum.
#include <gtest/gtest.h>
#include <random>

#include "ir/builder.h"
#include "ops/record.h"
#include "partition/project.h"
#include "tests/fuzz/run_sharded.h"

namespace tessera {
namespace {

using ir::Function;
using ops::HostArray;
using testing::Arrays;

/// Integers from -4 to 4, whose sums are exact in any order. Operands that are not summed get 1, 2
/// or 4, by which division is exact.
HostArray drawn(const ops::SampleOperand& operand, bool is_summed, std::mt19937& random) {
  HostArray array(operand.type);
  ops::dispatch(operand.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (T& x : array.data<T>()) {
      if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>) {
        const auto small = static_cast<int>(random() % 9) - 4;
        x = static_cast<T>(static_cast<float>(is_summed ? small : 1 << random() % 3));
      } else {
        const double size = operand.high - operand.low + 1;
        x = static_cast<T>(operand.low + static_cast<double>(random() % 64) / 64 * size);
      }
    }
  });
  return array;
}

HostArray sum_of(const HostArray& a, const HostArray& b) {
  HostArray sum(a.type());
  for (std::size_t i = 0; i < sum.data<float>().size(); ++i) {
    sum.data<float>()[i] = a.data<float>()[i] + b.data<float>()[i];
  }
  return sum;
}

/// A function of one equation, whose inputs are the sample's operands.
Function function_of(const ops::OpRecord& op, const ops::Sample& sample) {
  Function f;
  ir::Builder b(f);
  for (const ops::SampleOperand& operand : sample.operands) b.add_input(Type(operand.type));
  b.set_outputs(b.emit_all(op, sample.attributes, f.inputs));
  return f;
}

void check_group(const Function& f, const ops::Sample& sample,
                 const std::vector<std::size_t>& group, std::mt19937& random) {
  Arrays first;
  for (std::size_t i = 0; i < sample.operands.size(); ++i) {
    const bool is_summed = std::count(group.begin(), group.end(), i) != 0;
    first.push_back(drawn(sample.operands[i], is_summed, random));
  }
  Arrays second = first;
  Arrays both = first;
  for (std::size_t i : group) {
    second[i] = drawn(sample.operands[i], true, random);
    both[i] = sum_of(first[i], second[i]);
  }
  const HostArray x = testing::run_reference(f, first)[0];
  const HostArray y = testing::run_reference(f, second)[0];
  const HostArray found = testing::run_reference(f, both)[0];
  const HostArray wanted = sum_of(x, y);
  for (std::size_t i = 0; i < found.data<float>().size(); ++i) {
    ASSERT_EQ(found.data<float>()[i], wanted.data<float>()[i]) << "element " << i;
  }
}

TEST(Linearity, PartsOfASumGoThroughOneByOne) {
  std::mt19937 random(1);
  int linear = 0;
  for (const ops::OpRecord* op : ops::all_ops()) {
    if (op->linearity == ops::Linearity::none) continue;
    int groups = 0;
    for (const ops::Sample& sample : *op->samples) {
      const Function f = function_of(*op, sample);
      const std::vector<Type> types = ir::operand_types(f, f.equations[0]);
      // bf16 values are never partial sums.
      const bool has_bf16 = std::any_of(types.begin(), types.end(),
                                        [](const Type& x) { return x.dtype == DType::bf16; });
      if (f.type(f.outputs[0]).dtype != DType::f32 || has_bf16) continue;
      for (const auto& group : partition::linear_groups(f, f.equations[0])) {
        SCOPED_TRACE(*op->name);
        check_group(f, sample, group, random);
        ++groups;
      }
    }
    EXPECT_GT(groups, 0) << *op->name;
    ++linear;
  }
  EXPECT_GE(linear, 16);
}

}  // namespace
}  // namespace tessera
