#include "plugin/profiler.h"

#include <algorithm>
#include <string>

#include <tessera/error.h>

#include "api/inspect/recording.h"
#include "plugin/failure.h"
#include "plugin/python_calls.h"

namespace tessera::run::pjrt::abi {

struct ProfilerError {
  tessera::plugin::FailurePtr failure;
};

struct Profiler {
  std::string space;  // a serialized XSpace
};

}  // namespace tessera::run::pjrt::abi

namespace tessera::plugin {

namespace {

template <typename Arguments, void (*body)(Arguments&)>
abi::ProfilerError* guarded(Arguments* arguments) {
  try {
    body(*arguments);
    return nullptr;
  } catch (...) {
    return new abi::ProfilerError{current_failure()};
  }
}

void destroy_error(abi::ProfilerErrorDestroy* arguments) { delete arguments->error; }

void error_message(abi::ProfilerErrorMessage* arguments) {
  const std::string& text = arguments->error->failure->text;
  arguments->text = text.data();
  arguments->text_size = text.size();
}

abi::ProfilerError* error_code(abi::ProfilerErrorCode* arguments) {
  arguments->code = arguments->error->failure->code;
  return nullptr;
}

void create(abi::ProfilerCreate& arguments) { arguments.profiler = new abi::Profiler; }

void destroy(abi::ProfilerCall& arguments) { delete arguments.profiler; }

// Both wait for programs, which may call Python.
void start(abi::ProfilerCall& /*arguments*/) {
  const WithoutPythonLock scope;
  detail::start_recording({});
}

void stop(abi::ProfilerCall& arguments) {
  const WithoutPythonLock scope;
  arguments.profiler->space = profile::space_for_jax(detail::stop_recording({}));
}

/// JAX reads the memory of the profiler directly. The interface also lets callers ask for the size
/// first and then provide their own memory.
void collect(abi::ProfilerData& arguments) {
  std::string& space = arguments.profiler->space;
  auto* const data = reinterpret_cast<std::uint8_t*>(space.data());
  if (arguments.data == nullptr) {
    arguments.data = data;
  } else if (arguments.data != data) {
    std::copy_n(data, space.size(), arguments.data);
  }
  arguments.data_size = space.size();
}

}  // namespace

abi::ProfilerExtension profiler_extension() {
  static abi::ProfilerApi api = {.error_destroy = destroy_error,
                                 .error_message = error_message,
                                 .error_code = error_code,
                                 .create = guarded<abi::ProfilerCreate, create>,
                                 .destroy = guarded<abi::ProfilerCall, destroy>,
                                 .start = guarded<abi::ProfilerCall, start>,
                                 .stop = guarded<abi::ProfilerCall, stop>,
                                 .collect = guarded<abi::ProfilerData, collect>};
  return {.head = {.struct_size = sizeof(abi::ProfilerExtension),
                   .type = abi::Extension::profiler,
                   .next = nullptr},
          .api = &api};
}

}  // namespace tessera::plugin
