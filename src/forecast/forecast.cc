#include "forecast/forecast.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include <tessera/error.h>

#include "forecast/walker.h"

namespace tessera::forecast {

namespace {

/// Adds up what the items of the programs cost, by name and line.
class Sums {
 public:
  explicit Sums(std::size_t num_groups) : part_(1.0 / static_cast<double>(num_groups)) {}

  void add(const Program& program, double count) {
    for (const Item& item : program.items) {
      for (const Rounds& rounds : item.rounds)
        add(*rounds.program, count * static_cast<double>(rounds.count));
      if (item.kind == Item::Kind::compute) add_computing(item, count);
      if (is_exchange(item)) add_exchange(item, count);
    }
  }

  void move_to(StepPlan& plan) {
    for (auto& [key, sum] : computing_) {
      if (sum.seconds > 0) plan.computing.push_back(std::move(sum));
    }
    for (auto& [key, sum] : exchanges_) plan.collectives.push_back(std::move(sum));
    const auto is_longer = [](const auto& a, const auto& b) { return a.seconds > b.seconds; };
    std::stable_sort(plan.computing.begin(), plan.computing.end(), is_longer);
    std::stable_sort(plan.collectives.begin(), plan.collectives.end(), is_longer);
  }

 private:
  void add_computing(const Item& item, double count) {
    ComputeTime& sum = computing_[item.name];
    sum.name = item.name;
    sum.count += count * part_;
    sum.seconds += count * item.seconds * part_;
    sum.flops += count * item.flops * part_;
    sum.bytes += count * item.bytes * part_;
  }

  void add_exchange(const Item& item, double count) {
    CollectiveTime& sum = exchanges_[{item.name, to_string(item.where)}];
    sum.kind = item.name;
    sum.where = item.where;
    sum.count += count * part_;
    sum.seconds += count * item.exchange.seconds * part_;
    if (item.kind == Item::Kind::send) return;  // received by the other group
    sum.bytes_within += count * item.exchange.bytes_within * part_;
    sum.bytes_between += count * item.exchange.bytes_between * part_;
  }

  double part_;
  std::map<std::string, ComputeTime> computing_;
  std::map<std::pair<std::string, std::string>, CollectiveTime> exchanges_;
};

/// Runs each transfer for which both groups are ready. Returns whether there was one.
bool run_transfers(std::vector<Walker>& walkers) {
  bool has_run = false;
  for (std::size_t from = 0; from < walkers.size(); ++from) {
    const Item* send = walkers[from].next_transfer();
    if (send == nullptr || send->kind != Item::Kind::send) continue;
    Walker& other = walkers[static_cast<std::size_t>(send->peer)];
    const Item* receive = other.next_transfer();
    const bool is_match = receive != nullptr && receive->kind == Item::Kind::receive &&
                          receive->peer == static_cast<int>(from);
    if (!is_match) continue;
    const double start = std::max(walkers[from].transfer_start(), other.transfer_start());
    walkers[from].end_transfer(start);
    other.end_transfer(start);
    has_run = true;
  }
  return has_run;
}

}  // namespace

StepPlan plan_of(const std::vector<Program>& groups, bool overlaps, Order order) {
  std::vector<Device> devices(groups.size(),
                              Device(overlaps, groups.size() > 1 ? Order::program : order));
  std::vector<Walker> walkers;
  for (std::size_t group = 0; group < groups.size(); ++group)
    walkers.emplace_back(groups[group], devices[group], 0.0);
  for (bool runs = true; runs;) {
    runs = false;
    for (Walker& walker : walkers) runs |= walker.advance();
    runs |= run_transfers(walkers);
  }
  StepPlan plan;
  for (const Walker& walker : walkers) {
    require(walker.has_ended(), "no group waits forever");
    plan.seconds = std::max(plan.seconds, walker.end());
  }
  for (const Device& device : devices) plan.groups.push_back(device.times(plan.seconds));
  Sums sums(groups.size());
  for (const Program& program : groups) sums.add(program, 1);
  sums.move_to(plan);
  return plan;
}

StepPlan plan_of(const std::vector<Program>& groups, bool overlaps) {
  StepPlan plan = plan_of(groups, overlaps, Order::program);
  if (groups.size() > 1 || !overlaps) return plan;
  StepPlan patient = plan_of(groups, overlaps, Order::patient);
  return patient.seconds < plan.seconds ? patient : plan;
}

StepPlan plan_of(const std::vector<std::shared_ptr<const run::Executable>>& groups,
                 const Cluster& cluster) {
  std::vector<Program> programs;
  for (std::size_t group = 0; group < groups.size(); ++group)
    programs.push_back(program_of(*groups[group], static_cast<std::int64_t>(group), cluster));
  StepPlan plan = plan_of(programs, cluster.overlaps);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const run::Executable& executable = *groups[group];
    plan.groups[group].memory = executable.group_peak_bytes.empty()
                                    ? executable.device_peak_bytes
                                    : executable.group_peak_bytes[group];
  }
  return plan;
}

void check_cluster(const Cluster& cluster, const Span& where) {
  const auto check = [&](const char* name, double value, const char* wanted, bool is_valid) {
    if (is_valid) return;
    throw UserError({.what = fmt::format("plan_step: Cluster::{} is not valid", name),
                     .where = where,
                     .found = fmt::format("{}", value),
                     .wanted = wanted,
                     .cure = "give the numbers of the cluster; see <tessera/profile.h>"});
  };
  const auto check_count = [&](const char* name, std::int64_t count) {
    check(name, static_cast<double>(count), "at least 1", count >= 1);
  };
  const auto check_speed = [&](const char* name, double speed) {
    check(name, speed, "a number above 0", speed > 0);
  };
  const auto check_latency = [&](const char* name, double seconds) {
    check(name, seconds, "a time of at least 0, in seconds", seconds >= 0 && seconds < 1e9);
  };
  check_count("nodes", cluster.nodes);
  check_count("devices_per_node", cluster.devices_per_node);
  check_speed("flops", cluster.flops);
  check_speed("memory_bandwidth", cluster.memory_bandwidth);
  check_speed("bandwidth", cluster.bandwidth);
  check_latency("latency", cluster.latency);
  check_speed("node_bandwidth", cluster.node_bandwidth);
  check_latency("node_latency", cluster.node_latency);
}

}  // namespace tessera::forecast

namespace tessera {

DeviceTimes StepPlan::mean() const {
  DeviceTimes sum;
  for (const DeviceTimes& group : groups) {
    sum.computing += group.computing;
    sum.communicating += group.communicating;
    sum.exposed += group.exposed;
    sum.idle += group.idle;
    sum.memory = std::max(sum.memory, group.memory);
  }
  const auto count = static_cast<double>(std::max<std::size_t>(1, groups.size()));
  for (double* time : {&sum.computing, &sum.communicating, &sum.exposed, &sum.idle}) *time /= count;
  return sum;
}

double StepPlan::bytes_within() const {
  double sum = 0;
  for (const CollectiveTime& collective : collectives) sum += collective.bytes_within;
  return sum;
}

double StepPlan::bytes_between() const {
  double sum = 0;
  for (const CollectiveTime& collective : collectives) sum += collective.bytes_between;
  return sum;
}

double StepPlan::hidden_share() const {
  const DeviceTimes device = mean();
  return device.communicating > 0 ? 1 - device.exposed / device.communicating : 1;
}

}  // namespace tessera
