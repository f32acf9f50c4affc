// How long a collective takes, by the alpha-beta model: a message of n bytes takes
// latency + n / bandwidth.
//
// Devices of a node first exchange data among themselves and then with devices of other nodes, as
// recursive halving does if adjacent ranks come first. Data that crosses between nodes has already
// been reduced within them, or has not been multiplied yet.
//
//   reduce_scatter   log2(n) messages by recursive halving if n is a power of two, n - 1 around a
//   all_gather       ring if not; each device receives (n-1)/n of the whole array
//   all_reduce       both
//   all_to_all       n - 1 messages, one from each device
//   others           one message
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/profile.h>

#include "ir/ir.h"

namespace tessera::forecast {

struct Exchange {
  double seconds = 0;
  double bytes_within = 0;   // received from devices of the node
  double bytes_between = 0;  // received from other nodes
};

/// The devices that exchange data with one device.
struct Reach {
  std::int64_t size = 1;     // including the device itself
  std::int64_t within = 1;   // of these, in one node: the fewest of all nodes
  std::int64_t sharers = 1;  // devices of a node that exchange data at the same time
};

/// The reach of a collective of a partitioned function whose mesh is that of group `group`.
Reach reach_of(const ir::Function& function, const ir::Equation& collective, std::int64_t group,
               const Cluster& cluster);
/// The reach of a transfer to another group.
Reach reach_of_transfer(const Mesh& mesh, std::int64_t from, std::int64_t to,
                        const Cluster& cluster);

/// A collective in which each device receives `wire_bytes`. `kind`: the name of the op, or
/// "transfer".
Exchange exchange(std::string_view kind, double wire_bytes, const Reach& reach,
                  const Cluster& cluster);

}  // namespace tessera::forecast
