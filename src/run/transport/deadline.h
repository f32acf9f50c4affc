// Calls a function when something takes too long.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera::run {

/// Calls `on_late`, on a separate thread, unless it is destroyed within `time`.
class Deadline {
 public:
  Deadline(std::chrono::milliseconds time, std::function<void()> on_late)
      : thread_([this, time, late = std::move(on_late)] {
          std::unique_lock<std::mutex> lock(mutex_);
          if (!done_.wait_for(lock, time, [this] { return is_done_; })) late();
        }) {}
  ~Deadline() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_done_ = true;
    }
    done_.notify_all();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::thread thread_;
};

}  // namespace tessera::run
