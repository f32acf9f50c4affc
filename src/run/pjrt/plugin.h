// A PJRT plugin: a shared library with the compiler and the runtime of an accelerator.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <tessera/types.h>

#include "run/pjrt/abi.h"

namespace tessera::run::pjrt {

/// What a plugin says about a call that failed.
struct Failure {
  int code = 0;  // as in abi.h
  std::string text;
};

class Plugin {
 public:
  /// Loads and initializes the plugin. It is never unloaded, because its threads would go on
  /// running. Throws UserError for a file that is not a plugin or has another version of the
  /// interface.
  Plugin(const std::string& path, const Span& where);

  const std::string& path() const { return path_; }
  /// "0.81"
  std::string version() const;
  /// Whether the plugin is new enough to have this function.
  bool has(abi::Function function) const;
  /// nullptr if the plugin does not have it.
  const abi::ExtensionHead* extension(abi::Extension type) const;

  /// Calls the function that takes these arguments.
  template <typename Arguments>
  std::optional<Failure> try_call(Arguments& arguments) const {
    arguments.struct_size = sizeof(Arguments);
    return failure_of(call_raw(Arguments::kFunction, &arguments));
  }
  /// Throws RuntimeFault if the call fails.
  template <typename Arguments>
  void call(Arguments& arguments) const {
    if (const std::optional<Failure> failure = try_call(arguments)) fail(*failure);
  }
  /// Waits for the event and destroys it.
  std::optional<Failure> await(abi::Event* event) const;
  /// What an error says; the error is destroyed. nullopt for nullptr.
  std::optional<Failure> failure_of(abi::Error* error) const;
  /// Throws RuntimeFault. `subject`: what has failed.
  [[noreturn]] void fail(const Failure& failure, const std::string& subject = "") const;

 private:
  /// Calls a function that returns nothing, such as those about errors.
  template <typename Arguments>
  void call_plain(Arguments& arguments) const {
    arguments.struct_size = sizeof(Arguments);
    call_raw(Arguments::kFunction, &arguments);
  }
  abi::Error* call_raw(abi::Function function, void* arguments) const;

  std::string path_;
  const abi::Api* api_ = nullptr;
};

}  // namespace tessera::run::pjrt
