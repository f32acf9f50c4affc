// Attention. The outer loop runs over leaves of keys, the inner one over panels of queries, so that
// the keys and values of a leaf stay in cache.
#include <algorithm>
#include <array>
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
    const auto levels =
        static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(leaves)));
    for (std::size_t i = 0; i < levels; ++i) {
      float* const m = scratch.take(cols);
      float* const l = scratch.take(cols);
      nodes_.push_back({.m = m, .l = l, .o = scratch.take(rows * cols)});
    }
    present_.assign(nodes_.size(), false);
  }

  /// Where the next leaf is to be computed.
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
  /// `leaves` are a subtree.
  Forward(Scratch& scratch, const AttentionProblem& problem, const PositionRange& queries,
          const PositionRange& leaves)
      : p_(problem), all_leaves_(num_key_leaves(problem.all_keys)), leaves_(leaves) {
    const std::int64_t width = gemm::kernels().nr;
    const std::int64_t longest = ceil_div(p_.all_keys, all_leaves_);
    for (Panel panel : attention::panels_of(queries.size())) {
      panel.first += queries.first;
      float* const q = scratch.take(p_.depth * width);
      states_.push_back({panel, q, LeafTree(scratch, leaves_.size(), p_.value_depth, panel.cols)});
    }
    scores_ = scratch.take(longest * width);
    rows_ = scratch.take(width * std::max(p_.depth, p_.value_depth));
    keys_ = scratch.take(p_.is_bf16 ? longest * p_.depth : 0);
    values_ = scratch.take(p_.is_bf16 ? longest * p_.value_depth : 0);
  }

  void run(const Head& head) {
    for (PanelState& state : states_) {
      attention::pack_lanes(head.q, state.panel, p_.scale, rows_, state.q);
    }
    for (std::int64_t n = leaves_.first; n < leaves_.last; ++n) {
      const PositionRange leaf = {leaf_start(n, all_leaves_, p_.all_keys) - p_.first_key,
                                  leaf_start(n + 1, all_leaves_, p_.all_keys) - p_.first_key};
      run_leaf(head, overlap(leaf, {0, p_.keys}));
    }
  }

  void store(const Head& head, const AttentionResults& results) {
    for (PanelState& state : states_) {
      const Panel& panel = state.panel;
      const Node& node = state.tree.root();
      attention::finish(node, p_.value_depth, panel.cols);
      float* const lse =
          results.lse + (head.batch * p_.queries + panel.first) * p_.heads + head.head;
      for (std::int64_t i = 0; i < panel.used; ++i) lse[i * p_.heads] = node.l[i];
      store_rows(panel, node, head.query_results(results.output, p_.value_depth));
    }
  }

  void store_partial(const Head& head, float* partial) {
    const std::int64_t width = p_.value_depth + 2;
    for (PanelState& state : states_) {
      const Panel& panel = state.panel;
      const Node& node = state.tree.root();
      float* const first = partial + (head.batch * p_.queries * p_.heads + head.head) * width;
      store_rows(
          panel, node,
          {.data = first, .stride = p_.heads * width, .depth = p_.value_depth, .is_bf16 = false});
      for (std::int64_t i = 0; i < panel.used; ++i) {
        float* const row = first + (panel.first + i) * p_.heads * width;
        row[p_.value_depth] = node.m[i] + 0.0f;
        row[p_.value_depth + 1] = node.l[i];
      }
    }
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

  void store_rows(const Panel& panel, const Node& node,
                  const attention::ResultRows& results) const {
    transpose({.rows = panel.used,
               .columns = p_.value_depth,
               .from_stride = panel.cols,
               .to_stride = p_.value_depth},
              node.o, rows_);
    results.store(panel.first, panel.used, rows_, p_.value_depth, 1.0f);
  }

  const AttentionProblem& p_;
  std::int64_t all_leaves_;
  PositionRange leaves_;
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
  Forward forward(scratch, problem, queries, {0, num_key_leaves(problem.all_keys)});
  const Head one(problem, operands, head);
  forward.run(one);
  forward.store(one, results);
}

void attend_part(const AttentionProblem& problem, const AttentionOperands& operands, float* partial,
                 std::int64_t head, PositionRange queries, PositionRange leaves) {
  if (queries.empty()) return;
  Scratch scratch(Scratch::Mode::hands_out);
  Forward forward(scratch, problem, queries, leaves);
  const Head one(problem, operands, head);
  forward.run(one);
  forward.store_partial(one, partial);
}

void join_partials(const float* x, const float* y, float* to, std::int64_t rows,
                   std::int64_t width) {
  const std::int64_t depth = width - 2;
  for (std::int64_t row = 0; row < rows; ++row, x += width, y += width, to += width) {
    const float m = x[depth] < y[depth] ? y[depth] : x[depth];
    const float base = m == -std::numeric_limits<float>::infinity() ? 0.0f : m;
    const float of_x = attention::exp_of(x[depth] - base);
    const float of_y = attention::exp_of(y[depth] - base);
    const float l = x[depth + 1] * of_x + y[depth + 1] * of_y;
    for (std::int64_t e = 0; e < depth; ++e) {
      to[e] = (x[e] + 0.0f) * of_x + (y[e] + 0.0f) * of_y + 0.0f;
    }
    to[depth] = m + 0.0f;
    to[depth + 1] = l;
  }
}

void finish_partials(const float* from, float* output, float* lse, std::int64_t rows,
                     std::int64_t width) {
  const std::int64_t depth = width - 2;
  const std::int64_t lanes = gemm::kernels().lanes;
  alignas(64) std::array<float, attention::kMaxCols> m = {}, l = {};
  for (std::int64_t first = 0; first < rows; first += lanes) {
    const std::int64_t count = std::min(lanes, rows - first);
    const float* const block = from + first * width;
    for (std::int64_t i = 0; i < count; ++i) {
      const float* const row = block + i * width;
      m[static_cast<std::size_t>(i)] = row[depth];
      l[static_cast<std::size_t>(i)] = row[depth + 1];
      const float factor = 1.0f / (row[depth + 1] == 0 ? 1.0f : row[depth + 1]);
      float* const to = output + (first + i) * depth;
      for (std::int64_t e = 0; e < depth; ++e) to[e] = (row[e] + 0.0f) * factor;
    }
    // Without rows of o, this computes only lse.
    attention::finish({.m = m.data(), .l = l.data(), .o = nullptr}, 0, lanes);
    std::copy_n(l.data(), count, lse + first);
  }
}

std::int64_t attend_scratch_bytes(const AttentionProblem& problem, std::int64_t queries) {
  Scratch scratch(Scratch::Mode::counts);
  const Forward counted(scratch, problem, {0, queries}, {0, num_key_leaves(problem.all_keys)});
  return scratch.used() * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace tessera::kernels
