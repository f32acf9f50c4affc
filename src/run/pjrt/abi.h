// The part of the C interface of PJRT plugins that Tessera calls, declared from the description of
// the interface (openxla/xla, xla/pjrt/c/pjrt_c_api.h, version 0.58 and newer). Fields are only
// ever added at the end of a struct, so that these prefixes fit all later versions.
//
// Every argument struct begins with its size and names the function that takes it. Fields after a
// comment `out` are written by the plugin.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::run::pjrt::abi {

struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Memory;
struct Topology;
struct Loaded;
struct Compiled;
struct Buffer;

/// Positions in the table of functions.
enum class Function : std::size_t {
  error_destroy = 0,
  error_message = 1,
  error_code = 2,
  plugin_initialize = 3,
  plugin_attributes = 4,
  event_destroy = 5,
  event_is_ready = 6,
  event_error = 7,
  event_await = 8,
  event_on_ready = 9,
  client_create = 10,
  client_destroy = 11,
  client_platform_name = 12,
  client_process_index = 13,
  client_platform_version = 14,
  client_devices = 15,
  client_addressable_devices = 16,
  client_lookup_device = 17,
  client_lookup_addressable_device = 18,
  client_addressable_memories = 19,
  client_compile = 20,
  client_default_assignment = 21,
  client_buffer_from_host = 22,
  device_id = 23,
  description_process_index = 24,
  description_attributes = 25,
  device_kind = 26,
  description_debug_text = 27,
  description_text = 28,
  device_description = 29,
  device_is_addressable = 30,
  device_local_id = 31,
  device_memories = 32,
  device_default_memory = 33,
  device_memory = 34,
  memory_id = 35,
  memory_kind = 36,
  memory_debug_text = 37,
  memory_text = 38,
  memory_devices = 39,
  compiled_destroy = 40,
  compiled_name = 41,
  compiled_num_replicas = 42,
  compiled_num_partitions = 43,
  compiled_num_outputs = 44,
  compiled_code_size = 45,
  compiled_cost = 46,
  compiled_memory_kinds = 47,
  compiled_program = 48,
  loaded_destroy = 50,
  loaded_compiled = 51,
  loaded_devices = 52,
  loaded_delete = 53,
  loaded_is_deleted = 54,
  loaded_execute = 55,
  loaded_fingerprint = 57,
  buffer_destroy = 58,
  buffer_element_type = 59,
  buffer_dimensions = 60,
  buffer_unpadded_dimensions = 61,
  buffer_dynamic_dimensions = 62,
  buffer_layout = 63,
  buffer_size = 64,
  buffer_device = 65,
  buffer_memory = 66,
  buffer_delete = 67,
  buffer_is_deleted = 68,
  buffer_copy_to_device = 69,
  buffer_to_host = 70,
  buffer_is_on_cpu = 71,
  buffer_ready_event = 72,
  buffer_address = 73,
  buffer_add_reference = 74,
  buffer_drop_reference = 75,
  buffer_data = 76,
  topology_create = 82,
  topology_destroy = 83,
  topology_platform_name = 84,
  topology_platform_version = 85,
  topology_descriptions = 86,
  topology_attributes = 88,
  compile_for_topology = 89,
  compiled_output_types = 90,
  compiled_output_dimensions = 91,
  buffer_copy_to_memory = 92,
  compiled_fingerprint = 94,
  client_topology = 95,
  compiled_memory = 96,
  memory_kind_id = 97,
  loaded_assignment = 117,
  device_attributes = 128,
  loaded_logical_ids = 130,
  error_payload = 132,
};
/// Functions of version 0.100.
inline constexpr std::size_t kNumFunctions = 138;

inline constexpr int kInvalidArgument = 3;
inline constexpr int kOutOfMemory = 8;
inline constexpr int kUnimplemented = 12;
inline constexpr int kInternal = 13;

enum class ElementType : int {
  boolean = 1,
  s8 = 2,
  s16 = 3,
  s32 = 4,
  s64 = 5,
  u8 = 6,
  u16 = 7,
  u32 = 8,
  u64 = 9,
  f16 = 10,
  f32 = 11,
  f64 = 12,
  bf16 = 13,
  c64 = 14,
  c128 = 15,
};

struct Version {
  std::size_t struct_size;
  void* extensions;
  int major;
  int minor;
};

using AnyFunction = Error* (*)(void*);

struct Api {
  std::size_t struct_size;
  void* extensions;
  Version version;
  AnyFunction functions[1];  // as many as struct_size says
};

using GetApi = const Api* (*)();

struct Head {
  std::size_t struct_size = 0;
  void* extensions = nullptr;
};

enum class Extension : int { profiler = 1, layouts = 4, shardings = 19 };

/// The extensions of a plugin are a list of structs that begin like this.
struct ExtensionHead {
  std::size_t struct_size = 0;
  Extension type = {};
  const ExtensionHead* next = nullptr;
};

struct ErrorDestroy : Head {
  static constexpr Function kFunction = Function::error_destroy;
  Error* error = nullptr;
};

struct ErrorMessage : Head {
  static constexpr Function kFunction = Function::error_message;
  const Error* error = nullptr;
  const char* text = nullptr;  // out
  std::size_t text_size = 0;
};

struct ErrorCode : Head {
  static constexpr Function kFunction = Function::error_code;
  const Error* error = nullptr;
  int code = 0;  // out
};

struct PluginInitialize : Head {
  static constexpr Function kFunction = Function::plugin_initialize;
};

struct EventDestroy : Head {
  static constexpr Function kFunction = Function::event_destroy;
  Event* event = nullptr;
};

struct EventAwait : Head {
  static constexpr Function kFunction = Function::event_await;
  Event* event = nullptr;
};

struct NamedValue : Head {
  enum class Type : int { text = 0, int64 = 1, int64_list = 2, float32 = 3, boolean = 4 };
  const char* name = nullptr;
  std::size_t name_size = 0;
  Type type = Type::text;
  union {
    const char* text;
    std::int64_t int64 = 0;
    const std::int64_t* int64_list;
    float float32;
    bool boolean;
  };
  std::size_t value_size = 0;  // of a text or a list; otherwise 1
};

struct ClientCreate : Head {
  static constexpr Function kFunction = Function::client_create;
  const NamedValue* options = nullptr;
  std::size_t num_options = 0;
  void* key_value_get = nullptr;
  void* key_value_get_data = nullptr;
  void* key_value_put = nullptr;
  void* key_value_put_data = nullptr;
  Client* client = nullptr;  // out
  void* key_value_try_get = nullptr;
  void* key_value_try_get_data = nullptr;
};

struct PlatformName : Head {
  static constexpr Function kFunction = Function::client_platform_name;
  Client* client = nullptr;
  const char* text = nullptr;  // out
  std::size_t text_size = 0;
};

struct PlatformVersion : Head {
  static constexpr Function kFunction = Function::client_platform_version;
  Client* client = nullptr;
  const char* text = nullptr;  // out
  std::size_t text_size = 0;
};

struct AddressableDevices : Head {
  static constexpr Function kFunction = Function::client_addressable_devices;
  Client* client = nullptr;
  Device* const* devices = nullptr;  // out
  std::size_t num_devices = 0;
};

struct GetDescription : Head {
  static constexpr Function kFunction = Function::device_description;
  Device* device = nullptr;
  DeviceDescription* description = nullptr;  // out
};

struct DeviceId : Head {
  static constexpr Function kFunction = Function::device_id;
  DeviceDescription* description = nullptr;
  int id = 0;  // out
};

struct DeviceKind : Head {
  static constexpr Function kFunction = Function::device_kind;
  DeviceDescription* description = nullptr;
  const char* text = nullptr;  // out
  std::size_t text_size = 0;
};

struct Statistic {
  std::int64_t value = 0;
  bool is_set = false;
};

struct DeviceMemory : Head {
  static constexpr Function kFunction = Function::device_memory;
  Device* device = nullptr;
  std::int64_t bytes_in_use = 0;  // out
  Statistic peak_bytes_in_use;
  Statistic num_allocations;
  Statistic largest_allocation;
  Statistic bytes_limit;
  Statistic more[6];
};

}  // namespace tessera::run::pjrt::abi
