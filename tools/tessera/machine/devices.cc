// `tessera devices`: shows the processor of this machine and the devices of a mesh on it.

#include <memory>

#include <tessera/engine.h>

#include "tools/cli/size_text.h"
#include "tools/cli/streams.h"
#include "tools/tessera/commands.h"
#include "tools/tessera/flags.h"
#include "tools/tessera/machine/machine.h"
#include "tools/tessera/report.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

/// The coordinates of each device, such as `batch 1, model 0`, in the order of the mesh.
std::vector<std::string> coordinates_of(const Mesh& mesh) {
  std::vector<std::string> texts;
  for (std::int64_t position = 0; position < mesh.num_devices(); ++position) {
    std::string text;
    std::int64_t below = mesh.num_devices();
    for (const MeshAxis& axis : mesh.axes()) {
      below /= axis.size;
      text += (text.empty() ? "" : ", ") + axis.name + " " +
              std::to_string(position / below % axis.size);
    }
    texts.push_back(text);
  }
  return texts;
}

std::string devices_text(const Mesh& mesh) {
  if (mesh.axes().empty()) return "CPU 0, or as many virtual devices as a mesh has\n";
  const std::vector<std::int64_t> ids = mesh.device_ids();
  const std::vector<std::string> coordinates = coordinates_of(mesh);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < ids.size(); ++i)
    rows.push_back({i == 0 ? "devices" : "", "CPU " + std::to_string(ids[i]), coordinates[i]});
  return table(rows);
}

json json_of(const Accelerator& found) {
  if (found.platform.empty()) return nullptr;
  json devices = json::array();
  for (const AcceleratorDevice& device : found.devices) {
    devices.push_back({{"id", device.id},
                       {"kind", device.kind},
                       {"bytes_in_use", device.bytes_in_use},
                       {"bytes_limit", device.bytes_limit}});
  }
  return {{"platform", found.platform},
          {"platform_version", found.platform_version},
          {"interface_version", found.interface_version},
          {"devices", devices}};
}

std::string text_of(const Accelerator& found) {
  if (found.platform.empty()) return "";
  std::vector<Row> rows = {{"platform", found.platform,
                            found.platform_version.substr(0, found.platform_version.find('\n'))},
                           {"PJRT", found.interface_version, ""}};
  for (const AcceleratorDevice& device : found.devices) {
    const std::string memory = device.bytes_limit == 0
                                   ? ""
                                   : ", " + size_text(device.bytes_in_use) + " of " +
                                         size_text(device.bytes_limit) + " in use";
    rows.push_back({"device", std::to_string(device.id), device.kind + memory});
  }
  return table(rows);
}

void show_devices(const TrainFlags& flags) {
  const Mesh mesh = mesh_of(flags.mesh);
  apply(flags);
  const Machine machine = this_machine();
  const json object = {{"processor", machine.processor},
                       {"cores", machine.cores},
                       {"threads", num_threads()},
                       {"vector_unit", instruction_set()},
                       {"dot_unit", dot_unit()},
                       {"memory_bytes", machine.memory},
                       {"free_memory_bytes", machine.free_memory},
                       {"mesh", to_string(mesh)},
                       {"device_ids", mesh.device_ids()},
                       {"engines", {"host", "reference", "pjrt"}},
                       {"accelerator", json_of(accelerator())}};
  if (flags.json != "-") {
    const std::string gap = mesh.axes().empty() ? "devices    " : "";
    print(table({{"processor", machine.processor},
                 {"cores", std::to_string(machine.cores)},
                 {"threads", std::to_string(num_threads())},
                 {"vector", std::string(instruction_set())},
                 {"bf16", std::string(dot_unit())},
                 {"memory", size_text(machine.memory) + ", of which " +
                                size_text(machine.free_memory) + " is free"},
                 {"engines", "host, reference, pjrt"}}) +
          gap + devices_text(mesh) + text_of(accelerator()));
  }
  if (!flags.json.empty()) write_json(flags.json, object);
}

}  // namespace

void add_devices(Command& app) {
  Command* command =
      app.add_subcommand("devices", "show this machine and the virtual devices of a mesh");
  auto flags = std::make_shared<TrainFlags>();
  flags->mesh = "none";
  command
      ->add_option("--mesh", flags->mesh, "mesh axes in order, for example data=4,model=2, or none")
      ->capture_default_str();
  add_threads_flag(*command, *flags);
  add_engine_flag(*command, *flags);
  add_path(*command, flags->json, "--json", "write it as a JSON object; - is standard output",
           "machine.json");
  command->callback([flags] { show_devices(*flags); });
}

}  // namespace tessera::cli
