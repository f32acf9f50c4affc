// Simulates one step of a cluster: the programs of one device of each group, side by side.
//
//   StepPlan plan = forecast::plan_of(executables, cluster);   // one executable per group
//
// A device computes one item at a time, takes part in one collective at a time, and sends or
// receives one transfer at a time; each of the three has an order of its own, which does not depend
// on speeds. So more speed never makes a step longer. An item starts when its inputs are there and
// the device is free for it. All devices of a group do the same thing at the same time.
#pragma once

#include <memory>
#include <vector>

#include <tessera/profile.h>

#include "forecast/program.h"
#include "run/executable.h"

namespace tessera::forecast {

/// In which order a device computes.
enum class Order : std::uint8_t {
  program,  // as compiled
  patient,  // items that read the result of a collective come after all items that do not
};

/// The times of one step. `groups`: per group, the program of one device. With more than one group,
/// the order is that of the program, since the schedule decides it.
StepPlan plan_of(const std::vector<Program>& groups, bool overlaps, Order order);
/// The faster of the two orders.
StepPlan plan_of(const std::vector<Program>& groups, bool overlaps);

/// One executable per group, each compiled for its device with the largest tiles.
StepPlan plan_of(const std::vector<std::shared_ptr<const run::Executable>>& groups,
                 const Cluster& cluster);

/// Throws UserError for a cluster without devices or with a speed that is not above 0.
void check_cluster(const Cluster& cluster, const Span& where);

}  // namespace tessera::forecast
