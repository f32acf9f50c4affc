// Turns the tree over the grains into a program for a stack machine, and lets the chunks of that
// program share the tables of their steps.
#include <algorithm>
#include <bit>
#include <unordered_map>

#include "compile/host/kernels/gemm/gemm_internal.h"
#include "compile/host/kernels/gemm/gemm_plan.h"

namespace tessera::kernels::gemm {

namespace {

class TreeBuilder {
 public:
  TreeBuilder(const std::vector<std::int64_t>& leaf_ends, std::int64_t pieces,
              std::int64_t max_chunk, std::int64_t block, bool quads)
      : ends_(leaf_ends),
        leaves_in_piece_(leaf_ends.size() / static_cast<std::size_t>(pieces)),
        max_chunk_(std::max<std::int64_t>(max_chunk, block)),
        block_(block),
        quads_(quads) {}

  TreeProgram build() {
    add_chunks(0, ends_.size());
    if (!program_.chunks.empty()) program_.chunks.back().finishes = true;
    assign_slots();
    assign_stack_depth();
    return std::move(program_);
  }

 private:
  std::int64_t begin_of(std::size_t leaf) const { return leaf == 0 ? 0 : ends_[leaf - 1]; }

  static std::size_t split(std::size_t begin, std::size_t end) {
    return begin + std::bit_floor(end - begin - 1);
  }

  // Joins two subtrees: the last node of the right one merges with that of the left one. If one
  // subtree is empty, its +0.0 is added to the node with which the other one ended.
  static void meet(bool left, bool right, NodeActions* last) {
    if (left && right) ++last->merges;
    if (left != right) last->zeros |= std::uint32_t{1} << last->merges;
  }

  // Appends the segments of the grains [begin, end); returns false if all of them are empty.
  bool add_segments(std::size_t begin, std::size_t end) {
    if (end - begin == 1) {
      const std::int64_t length = ends_[begin] - begin_of(begin);
      if (length > 0) program_.segments.push_back({{length}, false, {}});
      return length > 0;
    }
    if (quads_ && end - begin == 4) return add_quad(begin);
    const bool left = add_segments(begin, split(begin, end));
    const bool right = add_segments(split(begin, end), end);
    if (left || right) meet(left, right, &program_.segments.back().after);
    return left || right;
  }

  // An empty grain in a quad is +0.0: accumulators to which nothing was added.
  bool add_quad(std::size_t begin) {
    Segment quad{{}, true, {}};
    for (std::size_t i = 0; i < 4; ++i) quad.lengths[i] = ends_[begin + i] - begin_of(begin + i);
    if (quad.lengths == decltype(quad.lengths){}) return false;
    program_.segments.push_back(quad);
    return true;
  }

  bool add_chunks(std::size_t begin, std::size_t end) {
    const std::int64_t k_begin = begin_of(begin);
    const std::int64_t k_end = ends_[end - 1];
    if (k_begin == k_end) return false;
    const bool is_in_piece = begin / leaves_in_piece_ == (end - 1) / leaves_in_piece_;
    piece_ = static_cast<std::int32_t>(begin / leaves_in_piece_);
    if (is_in_piece && k_end - k_begin <= max_chunk_) {
      const auto first = static_cast<std::int32_t>(program_.segments.size());
      add_segments(begin, end);
      add_chunk(k_begin, k_end, first);
      return true;
    }
    if (end - begin == 1) {
      add_long_leaf(k_begin, k_end);
      return true;
    }
    const bool left = add_chunks(begin, split(begin, end));
    const bool right = add_chunks(split(begin, end), end);
    meet(left, right, &program_.chunks.back().after);
    return true;
  }

  void add_chunk(std::int64_t k_begin, std::int64_t k_end, std::int32_t first_segment) {
    Chunk chunk;
    chunk.k_begin = k_begin;
    chunk.k_end = k_end;
    chunk.piece = piece_;
    chunk.segment_begin = first_segment;
    chunk.segment_end = static_cast<std::int32_t>(program_.segments.size());
    program_.chunks.push_back(chunk);
  }

  void add_long_leaf(std::int64_t k_begin, std::int64_t k_end) {
    const std::int64_t blocks = (k_end - k_begin) / block_;
    const std::int64_t pieces = ceil_div(blocks, max_chunk_ / block_);
    for (std::int64_t i = 0; i < pieces; ++i) {
      const std::int64_t from = k_begin + blocks * i / pieces * block_;
      const std::int64_t to = k_begin + blocks * (i + 1) / pieces * block_;
      const auto first = static_cast<std::int32_t>(program_.segments.size());
      program_.segments.push_back({{to - from}, false, {}});
      add_chunk(from, to, first);
      program_.chunks.back().resumes = i > 0;
    }
  }

  void assign_slots() {
    std::int32_t used = 0;
    for (std::size_t i = 0; i < program_.chunks.size(); ++i) {
      Chunk& chunk = program_.chunks[i];
      if (chunk.resumes) --used;
      chunk.slot = used;
      used += 1 - chunk.after.merges;
      if (!chunk.finishes) program_.num_slots = std::max(program_.num_slots, used);
    }
  }

  void assign_stack_depth() {
    for (const Chunk& chunk : program_.chunks) {
      int depth = 0;
      for (std::int32_t i = chunk.segment_begin; i < chunk.segment_end; ++i) {
        depth += 1 - program_.segments[static_cast<std::size_t>(i)].after.merges;
        program_.stack_depth = std::max(program_.stack_depth, depth);
      }
    }
  }

  const std::vector<std::int64_t>& ends_;
  std::size_t leaves_in_piece_;
  std::int64_t max_chunk_;
  std::int64_t block_;
  bool quads_;
  std::int32_t piece_ = 0;  // that holds the grains which are being added
  TreeProgram program_;
};

// The steps of chunks, each kept once.
class SharedSteps {
 public:
  SharedSteps(std::int64_t terms, const Steps& steps) : terms_(terms), all_(steps) {}

  void add(Chunk& chunk) {
    const std::int64_t first = chunk.k_begin * terms_;
    // The last term of a step is the first one in memory if the step is a word there.
    chunk.a_from = all_.a_k[at(first + terms_ - 1)];
    chunk.b_from = all_.b_k[at(first + terms_ - 1)];
    const std::uint64_t hash = hash_of(chunk);
    const auto [begin, end] = places_.equal_range(hash);
    const auto alike =
        std::find_if(begin, end, [&](const auto& entry) { return are_alike(chunk, entry.second); });
    if (alike != end) {
      chunk.table = alike->second;
      return;
    }
    chunk.table = append(chunk);
    places_.emplace(hash, chunk.table);
  }
  Steps take() { return std::move(kept_); }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  // Calls use(i, offset of A, offset of B) for the terms of a chunk.
  template <class Use>
  void for_each_term(const Chunk& chunk, const Use& use) const {
    const std::int64_t first = chunk.k_begin * terms_;
    const std::int64_t count = (chunk.k_end - chunk.k_begin) * terms_;
    for (std::int64_t i = 0; i < count; ++i)
      use(i, all_.a_k[at(first + i)] - chunk.a_from, all_.b_k[at(first + i)] - chunk.b_from);
  }

  std::uint64_t hash_of(const Chunk& chunk) const {
    constexpr std::uint64_t kPrime = 0x9E3779B97F4A7C15;
    auto hash = static_cast<std::uint64_t>(chunk.k_end - chunk.k_begin);
    for_each_term(chunk, [&](std::int64_t /*i*/, std::int64_t a, std::int64_t b) {
      hash = (hash ^ static_cast<std::uint64_t>(a)) * kPrime;
      hash = (hash ^ static_cast<std::uint64_t>(b)) * kPrime;
      hash ^= hash >> 32;
    });
    return hash;
  }

  bool are_alike(const Chunk& chunk, std::int64_t table) const {
    const std::int64_t length = chunk.k_end - chunk.k_begin;
    if ((table + length) * terms_ > std::ssize(kept_.a_k)) return false;
    if (terms_ > 1 &&
        !std::equal(all_.missing.begin() + chunk.k_begin, all_.missing.begin() + chunk.k_end,
                    kept_.missing.begin() + table))
      return false;
    bool same = true;
    for_each_term(chunk, [&](std::int64_t i, std::int64_t a, std::int64_t b) {
      same =
          same && kept_.a_k[at(table * terms_ + i)] == a && kept_.b_k[at(table * terms_ + i)] == b;
    });
    return same;
  }

  std::int64_t append(const Chunk& chunk) {
    const std::int64_t table = std::ssize(kept_.a_k) / terms_;
    for_each_term(chunk, [&](std::int64_t /*i*/, std::int64_t a, std::int64_t b) {
      kept_.a_k.push_back(a);
      kept_.b_k.push_back(b);
    });
    if (terms_ > 1)
      kept_.missing.insert(kept_.missing.end(), all_.missing.begin() + chunk.k_begin,
                           all_.missing.begin() + chunk.k_end);
    return table;
  }

  std::int64_t terms_;
  const Steps& all_;
  Steps kept_;
  std::unordered_multimap<std::uint64_t, std::int64_t> places_;  // of tables, by their hashes
};

// How far the offsets go from step i - 1 to step i.
std::pair<std::int64_t, std::int64_t> jump_to(const Steps& steps, std::int64_t terms,
                                              std::int64_t i) {
  const auto to = static_cast<std::size_t>(i * terms),
             from = static_cast<std::size_t>((i - 1) * terms);
  return {steps.a_k[to] - steps.a_k[from], steps.b_k[to] - steps.b_k[from]};
}

}  // namespace

std::int64_t chunk_length(std::int64_t terms, const Steps& steps, std::int64_t most) {
  const auto begin_of = [&](std::size_t leaf) { return leaf == 0 ? 0 : steps.leaf_ends[leaf - 1]; };
  std::size_t leaf = 0;
  while (leaf < steps.leaf_ends.size() && steps.leaf_ends[leaf] - begin_of(leaf) <= most) ++leaf;
  if (leaf == steps.leaf_ends.size()) return most;
  const std::int64_t begin = begin_of(leaf), length = steps.leaf_ends[leaf] - begin;
  // Runs of `run` steps follow each other at equal distances `next / run` times.
  std::int64_t run = 1, next = 1;
  while (next <= most && next < length) {
    run = next;
    const auto first = jump_to(steps, terms, begin + run);
    for (next = 2 * run; next < length && jump_to(steps, terms, begin + next) == first;)
      next += run;
  }
  std::int64_t best = most / run;
  while (best > 1 && next / run % best != 0) --best;
  const bool is_alike = run > 1 && length % next == 0 && best * run > most / 2;
  return is_alike ? best * run : most;
}

void share_steps(std::int64_t terms, std::vector<Chunk>& chunks, Steps& steps) {
  SharedSteps shared(terms, steps);
  for (Chunk& chunk : chunks) shared.add(chunk);
  Steps kept = shared.take();
  kept.leaf_ends = std::move(steps.leaf_ends);
  kept.a_k.shrink_to_fit();
  kept.b_k.shrink_to_fit();
  steps = std::move(kept);
}

TreeProgram make_tree_program(const std::vector<std::int64_t>& leaf_ends, std::int64_t pieces,
                              std::int64_t max_chunk, std::int64_t block, bool quads) {
  return TreeBuilder(leaf_ends, pieces, max_chunk, block, quads).build();
}

}  // namespace tessera::kernels::gemm
