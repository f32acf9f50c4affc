// `tessera run`: runs a program that jax.export has written.

#include <cstdio>
#include <filesystem>
#include <memory>

#include <tessera/tessera.h>

#include "commands.h"
#include "flags.h"
#include "lib/data/npy_file.h"
#include "report.h"
#include "tools/cli/input_file.h"
#include "tools/cli/output_file.h"
#include "tools/cli/streams.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

struct RunFlags : TrainFlags {
  RunFlags() { mesh.clear(); }  // empty: the mesh of the program
  std::string program;
  std::vector<std::string> inputs;
  std::string outputs;
};

std::string list_of(const std::vector<Type>& types) {
  std::string text;
  for (const Type& type : types) text += (text.empty() ? "" : " ") + to_string(type);
  return text.empty() ? "none" : text;
}

/// The arrays of the files, with the types and shardings that the program wants.
std::vector<Array> read_inputs(const RunFlags& flags, const ImportedProgram& program,
                               const Mesh& mesh) {
  const std::vector<Type>& wanted = program.arguments();
  std::vector<Array> inputs;
  std::vector<Type> found;
  for (const std::string& path : flags.inputs) {
    inputs.push_back(data::read_npy(path));
    // NumPy has no bf16, so such arrays come as f32.
    const bool is_wide = found.size() < wanted.size() && inputs.back().dtype() == DType::f32 &&
                         wanted[found.size()].dtype == DType::bf16;
    if (is_wide) inputs.back() = astype(inputs.back(), DType::bf16);
    found.push_back(inputs.back().type());
  }
  if (found != wanted) {
    throw UserError({.what = "--inputs: the arrays do not match the arguments of the program",
                     .found = list_of(found),
                     .wanted = list_of(wanted),
                     .cure = "give one file per argument, in the order in which JAX flattens the "
                             "arguments. jax.export drops arguments that are not used, unless "
                             "the function is jax.jit(f, keep_unused=True)"});
  }
  if (mesh.axes().empty()) return inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_its_own = mesh == program.mesh();
    inputs[i] =
        device_put(inputs[i], is_its_own ? program.shardings()[i] : NamedSharding(mesh, P{}));
  }
  return inputs;
}

json json_of(const std::vector<Array>& results, const std::vector<std::string>& files) {
  json list = json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    list.push_back({{"dtype", name(results[i].dtype())}, {"shape", results[i].shape()}});
    if (!files.empty()) list.back()["file"] = files[i];
  }
  return list;
}

void run_program(const RunFlags& flags) {
  const Mesh asked = flags.mesh.empty() ? Mesh() : mesh_of(flags.mesh);
  apply(flags);
  if (!flags.outputs.empty()) {
    check_folder("--outputs", flags.outputs);
    std::filesystem::create_directories(flags.outputs);
  }
  const ImportedProgram program = import_stablehlo(
      read_input(flags.program, {.what = "run: the program cannot be read",
                                 .wanted = "a module in bytecode",
                                 .cure = "write it in Python: open(path, \"wb\").write(jax.export."
                                         "export(jitted)(*args).mlir_module_serialized)"}),
      std::source_location());
  const Mesh mesh = flags.mesh.empty() ? program.mesh() : asked;
  const use_mesh scope(mesh);
  const std::vector<Array> inputs = read_inputs(flags, program, mesh);
  const std::vector<Array> results =
      jit([&](std::vector<Array> x) { return program(x); }, {.name = "program"})(inputs);
  std::vector<std::string> files;
  std::vector<Row> rows = {{"result", "type", "values"}};
  for (std::size_t i = 0; i < results.size(); ++i) {
    constexpr std::int64_t kShown = 16;
    rows.push_back({std::to_string(i), to_string(results[i].type()),
                    results[i].size() > kShown ? "" : to_string(results[i])});
    if (flags.outputs.empty()) continue;
    files.push_back((std::filesystem::path(flags.outputs) / (std::to_string(i) + ".npy")).string());
    write_file("--outputs", files.back(), data::npy_bytes(results[i]));
    rows.back().back() = files.back();
  }
  if (flags.json != "-") print(table(rows));
  if (!flags.json.empty()) {
    write_json(flags.json, {{"mesh", to_string(mesh)}, {"results", json_of(results, files)}});
  }
}

}  // namespace

void add_run(Command& app) {
  Command* command = app.add_subcommand("run", "run a program that was exported with jax.export");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("program", flags->program, "a module in StableHLO bytecode")->required();
  command->add_option(
      "--inputs", flags->inputs,
      "one .npy file per argument, in the order in which JAX flattens the arguments");
  add_path(*command, flags->outputs, "--outputs", "folder for the results: 0.npy, 1.npy, ...",
           "results");
  command->add_option(
      "--mesh", flags->mesh,
      "mesh axes in order, for example data=4,model=2, or none; default: the mesh of the "
      "program. On any other mesh, the shardings of the program have no effect");
  add_threads_flag(*command, *flags);
  add_engine_flag(*command, *flags);
  add_path(*command, flags->json, "--json", "write one JSON object; - is standard output",
           "run.json");
  command->callback([flags] { run_program(*flags); });
}

}  // namespace tessera::cli
