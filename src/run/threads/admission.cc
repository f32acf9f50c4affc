#include "run/threads/admission.h"

namespace tessera::run {

template <typename Condition>
void Admission::wait(std::unique_lock<std::mutex>& lock, const Condition& may_start) {
  const std::uint64_t ticket = num_tickets_++;
  changed_.wait(lock, [&] { return served_ == ticket && may_start(); });
}

void Admission::serve_next() {
  ++served_;
  // Only waiting threads have tickets beyond this one.
  if (served_ != num_tickets_) changed_.notify_all();
}

void Admission::begin_execution(bool communicates) {
  std::unique_lock<std::mutex> lock(mutex_);
  wait(lock, [&] { return in_flight_ < most_ && !(communicates && is_communicating_); });
  in_flight_ += 1;
  if (communicates) is_communicating_ = true;
  serve_next();
}

void Admission::end_execution(bool communicates) {
  const std::lock_guard<std::mutex> lock(mutex_);
  in_flight_ -= 1;
  if (communicates) is_communicating_ = false;
  if (served_ != num_tickets_) changed_.notify_all();
}

void Admission::begin_change() {
  std::unique_lock<std::mutex> lock(mutex_);
  wait(lock, [&] { return in_flight_ == 0; });
}

void Admission::end_change() {
  const std::lock_guard<std::mutex> lock(mutex_);
  serve_next();
}

}  // namespace tessera::run
