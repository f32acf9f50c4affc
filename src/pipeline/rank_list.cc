#include "pipeline/rank_list.h"

namespace tessera::pipeline {

namespace {

constexpr std::int64_t kKinds = 4;

std::size_t index_of(TaskKind kind, std::int64_t chunk) {
  return static_cast<std::size_t>(chunk * kKinds + static_cast<std::int64_t>(kind));
}

}  // namespace

std::int64_t stage_of(Placement placement, std::int64_t num_ranks, std::int64_t rank,
                      std::int64_t chunk) {
  const bool is_back = placement == Placement::zigzag && chunk % 2 == 1;
  return chunk * num_ranks + (is_back ? num_ranks - 1 - rank : rank);
}

RankList::RankList(const Sizes& sizes, Placement placement, std::int64_t rank)
    : sizes_(sizes),
      placement_(placement),
      rank_(rank),
      done_(static_cast<std::size_t>(sizes.num_chunks() * kKinds)) {
  tasks_.reserve(static_cast<std::size_t>(3 * sizes.num_chunks() * sizes.num_microbatches));
}

std::int64_t RankList::stage(std::int64_t chunk) const {
  return stage_of(placement_, sizes_.num_ranks, rank_, chunk);
}

std::int64_t RankList::done(TaskKind kind, std::int64_t chunk) const {
  return done_[index_of(kind, chunk)];
}

void RankList::add_fused(const std::vector<Part>& parts) {
  FusedTask fused;
  for (const Part& part : parts) {
    const std::int64_t microbatch = done_[index_of(part.kind, part.chunk)]++;
    if (microbatch >= num_microbatches()) continue;
    fused.parts.push_back({part.kind, stage(part.chunk), microbatch});
  }
  if (!fused.parts.empty()) tasks_.push_back(std::move(fused));
}

void RankList::add_rest(TaskKind kind, std::int64_t chunk) {
  while (done(kind, chunk) < num_microbatches()) add(kind, chunk);
}

}  // namespace tessera::pipeline
