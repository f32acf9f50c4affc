// Pipeline schedules: which rank runs which task of which microbatch, and in which order.
//
//   Schedule schedule = Interleaved1F1B{.num_stages = 8, .mpmd_dim = 4};
//   ScheduleTasks tasks = schedule.tasks(16);          // one list per rank
//   to_string(tasks[2])                                // fwd_2__0, fwd_2__1, ...
//   Simulation run = simulate(tasks, {.transfer = 0.1});
//   run.makespan, run.bubble, run.peak_in_flight[2], to_svg(run)
//
// A schedule of your own is a class with num_stages, mpmd_dim and tasks(num_microbatches), or a CSV
// file (read_schedule).
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/types.h>

namespace TESSERA_EXPORT tessera {

// --- tasks

/// The backward pass of a stage is one task, `bwd`, or two: `bwd_input` computes the gradient that
/// the preceding stage waits for, `bwd_weight` those of the parameters.
enum class TaskKind : unsigned char { fwd, bwd, bwd_input, bwd_weight };

/// One pass of a stage over a microbatch.
struct Task {
  TaskKind kind = TaskKind::fwd;
  std::int64_t stage = 0;
  std::int64_t microbatch = 0;
  friend auto operator<=>(const Task&, const Task&) = default;
};

/// Tasks that run one after the other as one program; usually just one.
struct FusedTask {
  std::vector<Task> parts;
  friend bool operator==(const FusedTask&, const FusedTask&) = default;
};

/// The tasks of one rank, in order.
using RankTasks = std::vector<FusedTask>;
/// The tasks of all ranks, by rank.
using ScheduleTasks = std::vector<RankTasks>;

/// fwd_2__0: the kind (fwd, bwd, bwdA for input, bwdW for weight), the stage, the microbatch.
std::string to_string(const Task& task);
/// FusedTask(fwd_3__0, bwd_3__0), or the name of a single task.
std::string to_string(const FusedTask& task);
/// The tasks, separated by commas.
std::string to_string(const RankTasks& tasks);

/// Throws UserError unless every stage has each of its tasks exactly once per microbatch, all on
/// one rank, and no rank waits forever. The error names the task, its rank and its position.
void check_tasks(const ScheduleTasks& tasks, std::int64_t num_stages, std::int64_t num_microbatches,
                 std::source_location where = std::source_location::current());
/// Merges the backward pass of stage 0 into one task, since nothing waits for its first half.
ScheduleTasks merge_stage0(ScheduleTasks tasks);

// --- simulation

/// The time and memory of the tasks of a stage, in units of your choice.
struct StageCosts {
  double fwd = 1;
  double bwd_input = 1;
  double bwd_weight = 1;  // `bwd` takes the sum of both
  double memory = 1;      // held for a microbatch from its fwd to the end of its backward pass
};

/// The costs of all stages, and of sending a value.
struct ScheduleCosts {
  std::vector<StageCosts> stages = {{}};  // one for all stages, or one for each
  double transfer = 0;                    // from rank to rank
};

/// The time that the slowest stage takes for a microbatch, divided by the mean over all stages; 1
/// if all stages are equal.
double imbalance(const ScheduleCosts& costs);

/// A task with its times. Its parts run one after the other once all their inputs are available.
/// The result of a part is sent when the part ends.
struct TimedTask {
  FusedTask task;
  double start;
  std::vector<double> ends;  // of the parts
  double end() const { return ends.back(); }
};

/// When each rank runs each task, and totals.
struct Simulation {
  std::vector<std::vector<TimedTask>> ranks;
  double makespan = 0;
  /// The longest time from the first to the last task of a rank: the time of a step if each rank
  /// begins the next step on its own.
  double longest_span = 0;
  std::vector<double> busy = {};                  // by rank
  double bubble = 0;                              // the share of time in which ranks are idle
  std::vector<std::int64_t> peak_in_flight = {};  // by rank: microbatches held, counted per stage
  std::vector<double> peak_memory = {};           // by rank, in the unit of StageCosts::memory
};

/// Simulates ranks that start each task as soon as possible. Throws UserError for tasks that fail
/// check_tasks() and for negative costs.
Simulation simulate(const ScheduleTasks& tasks, const ScheduleCosts& costs = {},
                    std::source_location where = std::source_location::current());

// --- schedules

template <typename S>
concept ScheduleLike = requires(const S& schedule, std::int64_t n) {
  { schedule.tasks(n) } -> std::convertible_to<ScheduleTasks>;
  { schedule.num_stages } -> std::convertible_to<std::int64_t>;
  { schedule.mpmd_dim } -> std::convertible_to<std::int64_t>;
};

/// A schedule of any type.
class Schedule {
 public:
  template <ScheduleLike S>
  Schedule(S schedule)  // NOLINT(google-explicit-constructor)
      : num_stages_(schedule.num_stages),
        mpmd_dim_(schedule.mpmd_dim),
        rule_(std::make_shared<RuleOf<S>>(std::move(schedule))) {}

  std::int64_t num_stages() const { return num_stages_; }
  /// The number of ranks, which are groups of devices.
  std::int64_t mpmd_dim() const { return mpmd_dim_; }
  /// The tasks, checked by check_tasks().
  ScheduleTasks tasks(std::int64_t num_microbatches,
                      std::source_location where = std::source_location::current()) const;

 private:
  struct Rule {
    virtual ~Rule() = default;
    virtual ScheduleTasks tasks(std::int64_t num_microbatches,
                                const std::source_location& where) const = 0;
  };
  template <typename S>
  struct RuleOf final : Rule {
    explicit RuleOf(S s) : schedule(std::move(s)) {}
    ScheduleTasks tasks(std::int64_t num_microbatches,
                        const std::source_location& where) const override {
      if constexpr (requires { schedule.tasks(num_microbatches, where); }) {
        return schedule.tasks(num_microbatches, where);
      } else {
        return schedule.tasks(num_microbatches);
      }
    }
    S schedule;
  };

  std::int64_t num_stages_;
  std::int64_t mpmd_dim_;
  std::shared_ptr<const Rule> rule_;
};

/// Sizes of a built-in schedule.
struct ScheduleOptions {
  std::int64_t num_stages;
  std::int64_t mpmd_dim = num_stages;
  bool fuse_steady_state = false;  // a forward and a backward task become one program
};

/// The tasks of a built-in schedule by its name. Throws UserError for an unknown name, and for
/// sizes that the schedule does not support.
ScheduleTasks schedule_tasks(std::string_view name, const ScheduleOptions& options,
                             std::int64_t num_microbatches,
                             std::source_location where = std::source_location::current());
/// The names of the built-in schedules.
std::vector<std::string> schedule_names();
/// One sentence that describes the schedule.
std::string schedule_doc(std::string_view name);

namespace detail {

template <std::size_t N>
struct ScheduleName {
  char text[N];
  constexpr ScheduleName(const char (&name)[N]) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < N; ++i) text[i] = name[i];
  }
};

}  // namespace detail

/// A built-in schedule, under the names below: Interleaved1F1B{.num_stages = 8, .mpmd_dim = 4}.
template <detail::ScheduleName Name>
struct BuiltInSchedule {
  std::int64_t num_stages;
  std::int64_t mpmd_dim = num_stages;
  bool fuse_steady_state = false;

  ScheduleTasks tasks(std::int64_t num_microbatches,
                      std::source_location where = std::source_location::current()) const {
    return schedule_tasks(Name.text, {num_stages, mpmd_dim, fuse_steady_state}, num_microbatches,
                          where);
  }
};

using Sequential = BuiltInSchedule<"Sequential">;
using GPipe = BuiltInSchedule<"GPipe">;
using Std1F1B = BuiltInSchedule<"Std1F1B">;
using Eager1F1B = BuiltInSchedule<"Eager1F1B">;
using Interleaved1F1B = BuiltInSchedule<"Interleaved1F1B">;
using KimiK2 = BuiltInSchedule<"KimiK2">;
using InterleavedGPipe = BuiltInSchedule<"InterleavedGPipe">;
using ZeroBubble = BuiltInSchedule<"ZeroBubble">;
using ZBH2 = BuiltInSchedule<"ZBH2">;
using ZBV = BuiltInSchedule<"ZBV">;
using VHalf = BuiltInSchedule<"VHalf">;
using DualPipeV = BuiltInSchedule<"DualPipeV">;

/// Searches for the schedule with the least makespan that holds at most `memory_limit` on every
/// rank, among the built-in schedules and schedules generated with various priorities.
struct AutoSchedule {
  std::int64_t num_stages;
  std::int64_t mpmd_dim = num_stages;
  ScheduleCosts costs = {};
  double memory_limit = 1e300;  // in the unit of StageCosts::memory

  /// Throws UserError if no schedule fits the memory limit.
  ScheduleTasks tasks(std::int64_t num_microbatches,
                      std::source_location where = std::source_location::current()) const;
};

/// A schedule whose tasks are given explicitly.
struct FixedSchedule {
  std::int64_t num_stages = 0;
  std::int64_t mpmd_dim = 0;
  std::int64_t num_microbatches = 0;
  ScheduleTasks list = {};

  /// Throws UserError if the tasks are for another number of microbatches.
  ScheduleTasks tasks(std::int64_t num_microbatches,
                      std::source_location where = std::source_location::current()) const;
};

/// Reads CSV text: one line per rank, one cell per task, such as `fwd_2__0`. The parts of a fused
/// task are joined by `+`. Empty cells are skipped. `name` is the name of the file in errors.
/// Throws UserError with the row and column of a cell that is not a task.
FixedSchedule read_schedule(std::string_view csv, const std::string& name = "schedule",
                            std::source_location where = std::source_location::current());

// --- measured runs of pipelines

/// When a task of a pipeline ran, in seconds since the recording began.
struct TaskTime {
  std::string name;  // fwd_2, bwd_2, bwdA_2, bwdW_2, fused_fwd_3_bwd_3, before_loop_0, after_loop_0
  std::int64_t group = 0;
  std::int64_t microbatch = -1;  // -1: several, or none
  std::int64_t step = 0;         // calls since the recording began
  double start = 0;
  double end = 0;
};
void start_timeline();
/// With one process per device, all processes must make this call; all get the times of all groups.
std::vector<TaskTime> stop_timeline();
/// Sets how many threads may work for a group at the same time; 0, the default, means any number.
/// With 1, and as many threads as groups, each group computes like a separate device.
void set_threads_per_group(int count, std::source_location where = std::source_location::current());

/// A recorded step in the form of a simulation, for the same pictures and figures. Times count from
/// its first task. Throws UserError if a task of the schedule was not recorded in that step.
Simulation measured(const ScheduleTasks& tasks, const std::vector<TaskTime>& times,
                    std::int64_t step = 0,
                    std::source_location where = std::source_location::current());
/// The median time of each kind of task in each stage, in seconds. `memory` stays 1, and `transfer`
/// stays 0, since groups in one process copy nothing.
ScheduleCosts measured_costs(const std::vector<TaskTime>& times, std::int64_t num_stages);

// --- pictures

std::string to_csv(const ScheduleTasks& tasks);
/// Draws a schedule in characters: one line per rank; one column is the time of the shortest task.
/// f, b, a and w, with the microbatch, mean forward, backward, input gradient and weight gradient.
/// - means that the task continues, . that the rank is idle.
std::string to_picture(const Simulation& run);
/// Draws ranks as rows over a time axis, with the numbers of the microbatches, under `title`.
std::string to_svg(const Simulation& run, const std::string& title = "");
/// Draws several runs below each other on the same time scale, each under its title.
std::string to_svg(const std::vector<std::pair<std::string, Simulation>>& runs);
/// A trace for chrome://tracing and Perfetto. One unit of time becomes one millisecond.
std::string to_chrome_trace(const Simulation& run);

}  // namespace tessera
