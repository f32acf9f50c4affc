// stablehlo_cases FOLDER KIND [SEED [COUNT]]: writes programs in StableHLO with inputs and the
// outputs of Tessera's engines, for run_cases.py to run on another compiler.
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/stablehlo/cases.h"

namespace {

using namespace tessera;           // NOLINT(google-build-using-namespace)
using namespace tessera::testing;  // NOLINT(google-build-using-namespace)
using nlohmann::json;

json json_of(const std::vector<Type>& types) {
  json list = json::array();
  for (const Type& type : types) {
    list.push_back({{"dtype", name(type.dtype)}, {"shape", type.shape}});
  }
  return list;
}

/// Writes `cases.json` and `cases.bin` into the folder.
void write_cases(const std::vector<HloCase>& cases, const std::string& folder) {
  constexpr const char* kTolerances[] = {"equal", "rounded", "function",
                                         "sum",   "step",    "half_step"};
  std::ofstream data(folder + "/cases.bin", std::ios::binary);
  json list = json::array();
  for (const HloCase& c : cases) {
    list.push_back({{"name", c.name},
                    {"text", module_of(c, kForCpu)},
                    {"tolerance", kTolerances[static_cast<std::size_t>(c.tolerance)]},
                    {"inputs", json_of(c.inputs)},
                    {"outputs", json_of(c.outputs)},
                    {"num_replicas", c.num_replicas},
                    {"slacks", c.slacks},
                    {"note", c.note}});
    data << c.input_bytes << c.output_bytes << c.held_bytes;
  }
  std::ofstream(folder + "/cases.json") << list;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<HloCase> cases =
      argc > 2 ? cases_of({argv + 2, argv + argc}) : std::vector<HloCase>();
  if (cases.empty()) {
    fmt::print(stderr, "usage: stablehlo_cases FOLDER {}\n", kCaseUsage);
    return 1;
  }
  write_cases(cases, argv[1]);
  fmt::print("{} cases\n", cases.size());
  return 0;
}
