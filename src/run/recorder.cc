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

void Recorder::begin_execution(const Executable& executable) {
  parts_.clear();
  sites_.clear();
  trace_.executions.push_back({.executable = &executable,
                               .start_ns = ns_of(Clock::now()),
                               .end_ns = 0,
                               .sites = {},
                               .parts = {}});
}

std::uint32_t Recorder::site_of(const Frame& frame, ExecutionTrace& execution) {
  if (const auto known = sites_.find(&frame); known != sites_.end()) return known->second;
  Site site{.executable = &frame.executable()};
  if (const ControlFrame* loop = frame.loop()) {
    site.outer = site_of(loop->outer(), execution);
    site.task = loop->task();
  }
  const auto number = static_cast<std::uint32_t>(execution.sites.size());
  execution.sites.push_back(site);
  sites_.emplace(&frame, number);
  return number;
}

void Recorder::end_execution() {
  ExecutionTrace& execution = trace_.executions.back();
  execution.end_ns = ns_of(Clock::now());
  execution.parts.reserve(parts_.size());
  const Frame* last = nullptr;
  std::uint32_t site = 0;
  for (const Part& part : parts_) {
    if (part.frame != last) site = site_of(*part.frame, execution);
    last = part.frame;
    execution.parts.push_back({.site = site,
                               .run = part.run,
                               .task = part.task,
                               .thread = part.thread,
                               .start_ns = ns_of(part.start),
                               .end_ns = ns_of(part.end)});
  }
}

}  // namespace tessera::run
