#include "plugin/program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <tessera/error.h>

#include "base/sha1.h"
#include "plugin/call.h"
#include "plugin/layouts.h"
#include "plugin/python_calls.h"
#include "run/pjrt/elements.h"

namespace tessera::plugin {

namespace {

abi::ElementType element_type(DType dtype, HiddenDims hidden, std::string_view narrow) {
  if (!narrow.empty()) return run::pjrt::narrow_type(narrow);
  if (hidden.parts == 0) return run::pjrt::element_type(dtype);
  return dtype == DType::f64 ? abi::ElementType::c128 : abi::ElementType::c64;
}

/// `narrow`: the type of the elements for which it has bytes, if any.
Port port_of(const run::Placement& placement, HiddenDims hidden, std::string_view narrow) {
  Port port{.type = element_type(placement.type.dtype, hidden, narrow),
            .num_tiles = static_cast<std::size_t>(placement.layout.num_tiles()),
            .tile_of = {},
            .dims = {}};
  for (std::int64_t device = 0; device < placement.mesh.num_devices(); ++device) {
    const std::int64_t tile = placement.layout.tile_at(device_digits(placement.mesh, device));
    port.tile_of.push_back(static_cast<std::size_t>(tile));
  }
  for (std::int64_t tile = 0; tile < placement.layout.num_tiles(); ++tile) {
    const std::vector<std::int64_t>& size = placement.layout.box(tile).size;
    port.dims.emplace_back(size.begin() + static_cast<std::ptrdiff_t>(hidden.terms),
                           size.end() - static_cast<std::ptrdiff_t>(hidden.parts));
  }
  return port;
}

abi::NamedValue cost(std::string_view name, std::int64_t value) {
  abi::NamedValue result;
  result.struct_size = sizeof(result);
  result.name = name.data();
  result.name_size = name.size();
  result.type = abi::NamedValue::Type::float32;
  result.float32 = static_cast<float>(value);
  result.value_size = 1;
  return result;
}

std::string hex(std::string_view data) {
  std::string text;
  for (const std::uint8_t byte : sha1(data)) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[byte / 16];
    text += kDigits[byte % 16];
  }
  return text;
}

/// The number of a memory kind; that of the default kind if there is none of this name.
std::size_t kind_number(std::string_view name) {
  const auto* const found = std::ranges::find(kMemoryKinds, name);
  return found == kMemoryKinds.end() ? 0 : static_cast<std::size_t>(found - kMemoryKinds.begin());
}

}  // namespace

void Texts::finish() {
  for (const std::string& text : texts) {
    starts.push_back(text.data());
    sizes.push_back(text.size());
  }
}

CompiledProgram::CompiledProgram(std::string module, const CompileOptions& options)
    : program(module, options.num_partitions, python_function),
      code(std::move(module)),
      num_partitions(static_cast<std::size_t>(options.num_partitions)) {
  fingerprint = hex(code);
  for (std::size_t i = 0; i < program.arguments().size(); ++i) {
    const run::Placement& placement = *program.arguments()[i];
    const HiddenDims hidden{.terms = program.argument_terms()[i].count,
                            .reduction = program.argument_terms()[i].reduction,
                            .parts = program.argument_is_complex()[i] ? 1U : 0U};
    arguments.push_back(port_of(placement, hidden, program.argument_narrow()[i]));
    argument_shardings.texts.push_back(op_sharding(placement, hidden));
    argument_layouts.push_back(row_major_layout(arguments.back().dims[0].size()));
  }
  for (std::size_t i = 0; i < program.results().size(); ++i) {
    const run::Placement& placement = *program.results()[i];
    const HiddenDims hidden{.terms = program.result_terms()[i].count,
                            .reduction = program.result_terms()[i].reduction,
                            .parts = program.result_is_complex()[i] ? 1U : 0U};
    results.push_back(port_of(placement, hidden, program.result_narrow()[i]));
    result_shardings.texts.push_back(op_sharding(placement, hidden));
    results.back().memory_kind = kind_number(program.result_memory_kinds()[i]);
    memory_kinds.texts.emplace_back(kMemoryKinds[results.back().memory_kind]);
    result_types.push_back(results.back().type);
    const std::vector<std::int64_t>& dims = results.back().dims[0];
    result_dims.insert(result_dims.end(), dims.begin(), dims.end());
    result_ranks.push_back(dims.size());
    result_layouts.push_back(row_major_layout(dims.size()));
  }
  argument_shardings.finish();
  result_shardings.finish();
  memory_kinds.finish();
  costs = {cost("flops", program.flops()), cost("bytes accessed", program.bytes())};
  constexpr std::int64_t kShortFlops = 1 << 20;
  constexpr std::int64_t kShortBytes = 1 << 18;
  is_short = !program.has_loops() && !program.calls_host() && program.flops() < kShortFlops &&
             program.bytes() < kShortBytes;
}

const std::string& CompiledProgram::text() const {
  std::call_once(text_once_, [&] {
    text_ = program.stablehlo();
    if (text_.empty()) text_ = code;
  });
  return text_;
}

namespace {

/// Writes the program that Tessera made of a module, with its collectives, to the folder that
/// TESSERA_SHOW names.
void show(const detail::ModuleProgram& program, const std::string& code) {
  const char* folder = std::getenv("TESSERA_SHOW");
  if (folder == nullptr || *folder == '\0') return;
  static std::atomic<int> count = 0;
  std::filesystem::create_directories(folder);
  char number[16];
  std::snprintf(number, sizeof(number), "%04d", count++);
  const std::string stem = std::string(folder) + "/" + number + "_" + program.name();
  std::ofstream(stem + ".mlirbc", std::ios::binary) << code;
  std::ofstream(stem + ".txt") << program.text() << "\n" << program.explain();
}

void check_options(const CompileOptions& options, std::size_t num_devices) {
  if (options.num_replicas != 1) {
    throw UserError({.what = "tessera: a program with several replicas is not supported",
                     .found = std::to_string(options.num_replicas) + " replicas",
                     .wanted = "one replica, split over devices",
                     .cure = "use jax.jit with shardings, or jax.shard_map, instead of jax.pmap"});
  }
  for (const int id : options.devices) {
    if (id >= 0 && static_cast<std::size_t>(id) < num_devices) continue;
    throw UserError({.what = "tessera: a program names a device that does not exist",
                     .found = std::to_string(id),
                     .wanted = "a device below " + std::to_string(num_devices),
                     .cure = "set TESSERA_NUM_DEVICES to the number of devices that are needed"});
  }
}

void compile(abi::Compile& a) {
  const std::string_view format(a.program->format, a.program->format_size);
  if (format != "mlir") {
    throw UserError({.what = "tessera: the format of the program is unknown",
                     .found = std::string(format),
                     .wanted = "mlir",
                     .cure = "use one of the versions of JAX that docs/jax.md lists"});
  }
  CompileOptions options = read_compile_options({a.options, a.options_size});
  check_options(options, a.client->devices.size());
  if (options.devices.empty()) options.devices.push_back(0);
  auto loaded = std::make_unique<abi::Loaded>();
  try {
    loaded->compiled = std::make_shared<const CompiledProgram>(
        std::string(a.program->code, a.program->code_size), options);
  } catch (...) {
    throw Failed(current_failure(abi::kUnimplemented));
  }
  show(loaded->compiled->program, loaded->compiled->code);
  for (const int id : options.devices) {
    loaded->logical_ids.push_back({0, static_cast<int>(loaded->devices.size())});
    loaded->devices.push_back(a.client->devices[static_cast<std::size_t>(id)]);
  }
  loaded->device_ids = options.devices;
  a.loaded = loaded.release();
}

void get_compiled(abi::GetCompiled& a) { a.compiled = new abi::Compiled{a.loaded->compiled}; }
void compiled_destroy(abi::CompiledDestroy& a) { delete a.compiled; }

void loaded_destroy(abi::LoadedDestroy& a) { delete a.loaded; }
void loaded_devices(abi::LoadedDevices& a) { set_list(a, a.object->devices); }
void loaded_delete(abi::LoadedDelete& a) { a.object->is_deleted = true; }
void loaded_is_deleted(abi::LoadedIsDeleted& a) { a.value = a.object->is_deleted; }
void loaded_fingerprint(abi::LoadedFingerprint& a) { set_text(a, a.object->compiled->fingerprint); }
void logical_ids(abi::LogicalIds& a) { set_list(a, a.object->logical_ids); }

void loaded_assignment(abi::LoadedAssignment& a) {
  auto text = std::make_unique<std::string>(device_assignment(a.loaded->device_ids));
  a.bytes = text->data();
  a.num_bytes = text->size();
  a.owner = text.release();
  a.free_owner = [](void* owner) { delete static_cast<std::string*>(owner); };
}

void name(abi::CompiledName& a) { set_text(a, a.object->held->program.name()); }
void fingerprint(abi::CompiledFingerprint& a) { set_text(a, a.object->held->fingerprint); }
void num_replicas(abi::NumReplicas& a) { a.value = 1; }
void num_partitions(abi::NumPartitions& a) { a.value = a.object->held->num_partitions; }
void num_outputs(abi::NumOutputs& a) { a.count = a.compiled->held->results.size(); }
void code_size(abi::CodeSize& a) { a.value = 0; }
void costs(abi::Cost& a) { set_list(a, a.object->held->costs); }
void output_types(abi::OutputTypes& a) { set_list(a, a.object->held->result_types); }

void memory_kinds(abi::OutputMemoryKinds& a) {
  a.num_outputs = a.compiled->held->results.size();
  a.kinds = a.compiled->held->memory_kinds.starts.data();
  a.kind_sizes = a.compiled->held->memory_kinds.sizes.data();
}

void output_dimensions(abi::OutputDimensions& a) {
  a.num_outputs = a.compiled->held->results.size();
  a.dims = a.compiled->held->result_dims.data();
  a.ranks = a.compiled->held->result_ranks.data();
}

void optimized_program(abi::OptimizedProgram& a) {
  static constexpr std::string_view kFormat = "mlir";
  const std::string& code = a.compiled->held->text();
  a.program->format = kFormat.data();
  a.program->format_size = kFormat.size();
  if (a.program->code == nullptr) {
    a.program->code_size = code.size();
    return;
  }
  std::copy_n(code.data(), std::min(code.size(), a.program->code_size), a.program->code);
}

void memory_of_program(abi::CompiledMemory& a) {
  const detail::DeviceBytes memory = a.compiled->held->program.memory();
  a.code = 0;
  a.arguments = memory.arguments;
  a.outputs = memory.outputs;
  a.aliased = memory.aliased;
  a.temporaries = memory.temporaries;
  std::fill(std::begin(a.on_host), std::end(a.on_host), 0);
  if (a.struct_size >= sizeof(abi::CompiledMemory)) {
    a.peak = memory.arguments + memory.outputs - memory.aliased + memory.temporaries;
  }
}

void shardings(abi::GetShardings& a, const Texts& texts) {
  a.count = texts.texts.size();
  a.shardings = texts.starts.data();
  a.sizes = texts.sizes.data();
}
void shardings_of_arguments(abi::GetShardings& a) {
  shardings(a, a.compiled->held->argument_shardings);
}
void shardings_of_results(abi::GetShardings& a) {
  shardings(a, a.compiled->held->result_shardings);
}

}  // namespace

abi::Error* argument_shardings(void* arguments) {
  return guarded<abi::GetShardings, shardings_of_arguments>(arguments);
}

abi::Error* result_shardings(void* arguments) {
  return guarded<abi::GetShardings, shardings_of_results>(arguments);
}

void fill_program_functions(abi::PluginApi& api) {
  enter<abi::Compile, compile>(api);
  enter<abi::GetCompiled, get_compiled>(api);
  enter<abi::LoadedDestroy, loaded_destroy>(api);
  enter<abi::LoadedDevices, loaded_devices>(api);
  enter<abi::LoadedDelete, loaded_delete>(api);
  enter<abi::LoadedIsDeleted, loaded_is_deleted>(api);
  enter<abi::LoadedFingerprint, loaded_fingerprint>(api);
  enter<abi::LogicalIds, logical_ids>(api);
  enter<abi::LoadedAssignment, loaded_assignment>(api);
  enter<abi::CompiledDestroy, compiled_destroy>(api);
  enter<abi::CompiledName, name>(api);
  enter<abi::CompiledFingerprint, fingerprint>(api);
  enter<abi::NumReplicas, num_replicas>(api);
  enter<abi::NumPartitions, num_partitions>(api);
  enter<abi::NumOutputs, num_outputs>(api);
  enter<abi::CodeSize, code_size>(api);
  enter<abi::Cost, costs>(api);
  enter<abi::OutputTypes, output_types>(api);
  enter<abi::OutputMemoryKinds, memory_kinds>(api);
  enter<abi::OutputDimensions, output_dimensions>(api);
  enter<abi::OptimizedProgram, optimized_program>(api);
  enter<abi::CompiledMemory, memory_of_program>(api);
}

}  // namespace tessera::plugin
