// A simulation as text: a row per rank, a column per unit of time.

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "pipeline/draw.h"

namespace tessera {

namespace pipeline {

double shortest_task(const Simulation& run) {
  double shortest = run.makespan;
  for (const auto& rank : run.ranks) {
    for (const TimedTask& timed : rank) {
      double start = timed.start;
      for (const double end : timed.ends) {
        if (end > start) shortest = std::min(shortest, end - start);
        start = end;
      }
    }
  }
  return shortest;
}

}  // namespace pipeline

namespace {

std::string label_of(const Task& task) {
  const char kind = task.kind == TaskKind::fwd         ? 'f'
                    : task.kind == TaskKind::bwd       ? 'b'
                    : task.kind == TaskKind::bwd_input ? 'a'
                                                       : 'w';
  return kind + std::to_string(task.microbatch);
}

}  // namespace

std::string to_picture(const Simulation& run) {
  constexpr double kMostColumns = 1000;
  const double time = std::max(pipeline::shortest_task(run), run.makespan / kMostColumns);
  if (time <= 0) return "";
  std::size_t width = 0;
  for (const auto& rank : run.ranks) {
    for (const TimedTask& timed : rank) {
      for (const Task& task : timed.task.parts) width = std::max(width, label_of(task).size());
    }
  }
  auto column = [&](double at) { return static_cast<std::size_t>(std::lround(at / time)); };
  std::string text;
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    std::vector<std::string> cells(column(run.makespan), ".");
    for (const TimedTask& timed : run.ranks[rank]) {
      double start = timed.start;
      for (std::size_t i = 0; i < timed.ends.size(); ++i) {
        for (std::size_t c = column(start); c < column(timed.ends[i]); ++c) {
          cells[c] = c == column(start) ? label_of(timed.task.parts[i]) : "-";
        }
        start = timed.ends[i];
      }
    }
    text += fmt::format("rank {:<3}", rank);
    for (const std::string& cell : cells) text += fmt::format(" {:<{}}", cell, width);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

}  // namespace tessera
