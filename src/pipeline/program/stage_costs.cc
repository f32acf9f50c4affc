// Estimated costs of the tasks of a pipeline.
#include <algorithm>
#include <set>

#include "mesh/sharding.h"
#include "pipeline/cut/costs.h"
#include "pipeline/program/stages.h"

namespace tessera::pipeline {

namespace {

/// Bytes on one device.
double bytes_of(const Function& body, ValueId id) {
  const Layout layout(body.mesh, body.sharding(id), body.type(id).shape);
  return static_cast<double>(size_bytes(Type{body.type(id).dtype, layout.max_tile_shape()}));
}

double& cost_of(StageCosts& costs, Work work) {
  if (work == Work::fwd) return costs.fwd;
  return work == Work::input ? costs.bwd_input : costs.bwd_weight;
}

/// The readers of a value that a forward task computes.
struct Readers {
  std::set<std::int64_t> holders;  // stages whose backward passes read it
  bool is_sent = false;            // another stage reads it
};

Readers readers_of(const Stages& stages, ValueId id, std::int64_t maker) {
  Readers readers;
  for (const Item& user : stages.users[id]) {
    if (user.work != Work::fwd) readers.holders.insert(user.stage);
    readers.is_sent = readers.is_sent || user.stage != maker;
  }
  return readers;
}

}  // namespace

ScheduleCosts estimated_costs(Stages stages) {
  const auto num_stages = static_cast<std::size_t>(stages.num_stages);
  split_backward(stages, std::vector<bool>(num_stages, true));
  find_users(stages);
  ScheduleCosts costs;
  costs.stages.assign(num_stages, {.fwd = 0, .bwd_input = 0, .bwd_weight = 0, .memory = 0});
  std::vector<double> sent(num_stages, 0);
  for (std::size_t i = 0; i < stages.homes.size(); ++i) {
    if (stages.homes[i].kind != Home::Kind::item) continue;
    const Equation& equation = stages.body.equations[i];
    const Item& home = stages.homes[i].item;
    const auto own = static_cast<std::size_t>(home.stage);
    cost_of(costs.stages[own], home.work) += seconds_of(stages.body, equation);
    if (home.work != Work::fwd) continue;
    for (ValueId id : equation.results) {
      const double bytes = bytes_of(stages.body, id);
      const Readers readers = readers_of(stages, id, home.stage);
      if (readers.is_sent) sent[own] += bytes;
      for (const std::int64_t stage : readers.holders) {
        costs.stages[static_cast<std::size_t>(stage)].memory += bytes;
      }
    }
  }
  costs.transfer = *std::max_element(sent.begin(), sent.end()) / kBytesPerSecond;
  return costs;
}

}  // namespace tessera::pipeline
