// Tells that a program is at work where it is silent for long.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::cli {

/// Writes a line to standard error after `first`, after twice that, after four times that, and so
/// on, as long as it lives.
class Waiting {
 public:
  /// `what` goes on: "compiling the step".
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
