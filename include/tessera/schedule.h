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

namespace tessera {

// --- tasks

/// The backward pass of a stage is one task, `bwd`, or two: `bwd_input` makes the gradient that the
/// stage before it waits for, `bwd_weight` those of the parameters.
enum class TaskKind : unsigned char { fwd, bwd, bwd_input, bwd_weight };

struct Task {
  TaskKind kind = TaskKind::fwd;
  std::int64_t stage = 0;
  std::int64_t microbatch = 0;
  friend auto operator<=>(const Task&, const Task&) = default;
};

/// Tasks that run one after the other as one program; mostly one alone.
struct FusedTask {
  std::vector<Task> parts;
  friend bool operator==(const FusedTask&, const FusedTask&) = default;
};

/// Of one rank, in order.
using RankTasks = std::vector<FusedTask>;
/// By rank.
using ScheduleTasks = std::vector<RankTasks>;

/// fwd_2__0: kind, stage, microbatch; the kinds are fwd, bwd, bwdA (input) and bwdW (weight).
std::string to_string(const Task& task);
/// FusedTask(fwd_3__0, bwd_3__0), or the task that stands alone.
std::string to_string(const FusedTask& task);
/// Separated by commas.
std::string to_string(const RankTasks& tasks);

/// Throws UserError unless every stage has all its tasks of every microbatch once and on one rank,
/// and every rank comes to the end of its list. It names the task, and its rank and position.
void check_tasks(const ScheduleTasks& tasks, std::int64_t num_stages, std::int64_t num_microbatches,
                 std::source_location where = std::source_location::current());
/// The backward pass of stage 0 as one task, as nothing waits for its first half.
ScheduleTasks merge_stage0(ScheduleTasks tasks);

// --- simulation

/// What a task of a stage takes and what it holds, in units of the caller.
struct StageCosts {
  double fwd = 1;
  double bwd_input = 1;
  double bwd_weight = 1;  // `bwd` takes both
  double memory = 1;      // held for a microbatch from fwd to the end of its backward pass
};

struct ScheduleCosts {
  std::vector<StageCosts> stages = {{}};  // one for all stages, or one for each
  double transfer = 0;                    // from rank to rank
};

/// What the slowest stage takes for a microbatch over the mean of all stages: 1 for equal ones.
double imbalance(const ScheduleCosts& costs);

/// Parts run one after the other once all their inputs are there; what one makes is sent when it
/// ends.
struct TimedTask {
  FusedTask task;
  double start;
  std::vector<double> ends;  // of the parts
  double end() const { return ends.back(); }
};

struct Simulation {
  std::vector<std::vector<TimedTask>> ranks;
  double makespan = 0;
  /// The longest time from a rank's first task to its last one: what a step takes where ranks begin
  /// the next one by themselves.
  double longest_span = 0;
  std::vector<double> busy = {};                  // by rank
  double bubble = 0;                              // the idle share of all ranks' time
  std::vector<std::int64_t> peak_in_flight = {};  // by rank: stages' microbatches that are held
  std::vector<double> peak_memory = {};           // by rank, in the unit of StageCosts::memory
};

/// Every rank starts each task as soon as it can. Throws UserError for tasks that fail
/// check_tasks() and for costs below 0.
Simulation simulate(const ScheduleTasks& tasks, const ScheduleCosts& costs = {},
                    std::source_location where = std::source_location::current());

// --- schedules

template <typename S>
concept ScheduleLike = requires(const S& schedule, std::int64_t n) {
  { schedule.tasks(n) } -> std::convertible_to<ScheduleTasks>;
  { schedule.num_stages } -> std::convertible_to<std::int64_t>;
  { schedule.mpmd_dim } -> std::convertible_to<std::int64_t>;
};

/// Any schedule.
class Schedule {
 public:
  template <ScheduleLike S>
  Schedule(S schedule)  // NOLINT(google-explicit-constructor)
      : num_stages_(schedule.num_stages),
        mpmd_dim_(schedule.mpmd_dim),
        rule_(std::make_shared<RuleOf<S>>(std::move(schedule))) {}

  std::int64_t num_stages() const { return num_stages_; }
  /// The number of ranks: groups of devices.
  std::int64_t mpmd_dim() const { return mpmd_dim_; }
  /// Checked as by check_tasks().
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

struct ScheduleOptions {
  std::int64_t num_stages;
  std::int64_t mpmd_dim = num_stages;
  bool fuse_steady_state = false;  // a forward and a backward task become one program
};

/// The tasks of a built-in schedule by its name. Throws UserError for an unknown name, and for
/// sizes that it is not made for.
ScheduleTasks schedule_tasks(std::string_view name, const ScheduleOptions& options,
                             std::int64_t num_microbatches,
                             std::source_location where = std::source_location::current());
/// Of the built-in schedules.
std::vector<std::string> schedule_names();
/// One sentence on it.
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

/// The schedule with the least makespan that holds at most `memory_limit` on every rank: the best
/// of the built-in ones and of those that are made by giving way to tasks in several orders.
struct AutoSchedule {
  std::int64_t num_stages;
  std::int64_t mpmd_dim = num_stages;
  ScheduleCosts costs = {};
  double memory_limit = 1e300;  // in the unit of StageCosts::memory

  /// Throws UserError when no schedule holds so little.
  ScheduleTasks tasks(std::int64_t num_microbatches,
                      std::source_location where = std::source_location::current()) const;
};

/// Tasks that were written down.
struct FixedSchedule {
  std::int64_t num_stages = 0;
  std::int64_t mpmd_dim = 0;
  std::int64_t num_microbatches = 0;
  ScheduleTasks list = {};

  /// Throws UserError for another number of microbatches than the tasks have.
  ScheduleTasks tasks(std::int64_t num_microbatches,
                      std::source_location where = std::source_location::current()) const;
};

/// From CSV text: one line per rank, one cell per task, `fwd_2__0`; those of a fused task are
/// joined by `+`. Empty cells are idle. `name` is that of the file, for errors. Throws UserError
/// that names row and column of a cell that is no task.
FixedSchedule read_schedule(std::string_view csv, const std::string& name = "schedule",
                            std::source_location where = std::source_location::current());

// --- measured runs of pipelines

/// When a task of a pipeline ran, in seconds since the recording began.
struct TaskTime {
  std::string name;  // fwd_2, bwd_2, bwdA_2, bwdW_2, fused_fwd_3_bwd_3, before_loop_0, after_loop_0
  std::int64_t group = 0;
  std::int64_t microbatch = -1;  // -1: of several, or none
  std::int64_t step = 0;         // calls since the recording began
  double start = 0;
  double end = 0;
};
void start_timeline();
/// With one process per device all of them make this call, and get the times of all groups.
std::vector<TaskTime> stop_timeline();
/// How many threads may work for one group at one time; 0, as at first: any number. With 1, and as
/// many threads as groups, a group computes as a device of its own would.
void set_threads_per_group(int count, std::source_location where = std::source_location::current());

/// A recorded step in the form of a simulation, times from its first task on: for the same pictures
/// and figures. Throws UserError when a task of the schedule was not recorded in that step.
Simulation measured(const ScheduleTasks& tasks, const std::vector<TaskTime>& times,
                    std::int64_t step = 0,
                    std::source_location where = std::source_location::current());
/// The median time of each kind of task in each stage, in seconds. `memory` is left at 1,
/// `transfer` at 0: groups of one process copy nothing.
ScheduleCosts measured_costs(const std::vector<TaskTime>& times, std::int64_t num_stages);

// --- pictures

std::string to_csv(const ScheduleTasks& tasks);
/// In characters: a line per rank, a column for the time of the shortest task. f, b, a and w with
/// the microbatch are forward, backward, input and weight gradient; - goes on, . is idle.
std::string to_picture(const Simulation& run);
/// Ranks as rows over a time axis, microbatches as numbers; `title` stands above them.
std::string to_svg(const Simulation& run, const std::string& title = "");
/// Several runs below each other, over time axes of one scale; the titles stand above them.
std::string to_svg(const std::vector<std::pair<std::string, Simulation>>& runs);
/// For chrome://tracing and Perfetto; one unit of time is a millisecond there.
std::string to_chrome_trace(const Simulation& run);

}  // namespace tessera
