// Devices, their memories, and the client that owns them.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/completion.h"
#include "run/pjrt/abi_plugin.h"

namespace tessera::plugin {

/// The kinds of memory, the default one first.
inline constexpr std::array<std::string_view, 3> kMemoryKinds = {"device", "pinned_host",
                                                                 "unpinned_host"};

}  // namespace tessera::plugin

namespace tessera::run::pjrt::abi {

struct DeviceDescription {
  int id = 0;
  std::string text;
};

/// A name for the memory of the process: all kinds are the same memory.
struct Memory {
  int id = 0;
  int kind = 0;  // number in kMemoryKinds
  Device* device = nullptr;
  std::string text;
};

/// A virtual device. All devices compute on the same threads.
struct Device {
  DeviceDescription description;
  std::array<Memory, tessera::plugin::kMemoryKinds.size()> held;
  std::array<Memory*, tessera::plugin::kMemoryKinds.size()> memories = {};  // per kind
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
/// The version of this library.
std::string_view version();

void fill_client_functions(abi::PluginApi& api);

}  // namespace tessera::plugin
