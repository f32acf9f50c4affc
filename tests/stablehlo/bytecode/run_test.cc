// Programs of JAX through the public interface and the command line: the values of JAX, and the
// same bits on every mesh.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

#include <tessera/error.h>
#include <tessera/tessera.h>

#include "lib/data/npy_file.h"
#include "tests/cases/case_file.h"
#include "tests/cases/source_dir.h"
#include "tests/stablehlo/bytecode/names.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

fs::path folder() { return source_dir() / "tests/stablehlo/bytecode"; }

/// Arrays of these types, from the beginning of `bytes`.
std::vector<Array> taken(const std::vector<Type>& types, std::string_view& bytes) {
  std::vector<Array> arrays;
  for (const Type& type : types) {
    arrays.push_back(make_array_from_callback(
        type, NamedSharding(), [&](const auto& /*whole*/, std::span<std::byte> elements) {
          std::memcpy(elements.data(), bytes.data(), elements.size());
          bytes.remove_prefix(elements.size());
        }));
  }
  return arrays;
}

void expect_near(const Array& found, const Array& wanted) {
  ASSERT_EQ(to_string(found.type()), to_string(wanted.type()));
  if (!is_float(wanted.dtype())) {
    EXPECT_TRUE(array_equal(found, wanted));
    return;
  }
  const double tolerance = wanted.dtype() == DType::bf16 ? 2e-2 : 2e-5;
  const std::vector<float> x = astype(found, DType::f32).to_vector<float>();
  const std::vector<float> y = astype(wanted, DType::f32).to_vector<float>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(y[i]) && std::isnan(x[i])) continue;
    EXPECT_NEAR(x[i], y[i], tolerance * std::max(1.0F, std::fabs(y[i]))) << i;
  }
}

/// Bytes of the whole array.
std::string bits(const Array& x) { return data::npy_bytes(x); }

/// A random sharding over the axes a and b.
NamedSharding random_sharding(std::mt19937& random, const Mesh& mesh, const Shape& shape) {
  std::vector<SpecEntry> entries(shape.size(), none);
  for (const char* axis : {"a", "b"}) {
    const std::size_t dim = random() % (shape.size() + 1);
    if (dim < shape.size()) entries[dim].axes.emplace_back(axis);
  }
  return NamedSharding(mesh, PartitionSpec(std::move(entries)));
}

class ImportedRun : public ::testing::TestWithParam<std::string> {};

TEST_P(ImportedRun, HasTheValuesOfJaxAndTheSameBitsOnMeshes) {
  const fs::path path = folder() / "programs" / GetParam();
  const ImportedProgram program = import_stablehlo(contents(path.string() + ".mlirbc"));
  const std::string values = contents(path.string() + ".values");
  std::string_view rest = values;
  const std::vector<Array> inputs = taken(program.arguments(), rest);
  const std::vector<Array> wanted = taken(program.results(), rest);
  EXPECT_TRUE(rest.empty());
  const auto run = jit([&](std::vector<Array> x) { return program(x); });
  const std::vector<Array> found = run(inputs);
  const std::vector<Array> at_once = program(inputs);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(i);
    expect_near(found[i], wanted[i]);
    EXPECT_EQ(bits(at_once[i]), bits(found[i]));
  }
  std::mt19937 random(7);
  for (const Mesh& mesh : {make_mesh({{"a", 2}, {"b", 2}}), make_mesh({{"a", 3}, {"b", 1}})}) {
    std::vector<Array> split;
    for (const Array& x : inputs) {
      split.push_back(device_put(x, random_sharding(random, mesh, x.shape())));
    }
    const std::vector<Array> on_mesh = run(split);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(bits(on_mesh[i]), bits(found[i])) << to_string(mesh) << " result " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, ImportedRun,
                         ::testing::ValuesIn(names_in(folder() / "programs", ".values")),
                         [](const auto& test) { return test.param; });

ImportedProgram sharded() {
  return import_stablehlo(contents(folder() / "modules/sharded_out.mlirbc"));
}

std::vector<Array> random_inputs(const ImportedProgram& program) {
  std::vector<Array> inputs;
  for (const Type& type : program.arguments()) {
    inputs.push_back(random::normal(Key(static_cast<std::int64_t>(inputs.size())), type.shape));
  }
  return inputs;
}

TEST(ImportedTiles, HaveTheSameBitsOnAnyMesh) {
  const ImportedProgram program = import_stablehlo(contents(folder() / "modules/shard_map.mlirbc"));
  EXPECT_FALSE(program.mesh().axes().empty());
  const auto run = jit([&](std::vector<Array> x) { return program(x); });
  const std::vector<Array> inputs = random_inputs(program);
  const std::vector<Array> wanted = run(inputs);
  const use_mesh own(program.mesh());
  const auto again = jit([&](std::vector<Array> x) { return program(x); });
  const std::vector<Array> found = again(inputs);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(bits(found[i]), bits(wanted[i]));
  EXPECT_FALSE(found[0].sharding().is_fully_replicated());
}

// The functions of tiles name groups of devices by axes of the mesh, as newer releases do.
TEST(ImportedTiles, OfTwoMeshesHaveTheValuesOfJax) {
  const fs::path path = folder() / "modules/two_meshes";
  const ImportedProgram program = import_stablehlo(contents(path.string() + ".mlirbc"));
  const std::string values = contents(path.string() + ".values");
  std::string_view rest = values;
  const std::vector<Array> inputs = taken(program.arguments(), rest);
  const std::vector<Array> wanted = taken(program.results(), rest);
  ASSERT_EQ(wanted.size(), 1U);
  const auto run = jit([&](std::vector<Array> x) { return program(x); });
  const std::vector<Array> found = run(inputs);
  expect_near(found[0], wanted[0]);
  const use_mesh own(program.mesh());
  const auto again = jit([&](std::vector<Array> x) { return program(x); });
  EXPECT_EQ(bits(again(inputs)[0]), bits(found[0]));
}

TEST(ImportedMesh, IsThatOfTheProgramOrAnother) {
  const ImportedProgram program = sharded();
  EXPECT_EQ(to_string(program.mesh()), "data=4,model=2");
  const auto run = jit([&](std::vector<Array> x) { return program(x); });
  const std::vector<Array> inputs = random_inputs(program);
  const std::vector<Array> wanted = run(inputs);
  std::vector<Array> placed;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    placed.push_back(device_put(inputs[i], program.shardings()[i]));
  }
  const std::vector<Array> own = run(placed);
  bool is_split = false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(bits(own[i]), bits(wanted[i]));
    is_split = is_split || !own[i].sharding().is_fully_replicated();
  }
  EXPECT_TRUE(is_split) << "the results are split as the program says";
  const use_mesh other(make_mesh({{"x", 3}}));
  const std::vector<Array> elsewhere = run(inputs);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(bits(elsewhere[i]), bits(wanted[i]));
}

TEST(ImportedDerivative, IsThatOfEqualOps) {
  const ImportedProgram program = import_stablehlo(contents(folder() / "modules/exp.mlirbc"));
  const Array x = random::normal(Key(3), program.arguments()[0].shape);
  const auto loss = [&](const Array& y) { return sum(program({y})[0]); };
  EXPECT_EQ(bits(jit(grad(loss))(x)),
            bits(jit(grad([](const Array& y) { return sum(exp(y)); }))(x)));
}

class RunCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "run_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  CommandOutcome run(const std::string& arguments) const {
    return run_command(TESSERA_COMMAND, "run " + arguments, "", folder_);
  }
  fs::path folder_;
};

TEST_F(RunCommand, WritesWhatTheProgramComputes) {
  const ImportedProgram program = sharded();
  const std::vector<Array> inputs = random_inputs(program);
  std::string arguments = (folder() / "modules/sharded_out.mlirbc").string() + " --inputs";
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = std::to_string(i) + ".npy";
    std::ofstream(folder_ / name, std::ios::binary) << data::npy_bytes(inputs[i]);
    arguments += " " + name;
  }
  const std::vector<Array> wanted = program(inputs);
  for (const char* mesh : {"", " --mesh none", " --mesh x=3", " --engine reference"}) {
    const CommandOutcome outcome = run(arguments + " --outputs out --json -" + mesh);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.stderr_text;
    const nlohmann::json report = nlohmann::json::parse(outcome.stdout_text);
    ASSERT_EQ(report["results"].size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Array found =
          data::read_npy((folder_ / report["results"][i]["file"].get<std::string>()).string());
      expect_near(found, wanted[i]);
    }
  }
}

TEST_F(RunCommand, TellsWhatIsWrong) {
  const std::string program = (folder() / "modules/exp.mlirbc").string();
  const CommandOutcome outcome = run(program);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.stderr_text,
            "tessera: --inputs: the arrays do not match the arguments of the program\n"
            "  found:  none\n"
            "  wanted: " +
                to_string(import_stablehlo(contents(program)).arguments()[0]) +
                "\n"
                "  cure:   give one file per argument, in the order in which JAX flattens the "
                "arguments. jax.export drops arguments that are not used, unless the function is "
                "jax.jit(f, keep_unused=True)\n");
  EXPECT_NE(run("missing.mlirbc").stderr_text.find("run: the program cannot be read"),
            std::string::npos);
  std::ofstream(folder_ / "text") << "no module";
  EXPECT_EQ(run("text").exit_code, 1);
}

}  // namespace
}  // namespace tessera::testing
