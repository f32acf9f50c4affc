#include "plan.h"

#include <algorithm>

#include <tessera/error.h>
#include <tessera/tessera.h>

#include "quantity.h"
#include "rates.h"
#include "tools/cli/size_text.h"
#include "tools/cli/streams.h"
#include "tools/tessera/report.h"

namespace tessera::cli {

namespace {

using nlohmann::json;

std::string time_text(double seconds) { return quantity_text(seconds, Quantity::time); }

std::string percent(double part, double whole) {
  return number("%.1f %%", whole > 0 ? 100 * part / whole : 0.0);
}

/// A number of received bytes in decimal units, like the speeds of links.
std::string bytes_text(double bytes) {
  std::string rate = quantity_text(bytes, Quantity::byte_rate);
  return rate.substr(0, rate.size() - 2);
}

Row right(Row row, const std::vector<std::size_t>& widths) {
  for (std::size_t i = 0; i < widths.size(); ++i)
    row[i].insert(0, widths[i] - std::min(widths[i], row[i].size()), ' ');
  return row;
}

/// Columns of numbers, flush right, and a last column of text.
std::string table_of_numbers(std::vector<Row> rows) {
  std::vector<std::size_t> widths(rows[0].size() - 1, 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (Row& row : rows) row = right(std::move(row), widths);
  return table(rows);
}

std::string link_text(double bandwidth, double latency) {
  return quantity_text(bandwidth, Quantity::byte_rate) + " and " +
         quantity_text(latency, Quantity::time);
}

std::string head_text(const Planned& planned, const Cluster& cluster, const PlanFlags& plan,
                      const TrainFlags& flags) {
  const bool is_measured = plan.flops.empty() || plan.memory_bandwidth.empty();
  const auto count = [](std::int64_t number, const std::string& noun) {
    return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
  };
  std::vector<Row> rows = {
      {"cluster", count(cluster.nodes, "node") + " with " +
                      count(cluster.devices_per_node, "device") + " each, --mesh " + planned.mesh +
                      " --batch " + std::to_string(flags.batch)},
      {"device", quantity_text(cluster.flops, Quantity::flop_rate) + " in matrix products, " +
                     quantity_text(cluster.memory_bandwidth, Quantity::byte_rate) +
                     " in other work" +
                     (is_measured ? ", measured on this machine unless given" : "")},
      {"links",
       link_text(cluster.node_bandwidth, cluster.node_latency) + " between devices of a node"}};
  if (cluster.nodes > 1) {
    rows.push_back({"", link_text(cluster.bandwidth, cluster.latency) +
                            " between nodes, shared by the devices of a node"});
  }
  if (!cluster.overlaps) rows.push_back({"", "a device does not compute while it communicates"});
  return table(rows);
}

std::string times_text(const Planned& planned, const StepPlan& step) {
  const DeviceTimes device = step.mean();
  const std::string hidden =
      device.communicating > 0 ? "; " + percent(step.hidden_share(), 1) + " of " +
                                     time_text(device.communicating) + " of communication is hidden"
                               : "";
  const double rate = static_cast<double>(planned.work) / step.seconds;
  std::vector<Row> rows = {
      {"step", time_text(step.seconds), number("%.0f ", rate) + planned.unit + " per second"},
      {"computing", time_text(device.computing), percent(device.computing, step.seconds)},
      {"exposed", time_text(device.exposed), percent(device.exposed, step.seconds) + hidden}};
  if (step.groups.size() > 1) {
    rows.push_back({"idle", time_text(device.idle),
                    percent(device.idle, step.seconds) + ", waiting for tasks of other groups"});
  }
  rows.push_back({"memory", size_text(device.memory), "planned for a device"});
  rows.push_back({"received", bytes_text(step.bytes_within() + step.bytes_between()),
                  "per device: " + bytes_text(step.bytes_within()) + " within the node, " +
                      bytes_text(step.bytes_between()) + " from other nodes"});
  return table(rows);
}

std::string groups_text(const StepPlan& step) {
  std::vector<Row> rows = {{"group", "computing", "exposed", "idle", "memory"}};
  for (const DeviceTimes& group : step.groups) {
    rows.push_back({std::to_string(rows.size() - 1), time_text(group.computing),
                    time_text(group.exposed), time_text(group.idle), size_text(group.memory)});
  }
  return "\n" + table(rows);
}

/// The longest collectives and computations, at most `top` of each.
std::string longest_text(const StepPlan& step, std::int64_t top) {
  const auto count = static_cast<std::size_t>(top);
  std::string text;
  std::vector<Row> rows = {
      {"time", "share", "count", "within", "between", "collective and the line that needs it"}};
  for (std::size_t i = 0; i < std::min(count, step.collectives.size()); ++i) {
    const CollectiveTime& one = step.collectives[i];
    rows.push_back({time_text(one.seconds), percent(one.seconds, step.mean().communicating),
                    number("%.0f", one.count), bytes_text(one.bytes_within),
                    bytes_text(one.bytes_between),
                    one.kind + (one.where.file.empty() ? "" : " at " + to_string(one.where))});
  }
  if (rows.size() > 1) text += "\n" + table_of_numbers(std::move(rows));
  rows = {{"time", "share", "count", "FLOP", "bytes", "computation"}};
  for (std::size_t i = 0; i < std::min(count, step.computing.size()); ++i) {
    const ComputeTime& one = step.computing[i];
    rows.push_back({time_text(one.seconds), percent(one.seconds, step.mean().computing),
                    number("%.0f", one.count), number("%.3g", one.flops), bytes_text(one.bytes),
                    one.name});
  }
  if (rows.size() > 1) text += "\n" + table_of_numbers(std::move(rows));
  return text;
}

/// A note for exact numerics: sums over many devices are gathered unless there are enough grains.
std::string note_of(const TrainFlags& flags, const std::string& axis) {
  const Mesh mesh = mesh_of(flags.mesh);
  if (numerics() != Numerics::exact || !mesh.has_axis(axis)) return "";
  const std::int64_t shards = mesh.axis_size(axis);
  if (flags.grains % shards == 0) return "";
  const std::string cure = shards <= 4096 ? "--grains " + std::to_string(shards) + " or " : "";
  return "\nnote: with --grains " + std::to_string(flags.grains) + ", sums over the " +
         std::to_string(shards) + " shards of " + axis + " gather their terms; with " + cure +
         "--numerics fast, the devices reduce them\n";
}

json json_of(const StepPlan& step) {
  const DeviceTimes device = step.mean();
  json object = {{"step_ms", step.seconds * 1e3},
                 {"computing_ms", device.computing * 1e3},
                 {"communicating_ms", device.communicating * 1e3},
                 {"exposed_ms", device.exposed * 1e3},
                 {"idle_ms", device.idle * 1e3},
                 {"hidden_share", step.hidden_share()},
                 {"device_peak_mib", static_cast<double>(device.memory) / 1048576},
                 {"bytes_within", step.bytes_within()},
                 {"bytes_between", step.bytes_between()}};
  object["groups"] = json::array();
  for (const DeviceTimes& group : step.groups) {
    object["groups"].push_back({{"computing_ms", group.computing * 1e3},
                                {"communicating_ms", group.communicating * 1e3},
                                {"exposed_ms", group.exposed * 1e3},
                                {"idle_ms", group.idle * 1e3},
                                {"device_peak_mib", static_cast<double>(group.memory) / 1048576}});
  }
  object["collectives"] = json::array();
  for (const CollectiveTime& one : step.collectives) {
    object["collectives"].push_back({{"kind", one.kind},
                                     {"where", to_string(one.where)},
                                     {"count", one.count},
                                     {"ms", one.seconds * 1e3},
                                     {"bytes_within", one.bytes_within},
                                     {"bytes_between", one.bytes_between}});
  }
  object["computing"] = json::array();
  for (const ComputeTime& one : step.computing) {
    object["computing"].push_back({{"name", one.name},
                                   {"count", one.count},
                                   {"ms", one.seconds * 1e3},
                                   {"flops", one.flops},
                                   {"bytes", one.bytes}});
  }
  return object;
}

json json_of(const Cluster& cluster) {
  return {{"nodes", cluster.nodes},
          {"devices_per_node", cluster.devices_per_node},
          {"flops", cluster.flops},
          {"memory_bandwidth", cluster.memory_bandwidth},
          {"bandwidth", cluster.bandwidth},
          {"latency_s", cluster.latency},
          {"node_bandwidth", cluster.node_bandwidth},
          {"node_latency_s", cluster.node_latency},
          {"overlaps", cluster.overlaps}};
}

}  // namespace

void add_plan_flags(Command& command, PlanFlags& flags) {
  add_whole_number(command, flags.nodes,
                   {.name = "--nodes", .text = "machines; default: 1", .most = 16384});
  add_whole_number(command, flags.devices_per_node,
                   {.name = "--devices-per-node",
                    .text = "devices per machine; default: as many as the mesh needs",
                    .most = 16384});
  const auto add = [&](const char* name, std::string& value, const char* text) {
    Option* option = command.add_option(name, value, text);
    if (!value.empty()) option->capture_default_str();
  };
  add("--bandwidth", flags.bandwidth,
      "speed at which the link of a node sends and receives; the devices of the node share it");
  add("--latency", flags.latency, "latency of a message from node to node");
  add("--node-bandwidth", flags.node_bandwidth,
      "speed at which a device sends to and receives from other devices of its node");
  add("--node-latency", flags.node_latency, "latency of a message within a node");
  add("--flops", flags.flops,
      "speed of a device in matrix products, for example 20TFLOP/s; default: measured with the "
      "threads of this machine");
  add("--memory-bandwidth", flags.memory_bandwidth,
      "bytes that a device reads and writes per second in all other work, for example 1TB/s; "
      "default: measured");
  command
      .add_flag("--no-overlap", flags.no_overlap, "a device does not compute while it communicates")
      ->disable_flag_override();
  add_whole_number(command, flags.top,
                   {.name = "--top",
                    .text = "how many of the longest collectives and computations "
                            "to print"});
}

Cluster cluster_of(const PlanFlags& plan, const TrainFlags& flags) {
  if (flags.engine != "host") {
    throw UserError({.what = "--engine: only programs for the host engine can be planned",
                     .found = "--engine " + flags.engine,
                     .wanted = "--engine host",
                     .cure = "leave out --engine"});
  }
  Cluster cluster{.nodes = plan.nodes, .devices_per_node = plan.devices_per_node};
  cluster.bandwidth = parse_quantity("--bandwidth", plan.bandwidth, Quantity::byte_rate);
  cluster.latency = parse_quantity("--latency", plan.latency, Quantity::time);
  cluster.node_bandwidth =
      parse_quantity("--node-bandwidth", plan.node_bandwidth, Quantity::byte_rate);
  cluster.node_latency = parse_quantity("--node-latency", plan.node_latency, Quantity::time);
  cluster.overlaps = !plan.no_overlap;
  if (!plan.flops.empty())
    cluster.flops = parse_quantity("--flops", plan.flops, Quantity::flop_rate);
  if (!plan.memory_bandwidth.empty()) {
    cluster.memory_bandwidth =
        parse_quantity("--memory-bandwidth", plan.memory_bandwidth, Quantity::byte_rate);
  }
  if (!plan.flops.empty() && !plan.memory_bandwidth.empty()) return cluster;
  const Rates rates = measured_rates(compute_dtype(flags));
  if (plan.flops.empty()) cluster.flops = rates.flops;
  if (plan.memory_bandwidth.empty()) cluster.memory_bandwidth = rates.memory_bandwidth;
  return cluster;
}

void report_plan(const Planned& planned, const StepPlan& step, const Cluster& cluster,
                 const PlanFlags& plan, const TrainFlags& flags) {
  if (flags.json != "-") {
    std::string text = head_text(planned, cluster, plan, flags) + "\n" + times_text(planned, step);
    if (step.groups.size() > 1) text += groups_text(step);
    text += longest_text(step, plan.top) + note_of(flags, planned.axis);
    print(text);
  }
  if (flags.json.empty()) return;
  json object = json_of(step);
  object["name"] = planned.model;
  object["mesh"] = planned.mesh;
  object["batch"] = flags.batch;
  object["cluster"] = json_of(cluster);
  object["config"] = planned.config;
  write_json(flags.json, object);
}

}  // namespace tessera::cli
