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

/// Ends once, with or without a failure. Any thread may wait for it.
class Completion {
 public:
  using Callback = std::function<void(const FailurePtr&)>;

  void finish(FailurePtr failure = nullptr);
  bool is_done() const;
  /// The failure, once it has ended. For a function that a program calls, what has not ended runs
  /// after that program: then this is a failure that says so.
  FailurePtr wait() const;
  /// Calls back when it ends, in the thread that ends it; at once if it has ended.
  void when_done(Callback callback);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_done_ = false;
  FailurePtr failure_;
  std::vector<Callback> callbacks_;
};
using CompletionPtr = std::shared_ptr<Completion>;

/// One that has ended well.
CompletionPtr completed();
/// The completion itself; where wait() would be a failure, one that has ended with that.
CompletionPtr awaited(CompletionPtr completion);

/// Does work in the order in which it comes, so what a program reads is there when it starts.
class WorkQueue {
 public:
  WorkQueue();
  /// Does what is left first.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// `work` must not throw.
  void add(std::function<void()> work);
  /// Does the work in the calling thread if there is none before it; otherwise adds it. For work
  /// that is shorter than waking up a thread.
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
