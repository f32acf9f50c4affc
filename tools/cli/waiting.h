// Prints that a program is still working if it has printed nothing for a long time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::cli {

/// During its lifetime, writes a line to standard error after the time `first`, after twice that
/// time, after four times that time, and so on.
class Waiting {
 public:
  /// `what` is the work that takes long: "compiling the step".
  explicit Waiting(std::string what, std::chrono::milliseconds first = std::chrono::seconds(5));
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void tell(std::chrono::milliseconds passed);

  std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread teller_;
};

}  // namespace tessera::cli
