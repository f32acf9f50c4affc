// Handles signals that ask a program to end.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/error.h>

namespace tessera::cli {

/// For example `SIGTERM`; `signal 12` for a signal that StopRequest does not handle.
std::string signal_name(int signal);

/// Thrown by a program that ends because of a signal, after its work is saved.
class EndedBySignal : public RuntimeFault {
 public:
  explicit EndedBySignal(int signal)
      : RuntimeFault("ended by " + signal_name(signal)), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

/// Lets a run finish its current step when SIGINT, SIGTERM, SIGHUP or SIGPIPE arrives. Before
/// begin() and after end() these signals have their default action, and so has a second signal.
/// Processes that are forked during the lifetime of this object share the request: all of them stop
/// after the same step.
class StopRequest {
 public:
  /// Installs the handlers. Signals that are ignored stay ignored.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// Call it before each step, in order. Returns false if the step must not run any more.
  bool begin(std::int64_t step);
  /// Call it when the steps are done and saved. Returns false if a signal asks the program to end.
  bool end();
  /// The signal that arrived; 0 if none has.
  int signal() const;
};

}  // namespace tessera::cli
