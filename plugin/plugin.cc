// The function table that JAX asks for.
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "plugin/buffer.h"
#include "plugin/call.h"
#include "plugin/client.h"
#include "plugin/layouts.h"
#include "plugin/profiler.h"
#include "plugin/program.h"

namespace tessera::plugin {

namespace {

/// The minor version of the interface that the table implements.
constexpr int kMinor = 100;

// The sizes of the structs in that version: a missing field would shift all later ones.
static_assert(sizeof(abi::NamedValue) == 56);
static_assert(sizeof(abi::ClientCreate) == 88);
static_assert(sizeof(abi::DeviceMemory) == 192);
static_assert(sizeof(abi::CompiledMemory) == 112);
static_assert(sizeof(abi::LoadedAssignment) == 56);
static_assert(sizeof(abi::MemoryLayout) == 80);
static_assert(sizeof(abi::BufferFromHost) == 120);
static_assert(sizeof(abi::ExecuteOptions) >= 80);
static_assert(sizeof(abi::Execute) == 80);
static_assert(sizeof(abi::BufferToHost) == 56);
static_assert(sizeof(abi::OutputDimensions) == 48);
static_assert(sizeof(abi::TextOfLayout) == 56);
static_assert(sizeof(abi::DefaultLayout<abi::Client>) == 56);
static_assert(sizeof(abi::LayoutsOfProgram) == 40);
static_assert(sizeof(abi::LayoutsExtension) == 80);
static_assert(offsetof(abi::PluginApi, functions) == 40);

template <std::size_t number>
abi::Error* unsupported(void* /*arguments*/) {
  return error_of(std::make_shared<const Failure>(Failure{
      abi::kUnimplemented,
      "tessera: function " + std::to_string(number) + " of the PJRT interface is not supported"}));
}

template <std::size_t... numbers>
void fill_unsupported(abi::PluginApi& api, std::index_sequence<numbers...>) {
  ((api.functions[numbers] = unsupported<numbers>), ...);
}

// Functions that take an error cannot fail.
abi::Error* destroy_error(void* arguments) {
  delete static_cast<abi::ErrorDestroy*>(arguments)->error;
  return nullptr;
}

abi::Error* error_message(void* arguments) {
  auto& a = *static_cast<abi::ErrorMessage*>(arguments);
  set_text(a, a.error->failure->text);
  return nullptr;
}

abi::Error* error_code(void* arguments) {
  auto& a = *static_cast<abi::ErrorCode*>(arguments);
  a.code = a.error->failure->code;
  return nullptr;
}

abi::Error* no_payload(void* /*arguments*/) { return nullptr; }

void attributes(abi::PluginAttributes& a) {
  // The version of StableHLO that JAX must use for programs.
  static constexpr std::array<std::int64_t, 3> kStableHlo = {1, 13, 0};
  static const abi::NamedValue kVersion = [] {
    constexpr std::string_view kName = "stablehlo_current_version";
    abi::NamedValue value;
    value.struct_size = sizeof(value);
    value.name = kName.data();
    value.name_size = kName.size();
    value.type = abi::NamedValue::Type::int64_list;
    value.int64_list = kStableHlo.data();
    value.value_size = kStableHlo.size();
    return value;
  }();
  a.attributes = &kVersion;
  a.num_attributes = 1;
}

abi::PluginApi make_table() {
  static abi::ProfilerExtension profiler = profiler_extension();
  static abi::LayoutsExtension layouts = layouts_extension();
  layouts.next = &profiler.head;
  static abi::ShardingsExtension shardings = {
      .next = &layouts, .of_arguments = argument_shardings, .of_results = result_shardings};
  abi::PluginApi api;
  api.extensions = &shardings;
  api.version = {
      .struct_size = sizeof(abi::Version), .extensions = nullptr, .major = 0, .minor = kMinor};
  fill_unsupported(api, std::make_index_sequence<abi::kNumFunctions>());
  const auto set = [&](abi::Function function, abi::AnyFunction body) {
    api.functions[static_cast<std::size_t>(function)] = body;
  };
  set(abi::Function::error_destroy, destroy_error);
  set(abi::Function::error_message, error_message);
  set(abi::Function::error_code, error_code);
  set(abi::Function::error_payload, no_payload);
  enter<abi::PluginInitialize, ignore>(api);
  enter<abi::PluginAttributes, attributes>(api);
  fill_client_functions(api);
  fill_buffer_functions(api);
  fill_program_functions(api);
  fill_execute_functions(api);
  return api;
}

}  // namespace

}  // namespace tessera::plugin

extern "C" __attribute__((visibility("default"))) const tessera::plugin::abi::PluginApi*
GetPjrtApi() {
  static const tessera::plugin::abi::PluginApi kTable = tessera::plugin::make_table();
  return &kTable;
}
