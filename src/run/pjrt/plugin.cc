#include "run/pjrt/plugin.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>

#include <tessera/error.h>

#include "run/machine/library.h"

namespace tessera::run::pjrt {

namespace {

constexpr int kMajor = 0;
constexpr int kOldestMinor = 58;

const abi::Api* api_of(void* library) {
  void* symbol = dlsym(library, "GetPjrtApi");
  return symbol == nullptr ? nullptr : reinterpret_cast<abi::GetApi>(symbol)();
}

/// For a library built for another processor, dlopen only says that there is no such file.
void check_machine(const std::string& file, const Span& where) {
  const std::string machine = other_machine(file);
  if (machine.empty()) return;
  throw UserError({.what = "set_engine: the PJRT plugin is for another processor",
                   .where = where,
                   .found = fmt::format("{}, for {}", file, machine),
                   .wanted = "a shared library for " + own_machine(),
                   .cure = "install the package of the plugin for this machine"});
}

}  // namespace

Plugin::Plugin(const std::string& path, const Span& where) : path_(path) {
  // Without a slash, dlopen would search the folders of the system.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  check_machine(file, where);
  // The CUDA plugin writes to stderr what it does in each compilation. This hides it, but keeps
  // warnings and errors.
  setenv("TF_CPP_MIN_LOG_LEVEL", "1", /*replace=*/0);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw UserError({.what = "set_engine: the PJRT plugin cannot be loaded",
                     .where = where,
                     .found = reason == nullptr ? path : reason,
                     .wanted = "a shared library for this machine, and the libraries that it needs",
                     .cure = "pass the path of the plugin's .so file, and list the folders of the "
                             "libraries that it needs in LD_LIBRARY_PATH"});
  }
  api_ = api_of(library);
  if (api_ == nullptr) {
    throw UserError({.what = "set_engine: the shared library is not a PJRT plugin",
                     .where = where,
                     .found = path + " without the function GetPjrtApi",
                     .wanted = "a library that exports GetPjrtApi",
                     .cure = "look for another .so file in the package of the plugin"});
  }
  if (api_->version.major != kMajor || api_->version.minor < kOldestMinor) {
    throw UserError(
        {.what = "set_engine: the version of the PJRT plugin is not supported",
         .where = where,
         .found = fmt::format("{} with version {}", path, version()),
         .wanted = fmt::format("version {}.{} or a later {}.x", kMajor, kOldestMinor, kMajor),
         .cure = "install a newer version of the plugin"});
  }
  abi::PluginInitialize initialize;
  call(initialize);
}

std::string Plugin::version() const {
  return fmt::format("{}.{}", api_->version.major, api_->version.minor);
}

bool Plugin::has(abi::Function function) const {
  const std::size_t end =
      offsetof(abi::Api, functions) + (static_cast<std::size_t>(function) + 1) * sizeof(void*);
  return end <= api_->struct_size && api_->functions[static_cast<std::size_t>(function)] != nullptr;
}

const abi::ExtensionHead* Plugin::extension(abi::Extension type) const {
  const auto* head = static_cast<const abi::ExtensionHead*>(api_->extensions);
  while (head != nullptr && head->type != type) head = head->next;
  return head;
}

abi::Error* Plugin::call_raw(abi::Function function, void* arguments) const {
  require(has(function), "a plugin has the functions of its version");
  return api_->functions[static_cast<std::size_t>(function)](arguments);
}

std::optional<Failure> Plugin::failure_of(abi::Error* error) const {
  if (error == nullptr) return std::nullopt;
  Failure failure;
  abi::ErrorMessage message;
  message.error = error;
  call_plain(message);
  failure.text.assign(message.text, message.text_size);
  abi::ErrorCode code;
  code.error = error;
  call_plain(code);
  failure.code = code.code;
  abi::ErrorDestroy destroy;
  destroy.error = error;
  call_plain(destroy);
  return failure;
}

std::optional<Failure> Plugin::await(abi::Event* event) const {
  abi::EventAwait wait;
  wait.event = event;
  std::optional<Failure> failure = try_call(wait);
  abi::EventDestroy destroy;
  destroy.event = event;
  try_call(destroy);
  return failure;
}

void Plugin::fail(const Failure& failure, const std::string& subject) const {
  const std::string advice =
      failure.code == abi::kOutOfMemory ? "; use a smaller batch or a smaller model" : "";
  throw RuntimeFault(fmt::format("{}{}the PJRT plugin {}: {} (code {}){}", subject,
                                 subject.empty() ? "" : ": ", path_, failure.text, failure.code,
                                 advice));
}

}  // namespace tessera::run::pjrt
