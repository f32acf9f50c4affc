// Signals that ask a program to end.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/error.h>

namespace tessera::cli {

/// `SIGTERM`, or `signal 12` for one without a name here.
std::string signal_name(int signal);

/// Thrown by a program that ends because of a signal, when its work is saved.
class EndedBySignal : public RuntimeFault {
 public:
  explicit EndedBySignal(int signal)
      : RuntimeFault("ended by " + signal_name(signal)), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

/// Lets a run of steps finish the step in which SIGINT, SIGTERM, SIGHUP or SIGPIPE comes. Before
/// begin() and after end() these do what they always do, and so does a second one. Processes that
/// are forked while this lives share it: all of them stop after the same step.
class StopRequest {
 public:
  /// Signals that are ignored stay so.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// False when the step, one after the other from 0 or a later one, is not to be run.
  bool begin(std::int64_t step);
  /// The steps are done and saved; false when the program is to end here.
  bool end();
  /// The signal that came; 0 for none.
  int signal() const;
};

}  // namespace tessera::cli
