// Checks that every task exists once, on the rank of its stage.

#include <algorithm>

#include "pipeline/walk.h"

namespace tessera::pipeline {

namespace {

[[noreturn]] void bad_range(const Task& task, const Position& position, const PlacedTasks& placed,
                            const Span& where) {
  throw UserError({.what = "schedule: " + to_string(task) + " is out of range",
                   .where = where,
                   .found = to_string(task) + " at " + to_string(position),
                   .wanted = "stages 0 to " + std::to_string(placed.num_stages - 1) +
                             " and microbatches 0 to " +
                             std::to_string(placed.num_microbatches - 1),
                   .cure = "remove it, or ask for more stages or microbatches"});
}

[[noreturn]] void bad_empty(const Position& position, const Span& where) {
  throw UserError({.what = "schedule: a fused task has no parts",
                   .where = where,
                   .found = "nothing at " + to_string(position),
                   .wanted = "at least one task",
                   .cure = "leave out idle positions: a rank waits for its inputs by itself"});
}

[[noreturn]] void bad_double(const Task& task, const Position& first, const Position& second,
                             const Span& where) {
  throw UserError({.what = "schedule: the work of " + to_string(task) + " is listed twice",
                   .where = where,
                   .found = to_string(first) + ", and " + to_string(second),
                   .wanted = "each task once: fwd, and either bwd or both bwdA and bwdW",
                   .cure = "remove " + to_string(task) + " at " + to_string(second)});
}

[[noreturn]] void bad_rank(const Task& task, const Position& position, std::int64_t rank,
                           const Span& where) {
  throw UserError({.what = "schedule: " + to_string(task) + " is on the wrong rank",
                   .where = where,
                   .found = to_string(task) + " at " + to_string(position) + ", but stage " +
                            std::to_string(task.stage) + " is on rank " + std::to_string(rank),
                   .wanted = "all tasks of a stage on one rank",
                   .cure = "move it to rank " + std::to_string(rank)});
}

[[noreturn]] void bad_missing(const Task& task, const PlacedTasks& placed, const Span& where) {
  const std::int64_t rank = placed.rank_of_stage[static_cast<std::size_t>(task.stage)];
  throw UserError(
      {.what = "schedule: " + to_string(task) + " is missing",
       .where = where,
       .found = "no rank has it",
       .wanted = "every task of " + std::to_string(placed.num_stages) + " stages and " +
                 std::to_string(placed.num_microbatches) +
                 " microbatches: fwd, and either bwd or both bwdA and bwdW",
       .cure = "add it" + (rank < 0 ? " to a rank" : " to rank " + std::to_string(rank))});
}

void place_task(PlacedTasks& placed, const Task& task, const Position& position,
                const Span& where) {
  if (task.stage < 0 || task.stage >= placed.num_stages || task.microbatch < 0 ||
      task.microbatch >= placed.num_microbatches) {
    bad_range(task, position, placed, where);
  }
  const std::int64_t rank = placed.rank_of_stage[static_cast<std::size_t>(task.stage)];
  if (rank != position.rank) bad_rank(task, position, rank, where);
  auto take = [&](Work work) {
    Position& at = placed.positions.at(work, task.stage, task.microbatch);
    if (at.rank >= 0) bad_double(task, at, position, where);
    at = position;
  };
  take(work_of(task.kind));
  if (task.kind == TaskKind::bwd) take(Work::weight);
}

/// Per stage, the rank that has most of its tasks; -1 if none has any.
std::vector<std::int64_t> ranks_of_stages(const ScheduleTasks& tasks, std::int64_t num_stages) {
  const auto size = static_cast<std::size_t>(num_stages);
  std::vector<std::int64_t> ranks(size, -1), most(size, 0), num(size, 0);
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    std::fill(num.begin(), num.end(), 0);
    for (const FusedTask& fused : tasks[rank]) {
      for (const Task& task : fused.parts) {
        if (task.stage >= 0 && task.stage < num_stages) ++num[static_cast<std::size_t>(task.stage)];
      }
    }
    for (std::size_t stage = 0; stage < size; ++stage) {
      if (num[stage] <= most[stage]) continue;
      most[stage] = num[stage];
      ranks[stage] = static_cast<std::int64_t>(rank);
    }
  }
  return ranks;
}

void check_complete(const PlacedTasks& placed, const Span& where) {
  for (std::int64_t stage = 0; stage < placed.num_stages; ++stage) {
    for (std::int64_t m = 0; m < placed.num_microbatches; ++m) {
      auto has = [&](Work work) { return placed.positions.at(work, stage, m).rank >= 0; };
      if (!has(Work::fwd)) bad_missing({TaskKind::fwd, stage, m}, placed, where);
      if (!has(Work::input)) {
        const bool is_split = has(Work::weight);
        bad_missing({is_split ? TaskKind::bwd_input : TaskKind::bwd, stage, m}, placed, where);
      }
      if (!has(Work::weight)) bad_missing({TaskKind::bwd_weight, stage, m}, placed, where);
    }
  }
}

}  // namespace

std::string to_string(const Position& position) {
  return "rank " + std::to_string(position.rank) + ", position " + std::to_string(position.index);
}

Work work_of(TaskKind kind) {
  return kind == TaskKind::fwd          ? Work::fwd
         : kind == TaskKind::bwd_weight ? Work::weight
                                        : Work::input;
}

PlacedTasks place(const ScheduleTasks& tasks, std::int64_t num_stages,
                  std::int64_t num_microbatches, const Span& where) {
  PlacedTasks placed{tasks, num_stages, num_microbatches, ranks_of_stages(tasks, num_stages),
                     WorkTable<Position>(num_stages, num_microbatches, {})};
  Position position;
  for (const RankTasks& rank : tasks) {
    ++position.rank;
    position.index = -1;
    for (const FusedTask& fused : rank) {
      ++position.index;
      if (fused.parts.empty()) bad_empty(position, where);
      for (const Task& task : fused.parts) place_task(placed, task, position, where);
    }
  }
  check_complete(placed, where);
  return placed;
}

}  // namespace tessera::pipeline
