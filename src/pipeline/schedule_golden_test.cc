// The task lists and simulations of JaxPP.
#include <gtest/gtest.h>

#include <tessera/schedule.h>

#include "tests/peers/golden.h"

namespace tessera {
namespace {

using nlohmann::json;

ScheduleTasks tasks_of(const json& entry) {
  const bool is_fused = entry["kwargs"].value("fuse_steady_state", false);
  return schedule_tasks(entry["schedule"].get<std::string>(),
                        {entry["num_stages"], entry["mpmd_dim"], is_fused}, entry["n_mb"]);
}

std::string name_of(const json& entry) {
  return entry["schedule"].get<std::string>() + entry["kwargs"].dump() + " stages " +
         entry["num_stages"].dump() + " ranks " + entry["mpmd_dim"].dump() + " microbatches " +
         entry["n_mb"].dump();
}

TEST(ScheduleGolden, TaskListsAreThoseOfJaxPP) {
  const json golden = read_golden("schedules.json");
  ASSERT_EQ(golden["entries"].size(), 96);
  for (const json& entry : golden["entries"]) {
    const ScheduleTasks tasks = tasks_of(entry);
    std::vector<std::vector<std::string>> texts;
    for (const RankTasks& rank : tasks) {
      texts.emplace_back();
      for (const FusedTask& task : rank) texts.back().push_back(to_string(task));
    }
    EXPECT_EQ(json(texts), entry["tasks"]) << name_of(entry);
  }
}

TEST(ScheduleGolden, SimulationsAreThoseOfJaxPP) {
  const json golden = read_golden("schedules_simulated.json");
  ASSERT_EQ(golden["entries"].size(), 96);
  for (const json& entry : golden["entries"]) {
    // JaxPP never splits the backward pass of stage 0.
    const Simulation run = simulate(merge_stage0(tasks_of(entry)));
    EXPECT_EQ(run.makespan, entry["makespan"].get<double>()) << name_of(entry);
    EXPECT_EQ(json(run.busy), json(entry["busy"].get<std::vector<double>>())) << name_of(entry);
    EXPECT_NEAR(run.bubble, entry["bubble"].get<double>(), 5e-5) << name_of(entry);
    EXPECT_EQ(json(run.peak_in_flight), entry["peak_inflight"]) << name_of(entry);
  }
}

}  // namespace
}  // namespace tessera
