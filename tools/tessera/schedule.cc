// `tessera schedule`: prints the tasks of a pipeline schedule, their times and memory, and a
// picture.

#include <algorithm>
#include <cstdio>
#include <memory>

#include <tessera/schedule.h>

#include "commands.h"
#include "flags.h"
#include "report.h"
#include "tools/cli/input_file.h"
#include "tools/cli/streams.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

struct ScheduleFlags {
  std::string schedule;
  std::int64_t stages = 4;
  std::int64_t ranks = 0;  // 0: as many as stages
  std::int64_t microbatches = 8;
  bool fuse_steady_state = false;
  bool merge_stage0 = false;
  std::string costs = "1,1,1";
  std::string transfer = "0";
  std::string memory = "1";
  std::string memory_limit;  // empty: none
  std::string format = "text";
};

std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

FixedSchedule read_file(const std::string& path) {
  const std::string csv = read_input(
      path, {.what = "schedule: the file cannot be read",
             .wanted = "a CSV file with one line per rank",
             .cure = "write one with `tessera schedule GPipe --format csv > " + path + "`"});
  return read_schedule(csv, path, std::source_location());
}

void check_flag(const Command& command, const char* flag, std::int64_t given,
                std::int64_t in_file) {
  if (command.count(flag) == 0 || given == in_file) return;
  throw UserError({.what = std::string(flag) + ": the file has a different number",
                   .found = std::to_string(given),
                   .wanted = std::to_string(in_file),
                   .cure = std::string("leave out ") + flag + ", or write " + flag + " " +
                           std::to_string(in_file)});
}

/// Parses the value of a flag: numbers separated by commas.
std::vector<double> numbers_of(const char* flag, const std::string& text, const char* example) {
  std::vector<double> numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    double number = 0;
    if (!read_number(text.substr(begin, end - begin), number) || number < 0 || number >= 1e300) {
      throw UserError({.what = std::string(flag) + ": the value is not valid",
                       .found = text.empty() ? "an empty string" : text,
                       .wanted = "numbers of at least 0, separated by commas",
                       .cure = std::string("write for example ") + flag + " " + example});
    }
    numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

double number_of(const char* flag, const std::string& text, const char* example) {
  const std::vector<double> numbers = numbers_of(flag, text, example);
  if (numbers.size() == 1) return numbers[0];
  throw UserError({.what = std::string(flag) + ": more than one value",
                   .found = text,
                   .wanted = "one number of at least 0",
                   .cure = std::string("write for example ") + flag + " " + example});
}

/// Throws UserError unless there are either `width` numbers, which hold for all stages, or `width`
/// numbers for each stage.
void check_length(const char* flag, std::size_t length, std::size_t width, std::int64_t stages) {
  const std::size_t all = width * static_cast<std::size_t>(stages);
  if (length == width || length == all) return;
  throw UserError(
      {.what = std::string(flag) + ": the number of values does not match the number of stages",
       .found = std::to_string(length) + " for " + std::to_string(stages) + " stages",
       .wanted = std::to_string(width) + " for all stages together, or " + std::to_string(all),
       .cure = "give one set of values for all stages, or one set per stage, in order"});
}

ScheduleCosts costs_of(const ScheduleFlags& flags) {
  const std::vector<double> times = numbers_of("--costs", flags.costs, "1,1,1");
  const std::vector<double> memory = numbers_of("--memory", flags.memory, "1");
  check_length("--costs", times.size(), 3, flags.stages);
  check_length("--memory", memory.size(), 1, flags.stages);
  ScheduleCosts costs{.stages = {}, .transfer = number_of("--transfer", flags.transfer, "0.1")};
  for (std::size_t s = 0; s < static_cast<std::size_t>(flags.stages); ++s) {
    const std::size_t first = times.size() == 3 ? 0 : 3 * s;
    costs.stages.push_back({.fwd = times[first],
                            .bwd_input = times[first + 1],
                            .bwd_weight = times[first + 2],
                            .memory = memory[memory.size() == 1 ? 0 : s]});
  }
  return costs;
}

void check_name(const std::string& name) {
  std::vector<std::string> names = schedule_names();
  names.emplace_back("auto");
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  std::string list;
  for (const std::string& known : names) list += known + ", ";
  const std::string meant = nearest(name, names);
  throw UserError(
      {.what = name.empty() ? "schedule: the name is missing"
                            : "schedule: unknown schedule '" + name + "'",
       .found = name.empty() ? "`tessera schedule` alone" : name,
       .wanted = "one of " + list + "or a file *.csv",
       .cure = "write for example `tessera schedule " + (meant.empty() ? "GPipe" : meant) + "`"});
}

/// Reads the tasks of a file and sets the sizes in `flags` to those of the file.
ScheduleTasks tasks_of_file(const Command& command, ScheduleFlags& flags) {
  FixedSchedule file = read_file(flags.schedule);
  check_flag(command, "--stages", flags.stages, file.num_stages);
  check_flag(command, "--ranks", flags.ranks, file.mpmd_dim);
  check_flag(command, "--microbatches", flags.microbatches, file.num_microbatches);
  flags.stages = file.num_stages;
  flags.ranks = file.mpmd_dim;
  flags.microbatches = file.num_microbatches;
  return std::move(file.list);
}

/// Throws UserError if the memory is limited but no schedule is searched within the limit.
void check_limit(const ScheduleFlags& flags) {
  if (flags.memory_limit.empty() || flags.schedule == "auto") return;
  throw UserError({.what = "--memory-limit: the limit needs a search for a schedule",
                   .found = "the schedule " + flags.schedule,
                   .wanted = "the schedule auto",
                   .cure = "write tessera schedule auto, or leave out --memory-limit"});
}

ScheduleTasks tasks_of_name(const ScheduleFlags& flags, const ScheduleCosts& costs) {
  const std::source_location nowhere;
  if (flags.schedule != "auto") {
    return schedule_tasks(flags.schedule, {flags.stages, flags.ranks, flags.fuse_steady_state},
                          flags.microbatches, nowhere);
  }
  AutoSchedule schedule{.num_stages = flags.stages, .mpmd_dim = flags.ranks, .costs = costs};
  if (!flags.memory_limit.empty()) {
    schedule.memory_limit = number_of("--memory-limit", flags.memory_limit, "4");
  }
  return schedule.tasks(flags.microbatches, nowhere);
}

std::string title_of(const ScheduleFlags& flags) {
  return flags.schedule + ": " + std::to_string(flags.stages) + " stages on " +
         std::to_string(flags.ranks) + " ranks, " + std::to_string(flags.microbatches) +
         " microbatches";
}

std::string text_of(const ScheduleFlags& flags, const ScheduleTasks& tasks, const Simulation& run) {
  std::string text = title_of(flags) + "\n";
  std::vector<Row> rows = {{"rank", "in flight", "memory", "busy", "tasks"}};
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    rows.push_back({std::to_string(rank), std::to_string(run.peak_in_flight[rank]),
                    text_of(run.peak_memory[rank]), text_of(run.busy[rank]),
                    to_string(tasks[rank])});
  }
  return text + table(rows) + to_picture(run) + "makespan " + text_of(run.makespan) + ", bubble " +
         text_of(100 * run.bubble) + " %, longest span of a rank " + text_of(run.longest_span) +
         "\n";
}

json json_of(const ScheduleFlags& flags, const ScheduleTasks& tasks, const Simulation& run) {
  json lists = json::array();
  for (const RankTasks& rank : tasks) {
    json list = json::array();
    for (const FusedTask& task : rank) list.push_back(to_string(task));
    lists.push_back(std::move(list));
  }
  return {{"schedule", flags.schedule},
          {"num_stages", flags.stages},
          {"mpmd_dim", flags.ranks},
          {"n_mb", flags.microbatches},
          {"tasks", lists},
          {"makespan", run.makespan},
          {"longest_span", run.longest_span},
          {"busy", run.busy},
          {"bubble", run.bubble},
          {"peak_inflight", run.peak_in_flight},
          {"peak_memory", run.peak_memory}};
}

void print_schedule(const Command& command, ScheduleFlags flags) {
  ScheduleTasks tasks;
  const bool is_file = flags.schedule.ends_with(".csv");
  if (is_file) {
    tasks = tasks_of_file(command, flags);
  } else {
    check_name(flags.schedule);
  }
  check_limit(flags);
  if (flags.ranks == 0) flags.ranks = flags.stages;
  const ScheduleCosts costs = costs_of(flags);
  if (!is_file) tasks = tasks_of_name(flags, costs);
  if (flags.merge_stage0) tasks = merge_stage0(std::move(tasks));
  const Simulation run = simulate(tasks, costs, std::source_location());
  if (flags.format == "json") return write_json("-", json_of(flags, tasks, run));
  const std::string text = flags.format == "csv"      ? to_csv(tasks)
                           : flags.format == "chrome" ? to_chrome_trace(run)
                           : flags.format == "svg"    ? to_svg(run, title_of(flags))
                                                      : text_of(flags, tasks, run);
  print(text);
}

void add_number_flags(Command& command, ScheduleFlags& flags) {
  add_whole_number(command, flags.stages, {.name = "--stages", .text = "pipeline stages"});
  add_whole_number(command, flags.ranks,
                   {.name = "--ranks", .text = "groups of devices; default: one per stage"});
  add_whole_number(command, flags.microbatches,
                   {.name = "--microbatches", .text = "microbatches per step"});
  command
      .add_option("--costs", flags.costs,
                  "times of forward pass, input gradient and weight gradient: three numbers for "
                  "all stages, or three per stage")
      ->capture_default_str();
  command.add_option("--transfer", flags.transfer, "time of a transfer from one rank to another")
      ->capture_default_str();
  command
      .add_option("--memory", flags.memory,
                  "memory that a stage holds for a microbatch until its backward pass has ended: "
                  "one number for all stages, or one per stage")
      ->capture_default_str();
  command.add_option("--memory-limit", flags.memory_limit,
                     "for auto: the memory limit of a rank, in the unit of --memory");
}

}  // namespace

void add_schedule(Command& app) {
  Command* command = app.add_subcommand(
      "schedule", "print the tasks of a pipeline schedule, their costs and a picture of them");
  auto flags = std::make_shared<ScheduleFlags>();
  std::string names = "auto, FILE.csv";
  for (const std::string& name : schedule_names()) names += ", " + name;
  command->add_option("name,--schedule", flags->schedule, "one of " + names);
  add_number_flags(*command, *flags);
  command
      ->add_flag("--fuse-steady-state", flags->fuse_steady_state,
                 "combine pairs of a forward and a backward task into one program")
      ->disable_flag_override();
  command
      ->add_flag("--merge-stage0", flags->merge_stage0, "do not split the backward pass of stage 0")
      ->disable_flag_override();
  add_choice(
      *command, flags->format, "--format", {"text", "json", "csv", "chrome", "svg"},
      "text; json; csv, which this command can read; chrome, a trace for chrome://tracing; svg, a "
      "picture");
  command->callback([command, flags] { print_schedule(*command, *flags); });
}

}  // namespace tessera::cli
