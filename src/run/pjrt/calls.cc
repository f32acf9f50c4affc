#include "run/pjrt/calls.h"

#include <algorithm>

#include "run/recorder.h"

namespace tessera::run::pjrt {

namespace {

std::int64_t now_ns() { return ns_of(Clock::now()); }

}  // namespace

struct CallRecorder::Execution {
  CallRecorder& recorder;
  const Plugin& plugin;
  DeviceCall call;
  std::atomic<std::size_t> num_left;
};

void CallRecorder::start_trace() {
  const std::lock_guard<std::mutex> lock(mutex_);
  trace_ = {};
  is_traced_ = true;
  update();
}

void CallRecorder::start_profile() {
  const std::lock_guard<std::mutex> lock(mutex_);
  totals_.clear();
  is_profiled_ = true;
  update();
}

DeviceTrace CallRecorder::stop_trace() {
  std::unique_lock<std::mutex> lock(mutex_);
  wait_for_executions(lock);
  is_traced_ = false;
  update();
  return std::exchange(trace_, {});
}

std::vector<DeviceCallTotal> CallRecorder::stop_profile() {
  std::unique_lock<std::mutex> lock(mutex_);
  wait_for_executions(lock);
  is_profiled_ = false;
  update();
  std::vector<DeviceCallTotal> totals;
  for (auto& [key, total] : std::exchange(totals_, {})) totals.push_back(std::move(total));
  std::stable_sort(totals.begin(), totals.end(),
                   [](const DeviceCallTotal& a, const DeviceCallTotal& b) { return a.ns > b.ns; });
  return totals;
}

void CallRecorder::wait_for_executions(std::unique_lock<std::mutex>& lock) {
  ended_.wait(lock, [&] { return num_running_ == 0; });
}

int CallRecorder::number_of_thread() {
  return threads_.try_emplace(std::this_thread::get_id(), static_cast<int>(threads_.size()))
      .first->second;
}

void CallRecorder::add(DeviceCall call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  call.thread = number_of_thread();
  add_locked(std::move(call));
}

void CallRecorder::add_locked(DeviceCall call) {
  const bool is_execution = call.kind == DeviceCall::Kind::execute;
  if (is_profiled_) {
    DeviceCallTotal& total = totals_[{call.kind, call.program}];
    total.kind = call.kind;
    total.program = call.program;
    total.count += 1;
    total.bytes += call.bytes;
    total.ns += is_execution ? call.busy_until_ns - call.busy_from_ns : call.end_ns - call.start_ns;
  }
  if (!is_traced_) return;
  constexpr std::size_t kMostCalls = 1'000'000;
  if (trace_.calls.size() < kMostCalls) {
    trace_.calls.push_back(std::move(call));
  } else {
    trace_.num_lost += 1;
  }
}

void CallRecorder::add_execution(const Plugin& plugin, DeviceCall call,
                                 const std::vector<abi::Event*>& completed) {
  if (completed.empty()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    call.thread = number_of_thread();
    num_running_ += 1;
  }
  auto* const execution = new Execution{*this, plugin, std::move(call), {completed.size()}};
  for (abi::Event* event : completed) {
    abi::EventOnReady on_ready;
    on_ready.event = event;
    on_ready.callback = note_event;
    on_ready.data = execution;
    if (plugin.try_call(on_ready)) note_event(nullptr, execution);
  }
}

/// A failure is reported where the results are read.
void CallRecorder::note_event(abi::Error* error, void* data) {
  auto* const execution = static_cast<Execution*>(data);
  execution->plugin.failure_of(error);
  if (execution->num_left.fetch_sub(1) == 1) execution->recorder.end(execution);
}

void CallRecorder::end(Execution* execution) {
  const std::lock_guard<std::mutex> lock(mutex_);
  DeviceCall& call = execution->call;
  std::int64_t& busy_until = busy_until_ns_[call.first_device];
  call.busy_from_ns = std::max(call.start_ns, busy_until);
  call.busy_until_ns = std::max(now_ns(), call.busy_from_ns);
  busy_until = call.busy_until_ns;
  add_locked(std::move(call));
  delete execution;
  num_running_ -= 1;
  ended_.notify_all();
}

TimedCall::TimedCall(CallRecorder& recorder, DeviceCall call)
    : recorder_(recorder), is_on_(recorder.is_on()), call_(std::move(call)) {
  if (is_on_) call_.start_ns = now_ns();
}

TimedCall::~TimedCall() {
  if (!is_on_) return;
  call_.end_ns = now_ns();
  try {
    recorder_.add(std::move(call_));
  } catch (const std::bad_alloc&) {
    return;  // this call is left out
  }
}

}  // namespace tessera::run::pjrt
