// `tessera plan MODEL`: simulates a training step on a cluster.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include <tessera/profile.h>

#include "tools/cli/command.h"
#include "tools/tessera/flags.h"

namespace tessera::cli {

struct JobInfo;

struct PlanFlags {
  std::int64_t nodes = 0;             // 0: not given
  std::int64_t devices_per_node = 0;  // 0: not given
  std::string bandwidth = "25GB/s";
  std::string latency = "2us";
  std::string node_bandwidth = "100GB/s";
  std::string node_latency = "1us";
  std::string flops;             // empty: measured
  std::string memory_bandwidth;  // empty: measured
  bool no_overlap = false;
  std::int64_t top = 8;
};

/// Adds the flags of the cluster; `flags` must outlive the command.
void add_plan_flags(Command& command, PlanFlags& flags);

/// Sets the mesh and the batch of a plan: those that were given, or those of the model, scaled to
/// the cluster. Also sets the numbers of nodes and devices that were not given. `default_mesh`: the
/// mesh to scale. Throws UserError if mesh, batch and cluster do not fit each other.
void fit_to_cluster(const Command& command, const JobInfo& info, const std::string& default_mesh,
                    PlanFlags& plan, TrainFlags& flags);
/// The cluster that the flags describe. Speeds that were not given are measured on this machine.
Cluster cluster_of(const PlanFlags& plan, const TrainFlags& flags);

/// What is planned, for the report.
struct Planned {
  std::string model;
  std::string mesh;
  std::string axis;       // that splits the batch
  std::int64_t work = 0;  // of a step, in `unit`
  std::string unit;       // "tokens"
  nlohmann::json config;
};
/// Prints the plan and, with --json, writes it.
void report_plan(const Planned& planned, const StepPlan& step, const Cluster& cluster,
                 const PlanFlags& plan, const TrainFlags& flags);

}  // namespace tessera::cli
