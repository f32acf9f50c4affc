// The third part of abi.h: what plugins implement and Tessera does not call.
#pragma once

#include "run/pjrt/abi_programs.h"

namespace tessera::run::pjrt::abi {

struct PluginAttributes : Head {
  static constexpr Function kFunction = Function::plugin_attributes;
  const NamedValue* attributes = nullptr;  // out
  std::size_t num_attributes = 0;
};

// --- events

struct EventError : Head {
  static constexpr Function kFunction = Function::event_error;
  Event* event = nullptr;
};

// --- one object in, one value or list out

template <Function function, typename Object>
struct Destroy : Head {
  static constexpr Function kFunction = function;
  Object* object = nullptr;
};

template <Function function, typename Object>
struct GetText : Head {
  static constexpr Function kFunction = function;
  Object* object = nullptr;
  const char* text = nullptr;  // out
  std::size_t text_size = 0;
};

template <Function function, typename Object, typename Item>
struct GetList : Head {
  static constexpr Function kFunction = function;
  Object* object = nullptr;
  const Item* items = nullptr;  // out
  std::size_t num_items = 0;
};

/// Like GetList, with the size in front.
template <Function function, typename Object, typename Item>
struct GetCounted : Head {
  static constexpr Function kFunction = function;
  Object* object = nullptr;
  std::size_t num_items = 0;  // out
  const Item* items = nullptr;
};

using ClientDestroy = Destroy<Function::client_destroy, Client>;
using ProcessIndex = Get<Function::client_process_index, Client, int>;
using AllDevices = GetList<Function::client_devices, Client, Device*>;
using ClientMemories = GetList<Function::client_addressable_memories, Client, Memory*>;
using ClientTopology = Get<Function::client_topology, Client, Topology*>;

struct LookupDevice : Head {
  static constexpr Function kFunction = Function::client_lookup_device;
  Client* client = nullptr;
  int id = 0;
  Device* device = nullptr;  // out
};

struct LookupAddressableDevice : Head {
  static constexpr Function kFunction = Function::client_lookup_addressable_device;
  Client* client = nullptr;
  int id = 0;
  Device* device = nullptr;  // out
};

struct DefaultAssignment : Head {
  static constexpr Function kFunction = Function::client_default_assignment;
  Client* client = nullptr;
  int num_replicas = 0;
  int num_partitions = 0;
  std::size_t size = 0;
  int* ids = nullptr;  // written by the plugin
};

using DescriptionProcess = Get<Function::description_process_index, DeviceDescription, int>;
using DescriptionAttributes =
    GetCounted<Function::description_attributes, DeviceDescription, NamedValue>;
using DescriptionDebugText = GetText<Function::description_debug_text, DeviceDescription>;
using DescriptionText = GetText<Function::description_text, DeviceDescription>;
using IsAddressable = Get<Function::device_is_addressable, Device, bool>;
using LocalId = Get<Function::device_local_id, Device, int>;
using DeviceMemories = GetList<Function::device_memories, Device, Memory*>;
using DefaultMemory = Get<Function::device_default_memory, Device, Memory*>;

struct DeviceAttributes : Head {
  static constexpr Function kFunction = Function::device_attributes;
  Device* device = nullptr;
  std::size_t num_attributes = 0;  // out
  const NamedValue* attributes = nullptr;
  void* owner = nullptr;
  void (*free_owner)(void* owner) = nullptr;
};

using MemoryId = Get<Function::memory_id, Memory, int>;
using MemoryKind = GetText<Function::memory_kind, Memory>;
using MemoryKindId = Get<Function::memory_kind_id, Memory, int>;
using MemoryDebugText = GetText<Function::memory_debug_text, Memory>;
using MemoryText = GetText<Function::memory_text, Memory>;
using MemoryDevices = GetList<Function::memory_devices, Memory, Device*>;

using TopologyName = GetText<Function::topology_platform_name, Topology>;
using TopologyVersion = GetText<Function::topology_platform_version, Topology>;
using TopologyDescriptions =
    GetList<Function::topology_descriptions, const Topology, DeviceDescription*>;
using TopologyAttributes = GetList<Function::topology_attributes, Topology, NamedValue>;
using TopologyDestroy = Destroy<Function::topology_destroy, Topology>;

// --- programs

using CompiledName = GetText<Function::compiled_name, Compiled>;
using NumReplicas = Get<Function::compiled_num_replicas, Compiled, std::size_t>;
using NumPartitions = Get<Function::compiled_num_partitions, Compiled, std::size_t>;
using CodeSize = Get<Function::compiled_code_size, Compiled, std::int64_t>;
using Cost = GetCounted<Function::compiled_cost, Compiled, NamedValue>;
using CompiledFingerprint = GetText<Function::compiled_fingerprint, Compiled>;
using LoadedFingerprint = GetText<Function::loaded_fingerprint, Loaded>;
using OutputTypes = GetList<Function::compiled_output_types, Compiled, ElementType>;

struct OutputMemoryKinds : Head {
  static constexpr Function kFunction = Function::compiled_memory_kinds;
  Compiled* compiled = nullptr;
  std::size_t num_outputs = 0;  // out
  const char* const* kinds = nullptr;
  const std::size_t* kind_sizes = nullptr;
};

/// The sizes of all outputs, one after the other, and the rank of each.
struct OutputDimensions : Head {
  static constexpr Function kFunction = Function::compiled_output_dimensions;
  Compiled* compiled = nullptr;
  std::size_t num_outputs = 0;  // out
  const std::int64_t* dims = nullptr;
  const std::size_t* ranks = nullptr;
};

/// Without room for the code, this asks for its size.
struct WritableProgram : Head {
  char* code = nullptr;
  std::size_t code_size = 0;
  const char* format = nullptr;
  std::size_t format_size = 0;
};

struct OptimizedProgram : Head {
  static constexpr Function kFunction = Function::compiled_program;
  Compiled* compiled = nullptr;
  WritableProgram* program = nullptr;
};

using LoadedDevices = GetList<Function::loaded_devices, Loaded, Device*>;
using LoadedDelete = Destroy<Function::loaded_delete, Loaded>;
using LoadedIsDeleted = Get<Function::loaded_is_deleted, Loaded, bool>;

struct LoadedAssignment : Head {
  static constexpr Function kFunction = Function::loaded_assignment;
  Loaded* loaded = nullptr;
  const char* bytes = nullptr;  // out
  std::size_t num_bytes = 0;
  void* owner = nullptr;
  void (*free_owner)(void* owner) = nullptr;
};

struct LogicalId {
  int replica = 0;
  int partition = 0;
};
using LogicalIds = GetList<Function::loaded_logical_ids, Loaded, LogicalId>;

// --- buffers

using BufferElementType = Get<Function::buffer_element_type, Buffer, ElementType>;
using BufferDimensions = GetList<Function::buffer_dimensions, Buffer, std::int64_t>;
using BufferUnpadded = GetList<Function::buffer_unpadded_dimensions, Buffer, std::int64_t>;
using BufferDynamic = GetList<Function::buffer_dynamic_dimensions, Buffer, std::size_t>;
using BufferLayout = Get<Function::buffer_layout, Buffer, MemoryLayout>;
using BufferSize = Get<Function::buffer_size, Buffer, std::size_t>;
using BufferDevice = Get<Function::buffer_device, Buffer, Device*>;
using BufferMemory = Get<Function::buffer_memory, Buffer, Memory*>;
using BufferDelete = Destroy<Function::buffer_delete, Buffer>;
using BufferIsDeleted = Get<Function::buffer_is_deleted, Buffer, bool>;
using BufferIsOnCpu = Get<Function::buffer_is_on_cpu, Buffer, bool>;
using BufferAddress = Get<Function::buffer_address, Buffer, std::uintptr_t>;
using BufferData = Get<Function::buffer_data, Buffer, void*>;
using AddReference = Destroy<Function::buffer_add_reference, Buffer>;
using DropReference = Destroy<Function::buffer_drop_reference, Buffer>;

struct BufferCopyToMemory : Head {
  static constexpr Function kFunction = Function::buffer_copy_to_memory;
  Buffer* buffer = nullptr;
  Memory* memory = nullptr;
  Buffer* copy = nullptr;  // out
};

// --- extension: how the arguments and results of a program are split

/// Each sharding is a serialized xla.OpSharding.
struct GetShardings : Head {
  Compiled* compiled = nullptr;
  std::size_t count = 0;  // out
  const char* const* shardings = nullptr;
  const std::size_t* sizes = nullptr;
};

struct ShardingsExtension {
  std::size_t struct_size = sizeof(ShardingsExtension);
  Extension type = Extension::shardings;
  void* next = nullptr;
  Error* (*of_arguments)(void*) = nullptr;
  Error* (*of_results)(void*) = nullptr;
};

// --- extension: the order of the elements in memory (openxla/xla,
// xla/pjrt/c/pjrt_c_api_layouts_extension.h)

struct HeldLayout;

struct HeldLayoutDestroy : Head {
  HeldLayout* layout = nullptr;
};

struct TextOfLayout : Head {
  const HeldLayout* layout = nullptr;
  const char* text = nullptr;  // out
  std::size_t text_size = 0;
  void* owner = nullptr;
  void (*free_owner)(void* owner) = nullptr;
};

/// The layout of an array of this shape if the caller does not ask for one.
template <typename Object>
struct DefaultLayout : Head {
  Object* object = nullptr;
  ElementType type = {};
  const std::int64_t* dims = nullptr;
  std::size_t num_dims = 0;
  const HeldLayout* layout = nullptr;  // out
};

struct LayoutOfBuffer : Head {
  Buffer* buffer = nullptr;
  const HeldLayout* layout = nullptr;  // out
};

/// The layouts of the arguments or the results of a program, which owns them.
struct LayoutsOfProgram : Head {
  Compiled* compiled = nullptr;
  std::size_t num_items = 0;  // out
  const HeldLayout* const* items = nullptr;
};

struct LayoutsExtension {
  std::size_t struct_size = sizeof(LayoutsExtension);
  Extension type = Extension::layouts;
  void* next = nullptr;
  AnyFunction destroy = nullptr;
  AnyFunction text = nullptr;
  AnyFunction of_client = nullptr;
  AnyFunction of_buffer = nullptr;
  AnyFunction of_topology = nullptr;
  AnyFunction of_results = nullptr;
  AnyFunction of_arguments = nullptr;
};

/// The table of a plugin.
struct PluginApi {
  std::size_t struct_size = sizeof(PluginApi);
  void* extensions = nullptr;
  Version version = {};
  AnyFunction functions[kNumFunctions] = {};
};

}  // namespace tessera::run::pjrt::abi
