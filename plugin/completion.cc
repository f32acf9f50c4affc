#include "plugin/completion.h"

#include <utility>

#include <tessera/error.h>

#include "run/threads/within_task.h"

namespace tessera::plugin {

void Completion::finish(FailurePtr failure) {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
    is_done_ = true;
    callbacks = std::exchange(callbacks_, {});
  }
  changed_.notify_all();
  for (const Callback& callback : callbacks) callback(failure_);
}

bool Completion::is_done() const {
  const std::lock_guard lock(mutex_);
  return is_done_;
}

namespace {

FailurePtr endless_wait() {
  const UserError error({.what = "tessera: a Python function waits for a program that runs after "
                                 "the program that calls the function",
                         .found = "an array that is not computed yet",
                         .wanted = "arrays that were computed before the call",
                         .cure = "pass the array to the function as an argument"});
  return std::make_shared<const Failure>(Failure{abi::kInvalidArgument, error.what()});
}

}  // namespace

FailurePtr Completion::wait() const {
  std::unique_lock lock(mutex_);
  if (run::WithinTask::is_here() && !is_done_) return endless_wait();
  changed_.wait(lock, [&] { return is_done_; });
  return failure_;
}

void Completion::when_done(Callback callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_done_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(failure_);
}

CompletionPtr completed() {
  static const CompletionPtr kDone = [] {
    auto done = std::make_shared<Completion>();
    done->finish();
    return done;
  }();
  return kDone;
}

CompletionPtr awaited(CompletionPtr completion) {
  if (!run::WithinTask::is_here() || completion->is_done()) return completion;
  auto ended = std::make_shared<Completion>();
  ended->finish(endless_wait());
  return ended;
}

WorkQueue::WorkQueue() : thread_([this] { run(); }) {}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WorkQueue::add(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void WorkQueue::add_short(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (is_busy_ || !work_.empty()) {
      work_.push_back(std::move(work));
      return;  // the thread looks for more before it waits
    }
    is_busy_ = true;
  }
  work();
  {
    const std::lock_guard lock(mutex_);
    is_busy_ = false;
    if (work_.empty()) return;
  }
  changed_.notify_all();
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !is_busy_ && (!work_.empty() || is_ending_); });
    if (work_.empty()) return;
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    is_busy_ = true;
    lock.unlock();
    work();
    work = nullptr;  // frees what it holds before the queue counts as idle
    lock.lock();
    is_busy_ = false;
  }
}

}  // namespace tessera::plugin
