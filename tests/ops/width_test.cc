// The samples of all records in dtypes that no sample has: f64 and f16 in place of f32, and
// integers of 8, 16 and 64 bits in place of 32-bit ones. The host engine must agree with the
// reference engine, on one device and on a mesh. Other tests compare the reference with NumPy's
// numbers.
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "compile/compile.h"
#include "ir/pass.h"
#include "ir/text.h"
#include "ops/ops.h"
#include "partition/moves.h"
#include "tests/fuzz/run_sharded.h"
#include "tests/ops/conformance.h"

namespace tessera {
namespace {

using testing::Case;
using testing::Values;

template <DType from, DType to>
DType replaced(DType dtype) {
  return dtype == from ? to : dtype;
}

struct Width {
  DType from, to;
  testing::DTypeMap map;
};
template <DType from, DType to>
constexpr Width width() {
  return {from, to, replaced<from, to>};
}
constexpr Width kWidths[] = {width<DType::f32, DType::f64>(), width<DType::f32, DType::f16>(),
                             width<DType::i32, DType::i8>(),  width<DType::i32, DType::i16>(),
                             width<DType::i32, DType::i64>(), width<DType::u32, DType::u8>(),
                             width<DType::u32, DType::u16>(), width<DType::u32, DType::u64>()};

class Widths : public ::testing::TestWithParam<Case> {};

/// Values of the sample's own dtype, converted. Large integers wrap around.
std::vector<ops::HostArray> inputs_of(const Case& c, const ops::Sample& sample, Values values) {
  std::mt19937_64 generator = testing::generator_for(c, 7);
  std::vector<ops::HostArray> inputs;
  for (const ops::SampleOperand& operand : sample.operands)
    inputs.push_back(testing::random_array(generator, operand, values));
  return inputs;
}

/// nullopt if the op, or one in its bodies, does not take the dtypes: indices, for example, are
/// i32.
std::optional<ir::Function> function_of(const Case& c, const ops::Sample& sample) {
  try {
    ir::Function function = testing::function_of(*c.op, sample);
    ir::verify(function, "a change of dtypes");
    return function;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// nullopt if the host engine says that it does not compute the op in this dtype.
std::optional<testing::Arrays> run_whole(const ir::Function& function,
                                         const testing::Arrays& inputs, DType dtype) {
  try {
    return testing::run_whole(function, inputs);
  } catch (const UserError& error) {
    const bool is_known =
        dtype == DType::f64 &&
        error.mistake().what.find("cannot compute this op in f64") != std::string::npos;
    if (!is_known) throw;
    return std::nullopt;
  }
}

void check(const Case& c, const Width& width, int& tried) {
  const ops::Sample sample = testing::with_dtypes(c.sample(), width.map);
  const std::optional<ir::Function> function = function_of(c, sample);
  if (!function) return;
  if (ir::print(*function) == ir::print(testing::function_of(*c.op, c.sample()))) return;
  SCOPED_TRACE(ir::print(*function));
  for (const Values values : {Values::ordinary, Values::special}) {
    const testing::Arrays inputs = inputs_of(c, sample, values);
    const auto found = run_whole(*function, inputs, width.to);
    if (!found) return;
    const auto difference = testing::first_difference(
        *found, testing::run_reference(*function, inputs), testing::ErrorBound::of(sample));
    EXPECT_EQ(difference, std::nullopt);
    std::mt19937_64 generator = testing::generator_for(c, 8);
    EXPECT_EQ(testing::shardings_are_one_device(
                  *function, inputs, *found,
                  {.meshes = {make_mesh({{"a", 2}, {"b", 2}})}, .max_choices = 3}, generator),
              std::nullopt);
  }
  ++tried;
}

TEST_P(Widths, HaveTheValuesOfTheReference) {
  const Case& c = GetParam();
  SCOPED_TRACE("TESSERA_TEST_SEED=" + std::to_string(testing::test_seed()));
  int tried = 0;
  for (const Width& width : kWidths) check(c, width, tried);
  RecordProperty("dtypes", tried);
}

std::vector<Case> cases() {
  std::vector<Case> all = testing::all_cases();
  // Tasks and transfers need several groups of devices, which run_sharded does not have.
  std::erase_if(all, [](const Case& c) {
    return !testing::runs_on_host(c) || c.op == &ops::task_op || c.op == &ops::transfer_op;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ops, Widths, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name(); });

}  // namespace
}  // namespace tessera
