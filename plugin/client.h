// Devices, their memories, and the client that has them.
#pragma once

#include <string>
#include <vector>

#include "plugin/completion.h"
#include "run/pjrt/abi_plugin.h"

namespace tessera::run::pjrt::abi {

struct DeviceDescription {
  int id = 0;
  std::string text;
};

struct Memory {
  int id = 0;
  Device* device = nullptr;
  std::string text;
};

/// A virtual device. All compute on the same threads.
struct Device {
  DeviceDescription description;
  Memory memory;
  Memory* memories[1] = {};
  Device* self[1] = {};
  Client* client = nullptr;
};

struct Topology {
  std::vector<DeviceDescription*> descriptions;
};

struct Client {
  explicit Client(int num_devices);

  std::vector<std::unique_ptr<Device>> owned;
  std::vector<Device*> devices;
  std::vector<Memory*> memories;
  Topology topology;
  tessera::plugin::WorkQueue queue;
};

}  // namespace tessera::run::pjrt::abi

namespace tessera::plugin {

inline constexpr std::string_view kPlatform = "tessera";
inline constexpr std::string_view kMemoryKind = "device";
/// Of this library.
std::string_view version();

void fill_client_functions(abi::PluginApi& api);

}  // namespace tessera::plugin
