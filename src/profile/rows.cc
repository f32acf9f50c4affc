#include "profile/rows.h"

#include <algorithm>
#include <protozero/pbf_writer.hpp>

#include "profile/hlo.h"

namespace tessera::profile {

Traced::Traced(const Trace& trace) : trace_(trace) {
  for (const TracedProgram& program : trace.programs) {
    programs_.push_back(std::make_unique<Program>(program, programs_.size() + 1));
    by_executable_[program.executable.get()] = programs_.back().get();
  }
  find_steps();
}

const Program* Traced::program_of(const run::ExecutionTrace& execution) const {
  const auto found = by_executable_.find(execution.executable);
  return found == by_executable_.end() ? nullptr : found->second;
}

void Traced::find_steps() {
  steps_ = trace_.steps;
  if (steps_.empty()) add_executions();
  if (steps_.empty() && trace_.accelerator) add_calls_of_accelerator();
  std::sort(steps_.begin(), steps_.end(),
            [](const StepTime& a, const StepTime& b) { return a.start_ns < b.start_ns; });
}

/// Each execution of the program that ran longest is a step.
void Traced::add_executions() {
  std::map<const Program*, std::int64_t> time;
  for (const run::ExecutionTrace& execution : trace_.engine.executions) {
    time[program_of(execution)] += execution.end_ns - execution.start_ns;
  }
  time.erase(nullptr);
  const auto longest = std::max_element(
      time.begin(), time.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const run::ExecutionTrace& execution : trace_.engine.executions) {
    if (longest == time.end() || program_of(execution) != longest->first) continue;
    steps_.push_back(
        {static_cast<std::int64_t>(steps_.size()), execution.start_ns, execution.end_ns});
  }
}

/// The same for the programs of an accelerator.
void Traced::add_calls_of_accelerator() {
  std::map<std::string, std::int64_t> time;
  for (const run::DeviceCall& call : trace_.accelerator->calls) {
    if (call.kind == run::DeviceCall::Kind::execute) {
      time[call.program] += call.busy_until_ns - call.busy_from_ns;
    }
  }
  const auto longest = std::max_element(
      time.begin(), time.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const run::DeviceCall& call : trace_.accelerator->calls) {
    if (call.kind != run::DeviceCall::Kind::execute || call.program != longest->first) continue;
    steps_.push_back(
        {static_cast<std::int64_t>(steps_.size()), call.busy_from_ns, call.busy_until_ns});
  }
}

std::int64_t Traced::step_at(std::int64_t time_ns) const {
  const auto after = std::upper_bound(
      steps_.begin(), steps_.end(), time_ns,
      [](std::int64_t time, const StepTime& step) { return time < step.start_ns; });
  if (after == steps_.begin() || std::prev(after)->end_ns < time_ns) return Event::kNone;
  return std::prev(after) - steps_.begin();
}

std::vector<SitePlace> places_of(const run::ExecutionTrace& execution, const Program& program) {
  std::vector<SitePlace> places;
  for (const run::Site& site : execution.sites) {
    SitePlace place;
    if (site.outer == run::Site::kNone) {
      place.computation = &program.root();
      place.is_root = true;
    } else if (const SitePlace& outer = places[site.outer]; outer.computation != nullptr) {
      place.root_task = outer.is_root ? site.task : outer.root_task;
      const auto found = outer.computation->nested.find({site.task, site.executable});
      if (found != outer.computation->nested.end()) place.computation = found->second;
    }
    places.push_back(place);
  }
  return places;
}

namespace {

/// The message MemoryAccessBreakdown: bytes read from and written to memory.
std::string memory_accesses(const Op& op) {
  constexpr int kMemory = 1;
  std::string data;
  protozero::pbf_writer writer(data);
  int operation = 0;
  for (const std::int64_t bytes : {op.bytes_read, op.bytes_written}) {
    protozero::pbf_writer access(writer, 1);
    access.add_enum(1, ++operation);
    access.add_enum(2, kMemory);
    access.add_uint64(3, static_cast<std::uint64_t>(bytes));
  }
  return data;
}

}  // namespace

EventKind op_kind(const Program& program, const Op& op) {
  EventKind kind{.name = "%" + op.name + " = " + op.opcode + "()", .display_name = op.name};
  kind.stats = {{"program_id", program.id()},
                {"symbol_id", op.symbol},
                {"hlo_category", op.category},
                {"flops", static_cast<std::uint64_t>(op.flops)},
                {"model_flops", static_cast<std::uint64_t>(op.flops)},
                {"bytes_accessed", static_cast<std::uint64_t>(op.bytes_read + op.bytes_written)},
                {"memory_access_breakdown", Bytes{memory_accesses(op)}},
                {"tf_op", op.path + ":" + op.path.substr(op.path.rfind('/') + 1)}};
  if (!op.where.file.empty()) kind.stats.push_back({"source", to_string(op.where)});
  return kind;
}

Plane metadata_plane(const Traced& traced) {
  Plane plane{.name = "/host:metadata"};
  for (const auto& program : traced.programs()) {
    plane.add_kind(
        {.name = program->title(),
         .display_name = program->title(),
         .stats = {{"Hlo Proto", Bytes{to_hlo(*program)}}, {"program_id", program->id()}}});
  }
  return plane;
}

}  // namespace tessera::profile
