#include "run/transport/launched.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include <sstream>
#include <thread>
#include <unistd.h>

#include <tessera/error.h>

#include "run/transport/current.h"
#include "run/transport/deadline.h"
#include "run/transport/link_transport.h"
#include "run/transport/mpi/end_watch.h"
#include "run/transport/mpi/launcher.h"
#include "run/transport/mpi/mpi_link.h"

namespace tessera::run {

namespace {

using std::chrono::milliseconds;

int count_sharing_cores(const MpiLink& link) {
  const auto& places = link.places();
  const std::uint64_t own = places[static_cast<std::size_t>(link.rank())].cores;
  return static_cast<int>(std::count_if(places.begin(), places.end(),
                                        [&](const auto& place) { return place.cores == own; }));
}

[[noreturn]] void end(const LaunchOptions& options, const std::exception_ptr& error,
                      bool is_reporter) {
  const int code = report_error(options.on_error, error, is_reporter);
  std::fflush(nullptr);
  _exit(code);
}

/// Ends a process that is not connected to the others, because of an error that usually all
/// processes have. The first process reports it. A launcher that sees the first process end would
/// then end the others. So a process that is still there later is the only one with the error, and
/// reports it.
[[noreturn]] void end_alone(const LaunchOptions& options, const Launch& launch,
                            const std::exception_ptr& error) {
  if (launch.rank > 0) {
    const milliseconds turn(500 * std::min(launch.rank, 40));
    std::this_thread::sleep_for(launch.ends_others ? milliseconds(3500) + turn
                                                   : milliseconds(1000));
  }
  end(options, error, launch.rank == 0 || launch.ends_others);
}

/// The same for an error that a stopped process does not have. The stopped process may be the first
/// one, so each process that is still there when its turn comes reports the error.
[[noreturn]] void end_alone_in_turn(const LaunchOptions& options, const Launch& launch,
                                    const std::exception_ptr& error) {
  std::this_thread::sleep_for(milliseconds(launch.rank > 0 ? 500 + 500 * launch.rank : 0));
  end(options, error, true);
}

/// Runs a call of MPI that needs all processes, and ends this process if it takes too long.
template <typename Call>
void in_time(const LaunchOptions& options, const Launch& launch, const char* name,
             const Call& call) {
  const Deadline deadline(options.timeout, [&] {
    const std::chrono::duration<double> seconds = options.timeout;
    end_alone_in_turn(options, launch,
                      std::make_exception_ptr(RuntimeFault(fmt::format(
                          "{} did not end within the timeout of {:.4g} s: a process has stopped "
                          "or has not called it",
                          name, seconds.count()))));
  });
  call();
}

/// A limit for the process that watches the end of this one, and what it reports before it kills.
EndWatch::Limit limit_of_watch(const LaunchOptions& options, milliseconds time,
                               const std::string& what, const std::string& then) {
  const std::chrono::duration<double> seconds = time;
  const RuntimeFault fault(fmt::format("{} for {:.4g} s {}", what, seconds.count(), then));
  return {.time = time,
          .report = [options, fault] { options.on_error(std::make_exception_ptr(fault), true); }};
}

EndWatch::Limit limit_of_stopped(const LaunchOptions& options, int rank, milliseconds time) {
  return limit_of_watch(options, time, fmt::format("rank {} has been stopped", rank),
                        "while exiting, and is being killed; all ranks had finished their work");
}

/// The lowest rank on a machine has the shortest time, so only it reports.
EndWatch::Limit limit_of_launcher(const LaunchOptions& options, int rank, milliseconds time) {
  return limit_of_watch(options, time + milliseconds(100) * rank, "mpirun has kept running",
                        "after its last process ended, and is being killed; the messages above say "
                        "why the processes ended");
}

/// Ends all processes. Those that do not report the error wait, so that the one that reports it can
/// end them.
[[noreturn]] void end_all(const TesseraMpi& mpi, const LaunchOptions& options, int code,
                          bool is_reporter) {
  std::fflush(nullptr);
  // A launcher reads the output of processes while it ends them, so let it read first.
  const milliseconds wait = is_reporter ? milliseconds(50) : options.timeout / 4;
  std::this_thread::sleep_for(wait);
  {
    const Deadline deadline(std::min(options.timeout / 8, milliseconds(2000)),
                            [&] { _exit(code); });
    mpi.abort(code);
  }
  _exit(code);
}

void check_groups(const LaunchOptions& options, int size) {
  if (size % options.num_groups == 0) return;
  throw UserError({.what = "the processes cannot be divided evenly into groups",
                   .where = options.where,
                   .found = fmt::format("{} processes, {} groups", size, options.num_groups),
                   .wanted = "the same number of processes in each group",
                   .cure = fmt::format("start {} processes", options.num_groups)});
}

/// With several groups: the number of devices of each; one per process unless the options give
/// more.
std::int64_t devices_per_group(const LaunchOptions& options, int size) {
  const int processes = size / options.num_groups;
  if (options.num_groups == 1) return 0;
  if (options.devices_per_group == 0) return processes;
  if (options.devices_per_group % processes == 0) return options.devices_per_group;
  throw UserError({.what = "the devices of a group cannot be divided evenly among its processes",
                   .where = options.where,
                   .found = fmt::format("{} devices and {} processes per group",
                                        options.devices_per_group, processes),
                   .wanted = fmt::format("a multiple of {} devices", processes),
                   .cure = "start a number of processes that divides the devices of each group"});
}

}  // namespace

bool is_launched() { return find_launch().has_value(); }

int run_launched(const LaunchOptions& options, const std::function<void()>& body) {
  require(transport() == nullptr, "a process joins the others once");
  const std::optional<Launch> launch = find_launch();
  if (!launch) {
    try {
      body();
      return 0;
    } catch (...) {
      return report_error(options.on_error, std::current_exception(), true);
    }
  }
  // Shorter than the time after which the others report, without naming a process, that
  // MPI_Finalize hangs.
  const milliseconds patience = options.timeout * 3 / 4;
  EndWatch end_watch(limit_of_stopped(options, launch->rank, patience),
                     limit_of_launcher(options, launch->rank, patience));
  const TesseraMpi* mpi = nullptr;
  std::unique_ptr<MpiLink> made;
  try {
    mpi = &load_mpi(*launch, options.where);
    in_time(options, *launch, "MPI_Init", [&] { made = make_mpi_link(*mpi); });
  } catch (...) {
    end_alone(options, *launch, std::current_exception());
  }
  MpiLink& link = *made;
  set_num_sharing_cores(count_sharing_cores(link));
  const int size = link.size();
  LinkTransport all(std::move(made), {.processes_per_group = size, .timeout = options.timeout});
  const CurrentWorld scope({.transport = &all});
  try {
    check_groups(options, size);
    agree_on(options.facts, options.where);
    const CurrentWorld in_groups({.transport = &all,
                                  .num_groups = options.num_groups,
                                  .devices_per_group = devices_per_group(options, size)});
    all.set_options(
        {.processes_per_group = world().processes_per_group(), .timeout = options.timeout});
    body();
    meet();
    all.leave();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    all.give_up(text_of_error(error));
    const bool is_reporter = all.is_reporter();
    end_all(*mpi, options, report_error(options.on_error, error, is_reporter), is_reporter);
  }
  std::fflush(nullptr);
  end_watch.begin();
  in_time(options, *launch, "MPI_Finalize", [&] { link.finish(); });
  return 0;
}

namespace {

/// Names and values, one per line.
std::string text_of(const std::vector<Fact>& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + '\n' + value + '\n';
  return text;
}

std::vector<Fact> facts_of(const std::string& text) {
  std::vector<Fact> facts;
  std::istringstream lines(text);
  for (std::string name, value; std::getline(lines, name) && std::getline(lines, value);) {
    facts.emplace_back(name, value);
  }
  return facts;
}

std::string value_of(const std::vector<Fact>& facts, const std::string& name) {
  for (const auto& [each, value] : facts) {
    if (each == name) return value;
  }
  return "";
}

/// If not all values are equal: a rank with a value that fewer ranks have than another one, and a
/// rank with the value that most have.
std::optional<std::pair<std::size_t, std::size_t>> odd_one(const std::vector<std::string>& values) {
  std::map<std::string, int> count;
  for (const std::string& value : values) ++count[value];
  if (count.size() < 2) return std::nullopt;
  const auto is_rarer = [&](const std::string& a, const std::string& b) {
    return count[a] < count[b];
  };
  const auto usual = std::max_element(values.begin(), values.end(), is_rarer);
  const auto odd = std::find_if(values.begin(), values.end(),
                                [&](const std::string& value) { return value != *usual; });
  return std::pair(static_cast<std::size_t>(odd - values.begin()),
                   static_cast<std::size_t>(usual - values.begin()));
}

std::string shown(const std::string& value) { return value.empty() ? "nothing" : value; }

}  // namespace

void agree_on(const std::vector<Fact>& facts, const Span& where) {
  static const CollectiveLabel label{
      .kind = "gather", .op = "comparison of the processes", .span = {}};
  const std::string text = text_of(facts);
  const std::vector<std::int64_t> hashes =
      all_values(static_cast<std::int64_t>(hash_of(text)), label);
  if (std::all_of(hashes.begin(), hashes.end(), [&](auto hash) { return hash == hashes[0]; })) {
    return;
  }
  std::vector<std::vector<Fact>> all;
  for (const std::string& each : all_texts(text, label)) all.push_back(facts_of(each));
  std::vector<std::string> names;
  for (const auto& each : all) {
    for (const auto& [name, value] : each) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    std::vector<std::string> values;
    for (const auto& each : all) values.push_back(value_of(each, name));
    const auto odd = odd_one(values);
    if (!odd) continue;
    throw UserError({.what = "the processes do not agree: " + name + " differs",
                     .where = where,
                     .found = fmt::format("rank {}: {}", odd->first, shown(values[odd->first])),
                     .wanted = fmt::format("the same as on rank {}: {}", odd->second,
                                           shown(values[odd->second])),
                     .cure = "start the same program with the same flags on all ranks"});
  }
}

}  // namespace tessera::run
