// The rows of the host: threads, steps and buffers.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <unistd.h>

#include "profile/rows.h"

namespace tessera::profile {

namespace {

class HostRows {
 public:
  explicit HostRows(const Traced& traced) : traced_(traced) {}

  Plane make() {
    const std::size_t step_kind = plane_.add_kind({.name = std::string(kStepKind)});
    for (const StepTime& step : traced_.steps()) {
      Event marked = event(step_kind, step.start_ns, step.end_ns);
      marked.stats = {{"step_num", step.number}};
      lines_[0].push_back(std::move(marked));
    }
    for (const run::ExecutionTrace& execution : traced_.trace().engine.executions) {
      if (const Program* program = traced_.program_of(execution)) add(execution, *program);
    }
    plane_.name = kHostPlane;
    for (auto& [thread, events] : lines_) add_line(thread, events);
    if (traced_.trace().accelerator) add_calls(traced_, plane_);
    add_buffers();
    return std::move(plane_);
  }

 private:
  // Rows are sorted by their numbers.
  static constexpr std::int64_t kCommunicationLine = 10000;
  static constexpr std::int64_t kBufferLine = 10001;

  Event event(std::size_t kind, std::int64_t start_ns, std::int64_t end_ns) const {
    return {.kind = kind,
            .start_ns = traced_.since_start(start_ns),
            .end_ns = traced_.since_start(end_ns),
            .step = traced_.step_at(start_ns)};
  }

  void add(const run::ExecutionTrace& execution, const Program& program) {
    const auto [kind, is_new] = executions_.try_emplace(&program, 0);
    if (is_new) kind->second = plane_.add_kind({.name = "execute " + program.title()});
    lines_[execution.caller].push_back(event(kind->second, execution.start_ns, execution.end_ns));
    const std::vector<SitePlace> places = places_of(execution, program);
    for (const run::PartTime& part : execution.parts) {
      const Computation* computation = places[part.site].computation;
      if (computation == nullptr) continue;
      const Op& op = computation->ops[computation->executable->tasks[part.task].instruction];
      lines_[part.thread].push_back(event(kind_of(op), part.start_ns, part.end_ns));
    }
  }

  std::size_t kind_of(const Op& op) {
    const auto [place, is_new] = ops_.try_emplace(&op, 0);
    if (is_new) {
      EventKind kind{.name = op.name};
      if (!op.where.file.empty()) kind.stats.push_back({"source", to_string(op.where)});
      place->second = plane_.add_kind(std::move(kind));
    }
    return place->second;
  }

  static std::string name_of(int thread) {
    if (thread == run::PartTime::kCommunicator) return "communication";
    if (thread == 0) return std::string(kCallerLine);
    if (thread < run::PartTime::kMoreCallers) return fmt::format("worker {}", thread);
    return fmt::format("caller {}", thread - run::PartTime::kMoreCallers + 2);
  }

  void add_line(int thread, std::vector<Event>& events) {
    const bool communicates = thread == run::PartTime::kCommunicator;
    // Enclosing events come before the events within them.
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::pair(a.start_ns, b.end_ns) < std::pair(b.start_ns, a.end_ns);
    });
    plane_.lines.push_back(
        {name_of(thread), communicates ? kCommunicationLine : thread + 1, std::move(events)});
  }

  void add_buffers() {
    const std::size_t kinds[] = {plane_.add_kind({.name = "MemoryAllocation"}),
                                 plane_.add_kind({.name = "MemoryDeallocation"})};
    const std::int64_t memory = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    Line line{"buffers", kBufferLine, {}};
    for (const run::Allocation& one : traced_.trace().engine.allocations) {
      Event changed = event(kinds[one.is_freed ? 1 : 0], one.time_ns, one.time_ns);
      const bool is_arena = one.use == run::Buffer::Use::arena;
      changed.stats = {
          {"bytes_reserved", std::int64_t{0}},
          {"bytes_allocated", one.held_bytes},
          {"bytes_available", std::max<std::int64_t>(0, memory - one.held_bytes)},
          {"peak_bytes_in_use", one.peak_bytes},
          {"requested_bytes", one.bytes},
          {"allocation_bytes", one.bytes},
          {"addr", static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(one.address))},
          {"data_type", std::int64_t{0}},
          {"fragmentation", 0.0},
          {"allocator_name", std::string("host")},
          {"tf_op", is_arena ? std::string("arena") : executing(one.time_ns)},
          {"region_type", std::string(is_arena ? "temp" : "array")},
          {"shape", fmt::format("u8[{}]", one.bytes)}};
      line.events.push_back(std::move(changed));
    }
    if (!line.events.empty()) plane_.lines.push_back(std::move(line));
  }

  /// The program that ran at this time or, if none did, the next one: results are allocated before
  /// their program starts.
  std::string executing(std::int64_t time_ns) const {
    const auto& executions = traced_.trace().engine.executions;
    const auto found = std::lower_bound(executions.begin(), executions.end(), time_ns,
                                        [](const run::ExecutionTrace& execution,
                                           std::int64_t time) { return execution.end_ns < time; });
    const Program* program = found == executions.end() ? nullptr : traced_.program_of(*found);
    return program == nullptr ? "arrays" : program->name();
  }

  const Traced& traced_;
  Plane plane_;
  std::map<int, std::vector<Event>> lines_ = {{0, {}}};  // per thread
  std::map<const Program*, std::size_t> executions_;
  std::map<const Op*, std::size_t> ops_;
};

}  // namespace

Plane host_plane(const Traced& traced) { return HostRows(traced).make(); }

}  // namespace tessera::profile
