#include <gtest/gtest.h>

#include <tessera/error.h>
#include <tessera/schedule.h>

#include "pipeline/schedules.h"

namespace tessera {
namespace {

/// Every record with all sizes that it is made for, up to 16 ranks, 32 stages and 64 microbatches.
TEST(Schedules, EveryListIsCompleteAndEndsForAllSizes) {
  std::int64_t num_checked = 0;
  for (const pipeline::ScheduleRecord& record : pipeline::schedule_records()) {
    for (std::int64_t ranks = 1; ranks <= 16; ++ranks) {
      for (std::int64_t stages = ranks; stages <= 32; stages += ranks) {
        for (std::int64_t n = 1; n <= 64; ++n) {
          for (const bool fuse : {false, true}) {
            try {
              const ScheduleTasks tasks = schedule_tasks(record.name, {stages, ranks, fuse}, n);
              check_tasks(tasks, stages, n);
              ++num_checked;
            } catch (const UserError& e) {
              if (std::string(e.what()).find("needs") != std::string::npos ||
                  std::string(e.what()).find("waits") != std::string::npos ||
                  std::string(e.what()).find("twice") != std::string::npos ||
                  std::string(e.what()).find("missing") != std::string::npos) {
                FAIL() << record.name << stages << " " << ranks << " " << n << "\n" << e.what();
              }
            }
          }
        }
      }
    }
  }
  printf("%ld\n", (long)num_checked);
}

}  // namespace
}  // namespace tessera
