// Where a row of pieces is cut into stages. It does not know the IR.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/schedule.h>

namespace tessera::pipeline {

/// What a model does between two places where it can be cut, for one microbatch.
struct Piece {
  double forward = 0;                     // seconds
  double backward = 0;                    // seconds
  double sent = 0;                        // bytes that go on behind it; 0 of the last piece
  double held = 0;                        // bytes that the backward pass needs
  std::vector<std::size_t> weights = {};  // that it reads, each once
};

struct Row {
  std::vector<Piece> pieces;
  std::vector<double> weight_bytes;  // per weight
};

struct BalanceOptions {
  ScheduleTasks tasks;
  std::int64_t num_stages;
  /// Bytes of a stage: weights with their gradients, and what is held for the microbatches that the
  /// schedule has in flight.
  double memory_limit = 1e300;
};

/// Per stage: the first piece behind it.
using Ends = std::vector<std::size_t>;

/// The costs of the stages in the form of a simulation.
ScheduleCosts costs_of_stages(const Row& row, const Ends& ends);

/// The cut with the least time of the slowest stage, sending included, and of those the one that
/// sends fewest bytes; then moved as long as the schedule ends sooner. Every stage has a piece.
/// Empty where the limit is met by no cut.
Ends balance(const Row& row, const BalanceOptions& options);
/// The least bytes that the fullest stage of any cut holds.
double least_bytes(const Row& row, const BalanceOptions& options);

}  // namespace tessera::pipeline
