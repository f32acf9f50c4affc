// Attention: leaves of keys outside, panels of queries inside, so that the keys and values of a
// leaf stay in cache.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/leaf_tree.h"
#include "compile/host/kernels/attention/attention_panels.h"
#include "compile/host/kernels/transpose.h"

namespace tessera::kernels {

namespace {

using attention::Block;
using attention::BlockRanges;
using attention::Head;
using attention::Node;
using attention::Panel;
using attention::Rows;
using attention::Scratch;
using gemm::ceil_div;

/// Merges the leaves of one panel, pushed in order, by the fixed tree. Their number is a power of
/// two. Leaves that no query of the panel sees are absent.
class LeafTree {
 public:
  LeafTree(Scratch& scratch, std::int64_t leaves, std::int64_t rows, std::int64_t cols)
      : rows_(rows), cols_(cols) {
    const auto levels = std::bit_width(static_cast<std::uint64_t>(leaves));
    for (std::size_t i = 0; i < levels; ++i) {
      float* const m = scratch.take(cols);
      float* const l = scratch.take(cols);
      nodes_.push_back({.m = m, .l = l, .o = scratch.take(rows * cols)});
    }
    present_.assign(nodes_.size(), false);
  }

  /// Where the next leaf is made.
  const Node& next() const { return nodes_[depth_]; }
  void push(bool is_present) {
    present_[depth_++] = is_present;
    for (std::int64_t n = ++count_; n % 2 == 0; n /= 2) {
      --depth_;
      if (!present_[depth_]) continue;
      if (present_[depth_ - 1]) {
        attention::merge(nodes_[depth_ - 1], nodes_[depth_], rows_, cols_);
      } else {
        std::swap(nodes_[depth_ - 1], nodes_[depth_]);
        present_[depth_ - 1] = true;
      }
    }
  }
  const Node& root() {
    const Node& root = nodes_[0];
    if (!present_[0]) {
      std::fill(root.m, root.m + cols_, -std::numeric_limits<float>::infinity());
      std::fill(root.l, root.l + cols_, 0.0f);
      std::fill(root.o, root.o + rows_ * cols_, 0.0f);
    }
    return root;
  }

 private:
  std::int64_t rows_, cols_;
  std::vector<Node> nodes_;
  std::vector<bool> present_;
  std::size_t depth_ = 0;
  std::int64_t count_ = 0;
};

struct PanelState {
  Panel panel;
  float* q;  // packed
  LeafTree tree;
};

/// One range of queries.
class Forward {
 public:
  Forward(Scratch& scratch, const AttentionProblem& problem, const PositionRange& queries)
      : p_(problem), leaves_(num_key_leaves(problem.all_keys)) {
    const std::int64_t width = gemm::kernels().nr;
    const std::int64_t longest = ceil_div(p_.all_keys, leaves_);
    for (Panel panel : attention::panels_of(queries.size())) {
      panel.first += queries.first;
      float* const q = scratch.take(p_.depth * width);
      states_.push_back({panel, q, LeafTree(scratch, leaves_, p_.value_depth, panel.cols)});
    }
    scores_ = scratch.take(longest * width);
    rows_ = scratch.take(width * std::max(p_.depth, p_.value_depth));
    keys_ = scratch.take(p_.is_bf16 ? longest * p_.depth : 0);
    values_ = scratch.take(p_.is_bf16 ? longest * p_.value_depth : 0);
  }

  void run(const Head& head, const AttentionResults& results) {
    for (PanelState& state : states_) {
      attention::pack_lanes(head.q, state.panel, p_.scale, rows_, state.q);
    }
    for (std::int64_t n = 0; n < leaves_; ++n) {
      run_leaf(head,
               {leaf_start(n, leaves_, p_.all_keys), leaf_start(n + 1, leaves_, p_.all_keys)});
    }
    for (PanelState& state : states_) store(head, state, results);
  }

 private:
  /// The rows of a leaf as f32.
  Rows in_place_or_copied(const Rows& rows, const PositionRange& leaf, float* copy) const {
    Rows of_leaf = rows.from(leaf.first);
    if (!rows.is_bf16) return of_leaf;
    of_leaf.copy(leaf.size(), 1.0f, copy, rows.depth);
    return {.data = copy, .stride = rows.depth, .depth = rows.depth, .is_bf16 = false};
  }

  void run_leaf(const Head& head, const PositionRange& leaf) {
    const bool is_seen = std::any_of(states_.begin(), states_.end(), [&](const PanelState& state) {
      return !overlap(head.keys_of(state.panel), leaf).empty();
    });
    Rows keys, values;
    if (is_seen) {
      keys = in_place_or_copied(head.k, leaf, keys_);
      values = in_place_or_copied(head.v, leaf, values_);
    }
    for (PanelState& state : states_) {
      const PositionRange seen = overlap(head.keys_of(state.panel), leaf);
      if (!seen.empty()) {
        const std::int64_t skipped = seen.first - leaf.first;
        run_panel(head, state, seen, keys.from(skipped), values.from(skipped));
      }
      state.tree.push(!seen.empty());
    }
  }

  void run_panel(const Head& head, const PanelState& state, const PositionRange& seen,
                 const Rows& keys, const Rows& values) {
    const Panel& panel = state.panel;
    const Block s{.data = scores_, .stride = panel.cols, .rows = seen.size(), .cols = panel.cols};
    attention::multiply({.a = static_cast<const float*>(keys.data),
                         .a_stride = keys.stride,
                         .is_a_transposed = false,
                         .b = state.q,
                         .b_stride = gemm::kernels().nr,
                         .rows = seen.size(),
                         .depth = p_.depth,
                         .cols = panel.cols,
                         .c = scores_,
                         .c_stride = panel.cols});
    head.add_bias(s, seen.first, panel);
    const BlockRanges ranges(head, panel, seen);
    const Node& node = state.tree.next();
    attention::softmax_leaf(s, ranges.get(), node.m, node.l);
    if (p_.dropout) {
      head.draw_kept(seen.first, seen.size(), panel, kept_);
      attention::drop(s, kept_, static_cast<float>(p_.dropout->scale));
    }
    attention::multiply({.a = static_cast<const float*>(values.data),
                         .a_stride = values.stride,
                         .is_a_transposed = true,
                         .b = scores_,
                         .b_stride = panel.cols,
                         .rows = p_.value_depth,
                         .depth = seen.size(),
                         .cols = panel.cols,
                         .c = node.o,
                         .c_stride = panel.cols});
    if (ranges.get() != nullptr && attention::has_nan(node.o, p_.value_depth * panel.cols)) {
      sum_what_is_seen(*ranges.get(), s, panel, values, node);
    }
  }

  /// 0 times a value that is not finite is NaN, so rows that a query does not see must be left out.
  void sum_what_is_seen(const attention::LaneRanges& ranges, const Block& p, const Panel& panel,
                        const Rows& values, const Node& node) const {
    const auto* v = static_cast<const float*>(values.data);
    for (std::int64_t i = 0; i < panel.used; ++i) {
      for (std::int64_t e = 0; e < p_.value_depth; ++e) {
        float sum = 0;
        for (std::int64_t j = ranges.first[i]; j < ranges.last[i]; ++j) {
          sum = std::fma(v[j * values.stride + e], p.data[j * p.stride + i], sum);
        }
        node.o[e * panel.cols + i] = sum;
      }
    }
  }

  void store(const Head& head, PanelState& state, const AttentionResults& results) const {
    const Panel& panel = state.panel;
    const Node& node = state.tree.root();
    attention::finish(node, p_.value_depth, panel.cols);
    float* const lse = results.lse + (head.batch * p_.queries + panel.first) * p_.heads + head.head;
    for (std::int64_t i = 0; i < panel.used; ++i) lse[i * p_.heads] = node.l[i];
    transpose({.rows = panel.used,
               .columns = p_.value_depth,
               .from_stride = panel.cols,
               .to_stride = p_.value_depth},
              node.o, rows_);
    head.query_results(results.output, p_.value_depth)
        .store(panel.first, panel.used, rows_, p_.value_depth, 1.0f);
  }

  const AttentionProblem& p_;
  std::int64_t leaves_;
  std::vector<PanelState> states_;
  float* scores_ = nullptr;
  float* rows_ = nullptr;
  float* keys_ = nullptr;
  float* values_ = nullptr;
  attention::KeptBits kept_;
};

}  // namespace

void attend(const AttentionProblem& problem, const AttentionOperands& operands,
            const AttentionResults& results, std::int64_t head, PositionRange queries) {
  if (queries.empty()) return;
  Scratch scratch(Scratch::Mode::hands_out);
  Forward(scratch, problem, queries).run(Head(problem, operands, head), results);
}

std::int64_t attend_scratch_bytes(const AttentionProblem& problem, std::int64_t queries) {
  Scratch scratch(Scratch::Mode::counts);
  const Forward counted(scratch, problem, {0, queries});
  return scratch.used() * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace tessera::kernels
