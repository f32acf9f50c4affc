// The built-in schedules: one record each.
#pragma once

#include <span>
#include <string_view>

#include "pipeline/rank_list.h"

namespace tessera::pipeline {

/// Which numbers of stages a schedule supports.
enum class StagesPerRank : unsigned char { one, two, many };

struct ScheduleRecord {
  std::string_view name;
  std::string_view doc;
  StagesPerRank stages;
  Placement placement = Placement::loop;
  bool can_fuse = false;     // supports fuse_steady_state
  bool takes_turns = false;  // microbatches come in rounds of equal size
  void (*write)(RankList& list);
};

/// All built-in schedules.
std::span<const ScheduleRecord> schedule_records();
/// The number of rounds, for schedules with `takes_turns`: all microbatches of a round go through
/// one chunk, then through the next.
std::int64_t num_rounds(const Sizes& sizes);
/// Whether the schedule supports these sizes.
bool is_made_for(const ScheduleRecord& record, const Sizes& sizes);
ScheduleTasks tasks_of(const ScheduleRecord& record, const Sizes& sizes);

}  // namespace tessera::pipeline
