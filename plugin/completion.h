// Work that ends later, and the thread that does it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "plugin/failure.h"

namespace tessera::plugin {

/// Something that ends once, with or without a failure. Any thread may wait for it.
class Completion {
 public:
  using Callback = std::function<void(const FailurePtr&)>;

  void finish(FailurePtr failure = nullptr);
  bool is_done() const;
  /// Waits for the end; returns the failure, if any. In a function that a program calls, work that
  /// has not ended would run only after that program, so this returns a failure that says so.
  FailurePtr wait() const;
  /// Calls `callback` when it ends, on the thread that ends it; at once if it has already ended.
  void when_done(Callback callback);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_done_ = false;
  FailurePtr failure_;
  std::vector<Callback> callbacks_;
};
using CompletionPtr = std::shared_ptr<Completion>;

/// A completion that has ended without a failure.
CompletionPtr completed();
/// The completion itself or, where wait() would return a failure, one that ended with that failure.
CompletionPtr awaited(CompletionPtr completion);

/// Does work in the order of arrival, so what a program reads is computed before it starts.
class WorkQueue {
 public:
  WorkQueue();
  /// Finishes the remaining work first.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// `work` must not throw.
  void add(std::function<void()> work);
  /// Does the work on the calling thread if no other work is pending; otherwise adds it. For work
  /// that takes less time than waking up a thread.
  void add_short(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool is_busy_ = false;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace tessera::plugin

namespace tessera::run::pjrt::abi {

struct Event {
  tessera::plugin::CompletionPtr completion;
};

}  // namespace tessera::run::pjrt::abi
