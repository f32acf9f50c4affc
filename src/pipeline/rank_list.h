// How rules write the tasks of one rank.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/schedule.h>

namespace tessera::pipeline {

/// Which rank holds which stages. A rank numbers its own stages, its chunks, from 0 in the order of
/// the forward pass.
enum class Placement : unsigned char {
  loop,    // stage s on rank s mod P
  zigzag,  // back and forth: stages r, 2P - 1 - r, 2P + r, ... on rank r
};
std::int64_t stage_of(Placement placement, std::int64_t num_ranks, std::int64_t rank,
                      std::int64_t chunk);

struct Sizes {
  std::int64_t num_stages;
  std::int64_t num_ranks;
  std::int64_t num_microbatches;
  bool fuse_steady_state = false;
  std::int64_t num_chunks() const { return num_stages / num_ranks; }
};

/// Builds the task list of a rank. Tasks are appended by kind and chunk; each call takes the next
/// microbatch. Rules may continue past the last microbatch: those tasks are dropped.
class RankList {
 public:
  RankList(const Sizes& sizes, Placement placement, std::int64_t rank);

  const Sizes& sizes() const { return sizes_; }
  std::int64_t num_ranks() const { return sizes_.num_ranks; }
  std::int64_t num_microbatches() const { return sizes_.num_microbatches; }
  std::int64_t rank() const { return rank_; }
  std::int64_t stage(std::int64_t chunk) const;
  /// How many tasks of `kind` have been appended or dropped.
  std::int64_t done(TaskKind kind, std::int64_t chunk = 0) const;

  struct Part {
    TaskKind kind;
    std::int64_t chunk = 0;
  };
  void add(TaskKind kind, std::int64_t chunk = 0) { add_fused({{kind, chunk}}); }
  void add_fused(const std::vector<Part>& parts);
  /// Appends all remaining tasks of `kind`.
  void add_rest(TaskKind kind, std::int64_t chunk = 0);

  RankTasks take() { return std::move(tasks_); }

 private:
  const Sizes& sizes_;
  Placement placement_;
  std::int64_t rank_;
  std::vector<std::int64_t> done_;  // [chunk][kind]
  RankTasks tasks_;
};

}  // namespace tessera::pipeline
