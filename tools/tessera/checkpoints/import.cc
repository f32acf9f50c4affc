// `tessera import`: writes the arrays of another program's file to a safetensors file.

#include <map>
#include <memory>

#include <tessera/checkpoint.h>
#include <tessera/error.h>

#include "tools/cli/command.h"
#include "tools/cli/output_file.h"
#include "tools/cli/streams.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/flags.h"
#include "tools/tessera/report.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

struct ImportFlags {
  std::string source, target, like, json;
};

struct Imported {
  std::vector<checkpoint::NamedArray> arrays;
  std::vector<checkpoint::FileTensor> left;
};

/// A line of the table: what was found under a name, and what became of it.
struct ImportRow {
  std::string name, type, outcome;
};

std::vector<ImportRow> outcomes_of(const Imported& imported) {
  std::vector<ImportRow> rows;
  for (const auto& [name, x] : imported.arrays) {
    rows.push_back({.name = name, .type = to_string(x.type()), .outcome = "imported"});
  }
  for (const checkpoint::FileTensor& tensor : imported.left) {
    rows.push_back({.name = tensor.name,
                    .type = tensor.dtype + to_string(tensor.shape),
                    .outcome = "left out: " + tensor.problem});
  }
  return rows;
}

/// Compares the imported arrays with the tensors of a model, and sets the outcomes in `rows`.
/// Returns how many of the model's tensors are not matched.
std::size_t match(const std::vector<checkpoint::FileTensor>& wanted, std::vector<ImportRow>& rows,
                  const Imported& imported) {
  std::map<std::string, Shape> shapes;
  for (const checkpoint::FileTensor& tensor : wanted) shapes[tensor.name] = tensor.shape;
  std::size_t unmatched = 0;
  for (std::size_t i = 0; i < imported.arrays.size(); ++i) {
    const auto found = shapes.find(rows[i].name);
    if (found == shapes.end()) {
      rows[i].outcome = "extra";
      continue;
    }
    const bool is_equal = found->second == imported.arrays[i].array.shape();
    rows[i].outcome = is_equal ? "matched" : "wanted " + to_string(found->second);
    unmatched += is_equal ? 0 : 1;
    shapes.erase(found);
  }
  for (const auto& [name, shape] : shapes) {
    rows.push_back({.name = name, .type = to_string(shape), .outcome = "missing"});
  }
  return unmatched + shapes.size();
}

void show(const ImportFlags& flags, const std::vector<ImportRow>& outcomes) {
  if (flags.json != "-") {
    std::vector<Row> rows = {{"tensor", "type", "outcome"}};
    for (const ImportRow& row : outcomes) rows.push_back({row.name, row.type, row.outcome});
    print(table(rows));
  }
  if (flags.json.empty()) return;
  json list = json::array();
  for (const ImportRow& row : outcomes) {
    list.push_back({{"name", row.name}, {"type", row.type}, {"outcome", row.outcome}});
  }
  write_json(flags.json, {{"file", flags.source}, {"tensors", list}});
}

void run_import(const ImportFlags& flags) {
  Imported imported;
  imported.arrays = checkpoint::import_arrays(
      flags.source, {.f16_as_f32 = true, .left = &imported.left}, std::source_location());
  std::vector<ImportRow> outcomes = outcomes_of(imported);
  std::size_t unmatched = 0;
  if (!flags.like.empty()) {
    const auto wanted = checkpoint::list_safetensors(flags.like, std::source_location());
    unmatched = match(wanted, outcomes, imported);
  }
  show(flags, outcomes);
  if (unmatched > 0) {
    throw UserError({.what = "import: the file does not have all tensors of --like",
                     .found = flags.source + ": " + std::to_string(unmatched) +
                              " missing or with another shape",
                     .wanted = "the names and shapes of " + flags.like,
                     .cure = "see the table above; without --like, import writes all arrays"});
  }
  if (flags.target.empty()) return;
  check_writable("--to", flags.target);
  checkpoint::write_safetensors(flags.target, imported.arrays);
}

}  // namespace

void add_import(Command& app) {
  Command* command =
      app.add_subcommand("import", "convert the weights of another program to a safetensors file");
  auto flags = std::make_shared<ImportFlags>();
  command
      ->add_option("file", flags->source,
                   "a file of np.savez (.npz), torch.save (.pt or .bin), Flax (MessagePack) or "
                   "safetensors, or a "
                   "checkpoint of Orbax")
      ->required();
  add_path(*command, flags->target, "--to", "the file to write; without it, nothing is written",
           "model.safetensors");
  add_path(
      *command, flags->like, "--like",
      "a safetensors file of the same model: the imported file must have all its names and shapes",
      "model.safetensors");
  add_path(*command, flags->json, "--json", "write the table as JSON; - is standard output",
           "import.json");
  command->callback([flags] { run_import(*flags); });
}

}  // namespace tessera::cli
