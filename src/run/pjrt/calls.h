// Records the calls of a plugin as the host sees them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "run/devices/backend.h"
#include "run/pjrt/abi_programs.h"
#include "run/pjrt/plugin.h"

namespace tessera::run::pjrt {

/// Must live until the end of the process, like the plugin that calls it.
class CallRecorder {
 public:
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  void start_trace();
  void start_profile();
  // These wait until all executions that were added have ended.
  DeviceTrace stop_trace();
  std::vector<DeviceCallTotal> stop_profile();

  void add(DeviceCall call);
  /// Adds a call when the devices are done with it: when the plugin signals all of `completed`.
  void add_execution(const Plugin& plugin, DeviceCall call,
                     const std::vector<abi::Event*>& completed);

 private:
  struct Execution;
  static void note_event(abi::Error* error, void* data);
  void end(Execution* execution);
  void add_locked(DeviceCall call);
  void wait_for_executions(std::unique_lock<std::mutex>& lock);
  void update() { is_on_ = is_traced_ || is_profiled_; }
  int number_of_thread();

  std::atomic<bool> is_on_ = false;
  std::mutex mutex_;  // for everything below
  std::condition_variable ended_;
  int num_running_ = 0;
  bool is_traced_ = false;
  bool is_profiled_ = false;
  DeviceTrace trace_;
  std::map<std::pair<DeviceCall::Kind, std::string>, DeviceCallTotal> totals_;
  std::map<std::int64_t, std::int64_t> busy_until_ns_;  // by first device
  std::map<std::thread::id, int> threads_;
};

/// Adds the call that lasts as long as this object, if calls are recorded.
class TimedCall {
 public:
  TimedCall(CallRecorder& recorder, DeviceCall call);
  ~TimedCall();
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

 private:
  CallRecorder& recorder_;
  bool is_on_;
  DeviceCall call_;
};

}  // namespace tessera::run::pjrt
