// The second part of abi.h: programs, buffers and the events that tell when they are ready.
#pragma once

#include <string_view>

#include "run/pjrt/abi.h"

namespace tessera::run::pjrt::abi {

struct EventIsReady : Head {
  static constexpr Function kFunction = Function::event_is_ready;
  Event* event = nullptr;
  bool is_ready = false;  // out
};

struct EventOnReady : Head {
  static constexpr Function kFunction = Function::event_on_ready;
  Event* event = nullptr;
  void (*callback)(Error* error, void* data) = nullptr;  // takes the error
  void* data = nullptr;
};

/// One object in, one value out.
template <Function function, typename Object, typename Value>
struct Get : Head {
  static constexpr Function kFunction = function;
  Object* object = nullptr;
  Value value = {};  // out
};

using BufferReadyEvent = Get<Function::buffer_ready_event, Buffer, Event*>;

struct Program : Head {
  const char* code = nullptr;
  std::size_t code_size = 0;
  const char* format = nullptr;
  std::size_t format_size = 0;
};

/// A program in StableHLO text, which must outlive it.
inline Program program_of(std::string_view text) {
  static constexpr std::string_view kFormat = "mlir";
  Program program;
  program.struct_size = sizeof(program);
  program.code = text.data();
  program.code_size = text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

struct Compile : Head {
  static constexpr Function kFunction = Function::client_compile;
  Client* client = nullptr;
  const Program* program = nullptr;
  const char* options = nullptr;
  std::size_t options_size = 0;
  Loaded* loaded = nullptr;  // out
};

/// Devices that are not present, but for which programs can be compiled.
struct TopologyCreate : Head {
  static constexpr Function kFunction = Function::topology_create;
  const char* name = nullptr;
  std::size_t name_size = 0;
  const NamedValue* options = nullptr;
  std::size_t num_options = 0;
  Topology* topology = nullptr;  // out
};

struct CompileForTopology : Head {
  static constexpr Function kFunction = Function::compile_for_topology;
  const Topology* topology = nullptr;
  const Program* program = nullptr;
  const char* options = nullptr;
  std::size_t options_size = 0;
  Client* client = nullptr;
  Compiled* compiled = nullptr;  // out
};

enum class HostSemantics : int { only_during_call = 0, until_transfer_completes = 1 };

struct BufferFromHost : Head {
  static constexpr Function kFunction = Function::client_buffer_from_host;
  Client* client = nullptr;
  const void* data = nullptr;
  ElementType type = ElementType::f32;
  const std::int64_t* dims = nullptr;
  std::size_t num_dims = 0;
  const std::int64_t* byte_strides = nullptr;
  std::size_t num_byte_strides = 0;
  HostSemantics semantics = HostSemantics::only_during_call;
  Device* device = nullptr;
  Memory* memory = nullptr;
  void* device_layout = nullptr;
  Event* done_with_host_buffer = nullptr;  // out
  Buffer* buffer = nullptr;
};

struct LoadedDestroy : Head {
  static constexpr Function kFunction = Function::loaded_destroy;
  Loaded* loaded = nullptr;
};

struct GetCompiled : Head {
  static constexpr Function kFunction = Function::loaded_compiled;
  Loaded* loaded = nullptr;
  Compiled* compiled = nullptr;  // out
};

struct CompiledDestroy : Head {
  static constexpr Function kFunction = Function::compiled_destroy;
  Compiled* compiled = nullptr;
};

struct NumOutputs : Head {
  static constexpr Function kFunction = Function::compiled_num_outputs;
  Compiled* compiled = nullptr;
  std::size_t count = 0;  // out
};

struct CompiledMemory : Head {
  static constexpr Function kFunction = Function::compiled_memory;
  Compiled* compiled = nullptr;
  std::int64_t code = 0;  // out
  std::int64_t arguments = 0;
  std::int64_t outputs = 0;
  std::int64_t aliased = 0;
  std::int64_t temporaries = 0;
  std::int64_t on_host[5] = {};
  std::int64_t peak = 0;
};

struct ExecuteOptions : Head {
  void** send_callbacks = nullptr;
  void** receive_callbacks = nullptr;
  std::size_t num_sends = 0;
  std::size_t num_receives = 0;
  int launch_id = 0;
  const std::int64_t* not_donated = nullptr;  // numbers of inputs
  std::size_t num_not_donated = 0;
  void* context = nullptr;
  const char* call_location = nullptr;
  std::size_t num_tasks = 0;
  int* task_ids = nullptr;
  std::int64_t* incarnation_ids = nullptr;
};

struct Execute : Head {
  static constexpr Function kFunction = Function::loaded_execute;
  Loaded* loaded = nullptr;
  ExecuteOptions* options = nullptr;
  Buffer* const* const* arguments = nullptr;  // per device and input
  std::size_t num_devices = 0;
  std::size_t num_arguments = 0;
  Buffer** const* outputs = nullptr;  // per device and output; written by the plugin
  Event** completed = nullptr;        // per device; written by the plugin
  Device* device = nullptr;
};

struct BufferDestroy : Head {
  static constexpr Function kFunction = Function::buffer_destroy;
  Buffer* buffer = nullptr;
};

struct BufferCopyToDevice : Head {
  static constexpr Function kFunction = Function::buffer_copy_to_device;
  Buffer* buffer = nullptr;
  Device* device = nullptr;
  Buffer* copy = nullptr;  // out
};

/// Dimensions from the one whose elements are adjacent to the one with the largest stride.
struct TiledLayout : Head {
  const std::int64_t* minor_to_major = nullptr;
  std::size_t num_dims = 0;
  const std::int64_t* tile_dims = nullptr;
  const std::size_t* tile_dim_sizes = nullptr;
  std::size_t num_tiles = 0;
};

struct MemoryLayout : Head {
  TiledLayout tiled;
  int type = 0;  // tiled
};

struct BufferToHost : Head {
  static constexpr Function kFunction = Function::buffer_to_host;
  Buffer* buffer = nullptr;
  MemoryLayout* layout = nullptr;
  void* data = nullptr;
  std::size_t data_size = 0;
  Event* event = nullptr;  // out
};

}  // namespace tessera::run::pjrt::abi
