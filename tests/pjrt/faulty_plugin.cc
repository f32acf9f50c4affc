// A plugin that passes every call on to the one in $TESSERA_WRAPPED_PLUGIN, except for the fault
// that $TESSERA_PLUGIN_FAULT names, one of:
//   out_of_memory:N   the N-th execution fails
//   abort:N, fpe:N    the N-th execution ends the process
//   late:N            the results of the N-th execution cannot be read
//   held_uploads      host memory is read late; whoever waits for that or changes the memory ends
//                     the process
//   profiler          there is a profiler, which has seen one event
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <set>
#include <string>

#include "run/pjrt/abi_plugin.h"
#include "run/pjrt/abi_profiler.h"

namespace {

namespace abi = tessera::run::pjrt::abi;

const abi::Api* wrapped = nullptr;
abi::PluginApi own_api;

template <typename Arguments>
abi::Error* pass_on(Arguments& arguments) {
  return wrapped->functions[static_cast<std::size_t>(Arguments::kFunction)](&arguments);
}

template <typename Arguments, abi::Error* (*body)(Arguments&)>
void enter() {
  own_api.functions[static_cast<std::size_t>(Arguments::kFunction)] = [](void* arguments) {
    return body(*static_cast<Arguments*>(arguments));
  };
}

[[noreturn]] void end_process(const char* why) {
  std::fputs(why, stderr);
  std::_Exit(3);
}

// --- which fault

std::string fault() {
  const char* text = std::getenv("TESSERA_PLUGIN_FAULT");
  return text == nullptr ? "" : text;
}

bool is_fault(const std::string& kind, int number) {
  return fault() == kind + ":" + std::to_string(number);
}

// --- errors of our own

struct OwnError {
  const char* text;
  int code;
};
OwnError out_of_memory = {"the devices have no memory left", abi::kOutOfMemory};
OwnError failed_late = {"the devices have failed", abi::kInternal};

const OwnError* own_error(const abi::Error* error) {
  for (const OwnError* one : {&out_of_memory, &failed_late}) {
    if (static_cast<const void*>(one) == static_cast<const void*>(error)) return one;
  }
  return nullptr;
}

abi::Error* as_error(OwnError& error) { return reinterpret_cast<abi::Error*>(&error); }

abi::Error* message_of(abi::ErrorMessage& a) {
  const OwnError* own = own_error(a.error);
  if (own == nullptr) return pass_on(a);
  a.text = own->text;
  a.text_size = std::strlen(own->text);
  return nullptr;
}

abi::Error* code_of(abi::ErrorCode& a) {
  const OwnError* own = own_error(a.error);
  if (own == nullptr) return pass_on(a);
  a.code = own->code;
  return nullptr;
}

abi::Error* destroy_error(abi::ErrorDestroy& a) {
  return own_error(a.error) == nullptr ? pass_on(a) : nullptr;
}

// --- executions

std::atomic<int> num_executions = 0;
std::mutex mutex;
std::set<abi::Buffer*> unreadable;  // guarded by the mutex

bool is_unreadable(abi::Buffer* buffer) {
  const std::lock_guard<std::mutex> lock(mutex);
  return unreadable.count(buffer) > 0;
}

std::size_t num_outputs(abi::Loaded* loaded) {
  abi::GetCompiled get;
  get.struct_size = sizeof(get);
  get.loaded = loaded;
  pass_on(get);
  abi::NumOutputs ask;
  ask.struct_size = sizeof(ask);
  ask.compiled = get.compiled;
  pass_on(ask);
  return ask.count;
}

abi::Error* execute(abi::Execute& a) {
  const int number = ++num_executions;
  if (is_fault("out_of_memory", number)) return as_error(out_of_memory);
  if (is_fault("abort", number)) std::abort();
  if (is_fault("fpe", number)) std::raise(SIGFPE);
  abi::Error* error = pass_on(a);
  if (error != nullptr || !is_fault("late", number)) return error;
  const std::size_t count = num_outputs(a.loaded);
  const std::lock_guard<std::mutex> lock(mutex);
  for (std::size_t device = 0; device < a.num_devices; ++device) {
    unreadable.insert(a.outputs[device], a.outputs[device] + count);
  }
  return nullptr;
}

abi::Error* to_host(abi::BufferToHost& a) {
  return is_unreadable(a.buffer) ? as_error(failed_late) : pass_on(a);
}

abi::Error* ready_event(abi::BufferReadyEvent& a) {
  return is_unreadable(a.object) ? as_error(failed_late) : pass_on(a);
}

abi::Error* destroy_buffer(abi::BufferDestroy& a) {
  const std::lock_guard<std::mutex> lock(mutex);
  unreadable.erase(a.buffer);
  return pass_on(a);
}

// --- uploads

/// Host memory that must not change until the caller has asked three times whether it was read.
struct HeldUpload {
  const unsigned char* data;
  std::size_t size;
  std::string copy;
  int num_asked = 0;
};
std::set<void*> held;  // guarded by the mutex
int num_held = 0;

HeldUpload* held_upload(abi::Event* event) {
  const std::lock_guard<std::mutex> lock(mutex);
  return held.count(event) > 0 ? reinterpret_cast<HeldUpload*>(event) : nullptr;
}

abi::Error* from_host(abi::BufferFromHost& a) {
  const bool is_held =
      fault() == "held_uploads" && a.semantics == abi::HostSemantics::until_transfer_completes;
  if (!is_held) return pass_on(a);
  a.semantics = abi::HostSemantics::only_during_call;
  if (abi::Error* error = pass_on(a)) return error;
  abi::EventDestroy destroy;
  destroy.struct_size = sizeof(destroy);
  destroy.event = a.done_with_host_buffer;
  pass_on(destroy);
  abi::BufferSize size;
  size.struct_size = sizeof(size);
  size.object = a.buffer;
  pass_on(size);
  const auto* data = static_cast<const unsigned char*>(a.data);
  auto* upload = new HeldUpload{data, size.value, std::string(data, data + size.value)};
  const std::lock_guard<std::mutex> lock(mutex);
  held.insert(upload);
  num_held += 1;
  a.done_with_host_buffer = reinterpret_cast<abi::Event*>(upload);
  return nullptr;
}

abi::Error* is_ready(abi::EventIsReady& a) {
  HeldUpload* upload = held_upload(a.event);
  if (upload == nullptr) return pass_on(a);
  constexpr int kReadAt = 3;
  a.is_ready = ++upload->num_asked >= kReadAt;
  if (a.is_ready && std::memcmp(upload->data, upload->copy.data(), upload->size) != 0) {
    end_process("faulty plugin: memory changed before it was read\n");
  }
  return nullptr;
}

abi::Error* await(abi::EventAwait& a) {
  HeldUpload* upload = held_upload(a.event);
  if (upload == nullptr) return pass_on(a);
  if (upload->num_asked < 3) end_process("faulty plugin: somebody waits for an upload\n");
  return nullptr;
}

abi::Error* destroy_event(abi::EventDestroy& a) {
  HeldUpload* upload = held_upload(a.event);
  if (upload == nullptr) return pass_on(a);
  const std::lock_guard<std::mutex> lock(mutex);
  held.erase(upload);
  delete upload;
  return nullptr;
}

void tell_uploads() {
  if (fault() == "held_uploads") std::fprintf(stderr, "faulty plugin: %d uploads held\n", num_held);
}

// --- the profiler

/// An XSpace with the plane `/device:GPU:0`, whose line `Stream #1` is empty.
std::string space() {
  const std::string line = "\x12\x09Stream #1";
  const std::string name = "/device:GPU:0";
  const std::string plane = std::string("\x12") + static_cast<char>(name.size()) + name + "\x1a" +
                            static_cast<char>(line.size()) + line;
  return std::string("\x0a") + static_cast<char>(plane.size()) + plane;
}

int profiler_state = 0;  // the address is the profiler

abi::ProfilerError* create_profiler(abi::ProfilerCreate* a) {
  if (a->options_size == 0) end_process("faulty plugin: a profiler without options\n");
  a->profiler = reinterpret_cast<abi::Profiler*>(&profiler_state);
  return nullptr;
}

/// The functions are called in this order.
template <int step>
abi::ProfilerError* profiler_step(abi::ProfilerCall* a) {
  if (a->profiler != reinterpret_cast<abi::Profiler*>(&profiler_state) ||
      profiler_state++ != step) {
    end_process("faulty plugin: a call of the profiler out of order\n");
  }
  return nullptr;
}

abi::ProfilerError* collect(abi::ProfilerData* a) {
  // Passes one byte more than was written, as the plugin for NVIDIA's devices does.
  const std::string bytes = space() + '\0';
  if (a->data != nullptr) std::memcpy(a->data, bytes.data(), bytes.size());
  a->data_size = bytes.size();
  return nullptr;
}

void add_profiler() {
  static abi::ProfilerApi profiler;
  profiler.create = create_profiler;
  profiler.start = profiler_step<0>;
  profiler.stop = profiler_step<1>;
  profiler.destroy = profiler_step<2>;
  profiler.collect = collect;
  static abi::ProfilerExtension extension;
  extension.head = {.struct_size = sizeof(extension),
                    .type = abi::Extension::profiler,
                    .next = static_cast<const abi::ExtensionHead*>(wrapped->extensions)};
  extension.api = &profiler;
  own_api.extensions = &extension;
}

void wrap() {
  const char* path = std::getenv("TESSERA_WRAPPED_PLUGIN");
  void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) end_process("faulty plugin: no plugin in TESSERA_WRAPPED_PLUGIN\n");
  wrapped = reinterpret_cast<abi::GetApi>(dlsym(library, "GetPjrtApi"))();
  const std::size_t size = std::min(wrapped->struct_size, sizeof(own_api));
  std::memcpy(static_cast<void*>(&own_api), wrapped, size);
  own_api.struct_size = size;
  enter<abi::ErrorMessage, message_of>();
  enter<abi::ErrorCode, code_of>();
  enter<abi::ErrorDestroy, destroy_error>();
  enter<abi::Execute, execute>();
  enter<abi::BufferToHost, to_host>();
  enter<abi::BufferReadyEvent, ready_event>();
  enter<abi::BufferDestroy, destroy_buffer>();
  enter<abi::BufferFromHost, from_host>();
  enter<abi::EventIsReady, is_ready>();
  enter<abi::EventAwait, await>();
  enter<abi::EventDestroy, destroy_event>();
  if (fault() == "profiler") add_profiler();
  std::atexit(tell_uploads);
}

}  // namespace

extern "C" const void* GetPjrtApi();
extern "C" const void* GetPjrtApi() {
  if (wrapped == nullptr) wrap();
  return &own_api;
}
