#include "run/recorder.h"

#include <utility>

namespace tessera::run {

void Recorder::start() {
  constexpr std::size_t kMostParts = 4'000'000;
  trace_ = {};
  trace_.start_ns = ns_of(Clock::now());
  parts_left_ = kMostParts;
  record_allocations(true);
  is_on_ = true;
}

EngineTrace Recorder::stop() {
  is_on_ = false;
  record_allocations(false);
  RecordedAllocations allocations = take_allocations();
  trace_.allocations = std::move(allocations.list);
  trace_.num_lost_buffers = allocations.num_lost;
  trace_.end_ns = ns_of(Clock::now());
  return std::exchange(trace_, {});
}

void Recorder::begin(ExecutionRecord& record, const Executable& executable, int caller) {
  record.trace_ = {.executable = &executable,
                   .caller = caller,
                   .start_ns = ns_of(Clock::now()),
                   .end_ns = 0,
                   .sites = {},
                   .parts = {}};
}

std::uint32_t Recorder::site_of(const Frame& frame, ExecutionRecord& record) {
  if (const auto known = record.sites_.find(&frame); known != record.sites_.end()) {
    return known->second;
  }
  Site site{.executable = &frame.executable()};
  if (const ControlFrame* loop = frame.loop()) {
    site.outer = site_of(loop->outer(), record);
    site.task = loop->task();
  }
  const auto number = static_cast<std::uint32_t>(record.trace_.sites.size());
  record.trace_.sites.push_back(site);
  record.sites_.emplace(&frame, number);
  return number;
}

void Recorder::end(ExecutionRecord& record) {
  ExecutionTrace& execution = record.trace_;
  execution.end_ns = ns_of(Clock::now());
  execution.parts.reserve(record.parts_.size());
  const Frame* last = nullptr;
  std::uint32_t site = 0;
  for (const ExecutionRecord::Part& part : record.parts_) {
    if (part.frame != last) site = site_of(*part.frame, record);
    last = part.frame;
    execution.parts.push_back({.site = site,
                               .run = part.run,
                               .task = part.task,
                               .thread = part.thread,
                               .start_ns = ns_of(part.start),
                               .end_ns = ns_of(part.end)});
  }
  trace_.executions.push_back(std::move(execution));
}

}  // namespace tessera::run
