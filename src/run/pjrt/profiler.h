// The profiler of a plugin.
#pragma once

#include <memory>
#include <string>

#include "run/pjrt/abi_profiler.h"
#include "run/pjrt/plugin.h"

namespace tessera::run::pjrt {

/// Records what the devices do, from its construction until finish().
class Profiler {
 public:
  /// nullptr if the plugin has no profiler. Throws RuntimeFault if it cannot start.
  static std::unique_ptr<Profiler> start(const Plugin& plugin);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Ends the recording and returns the message XSpace. Throws RuntimeFault if the profiler fails.
  std::string finish();

 private:
  Profiler(const Plugin& plugin, const abi::ProfilerApi& api);
  /// Throws RuntimeFault unless `error` is nullptr.
  void check(abi::ProfilerError* error) const;

  const Plugin& plugin_;
  const abi::ProfilerApi& api_;
  abi::Profiler* profiler_ = nullptr;
};

}  // namespace tessera::run::pjrt
