// How long a step would take on a cluster that is not at hand: the compiled program of one device,
// simulated with the speeds of its processor and of its links.
//
//   Cluster cluster{.nodes = 64, .devices_per_node = 8, .flops = 20e12, .bandwidth = 25e9};
//   StepPlan plan = plan_step(step.lower(state, batch), cluster);
//   plan.seconds, plan.groups[0].exposed, plan.groups[0].memory
//
// The mesh of the step has a device for each device of the cluster. Device i of the mesh is on node
// i / devices_per_node. In a pipeline, device i of group g counts as g * devices of a group + i.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include <tessera/types.h>

namespace tessera {

class LoweredProgram;

/// Bytes and FLOPs are per second, latencies in seconds.
struct Cluster {
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  double flops = 1e12;             // of a device, in matrix products and convolutions
  double memory_bandwidth = 1e11;  // bytes that a device reads and writes
  double bandwidth = 1e10;         // from node to node; the devices of a node share it
  double latency = 1e-5;           // of a message from node to node
  double node_bandwidth = 1e11;    // from device to device of a node, each its own
  double node_latency = 1e-6;      // of a message within a node
  bool overlaps = true;            // false: a device that communicates does not compute
};

/// What a device does during a step, in seconds: computing + exposed + idle is the whole step.
struct DeviceTimes {
  double computing = 0;
  double communicating = 0;  // the time that its links are in use for it
  double exposed = 0;        // communicating while it computes nothing
  double idle = 0;           // neither: in a pipeline, waiting for the tasks of other groups
  std::int64_t memory = 0;   // bytes, the planned peak
};

/// All collectives of one kind and line. Numbers are per device and step; in a pipeline, the mean
/// of all groups.
struct CollectiveTime {
  std::string kind;  // "all_reduce"; "transfer" between groups
  Span where;        // the user's line that needs them
  double count = 0;
  double seconds = 0;
  double bytes_within = 0;   // received from devices of the node
  double bytes_between = 0;  // received from other nodes
};

/// All instructions of one name, per device and step; in a pipeline, the mean of all groups.
struct ComputeTime {
  std::string name;  // an op, or the first ops of fused equations
  double count = 0;
  double seconds = 0;
  double flops = 0;  // of products
  double bytes = 0;  // read and written
};

struct StepPlan {
  double seconds = 0;
  std::vector<DeviceTimes> groups = {};  // of a pipeline; otherwise one, all devices
  /// The most time first.
  std::vector<CollectiveTime> collectives = {};
  std::vector<ComputeTime> computing = {};

  DeviceTimes mean() const;      // of all groups; of the memory, the largest
  double bytes_within() const;   // received per device, of all collectives
  double bytes_between() const;  // likewise
  double hidden_share() const;   // of the communication; 1 if there is none
};

/// Simulates one step. Throws UserError if the mesh has another number of devices than the cluster,
/// and for speeds that are not above 0.
StepPlan plan_step(const LoweredProgram& step, const Cluster& cluster,
                   std::source_location where = std::source_location::current());

}  // namespace tessera
