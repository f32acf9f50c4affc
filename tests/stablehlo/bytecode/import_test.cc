// Programs of JAX, run by the reference engine and compared with what JAX computed
// (make_modules.py --values). TESSERA_STABLEHLO_PROGRAMS names another folder of such programs.
#include "stablehlo/import/import.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "compile/reference/interpret.h"
#include "ir/text.h"
#include "ops/control/control.h"
#include "ops/host_array.h"
#include "stablehlo/bytecode/module.h"
#include "tests/cases/case_file.h"
#include "tests/cases/source_dir.h"
#include "tests/stablehlo/bytecode/names.h"

namespace tessera::stablehlo {
namespace {

using testing::contents;
using testing::names_in;

constexpr double kTolerance = 2e-5;
constexpr double kNarrowTolerance = 2e-2;  // of bf16

std::filesystem::path folder() {
  const char* other = std::getenv("TESSERA_STABLEHLO_PROGRAMS");
  return other != nullptr ? other : source_dir() / "tests/stablehlo/bytecode/programs";
}

ops::HostArray taken(const Type& type, std::string_view& bytes) {
  ops::HostArray result(type);
  EXPECT_LE(result.bytes().size(), bytes.size());
  std::memcpy(result.bytes().data(), bytes.data(), result.bytes().size());
  bytes.remove_prefix(result.bytes().size());
  return result;
}

void expect_equal(const ops::HostArray& found, const ops::HostArray& wanted) {
  const DType dtype = wanted.type().dtype;
  ops::dispatch(dtype, [&]<typename T>(T) {
    for (std::size_t i = 0; i < wanted.data<T>().size(); ++i) {
      const auto a = static_cast<double>(found.data<T>()[i]);
      const auto b = static_cast<double>(wanted.data<T>()[i]);
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      ASSERT_TRUE(is_float(dtype)) << "element " << i << ": " << a << ", not " << b;
      const double tolerance = dtype == DType::bf16 ? kNarrowTolerance : kTolerance;
      ASSERT_LE(std::fabs(a - b), tolerance * std::max(1.0, std::fabs(b))) << "element " << i;
    }
  });
}

Imported imported(const std::string& name) {
  return import_module(*bytecode::read_module(contents(folder() / (name + ".mlirbc"))));
}

class Import : public ::testing::TestWithParam<std::string> {};

TEST_P(Import, ComputesWhatJaxComputes) {
  const Imported program = imported(GetParam());
  ir::verify(program.function, "import");
  const std::string values = contents(folder() / (GetParam() + ".values"));
  std::string_view rest = values;
  std::vector<ops::HostArray> inputs;
  for (std::size_t i = 0; i < program.donated.size(); ++i) {
    inputs.push_back(taken(program.function.type(program.function.inputs[i]), rest));
  }
  for (const ConstantArray& constant : program.constants) {
    std::string_view bytes = constant.bytes;
    inputs.push_back(taken(constant.type, bytes));
  }
  const std::vector<ops::HostArray> outputs = compile::interpret(program.function, inputs);
  for (const ops::HostArray& output : outputs) expect_equal(output, taken(output.type(), rest));
  EXPECT_TRUE(rest.empty());
}

INSTANTIATE_TEST_SUITE_P(Programs, Import, ::testing::ValuesIn(names_in(folder(), ".values")),
                         [](const auto& test) { return test.param; });

std::size_t count_of(const Imported& program, std::string_view op) {
  return static_cast<std::size_t>(std::ranges::count_if(
      program.function.equations,
      [&](const ir::Equation& equation) { return ir::op_name(*equation.op) == op; }));
}

Imported committed(const std::string& path) {
  const std::filesystem::path all = source_dir() / "tests/stablehlo/bytecode";
  return import_module(*bytecode::read_module(contents(all / path)));
}

TEST(ImportedLoop, IsAScanIfItsLengthIsKnown) {
  EXPECT_EQ(count_of(committed("programs/scan_grad.mlirbc"), "scan"), 2U);
  EXPECT_EQ(count_of(committed("programs/scan_grad.mlirbc"), "while"), 0U);
  EXPECT_EQ(count_of(committed("programs/while.mlirbc"), "while"), 1U);
}

/// The operations of the only scan's body, and its numbers of constants and carries.
std::string scan_of(const Imported& program) {
  std::string text;
  for (const ir::Equation& equation : program.function.equations) {
    if (ir::op_name(*equation.op) != "scan") continue;
    for (const ir::Equation& inner : ir::bodies_of(equation)[0]->equations) {
      text += std::string(ir::op_name(*inner.op)) + " ";
    }
    const ops::ScanParts parts = ops::scan_parts(equation);
    text += std::to_string(parts.num_consts) + " " + std::to_string(parts.num_carry) +
            (parts.is_reverse ? " reverse" : " forward");
  }
  return text;
}

TEST(ImportedLoop, ReadsAndWritesSlicesInPlace) {
  for (const char* name : {"scan", "scan_reverse"}) {
    const std::string scan = scan_of(committed("programs/" + std::string(name) + ".mlirbc"));
    EXPECT_EQ(scan.find("dynamic_slice"), std::string::npos) << scan;
    EXPECT_EQ(scan.find("dynamic_update_slice"), std::string::npos) << scan;
    const char* const order = scan.ends_with("reverse") ? "scan_reverse" : "scan";
    EXPECT_STREQ(order, name) << scan;
  }
}

TEST(ImportedShardings, AreThoseOfTheModule) {
  const Imported program = committed("modules/sharded_out.mlirbc");
  const ir::Function& function = program.function;
  EXPECT_EQ(to_string(function.mesh), "data=4,model=2");
  EXPECT_EQ(to_string(function.mesh, function.sharding(function.inputs[0])), "{data},{}");
  EXPECT_EQ(to_string(function.mesh, function.sharding(function.inputs[1])), "{},{model}");
  EXPECT_EQ(count_of(program, "sharding_constraint"), 2U);
  EXPECT_EQ(program.donated, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace tessera::stablehlo
