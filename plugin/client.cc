#include "plugin/client.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include <tessera/error.h>

#include "plugin/call.h"
#include "run/executable.h"
#include "run/machine/memory.h"

namespace tessera::run::pjrt::abi {

Client::Client(int num_devices) {
  for (int id = 0; id < num_devices; ++id) {
    auto device = std::make_unique<Device>();
    device->description = {id, "TesseraDevice(id=" + std::to_string(id) + ")"};
    for (std::size_t kind = 0; kind < device->held.size(); ++kind) {
      const int number = static_cast<int>(memories.size());
      device->held[kind] = {number, static_cast<int>(kind), device.get(),
                            std::string(tessera::plugin::kMemoryKinds[kind]) +
                                " memory of TesseraDevice " + std::to_string(id)};
      device->memories[kind] = &device->held[kind];
      memories.push_back(&device->held[kind]);
    }
    device->self[0] = device.get();
    device->client = this;
    devices.push_back(device.get());
    topology.descriptions.push_back(&device->description);
    owned.push_back(std::move(device));
  }
}

}  // namespace tessera::run::pjrt::abi

namespace tessera::plugin {

std::string_view version() { return TESSERA_VERSION; }

namespace {

constexpr int kMostDevices = 16384;

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc()) return std::nullopt;
  return number;
}

[[noreturn]] void fail_count(const std::string& found) {
  throw UserError({.what = "tessera: the number of devices is out of range",
                   .found = found,
                   .wanted = "a number from 1 to " + std::to_string(kMostDevices),
                   .cure = "set TESSERA_NUM_DEVICES to such a number"});
}

int checked_count(std::int64_t count, const std::string& found) {
  if (count < 1 || count > kMostDevices) fail_count(found);
  return static_cast<int>(count);
}

/// Uses the environment variable, then the option, then the number of virtual CPU devices that the
/// program requests from XLA, as programs that try out a mesh on the CPU do.
int number_of_devices(const abi::ClientCreate& arguments) {
  if (const char* variable = std::getenv("TESSERA_NUM_DEVICES")) {
    const std::optional<int> count = number_in(variable);
    return checked_count(count.value_or(0), "TESSERA_NUM_DEVICES=" + std::string(variable));
  }
  for (std::size_t i = 0; i < arguments.num_options; ++i) {
    const abi::NamedValue& option = arguments.options[i];
    if (std::string_view(option.name, option.name_size) != "num_devices") continue;
    if (option.type != abi::NamedValue::Type::int64) fail_count("the option num_devices");
    return checked_count(option.int64, "num_devices=" + std::to_string(option.int64));
  }
  if (const char* flags = std::getenv("XLA_FLAGS")) {
    constexpr std::string_view kFlag = "--xla_force_host_platform_device_count=";
    const std::string_view text = flags;
    const std::size_t at = text.find(kFlag);
    if (at != std::string_view::npos) {
      const std::optional<int> count = number_in(text.substr(at + kFlag.size()));
      return checked_count(count.value_or(0), "XLA_FLAGS=" + std::string(text));
    }
  }
  return 1;
}

void create(abi::ClientCreate& a) { a.client = new abi::Client(number_of_devices(a)); }
void destroy(abi::ClientDestroy& a) { delete a.object; }
void platform_name(abi::PlatformName& a) { set_text(a, kPlatform); }
void platform_version(abi::PlatformVersion& a) { set_text(a, version()); }
void process_index(abi::ProcessIndex& a) { a.value = 0; }
void all_devices(abi::AllDevices& a) { set_list(a, a.object->devices); }
void memories(abi::ClientMemories& a) { set_list(a, a.object->memories); }
void topology(abi::ClientTopology& a) { a.value = &a.object->topology; }

void addressable_devices(abi::AddressableDevices& a) {
  a.devices = a.client->devices.data();
  a.num_devices = a.client->devices.size();
}

template <typename Arguments>
void lookup(Arguments& a) {
  if (a.id < 0 || static_cast<std::size_t>(a.id) >= a.client->devices.size()) {
    throw UserError({.what = "tessera: there is no such device",
                     .found = std::to_string(a.id),
                     .wanted = "a device below " + std::to_string(a.client->devices.size()),
                     .cure = "set TESSERA_NUM_DEVICES to the number of devices that are needed"});
  }
  a.device = a.client->devices[static_cast<std::size_t>(a.id)];
}

void default_assignment(abi::DefaultAssignment& a) {
  const std::size_t count = static_cast<std::size_t>(a.num_replicas * a.num_partitions);
  for (std::size_t i = 0; i < count && i < a.size; ++i) a.ids[i] = static_cast<int>(i);
}

void id(abi::DeviceId& a) { a.id = a.description->id; }
void kind(abi::DeviceKind& a) { set_text(a, kPlatform); }
void description(abi::GetDescription& a) { a.description = &a.device->description; }
void description_process(abi::DescriptionProcess& a) { a.value = 0; }
void description_debug(abi::DescriptionDebugText& a) { set_text(a, a.object->text); }
void description_text(abi::DescriptionText& a) { set_text(a, a.object->text); }
void is_addressable(abi::IsAddressable& a) { a.value = true; }
void local_id(abi::LocalId& a) { a.value = a.object->description.id; }
void device_memories(abi::DeviceMemories& a) { set_list(a, std::span(a.object->memories)); }
void default_memory(abi::DefaultMemory& a) { a.value = a.object->memories[0]; }

/// Devices share the memory of the process; a tile that several devices hold exists only once.
void memory_in_use(abi::DeviceMemory& a) {
  a.bytes_in_use = run::buffer_bytes();
  a.peak_bytes_in_use = {.value = run::Buffer::peak_bytes(), .is_set = true};
  a.num_allocations = {};
  a.largest_allocation = {};
  a.bytes_limit = {.value = run::machine_memory().total, .is_set = true};
  std::fill(std::begin(a.more), std::end(a.more), abi::Statistic{});
}

void device_attributes(abi::DeviceAttributes& a) {
  a.num_attributes = 0;
  a.attributes = nullptr;
  a.owner = nullptr;
  a.free_owner = [](void*) {};
}

void description_attributes(abi::DescriptionAttributes& a) {
  set_list(a, std::span<abi::NamedValue>());
}

void memory_id(abi::MemoryId& a) { a.value = a.object->id; }
void memory_kind(abi::MemoryKind& a) {
  set_text(a, kMemoryKinds[static_cast<std::size_t>(a.object->kind)]);
}
void memory_kind_id(abi::MemoryKindId& a) { a.value = a.object->kind; }
void memory_debug(abi::MemoryDebugText& a) { set_text(a, a.object->text); }
void memory_text(abi::MemoryText& a) { set_text(a, a.object->text); }
void memory_devices(abi::MemoryDevices& a) { set_list(a, std::span(a.object->device->self)); }

void topology_name(abi::TopologyName& a) { set_text(a, kPlatform); }
void topology_version(abi::TopologyVersion& a) { set_text(a, version()); }
void topology_devices(abi::TopologyDescriptions& a) { set_list(a, a.object->descriptions); }
void topology_attributes(abi::TopologyAttributes& a) { set_list(a, std::span<abi::NamedValue>()); }

}  // namespace

void fill_client_functions(abi::PluginApi& api) {
  enter<abi::ClientCreate, create>(api);
  enter<abi::ClientDestroy, destroy>(api);
  enter<abi::PlatformName, platform_name>(api);
  enter<abi::PlatformVersion, platform_version>(api);
  enter<abi::ProcessIndex, process_index>(api);
  enter<abi::AllDevices, all_devices>(api);
  enter<abi::AddressableDevices, addressable_devices>(api);
  enter<abi::LookupDevice, lookup>(api);
  enter<abi::LookupAddressableDevice, lookup>(api);
  enter<abi::ClientMemories, memories>(api);
  enter<abi::ClientTopology, topology>(api);
  enter<abi::DefaultAssignment, default_assignment>(api);
  enter<abi::DeviceId, id>(api);
  enter<abi::DeviceKind, kind>(api);
  enter<abi::GetDescription, description>(api);
  enter<abi::DescriptionProcess, description_process>(api);
  enter<abi::DescriptionAttributes, description_attributes>(api);
  enter<abi::DescriptionDebugText, description_debug>(api);
  enter<abi::DescriptionText, description_text>(api);
  enter<abi::IsAddressable, is_addressable>(api);
  enter<abi::LocalId, local_id>(api);
  enter<abi::DeviceMemories, device_memories>(api);
  enter<abi::DefaultMemory, default_memory>(api);
  enter<abi::DeviceMemory, memory_in_use>(api);
  enter<abi::DeviceAttributes, device_attributes>(api);
  enter<abi::MemoryId, memory_id>(api);
  enter<abi::MemoryKind, memory_kind>(api);
  enter<abi::MemoryKindId, memory_kind_id>(api);
  enter<abi::MemoryDebugText, memory_debug>(api);
  enter<abi::MemoryText, memory_text>(api);
  enter<abi::MemoryDevices, memory_devices>(api);
  enter<abi::TopologyName, topology_name>(api);
  enter<abi::TopologyVersion, topology_version>(api);
  enter<abi::TopologyDescriptions, topology_devices>(api);
  enter<abi::TopologyAttributes, topology_attributes>(api);
  enter<abi::TopologyDestroy, ignore>(api);
}

}  // namespace tessera::plugin
