// A simulation in the format that chrome://tracing and Perfetto read.

#include <fmt/format.h>

#include <tessera/schedule.h>

namespace tessera {

std::string to_chrome_trace(const Simulation& run) {
  constexpr double kMicroseconds = 1000;  // per unit of time
  std::string events;
  auto add = [&](const std::string& event) { events += (events.empty() ? "\n" : ",\n") + event; };
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    add(fmt::format(
        R"({{"ph":"M","name":"thread_name","pid":0,"tid":{0},"args":{{"name":"rank {0}"}}}})",
        rank));
    for (const TimedTask& timed : run.ranks[rank]) {
      const Task& task = timed.task.parts[0];
      add(fmt::format(R"({{"ph":"X","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},)"
                      R"("args":{{"stage":{},"microbatch":{}}}}})",
                      to_string(timed.task), rank, timed.start * kMicroseconds,
                      (timed.end() - timed.start) * kMicroseconds, task.stage, task.microbatch));
    }
  }
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + events + "\n]}\n";
}

}  // namespace tessera
