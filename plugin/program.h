// Compiled programs.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/transform/module.h"
#include "plugin/buffer.h"
#include "plugin/protos.h"

namespace tessera::plugin {

/// How an argument or a result is laid out over the devices of a program.
struct Port {
  abi::ElementType type;
  std::size_t num_tiles = 1;
  std::vector<std::size_t> tile_of;             // per device
  std::vector<std::vector<std::int64_t>> dims;  // per tile
  std::size_t memory_kind = 0;                  // of a result
};

/// A list of texts in the form that the interface requires.
struct Texts {
  std::vector<std::string> texts;
  std::vector<const char*> starts;
  std::vector<std::size_t> sizes;
  void finish();
};

struct CompiledProgram {
  CompiledProgram(std::string code, const CompileOptions& options);

  detail::ModuleProgram program;
  std::string code;  // as JAX passed it
  /// What one device computes, for as_text(). Made on the first call.
  const std::string& text() const;
  std::string fingerprint;
  std::vector<Port> arguments;
  std::vector<Port> results;
  std::size_t num_partitions = 1;
  bool is_short = false;  // takes no more time than waking up a thread
  Texts argument_shardings;
  Texts result_shardings;
  Texts memory_kinds;
  std::vector<const abi::HeldLayout*> argument_layouts;
  std::vector<const abi::HeldLayout*> result_layouts;
  std::vector<abi::ElementType> result_types;
  std::vector<std::int64_t> result_dims;  // of the tiles of all results
  std::vector<std::size_t> result_ranks;
  std::vector<abi::NamedValue> costs;

 private:
  mutable std::once_flag text_once_;
  mutable std::string text_;
};

void fill_program_functions(abi::PluginApi& api);
void fill_execute_functions(abi::PluginApi& api);
abi::Error* argument_shardings(void* arguments);
abi::Error* result_shardings(void* arguments);

}  // namespace tessera::plugin

namespace tessera::run::pjrt::abi {

/// A separate handle, which may outlive the Loaded.
struct Compiled {
  std::shared_ptr<const tessera::plugin::CompiledProgram> held;
};

struct Loaded {
  std::shared_ptr<const tessera::plugin::CompiledProgram> compiled;
  std::vector<Device*> devices;  // per partition
  std::vector<LogicalId> logical_ids;
  std::vector<int> device_ids;
  std::atomic<bool> is_deleted = false;
};

}  // namespace tessera::run::pjrt::abi
