// Schedules by name and as values.

#include <tessera/error.h>
#include <tessera/schedule.h>

#include "pipeline/schedules.h"

namespace tessera {

namespace {

using pipeline::ScheduleRecord;
using pipeline::Sizes;
using pipeline::StagesPerRank;

std::string_view name_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::fwd:
      return "fwd";
    case TaskKind::bwd:
      return "bwd";
    case TaskKind::bwd_input:
      return "bwdA";
    case TaskKind::bwd_weight:
      return "bwdW";
  }
  throw InternalError("a task has a kind");
}

const ScheduleRecord& record_of(std::string_view name, const Span& where) {
  for (const ScheduleRecord& record : pipeline::schedule_records()) {
    if (record.name == name) return record;
  }
  std::string list;
  for (const std::string& known : schedule_names()) list += (list.empty() ? "" : ", ") + known;
  const std::string meant = nearest(name, schedule_names());
  throw UserError({.what = "schedule: unknown schedule '" + std::string(name) + "'",
                   .where = where,
                   .found = std::string(name),
                   .wanted = "one of " + list,
                   .cure = "write " + (meant.empty() ? schedule_names()[0] : meant)});
}

void check_positive(const char* name, std::int64_t value, const Span& where) {
  constexpr std::int64_t kMost = 1 << 20;
  if (value >= 1 && value <= kMost) return;
  throw UserError({.what = std::string("schedule: ") + name + " is out of range",
                   .where = where,
                   .found = std::to_string(value),
                   .wanted = "a whole number from 1 to " + std::to_string(kMost),
                   .cure = value < 1 ? std::string("give a ") + name + " of at least 1"
                                     : std::string("give a smaller ") + name});
}

/// Larger schedules would take gigabytes of memory.
void check_total(std::int64_t stages, std::int64_t microbatches, const Span& where) {
  constexpr std::int64_t kMost = 1 << 22;
  if (stages * microbatches <= kMost) return;
  throw UserError(
      {.what = "schedule: there are too many tasks",
       .where = where,
       .found = std::to_string(stages) + " stages times " + std::to_string(microbatches) +
                " microbatches",
       .wanted = "at most " + std::to_string(kMost),
       .cure = "use fewer stages, or at most " + std::to_string(kMost / stages) + " microbatches"});
}

void check_stages(const ScheduleRecord& record, const ScheduleOptions& options, const Span& where) {
  const std::int64_t stages = options.num_stages, ranks = options.mpmd_dim;
  std::string wanted, cure;
  if (record.stages == StagesPerRank::one && stages != ranks) {
    wanted = "as many stages as ranks";
    cure = "use " + std::to_string(ranks) + " stages, or Interleaved1F1B";
  } else if (record.stages == StagesPerRank::two && stages != 2 * ranks) {
    wanted = "two stages per rank";
    cure = "use " + std::to_string(2 * ranks) +
           " stages, or Interleaved1F1B, which takes any multiple";
  } else if (stages % ranks != 0) {
    wanted = "a multiple of the number of ranks";
    cure = "use " + std::to_string((stages / ranks + 1) * ranks) + " stages";
  } else {
    return;
  }
  throw UserError(
      {.what = "schedule: " + std::string(record.name) + " does not support this number of stages",
       .where = where,
       .found = std::to_string(stages) + " stages on " + std::to_string(ranks) + " ranks",
       .wanted = wanted,
       .cure = cure});
}

void check_rounds(const ScheduleRecord& record, const Sizes& sizes, const Span& where) {
  const std::int64_t num = sizes.num_microbatches;
  const std::int64_t rounds = pipeline::num_rounds(sizes);
  if (!record.takes_turns || num % rounds == 0) return;
  throw UserError({.what = "schedule: the microbatches of " + std::string(record.name) +
                           " cannot be divided into equal rounds",
                   .where = where,
                   .found = std::to_string(num) + " microbatches in " + std::to_string(rounds) +
                            " rounds (one per " + std::to_string(sizes.num_ranks) +
                            " microbatches, rounded down)",
                   .wanted = "a multiple of " + std::to_string(rounds),
                   .cure = "use " + std::to_string(num - num % sizes.num_ranks) + " or " +
                           std::to_string(num - num % sizes.num_ranks + sizes.num_ranks) +
                           " microbatches"});
}

}  // namespace

std::string to_string(const Task& task) {
  return std::string(name_of(task.kind)) + "_" + std::to_string(task.stage) + "__" +
         std::to_string(task.microbatch);
}

std::string to_string(const FusedTask& task) {
  if (task.parts.size() == 1) return to_string(task.parts[0]);
  std::string text;
  for (const Task& part : task.parts) text += (text.empty() ? "" : ", ") + to_string(part);
  return "FusedTask(" + text + ")";
}

std::string to_string(const RankTasks& tasks) {
  std::string text;
  for (const FusedTask& task : tasks) text += (text.empty() ? "" : ", ") + to_string(task);
  return text;
}

ScheduleTasks merge_stage0(ScheduleTasks tasks) {
  for (RankTasks& rank : tasks) {
    for (FusedTask& fused : rank) {
      std::vector<Task> parts;
      for (Task task : fused.parts) {
        if (task.stage == 0 && task.kind == TaskKind::bwd_weight) continue;
        if (task.stage == 0 && task.kind == TaskKind::bwd_input) task.kind = TaskKind::bwd;
        parts.push_back(task);
      }
      fused.parts = std::move(parts);
    }
    std::erase_if(rank, [](const FusedTask& fused) { return fused.parts.empty(); });
  }
  return tasks;
}

ScheduleTasks Schedule::tasks(std::int64_t num_microbatches, std::source_location where) const {
  ScheduleTasks tasks = rule_->tasks(num_microbatches, where);
  if (static_cast<std::int64_t>(tasks.size()) != mpmd_dim_) {
    throw UserError({.what = "schedule: the number of task lists differs from the number of ranks",
                     .where = where,
                     .found = std::to_string(tasks.size()) + " lists",
                     .wanted = std::to_string(mpmd_dim_) + " lists, as many as mpmd_dim",
                     .cure = "return one list for each rank"});
  }
  check_tasks(tasks, num_stages_, num_microbatches, where);
  return tasks;
}

ScheduleTasks schedule_tasks(std::string_view name, const ScheduleOptions& options,
                             std::int64_t num_microbatches, std::source_location where) {
  const ScheduleRecord& record = record_of(name, where);
  check_positive("num_stages", options.num_stages, where);
  check_positive("mpmd_dim", options.mpmd_dim, where);
  check_positive("num_microbatches", num_microbatches, where);
  check_total(options.num_stages, num_microbatches, where);
  check_stages(record, options, where);
  if (options.fuse_steady_state && !record.can_fuse) {
    throw UserError({.what = "schedule: " + std::string(name) + " cannot fuse its steady state",
                     .where = where,
                     .found = "fuse_steady_state",
                     .wanted = "Interleaved1F1B or KimiK2",
                     .cure = "leave out fuse_steady_state, or use Interleaved1F1B"});
  }
  const Sizes sizes{options.num_stages, options.mpmd_dim, num_microbatches,
                    options.fuse_steady_state};
  check_rounds(record, sizes, where);
  return pipeline::tasks_of(record, sizes);
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleRecord& record : pipeline::schedule_records()) {
    names.emplace_back(record.name);
  }
  return names;
}

std::string schedule_doc(std::string_view name) { return std::string(record_of(name, {}).doc); }

ScheduleTasks FixedSchedule::tasks(std::int64_t num, std::source_location where) const {
  if (num == num_microbatches) return list;
  throw UserError({.what = "schedule: the task lists are for a different number of microbatches",
                   .where = where,
                   .found = std::to_string(num) + " microbatches",
                   .wanted = std::to_string(num_microbatches),
                   .cure = "run it with " + std::to_string(num_microbatches) + " microbatches"});
}

}  // namespace tessera
