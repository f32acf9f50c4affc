// Every record is complete, its shape rule checks its operands, and its text form round-trips.
#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include <tessera/error.h>

#include "compile/reference/interpret.h"
#include "ir/bodies.h"
#include "ir/text.h"
#include "tests/ops/sample_inputs.h"

namespace tessera {
namespace {

using testing::Case;

std::vector<Type> operand_types(const ops::Sample& sample) {
  std::vector<Type> types;
  for (const ops::SampleOperand& operand : sample.operands) types.push_back(operand.type);
  return types;
}

class Record : public ::testing::TestWithParam<const ops::OpRecord*> {};

TEST_P(Record, IsComplete) {
  const ops::OpRecord& op = *GetParam();
  EXPECT_FALSE(op.doc->empty());
  EXPECT_FALSE(op.source->empty());
  EXPECT_FALSE(op.host->empty());
  EXPECT_GE(op.samples->size(), 2U);
  EXPECT_TRUE(std::is_sorted(op.attributes->begin(), op.attributes->end()));
  if (!op.vjp.is_differentiable()) {
    EXPECT_FALSE(op.vjp.why_not().empty());
  }
  EXPECT_EQ(ir::find_op(*op.name), &op);
}

TEST_P(Record, NamesAnOpcodeOfHlo) {
  // The HLO opcodes that an op may name.
  static const std::set<std::string_view> opcodes = {"abs",         "add",
                                                     "all-gather",  "all-reduce",
                                                     "and",         "atan2",
                                                     "broadcast",   "call",
                                                     "cbrt",        "ceil",
                                                     "clamp",       "compare",
                                                     "concatenate", "constant",
                                                     "convert",     "copy",
                                                     "cosine",      "count-leading-zeros",
                                                     "divide",      "dot",
                                                     "erf",         "exponential",
                                                     "floor",       "exponential-minus-one",
                                                     "iota",        "is-finite",
                                                     "log",         "log-plus-one",
                                                     "logistic",    "maximum",
                                                     "minimum",     "multiply",
                                                     "negate",      "not",
                                                     "or",          "popcnt",
                                                     "power",       "reduce",
                                                     "remainder",   "reshape",
                                                     "reverse",     "round-nearest-even",
                                                     "rsqrt",       "select",
                                                     "shift-left",  "shift-right-arithmetic",
                                                     "sign",        "shift-right-logical",
                                                     "sine",        "slice",
                                                     "sqrt",        "subtract",
                                                     "tan",         "tanh",
                                                     "transpose",   "xor"};
  const std::string_view opcode = GetParam()->hlo;
  EXPECT_TRUE(opcode.empty() || opcodes.contains(opcode)) << opcode;
}

/// The BodyFlow of an op with bodies relates its operands and results to those of the bodies.
TEST_P(Record, PassesArraysThroughItsBodiesAsItsFlowSays) {
  for (const ops::Sample& sample : *GetParam()->samples) {
    ir::Equation equation{.op = GetParam(),
                          .attributes = sample.attributes,
                          .operands = {},
                          .results = {},
                          .span = {}};
    const std::vector<Type> operands = operand_types(sample);
    equation.operands.resize(operands.size());
    const std::optional<ir::BodyFlow> flow = ir::body_flow(equation);
    if (!flow) continue;
    const std::vector<Type> results = ir::infer_types(*GetParam(), sample.attributes, operands, {});
    const auto slice_if = [](bool is_slice, Type type) {
      if (is_slice) type.shape.erase(type.shape.begin());
      return type;
    };
    const std::vector<const ir::Function*> bodies = ir::bodies_of(equation);
    ASSERT_FALSE(bodies.empty());
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      const ir::Function& body = *bodies[b];
      ASSERT_EQ(body.inputs.size() + flow->num_choosing, operands.size());
      for (std::size_t i = 0; i < body.inputs.size(); ++i) {
        const std::size_t operand = flow->operand_of(i);
        EXPECT_EQ(body.type(body.inputs[i]), slice_if(flow->is_slice(operand), operands[operand]));
      }
      if (b == flow->condition) {
        ASSERT_EQ(body.outputs.size(), 1U);
        EXPECT_EQ(body.type(body.outputs[0]), (Type{DType::boolean, {}}));
        continue;
      }
      ASSERT_EQ(body.outputs.size(), results.size());
      for (std::size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(body.type(body.outputs[i]), slice_if(flow->is_stack(i), results[i]));
      }
    }
    for (std::size_t i = 0; i < flow->num_carry; ++i) {
      EXPECT_EQ(operands[flow->first_carry + i], results[i]);
    }
    EXPECT_GE(flow->iterations, 0);
  }
}

TEST_P(Record, SamplesHaveSizeOneAndOddSizes) {
  std::set<std::int64_t> sizes;
  for (const ops::Sample& sample : *GetParam()->samples) {
    std::vector<Type> types = operand_types(sample);
    for (const Type& result : ir::infer_types(*GetParam(), sample.attributes, types, {})) {
      types.push_back(result);
    }
    for (const Type& type : types) {
      EXPECT_LT(num_elements(type.shape), 2000);
      sizes.insert(type.shape.begin(), type.shape.end());
    }
  }
  if (*GetParam()->name == "random_fold_in") return;  // takes keys, which have a fixed size
  if (sizes.empty()) return;                          // a scalar
  EXPECT_TRUE(sizes.contains(1)) << "no sample has a dimension of size 1";
  EXPECT_TRUE(std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) {
    return size > 1 && size % 4 != 0;
  })) << "all sizes divide by 4";
}

TEST_P(Record, NamesMissingAndUnknownAttributes) {
  const ops::OpRecord& op = *GetParam();
  const ops::Sample& sample = op.samples->front();
  const std::vector<Type> types = operand_types(sample);
  auto error_of = [&](const ir::Attributes& attributes) -> std::string {
    try {
      ir::infer_types(op, attributes, types, {"model.cc", 12});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  ir::Attributes extended = sample.attributes;
  extended.set("flavour", std::int64_t{1});
  EXPECT_NE(error_of(extended).find("'flavour'"), std::string::npos);
  for (const std::string& name : *op.attributes) {
    ir::Attributes partial;
    ir::Attributes wrong = sample.attributes;
    wrong.set(name, true);
    bool is_one = false;
    for (const auto& [other, value] : sample.attributes.items()) {
      if (other != name) partial.set(other, value);
      if (other == name) is_one = std::holds_alternative<bool>(value);
    }
    EXPECT_NE(error_of(partial).find("'" + name + "'"), std::string::npos);
    EXPECT_EQ(error_of(wrong).empty(), is_one) << name << " is a bool";
  }
  for (const std::string& name : op.optional_attributes) {
    ir::Attributes wrong = sample.attributes;
    wrong.set(name, std::string("maybe"));
    EXPECT_NE(error_of(wrong).find(name), std::string::npos);
  }
}

TEST_P(Record, RejectsOtherDtypesAndCounts) {
  const ops::OpRecord& op = *GetParam();
  for (const ops::Sample& sample : *op.samples) {
    const std::vector<Type> types = operand_types(sample);
    for (DType dtype : {DType::boolean, DType::i32, DType::u32, DType::f32, DType::f64}) {
      if (ops::contains(*op.types, dtype) || types.empty()) continue;
      std::vector<Type> others = types;
      for (Type& type : others) type.dtype = dtype;
      EXPECT_THROW(ir::infer_types(op, sample.attributes, others, {}), UserError);
    }
  }
  const ops::Sample& sample = op.samples->front();
  std::vector<Type> types = operand_types(sample);
  types.push_back({.dtype = DType::f32, .shape = {99, 98, 97, 96}});
  // Collectives and optimization_barrier take arrays of any types.
  const bool takes_any_arrays = !op.vjp.is_differentiable() || *op.pattern == ops::Pattern::control;
  if (!takes_any_arrays) {
    EXPECT_THROW(ir::infer_types(op, sample.attributes, types, {}), UserError);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Record, ::testing::ValuesIn(ops::all_ops()),
                         [](const auto& tested) { return *tested.param->name; });

class SampleOf : public ::testing::TestWithParam<Case> {};

TEST_P(SampleOf, RoundTripsThroughText) {
  const ir::Function function = testing::function_of(*GetParam().op, GetParam().sample());
  ir::verify(function, "construction");
  EXPECT_EQ(ir::parse(ir::print(function)), function) << ir::print(function);
}

TEST_P(SampleOf, RunsOnSpecialValues) {
  const ir::Function function = testing::function_of(*GetParam().op, GetParam().sample());
  for (testing::Values values : {testing::Values::ordinary, testing::Values::special}) {
    const auto outputs = compile::interpret(function, testing::random_inputs(GetParam(), values));
    EXPECT_EQ(outputs.size(), function.outputs.size());
  }
}

TEST_P(SampleOf, HasACost) {
  const ops::Sample& sample = GetParam().sample();
  const std::vector<Type> types = operand_types(sample);
  const auto results = ir::infer_types(*GetParam().op, sample.attributes, types, {});
  EXPECT_GE((*GetParam().op->cost)(sample.attributes, types, results), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Ops, SampleOf, ::testing::ValuesIn(testing::all_cases()),
                         [](const auto& tested) { return tested.param.name(); });

TEST(Table, TextsMayLeaveOutUsualAttributes) {
  const ops::OpRecord& op = ir::op_named("attention");
  const ir::Function function = testing::function_of(op, op.samples->front());
  std::string text = ir::print(function);
  const std::size_t begin = text.find("drop_rate");
  ASSERT_NE(begin, std::string::npos);
  text.erase(begin, text.find("has_bias", begin) - begin);
  EXPECT_EQ(ir::parse(text), function) << text;
}

TEST(Table, IsSortedAndHasNoNameTwice) {
  for (std::size_t i = 1; i < ops::all_ops().size(); ++i) {
    EXPECT_LT(*ops::all_ops()[i - 1]->name, *ops::all_ops()[i]->name);
  }
  EXPECT_EQ(ir::find_op("no_such_op"), nullptr);
}

}  // namespace
}  // namespace tessera
