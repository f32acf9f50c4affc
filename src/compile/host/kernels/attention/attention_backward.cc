// The derivatives of attention. The outer loop runs over blocks of keys, the inner one over blocks
// of queries. Scores are computed again for each pair of blocks.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compile/host/kernels/attention/attention_panels.h"
#include "compile/host/kernels/transpose.h"

namespace tessera::kernels {

namespace {

using attention::Block;
using attention::BlockRanges;
using attention::Head;
using attention::Panel;
using attention::ResultRows;
using attention::Rows;
using attention::Scratch;

constexpr std::int64_t kBlockQueries = 128;
constexpr std::int64_t kBlockKeys = 128;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The queries (or cotangents of outputs) of a block, in both orders that products need.
struct PackedRows {
  std::vector<float*> lanes = {};     // per panel of queries: features in rows
  std::vector<float*> features = {};  // per panel of features: queries in rows
};

struct QueryPanel {
  Panel panel;      // in the tile
  std::int64_t at;  // its first lane in the block, where lanes are queries
  float* lse;
  float* delta;
  float* sum;          // of dq: [depth][cols]
  bool skips = false;  // whether some pair with a key was left out
};

struct QueryBlock {
  std::int64_t first = 0, count = 0;
  std::vector<QueryPanel> panels = {};
  PackedRows q = {}, d_output = {};
};

/// The chains of one block of keys: per panel of features, [keys][cols].
struct KeySums {
  std::vector<float*> panels;
};

class Backward {
 public:
  Backward(Scratch& scratch, const AttentionProblem& problem, const AttentionGradients& gradients,
           const PositionRange& queries)
      : p_(problem),
        gradients_(gradients),
        width_(gemm::kernels().nr),
        queries_(queries),
        of_depth_(attention::panels_of(p_.depth)),
        of_value_depth_(attention::panels_of(p_.value_depth)) {
    for (std::int64_t first = 0; first < queries.size(); first += kBlockQueries) {
      blocks_.push_back(make_block(scratch, queries.first + first,
                                   std::min(kBlockQueries, queries.size() - first)));
    }
    const std::int64_t block_keys = std::min(kBlockKeys, p_.keys);
    p_scores_ = scratch.take(block_keys * lanes_);
    ds_scores_ = scratch.take(block_keys * lanes_);
    // Rows of f32 are read in place unless many blocks of queries read them.
    copies_ = p_.is_bf16 || blocks_.size() > 2;
    copied_keys_ = scratch.take(copies_ ? block_keys * p_.depth : 0);
    copied_values_ = scratch.take(copies_ ? block_keys * p_.value_depth : 0);
    rows_ = scratch.take(width_ * std::max(p_.depth, p_.value_depth));
    const auto sums = [&](const std::vector<Panel>& panels) {
      KeySums made;
      for (const Panel& panel : panels)
        made.panels.push_back(scratch.take(block_keys * panel.cols));
      return made;
    };
    of_k_ = sums(of_depth_);
    of_v_ = sums(of_value_depth_);
  }

  void run(const Head& head, const PositionRange& keys) {
    head_ = &head;
    for (QueryBlock& block : blocks_) pack(block);
    if (gradients_.scores != nullptr) {
      std::fill(scores_of(queries_.first), scores_of(queries_.last), 0.0f);
    }
    for (std::int64_t first = keys.first; first < keys.last; first += kBlockKeys) {
      run_keys({first, std::min(first + kBlockKeys, keys.last)});
    }
    if (gradients_.q == nullptr) return;
    for (QueryBlock& block : blocks_) {
      for (QueryPanel& panel : block.panels) store_q(panel);
    }
  }

 private:
  bool wants_keys() const { return gradients_.k != nullptr; }
  float* scores_of(std::int64_t query) const {
    return gradients_.scores +
           ((head_->batch * p_.heads + head_->head) * p_.queries + query) * p_.keys;
  }

  PackedRows make_rows(Scratch& scratch, const QueryBlock& block, std::int64_t depth,
                       const std::vector<Panel>& features) const {
    PackedRows rows;
    for (std::size_t i = 0; i < block.panels.size(); ++i) {
      rows.lanes.push_back(scratch.take(depth * width_));
    }
    for (std::size_t i = 0; i < features.size(); ++i) {
      rows.features.push_back(scratch.take(block.count * width_));
    }
    return rows;
  }

  QueryBlock make_block(Scratch& scratch, std::int64_t first, std::int64_t count) {
    QueryBlock block{.first = first, .count = count};
    std::int64_t lanes = 0;
    for (Panel panel : attention::panels_of(count)) {
      panel.first += first;
      float* const lse = scratch.take(panel.cols);
      float* const delta = scratch.take(panel.cols);
      float* const sum = gradients_.q == nullptr ? nullptr : scratch.take(p_.depth * panel.cols);
      block.panels.push_back({.panel = panel, .at = lanes, .lse = lse, .delta = delta, .sum = sum});
      lanes += panel.cols;
    }
    lanes_ = std::max(lanes_, lanes);
    block.q = make_rows(scratch, block, p_.depth, of_depth_);
    block.d_output = make_rows(scratch, block, p_.value_depth, of_value_depth_);
    return block;
  }

  void pack(QueryBlock& block) const {
    pack_rows(block, head_->q, of_depth_, p_.scale, block.q);
    pack_rows(block, head_->d_output, of_value_depth_, 1.0f, block.d_output);
    for (QueryPanel& panel : block.panels) {
      for (std::int64_t lane = 0; lane < panel.panel.cols; ++lane) {
        const bool is_used = lane < panel.panel.used;
        const std::int64_t row = (panel.panel.first + lane) * p_.heads;
        panel.lse[lane] = is_used ? head_->lse[row] : 0.0f;
        panel.delta[lane] = is_used ? head_->delta[row] : 0.0f;
      }
      if (panel.sum != nullptr) std::fill(panel.sum, panel.sum + p_.depth * panel.panel.cols, 0.0f);
    }
  }

  void pack_rows(const QueryBlock& block, const Rows& rows, const std::vector<Panel>& features,
                 float scale, const PackedRows& to) const {
    for (std::size_t f = 0; f < features.size(); ++f) {
      const Panel& some = features[f];
      rows.from(block.first)
          .features(some.first, some.used)
          .copy(block.count, scale, to.features[f], width_);
      attention::clear_lanes(some, block.count, to.features[f]);
      for (std::size_t i = 0; i < block.panels.size(); ++i) {
        transpose({.rows = some.used,
                   .columns = block.panels[i].panel.used,
                   .from_stride = width_,
                   .to_stride = width_},
                  to.features[f] + block.panels[i].at * width_, to.lanes[i] + some.first * width_);
      }
    }
    for (std::size_t i = 0; i < block.panels.size(); ++i) {
      attention::clear_lanes(block.panels[i].panel, rows.depth, to.lanes[i]);
    }
  }

  /// Rows of the block of keys as f32.
  Rows in_place_or_copied(const Rows& rows, const PositionRange& keys, float* copy) const {
    const Rows block = rows.from(keys.first);
    if (!copies_) return block;
    block.copy(keys.size(), 1.0f, copy, rows.depth);
    return {.data = copy, .stride = rows.depth, .depth = rows.depth, .is_bf16 = false};
  }

  void run_keys(const PositionRange& keys) {
    keys_ = in_place_or_copied(head_->k, keys, copied_keys_);
    values_ = in_place_or_copied(head_->v, keys, copied_values_);
    skips_ = false;
    continues_ = false;
    for (QueryBlock& block : blocks_) run_pair(block, keys);
    if (!wants_keys()) return;
    store_keys(keys, of_depth_, of_k_, head_->key_results(gradients_.k, p_.depth), true);
    store_keys(keys, of_value_depth_, of_v_, head_->key_results(gradients_.v, p_.value_depth),
               false);
  }

  void run_pair(QueryBlock& block, const PositionRange& keys) {
    const auto seen_by = [&](std::size_t i) {
      return overlap(head_->keys_of(block.panels[i].panel), keys);
    };
    std::size_t first = 0;
    std::size_t end = block.panels.size();
    while (first < end && seen_by(first).empty()) ++first;
    while (first < end && seen_by(end - 1).empty()) --end;
    if (first == end) return;
    for (std::size_t i = first; i < end; ++i) {
      QueryPanel& panel = block.panels[i];
      const PositionRange seen = seen_by(i);
      skips_ = skips_ || seen.size() < keys.size();
      if (seen.empty()) {
        clear(panel, {0, keys.size()});
        continue;
      }
      clear(panel, {0, seen.first - keys.first});
      clear(panel, {seen.last - keys.first, keys.size()});
      run_panel(block, i, seen, seen.first - keys.first);
    }
    if (!wants_keys()) return;
    const QueryPanel& last = block.panels[end - 1];
    add_to_keys(block, keys, {block.panels[first].at, last.at + last.panel.used});
  }

  /// Scores of these rows of the panel become 0.
  void clear(const QueryPanel& panel, const PositionRange& rows) const {
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
      const std::int64_t at = row * lanes_ + panel.at;
      std::fill(p_scores_ + at, p_scores_ + at + panel.panel.cols, 0.0f);
      std::fill(ds_scores_ + at, ds_scores_ + at + panel.panel.cols, 0.0f);
    }
  }

  void run_panel(QueryBlock& block, std::size_t i, const PositionRange& seen, std::int64_t row) {
    QueryPanel& panel = block.panels[i];
    const std::int64_t cols = panel.panel.cols;
    const Block s{.data = p_scores_ + row * lanes_ + panel.at,
                  .stride = lanes_,
                  .rows = seen.size(),
                  .cols = cols};
    float* const ds = ds_scores_ + row * lanes_ + panel.at;
    const auto products = [&](const Rows& rows, const float* b, float* c) {
      attention::multiply({.a = static_cast<const float*>(rows.from(row).data),
                           .a_stride = rows.stride,
                           .is_a_transposed = false,
                           .b = b,
                           .b_stride = width_,
                           .rows = seen.size(),
                           .depth = rows.depth,
                           .cols = cols,
                           .c = c,
                           .c_stride = lanes_});
    };
    products(keys_, block.q.lanes[i], s.data);
    head_->add_bias(s, seen.first, panel.panel);
    products(values_, block.d_output.lanes[i], ds);
    const BlockRanges ranges(*head_, panel.panel, seen);
    if (ranges.get() != nullptr) panel.skips = skips_ = true;
    if (p_.dropout) {
      head_->draw_kept(seen.first, seen.size(), panel.panel, kept_);
      drop_block({.data = ds, .stride = lanes_, .rows = seen.size(), .cols = cols});
    }
    attention::grad_scores(s, ds, ranges.get(), panel.lse, panel.delta);
    if (p_.dropout && wants_keys()) drop_block(s);
    if (gradients_.scores != nullptr) {
      transpose({.rows = panel.panel.used,
                 .columns = seen.size(),
                 .from_stride = lanes_,
                 .to_stride = p_.keys},
                ds, scores_of(panel.panel.first) + seen.first);
    }
    if (gradients_.q == nullptr) return;
    attention::multiply({.a = static_cast<const float*>(keys_.from(row).data),
                         .a_stride = keys_.stride,
                         .is_a_transposed = true,
                         .b = ds,
                         .b_stride = lanes_,
                         .rows = p_.depth,
                         .depth = seen.size(),
                         .cols = cols,
                         .c = panel.sum,
                         .c_stride = cols,
                         .continues = true});
  }

  void drop_block(const Block& block) const {
    attention::drop(block, kept_, static_cast<float>(p_.dropout->scale));
  }

  void add_to_keys(const QueryBlock& block, const PositionRange& keys, const PositionRange& lanes) {
    const auto add = [&](const float* scores, const std::vector<Panel>& panels,
                         const PackedRows& rows, const KeySums& sums) {
      for (std::size_t i = 0; i < panels.size(); ++i) {
        attention::multiply({.a = scores + lanes.first,
                             .a_stride = lanes_,
                             .is_a_transposed = false,
                             .b = rows.features[i] + lanes.first * width_,
                             .b_stride = width_,
                             .rows = keys.size(),
                             .depth = lanes.size(),
                             .cols = panels[i].cols,
                             .c = sums.panels[i],
                             .c_stride = panels[i].cols,
                             .continues = continues_});
      }
    };
    add(p_scores_, of_value_depth_, block.d_output, of_v_);
    add(ds_scores_, of_depth_, block.q, of_k_);
    continues_ = true;
  }

  void store_keys(const PositionRange& keys, const std::vector<Panel>& panels, const KeySums& sums,
                  const ResultRows& results, bool is_k) const {
    for (std::size_t i = 0; i < panels.size(); ++i) {
      const Panel& panel = panels[i];
      const std::int64_t count = keys.size() * panel.cols;
      if (!continues_) std::fill(sums.panels[i], sums.panels[i] + count, 0.0f);
      if (skips_ && attention::has_nan(sums.panels[i], count)) {
        sum_seen_queries(keys, panel, is_k, sums.panels[i]);
      }
      results.features(panel.first, panel.used)
          .store(keys.first, keys.size(), sums.panels[i], panel.cols, 1.0f);
    }
  }

  void store_q(QueryPanel& panel) const {
    const std::int64_t cols = panel.panel.cols;
    if (panel.skips && attention::has_nan(panel.sum, p_.depth * cols)) sum_seen_keys(panel);
    transpose(
        {.rows = panel.panel.used, .columns = p_.depth, .from_stride = cols, .to_stride = p_.depth},
        panel.sum, rows_);
    head_->query_results(gradients_.q, p_.depth)
        .store(panel.panel.first, panel.panel.used, rows_, p_.depth, p_.scale);
  }

  // 0 times a number that is not finite is NaN. So where a sum is NaN, pairs that do not see each
  // other must be left out of it.

  struct Pair {
    float p, ds;
    std::vector<float> q, k, d_output;
  };
  Pair pair_of(std::int64_t query, std::int64_t key) const {
    const auto row = [](const Rows& rows, std::int64_t i, float scale) {
      std::vector<float> copy(at(rows.depth));
      rows.from(i).copy(1, scale, copy.data(), rows.depth);
      return copy;
    };
    const auto dot = [](const std::vector<float>& x, const std::vector<float>& y) {
      float sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) sum = std::fma(x[i], y[i], sum);
      return sum;
    };
    Pair pair{.p = 0,
              .ds = 0,
              .q = row(head_->q, query, p_.scale),
              .k = row(head_->k, key, 1.0f),
              .d_output = row(head_->d_output, query, 1.0f)};
    float s = dot(pair.q, pair.k);
    const Block one{.data = &s, .stride = 1, .rows = 1, .cols = 1};
    head_->add_bias(one, key, {.first = query, .used = 1, .cols = 1});
    const float lse = head_->lse[query * p_.heads];
    pair.p = attention::exp_of(s - (std::isinf(lse) && lse < 0 ? 0.0f : lse));
    const float dp = dot(pair.d_output, row(head_->v, key, 1.0f));
    const float factor = head_->drop_factor(query, key);
    const auto dropped = [&](float x) { return factor == 0 ? 0.0f : x * factor; };
    pair.ds = pair.p * (dropped(dp) - head_->delta[query * p_.heads]);
    pair.p = dropped(pair.p);
    return pair;
  }

  void sum_seen_keys(const QueryPanel& panel) const {
    for (std::int64_t i = 0; i < panel.panel.used; ++i) {
      std::vector<float> sums(at(p_.depth));
      const PositionRange seen = head_->keys_of(panel.panel.first + i);
      for (std::int64_t j = seen.first; j < seen.last; ++j) {
        const Pair pair = pair_of(panel.panel.first + i, j);
        for (std::size_t d = 0; d < sums.size(); ++d) {
          sums[d] = std::fma(pair.k[d], pair.ds, sums[d]);
        }
      }
      for (std::int64_t d = 0; d < p_.depth; ++d) {
        panel.sum[d * panel.panel.cols + i] = sums[at(d)];
      }
    }
  }

  void sum_seen_queries(const PositionRange& keys, const Panel& panel, bool is_k,
                        float* results) const {
    for (std::int64_t j = keys.first; j < keys.last; ++j) {
      std::vector<float> sums(at(panel.used));
      for (std::int64_t i = queries_.first; i < queries_.last; ++i) {
        const PositionRange seen = head_->keys_of(i);
        if (j < seen.first || j >= seen.last) continue;
        const Pair pair = pair_of(i, j);
        const std::vector<float>& row = is_k ? pair.q : pair.d_output;
        for (std::size_t n = 0; n < sums.size(); ++n) {
          const float x = row[n + at(panel.first)];
          sums[n] = std::fma(is_k ? pair.ds : pair.p, x, sums[n]);
        }
      }
      for (std::size_t n = 0; n < sums.size(); ++n) {
        results[(j - keys.first) * panel.cols + static_cast<std::int64_t>(n)] = sums[n];
      }
    }
  }

  const AttentionProblem& p_;
  const AttentionGradients& gradients_;
  std::int64_t width_;
  PositionRange queries_;
  std::vector<Panel> of_depth_, of_value_depth_;
  std::vector<QueryBlock> blocks_;
  std::int64_t lanes_ = 0;     // of the longest block
  float* p_scores_ = nullptr;  // [keys][lanes_]
  float* ds_scores_ = nullptr;
  bool copies_ = false;
  float* copied_keys_ = nullptr;
  float* copied_values_ = nullptr;
  Rows keys_, values_;  // of the block of keys, as f32
  float* rows_ = nullptr;
  KeySums of_k_, of_v_;
  const Head* head_ = nullptr;
  attention::KeptBits kept_;
  bool skips_ = false;      // whether the block of keys was multiplied by zeros for unseen pairs
  bool continues_ = false;  // whether its sums have begun
};

}  // namespace

void attend_backward(const AttentionProblem& problem, const AttentionOperands& operands,
                     const AttentionGradients& gradients, std::int64_t head, PositionRange queries,
                     PositionRange keys) {
  Scratch scratch(Scratch::Mode::hands_out);
  Backward(scratch, problem, gradients, queries).run(Head(problem, operands, head), keys);
}

std::int64_t attend_backward_scratch_bytes(const AttentionProblem& problem,
                                           const AttentionGradients& wanted, std::int64_t queries) {
  Scratch scratch(Scratch::Mode::counts);
  const Backward counted(scratch, problem, wanted, {0, queries});
  return scratch.used() * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace tessera::kernels
