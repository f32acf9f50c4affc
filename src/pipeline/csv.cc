// Schedules as CSV text.

#include <algorithm>
#include <charconv>

#include <tessera/error.h>
#include <tessera/schedule.h>

namespace tessera {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\"";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// Takes a number from the front of `text`; false if there is none.
bool take_number(std::string_view& text, std::int64_t& value) {
  constexpr std::int64_t kMost = 1 << 20;
  const auto [reached, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > kMost) return false;
  text.remove_prefix(static_cast<std::size_t>(reached - text.data()));
  return true;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

/// Reads a task such as fwd_2__0; false if `text` is not a task.
bool read_task(std::string_view text, Task& task) {
  constexpr std::pair<std::string_view, TaskKind> kKinds[] = {{"fwd_", TaskKind::fwd},
                                                              {"bwd_", TaskKind::bwd},
                                                              {"bwdA_", TaskKind::bwd_input},
                                                              {"bwdW_", TaskKind::bwd_weight}};
  for (const auto& [word, kind] : kKinds) {
    if (!take_word(text, word)) continue;
    task.kind = kind;
    return take_number(text, task.stage) && take_word(text, "__") &&
           take_number(text, task.microbatch) && text.empty();
  }
  return false;
}

struct Source {
  const std::string& name;
  const Span& where;
};

FusedTask read_cell(std::string_view cell, std::size_t row, std::size_t column,
                    const Source& source) {
  FusedTask fused;
  for (const std::string_view part : split(cell, '+')) {
    Task task;
    if (!read_task(trim(part), task)) {
      throw UserError({.what = source.name + ": a cell is not a task",
                       .where = source.where,
                       .found = "'" + std::string(cell) + "' in row " + std::to_string(row + 1) +
                                ", column " + std::to_string(column + 1),
                       .wanted = "KIND_STAGE__MICROBATCH with KIND fwd, bwd, bwdA or bwdW; fused "
                                 "tasks are joined by +",
                       .cure = "write for example fwd_2__0, or leave the cell empty"});
    }
    fused.parts.push_back(task);
  }
  return fused;
}

void count(const RankTasks& rank, FixedSchedule& schedule) {
  for (const FusedTask& fused : rank) {
    for (const Task& task : fused.parts) {
      schedule.num_stages = std::max(schedule.num_stages, task.stage + 1);
      schedule.num_microbatches = std::max(schedule.num_microbatches, task.microbatch + 1);
    }
  }
}

}  // namespace

FixedSchedule read_schedule(std::string_view csv, const std::string& name,
                            std::source_location where) {
  const Span span(where);
  FixedSchedule schedule;
  std::vector<std::string_view> lines = split(csv, '\n');
  while (!lines.empty() && trim(lines.back()).empty()) lines.pop_back();
  for (std::size_t row = 0; row < lines.size(); ++row) {
    const std::vector<std::string_view> cells = split(lines[row], ',');
    RankTasks rank;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const std::string_view cell = trim(cells[column]);
      if (!cell.empty()) rank.push_back(read_cell(cell, row, column, {name, span}));
    }
    count(rank, schedule);
    schedule.list.push_back(std::move(rank));
  }
  schedule.mpmd_dim = static_cast<std::int64_t>(schedule.list.size());
  if (schedule.num_stages == 0) {
    throw UserError({.what = name + ": the schedule has no tasks",
                     .where = span,
                     .found = "no cell with a task",
                     .wanted = "one line per rank with its tasks, separated by commas",
                     .cure = "write one with `tessera schedule GPipe --format csv`"});
  }
  try {
    check_tasks(schedule.list, schedule.num_stages, schedule.num_microbatches, where);
  } catch (const UserError& error) {
    Mistake mistake = error.mistake();
    mistake.what = name + mistake.what.substr(mistake.what.find(": "));
    throw UserError(std::move(mistake));
  }
  return schedule;
}

std::string to_csv(const ScheduleTasks& tasks) {
  std::string text;
  for (const RankTasks& rank : tasks) {
    std::string line;
    for (const FusedTask& fused : rank) {
      std::string cell;
      for (const Task& task : fused.parts) cell += (cell.empty() ? "" : "+") + to_string(task);
      line += (line.empty() ? "" : ",") + cell;
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace tessera
