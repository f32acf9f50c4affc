#include "run/pjrt/profiler.h"

#include <protozero/pbf_reader.hpp>
#include <utility>

#include "run/pjrt/messages.h"

namespace tessera::run::pjrt {

namespace {

const abi::ProfilerApi* profiler_of(const Plugin& plugin) {
  const abi::ExtensionHead* found = plugin.extension(abi::Extension::profiler);
  if (found == nullptr) return nullptr;
  const abi::ProfilerApi* api = reinterpret_cast<const abi::ProfilerExtension*>(found)->api;
  const bool is_whole = api != nullptr && api->struct_size >= sizeof(abi::ProfilerApi);
  return is_whole ? api : nullptr;
}

/// The data without anything after the last field: the plugin for NVIDIA devices passes one zero
/// byte more than it has written, and no reader accepts a message with that byte.
std::string_view whole_fields(std::string_view space) {
  std::size_t end = 0;
  try {
    for (protozero::pbf_reader fields(space.data(), space.size()); fields.next();) {
      fields.skip();
      end = space.size() - fields.length();
    }
  } catch (const protozero::exception&) {
    return space.substr(0, end);
  }
  return space;
}

}  // namespace

std::unique_ptr<Profiler> Profiler::start(const Plugin& plugin) {
  const abi::ProfilerApi* api = profiler_of(plugin);
  return api == nullptr ? nullptr : std::unique_ptr<Profiler>(new Profiler(plugin, *api));
}

Profiler::Profiler(const Plugin& plugin, const abi::ProfilerApi& api) : plugin_(plugin), api_(api) {
  const std::string options = profile_options();
  abi::ProfilerCreate create;
  create.options = options.data();
  create.options_size = options.size();
  check(api_.create(&create));
  abi::ProfilerCall call;
  call.profiler = create.profiler;
  if (abi::ProfilerError* error = api_.start(&call)) {
    api_.destroy(&call);
    check(error);
  }
  profiler_ = create.profiler;
}

Profiler::~Profiler() {
  abi::ProfilerCall call;
  call.profiler = profiler_;
  api_.destroy(&call);
}

std::string Profiler::finish() {
  abi::ProfilerCall call;
  call.profiler = profiler_;
  check(api_.stop(&call));
  abi::ProfilerData data;
  data.profiler = profiler_;
  check(api_.collect(&data));
  // Plugins differ in who provides the memory.
  if (data.data != nullptr) {
    return std::string(whole_fields({reinterpret_cast<const char*>(data.data), data.data_size}));
  }
  std::string space(data.data_size, '\0');
  if (space.empty()) return space;
  data.data = reinterpret_cast<std::uint8_t*>(space.data());
  check(api_.collect(&data));
  return std::string(whole_fields(space));
}

void Profiler::check(abi::ProfilerError* error) const {
  if (error == nullptr) return;
  abi::ProfilerErrorMessage message;
  message.error = error;
  api_.error_message(&message);
  Failure failure{.code = 0, .text = std::string(message.text, message.text_size)};
  abi::ProfilerErrorCode code;
  code.error = error;
  api_.error_code(&code);
  failure.code = code.code;
  abi::ProfilerErrorDestroy destroy;
  destroy.error = error;
  api_.error_destroy(&destroy);
  plugin_.fail(failure, "the profile");
}

}  // namespace tessera::run::pjrt
