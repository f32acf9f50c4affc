// Turns the tree over the grains into a program for a stack machine.
#include <algorithm>
#include <bit>
#include <stdexcept>

#include "compile/host/kernels/gemm/gemm_internal.h"

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

}  // namespace

TreeProgram make_tree_program(const std::vector<std::int64_t>& leaf_ends, std::int64_t pieces,
                              std::int64_t max_chunk, std::int64_t block, bool quads) {
  return TreeBuilder(leaf_ends, pieces, max_chunk, block, quads).build();
}

}  // namespace tessera::kernels::gemm
