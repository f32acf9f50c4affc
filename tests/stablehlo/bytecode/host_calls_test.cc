// Programs of JAX that call functions of the program that runs them.
#include <cstring>
#include <gtest/gtest.h>

#include <tessera/error.h>

#include "api/transform/module.h"
#include "tests/cases/case_file.h"
#include "tests/cases/source_dir.h"

namespace tessera::detail {
namespace {

std::string module_named(const std::string& name) {
  return testing::contents(source_dir() / "tests/stablehlo/bytecode/modules" / name);
}

run::BufferPtr buffer_of(const std::vector<float>& elements) {
  auto buffer = std::make_shared<run::Buffer>(std::ssize(elements) * 4);
  std::memcpy(buffer->data(), elements.data(), elements.size() * sizeof(float));
  return buffer;
}

std::vector<float> elements_of(const std::byte* data) {
  std::vector<float> result(2);
  std::memcpy(result.data(), data, 2 * sizeof(float));
  return result;
}

/// Function 1 is called by devices whose first element is above 1, function 2 by all.
TEST(HostCalls, OfTheDevicesThatGetThere) {
  std::vector<std::vector<float>> given;
  const auto find = [&](std::int64_t number, const Span& where) -> HostCall {
    EXPECT_EQ(where.file, "programs.py");
    return [&given, number](std::span<const std::byte* const> operands,
                            std::span<std::byte* const> results) {
      EXPECT_EQ(operands.size(), 1U);
      std::vector<float> x = elements_of(operands[0]);
      if (number == 1) given.push_back(x);
      for (float& each : x) each = number == 1 ? each * 10 : each + 1;
      std::memcpy(results[0], x.data(), x.size() * sizeof(float));
    };
  };
  const ModuleProgram program(module_named("host_calls.mlirbc"), 2, find);
  EXPECT_TRUE(program.calls_host());
  const auto results = program.run({{buffer_of({0, 1, 2, 3})}});
  EXPECT_EQ(elements_of(results[0][0]->data()), (std::vector<float>{1, 3}));
  EXPECT_EQ(elements_of(results[0][1]->data()), (std::vector<float>{23, 34}));
  EXPECT_EQ(given, (std::vector<std::vector<float>>{{2, 3}}));
}

TEST(HostCalls, OfAFunctionThatDoesNotExist) {
  const auto nothing = [](std::int64_t, const Span&) { return HostCall(); };
  try {
    const ModuleProgram program(module_named("host_calls.mlirbc"), 2, nothing);
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(error.mistake().found.find("a call to a function of another program"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::detail
