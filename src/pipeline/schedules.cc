#include "pipeline/schedules.h"

#include <algorithm>

namespace tessera::pipeline {

namespace {

using Part = RankList::Part;
constexpr TaskKind kFwd = TaskKind::fwd;
constexpr TaskKind kBwd = TaskKind::bwd;
constexpr TaskKind kBwdA = TaskKind::bwd_input;
constexpr TaskKind kBwdW = TaskKind::bwd_weight;

/// The number of ranks after this one.
std::int64_t hops(const RankList& list) { return list.num_ranks() - 1 - list.rank(); }

void write_sequential(RankList& list) {
  const std::int64_t chunks = list.sizes().num_chunks();
  for (std::int64_t m = 0; m < list.num_microbatches(); ++m) {
    for (std::int64_t c = 0; c < chunks; ++c) list.add(kFwd, c);
    for (std::int64_t c = chunks; c-- > 0;) list.add(kBwd, c);
  }
}

/// Breadth first: all microbatches of a stage, then those of the next one.
void write_gpipe(RankList& list) {
  const std::int64_t chunks = list.sizes().num_chunks();
  for (std::int64_t c = 0; c < chunks; ++c) list.add_rest(kFwd, c);
  for (std::int64_t c = chunks; c-- > 0;) list.add_rest(kBwd, c);
}

void write_1f1b(RankList& list, std::int64_t warmup) {
  for (std::int64_t i = 0; i < std::min(warmup, list.num_microbatches()); ++i) list.add(kFwd);
  while (list.done(kFwd) < list.num_microbatches()) {
    list.add(kBwd);
    list.add(kFwd);
  }
  list.add_rest(kBwd);
}

void write_std_1f1b(RankList& list) { write_1f1b(list, hops(list) + 1); }
void write_eager_1f1b(RankList& list) { write_1f1b(list, 2 * hops(list) + 1); }

/// The warm-up has `more_warmup` forward tasks more than a rank needs before its first backward
/// task can start.
void write_interleaved(RankList& list, std::int64_t more_warmup) {
  const Sizes& sizes = list.sizes();
  const std::int64_t per_round = sizes.num_microbatches / num_rounds(sizes);
  const std::int64_t chunks = sizes.num_chunks();
  const std::int64_t total = chunks * list.num_microbatches();
  const std::int64_t warmup =
      std::min((chunks - 1) * per_round + 2 * hops(list) + more_warmup, total);
  auto fwd_chunk = [&](std::int64_t k) { return k / per_round % chunks; };
  auto bwd_chunk = [&](std::int64_t k) { return chunks - 1 - k / per_round % chunks; };
  for (std::int64_t k = 0; k < warmup; ++k) list.add(kFwd, fwd_chunk(k));
  for (std::int64_t k = warmup; k < total; ++k) {
    const Part fwd{kFwd, fwd_chunk(k)}, bwd{kBwd, bwd_chunk(k - warmup)};
    if (sizes.fuse_steady_state || list.stage(fwd.chunk) == sizes.num_stages - 1) {
      list.add_fused({fwd, bwd});
    } else {
      list.add(fwd.kind, fwd.chunk);
      list.add(bwd.kind, bwd.chunk);
    }
  }
  for (std::int64_t k = total - warmup; k < total; ++k) list.add(kBwd, bwd_chunk(k));
}

void write_interleaved_1f1b(RankList& list) { write_interleaved(list, 0); }
void write_kimi_k2(RankList& list) { write_interleaved(list, 1); }

/// `warmup` forward tasks; then `pairs` times an input gradient and a forward task, while weight
/// gradients are delayed; then all three kinds in turn.
void write_zero_bubble(RankList& list, std::int64_t warmup, std::int64_t pairs) {
  for (std::int64_t i = 0; i < warmup; ++i) list.add(kFwd);
  for (std::int64_t i = 0; i < pairs; ++i) {
    list.add(kBwdA);
    list.add(kFwd);
  }
  while (list.done(kBwdW) < list.num_microbatches()) {
    for (const TaskKind kind : {kBwdA, kBwdW, kFwd}) list.add(kind);
  }
}

void write_zb_h1(RankList& list) { write_zero_bubble(list, hops(list) + 1, list.rank()); }
void write_zb_h2(RankList& list) { write_zero_bubble(list, 2 * hops(list) + 1, 2 * list.rank()); }

void add_backward(RankList& list, std::int64_t chunk) {
  list.add(kBwdA, chunk);
  list.add(kBwdW, chunk);
}

void write_zb_v(RankList& list) {
  // Fewer microbatches do not fill the pipeline. They use the beginning of the schedule for this
  // many.
  const std::int64_t enough = std::max(list.num_microbatches(), 2 * list.num_ranks() - 1);
  for (std::int64_t i = 0; i < 2 * hops(list) + 1; ++i) list.add(kFwd, 0);
  for (std::int64_t i = 0; i < list.rank(); ++i) {
    list.add(kFwd, 1);
    list.add(kFwd, 0);
  }
  for (std::int64_t i = 0; i <= hops(list); ++i) {
    list.add(kFwd, 1);
    add_backward(list, 1);
  }
  while (list.done(kFwd, 1) < enough) {
    if (list.done(kFwd, 0) < enough) list.add(kFwd, 0);
    add_backward(list, 0);
    list.add(kFwd, 1);
    add_backward(list, 1);
  }
  for (std::int64_t i = 0; i < list.rank(); ++i) {
    list.add(kBwdA, 0);
    list.add(kBwdA, 1);
  }
  for (std::int64_t i = 0; i <= hops(list); ++i) add_backward(list, 0);
  list.add_rest(kBwdW, 1);
  list.add_rest(kBwdW, 0);
}

/// `starts` is when F0, F1, B1, B0 of the first microbatch start, with tasks of length 1. Each
/// further microbatch follows six units later. Weight gradients fill the free time.
void write_pattern(RankList& list, const std::int64_t (&starts)[4]) {
  constexpr std::int64_t kPeriod = 6;
  constexpr Part kParts[4] = {{kFwd, 0}, {kFwd, 1}, {kBwdA, 1}, {kBwdA, 0}};
  const std::int64_t num = list.num_microbatches();
  std::vector<std::int64_t> waiting;  // chunks of delayed weight gradients
  std::size_t next_waiting = 0;
  for (std::int64_t time = 0; time < starts[3] + kPeriod * num; ++time) {
    const auto* part = std::find_if(std::begin(starts), std::end(starts), [&](std::int64_t start) {
      return time >= start && time < start + kPeriod * num && (time - start) % kPeriod == 0;
    });
    if (part != std::end(starts)) {
      const auto [kind, chunk] = kParts[part - std::begin(starts)];
      list.add(kind, chunk);
      if (kind == kBwdA) waiting.push_back(chunk);
    } else if (next_waiting < waiting.size()) {
      list.add(kBwdW, waiting[next_waiting++]);
    }
  }
  while (next_waiting < waiting.size()) list.add(kBwdW, waiting[next_waiting++]);
}

void write_v_half(RankList& list) {
  const std::int64_t p = list.num_ranks(), r = list.rank();
  const std::int64_t gap = p % 2 == 0 ? 3 : 0;
  write_pattern(list, {2 * r, 3 * p - r - 2, 3 * p + gap + 2 * r - 1, 6 * p + gap - r - 2});
}

/// A backward task that is not split.
std::vector<Part> whole_backward(std::int64_t chunk) { return {{kBwdA, chunk}, {kBwdW, chunk}}; }

void add_overlapped(RankList& list, std::int64_t fwd_chunk, std::int64_t bwd_chunk) {
  list.add_fused({{kFwd, fwd_chunk}, {kBwdA, bwd_chunk}, {kBwdW, bwd_chunk}});
}

/// The end of DualPipeV: only backward tasks; the last ones delay their weight gradients.
void write_dual_pipe_v_cooldown(RankList& list) {
  const std::int64_t split_chunk = list.rank() % 2 == 1 ? 1 : 0;
  auto add = [&](std::int64_t chunk, bool is_split) {
    if (is_split && list.stage(chunk) > 0) {
      list.add(kBwdA, chunk);
    } else {
      list.add_fused(whole_backward(chunk));
    }
  };
  for (std::int64_t i = 0; i <= list.rank(); ++i) {
    const bool is_late = i >= (list.rank() + 1) / 2;
    for (const std::int64_t chunk : {1, 0}) add(chunk, is_late && chunk == split_chunk);
  }
  for (std::int64_t i = 0; i < hops(list); ++i) add(0, true);
  // The delayed weight gradients, by microbatch and then by stage, which is the order of chunks.
  while (std::min(list.done(kBwdW, 0), list.done(kBwdW, 1)) < list.num_microbatches()) {
    list.add(kBwdW, list.done(kBwdW, 1) < list.done(kBwdW, 0) ? 1 : 0);
  }
}

void write_dual_pipe_v(RankList& list) {
  const std::int64_t enough = std::max(list.num_microbatches(), 2 * list.num_ranks());
  for (std::int64_t i = 0; i < 2 * hops(list); ++i) list.add(kFwd, 0);
  for (std::int64_t i = 0; i <= list.rank(); ++i) {
    list.add(kFwd, 0);
    list.add(kFwd, 1);
  }
  for (std::int64_t i = 0; i < hops(list); ++i) {
    add_backward(list, 1);
    list.add(kFwd, 1);
  }
  for (std::int64_t i = 0; i < enough - 2 * list.num_ranks() + list.rank() + 1; ++i) {
    if (i == 0 && hops(list) == 0) {
      list.add(kFwd, 0);
      list.add_fused(whole_backward(1));
    } else {
      add_overlapped(list, 0, 1);
    }
    add_overlapped(list, 1, 0);
  }
  for (std::int64_t i = 0; i < hops(list); ++i) {
    list.add_fused(whole_backward(1));
    add_overlapped(list, 1, 0);
  }
  write_dual_pipe_v_cooldown(list);
}

constexpr ScheduleRecord kRecords[] = {
    {.name = "Sequential",
     .doc = "One microbatch after the other: the least memory, and no overlap.",
     .stages = StagesPerRank::many,
     .write = write_sequential},
    {.name = "GPipe",
     .doc = "All forward tasks, then all backward tasks.",
     .stages = StagesPerRank::one,
     .write = write_gpipe},
    {.name = "Std1F1B",
     .doc = "As few forward tasks as fill the pipeline, then backward and forward in turn.",
     .stages = StagesPerRank::one,
     .write = write_std_1f1b},
    {.name = "Eager1F1B",
     .doc = "1F1B with two forward tasks in advance for each later rank, which hide transfers.",
     .stages = StagesPerRank::one,
     .write = write_eager_1f1b},
    {.name = "Interleaved1F1B",
     .doc = "1F1B with several stages per rank, assigned round-robin: a shorter bubble, more "
            "transfers.",
     .stages = StagesPerRank::many,
     .can_fuse = true,
     .takes_turns = true,
     .write = write_interleaved_1f1b},
    {.name = "KimiK2",
     .doc = "Interleaved1F1B with one more forward task in advance, so that the forward and "
            "backward task of a pair do not depend on each other.",
     .stages = StagesPerRank::many,
     .can_fuse = true,
     .takes_turns = true,
     .write = write_kimi_k2},
    {.name = "InterleavedGPipe",
     .doc = "GPipe with several stages per rank, assigned round-robin, stage by stage.",
     .stages = StagesPerRank::many,
     .write = write_gpipe},
    {.name = "ZeroBubble",
     .doc = "ZB-H1: weight gradients are delayed to fill the bubble of 1F1B.",
     .stages = StagesPerRank::one,
     .write = write_zb_h1},
    {.name = "ZBH2",
     .doc =
         "ZB-H2: about twice the memory of 1F1B, and no bubble except in the first and last ramp.",
     .stages = StagesPerRank::one,
     .write = write_zb_h2},
    {.name = "ZBV",
     .doc = "ZB-V: two stages per rank, assigned in a V: the memory of 1F1B without its bubble.",
     .stages = StagesPerRank::two,
     .placement = Placement::zigzag,
     .write = write_zb_v},
    {.name = "VHalf",
     .doc = "V-Half: two stages per rank, assigned in a V, with about half the memory of 1F1B.",
     .stages = StagesPerRank::two,
     .placement = Placement::zigzag,
     .write = write_v_half},
    {.name = "DualPipeV",
     .doc = "Two stages per rank, assigned in a V: forward and backward tasks run as one program.",
     .stages = StagesPerRank::two,
     .placement = Placement::zigzag,
     .write = write_dual_pipe_v},
};

}  // namespace

std::span<const ScheduleRecord> schedule_records() { return kRecords; }

std::int64_t num_rounds(const Sizes& sizes) {
  return std::max<std::int64_t>(1, sizes.num_microbatches / sizes.num_ranks);
}

bool is_made_for(const ScheduleRecord& record, const Sizes& sizes) {
  if (sizes.num_stages % sizes.num_ranks != 0) return false;
  if (record.stages == StagesPerRank::one && sizes.num_chunks() != 1) return false;
  if (record.stages == StagesPerRank::two && sizes.num_chunks() != 2) return false;
  if (sizes.fuse_steady_state && !record.can_fuse) return false;
  return !record.takes_turns || sizes.num_microbatches % num_rounds(sizes) == 0;
}

ScheduleTasks tasks_of(const ScheduleRecord& record, const Sizes& sizes) {
  ScheduleTasks tasks;
  for (std::int64_t rank = 0; rank < sizes.num_ranks; ++rank) {
    RankList list(sizes, record.placement, rank);
    record.write(list);
    tasks.push_back(list.take());
  }
  return tasks;
}

}  // namespace tessera::pipeline
