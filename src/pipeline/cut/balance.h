// Chooses where a sequence of pieces is cut into stages. Knows nothing of the IR.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/schedule.h>

namespace tessera::pipeline {

/// The work of a model between two possible cuts, for one microbatch.
struct Piece {
  double forward = 0;                     // seconds
  double backward = 0;                    // seconds
  double sent = 0;                        // bytes that cross the cut after it; 0 for the last piece
  double held = 0;                        // bytes that the backward pass needs
  std::vector<std::size_t> weights = {};  // the numbers of the weights that it reads, each once
};

struct Row {
  std::vector<Piece> pieces;
  std::vector<double> weight_bytes;  // per weight
};

struct BalanceOptions {
  ScheduleTasks tasks;
  std::int64_t num_stages;
  /// The most bytes of a stage: weights with their gradients, and what is held for the microbatches
  /// that the schedule has in flight.
  double memory_limit = 1e300;
};

/// Per stage: the first piece after it.
using Ends = std::vector<std::size_t>;

/// The costs of the stages, as simulate() takes them.
ScheduleCosts costs_of_stages(const Row& row, const Ends& ends);

/// The cut whose slowest stage takes the least time, transfers included, and among such cuts the
/// one that sends the fewest bytes. Then single cuts are moved as long as this makes the schedule
/// end sooner. Every stage has at least one piece. Empty if no cut meets the memory limit.
Ends balance(const Row& row, const BalanceOptions& options);
/// The lowest memory limit, in bytes, that some cut meets.
double least_bytes(const Row& row, const BalanceOptions& options);

}  // namespace tessera::pipeline
