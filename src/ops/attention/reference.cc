// References of the attention ops: one query and one key at a time.
//
// Forward: q is scaled first. A score is one chain of fused multiply-adds over the features, plus
// the bias. The keys are cut into leaves. For each query and leaf there are the maximum m of the
// scores that the query sees, l = sum exp(s - m) and o = sum exp(s - m) v, added in the order of
// the keys; o is a chain of fused multiply-adds. Leaves merge by the fixed tree. If all scores are
// -inf, 0 takes the place of m, so that l and o are 0. Dropout multiplies exp(s - m) in o, but not
// in l.
// Backward: p = exp(s - lse), ds = p (dp - delta); all sums are chains in index order. Dropout
// multiplies dp, and p in dv.
#include <cmath>

#include "base/leaf_tree.h"
#include "base/threefry.h"
#include "ops/attention/attention.h"
#include "ops/reference/float_functions.h"
#include "ops/reference/loops.h"
#include "ops/rules.h"

namespace tessera::ops {

namespace {

/// A chain of fused multiply-adds. The result is never -0, so that terms that are 0 count the same
/// as terms that are absent.
template <typename T>
struct Chain {
  T sum = 0;
  void add(T x, T y) { sum = std::fma(x, y, sum); }
  T value() const { return sum + T{0}; }
};

/// What takes the place of a maximum or an lse of -inf.
template <typename T>
T finite_base(T x) {
  return x == -std::numeric_limits<T>::infinity() ? T{0} : x;
}

template <typename T>
struct Partial {
  T m = -std::numeric_limits<T>::infinity();
  T l = 0;
  std::vector<T> o;

  friend Partial operator+(const Partial& x, const Partial& y) {
    Partial sum;
    sum.m = x.m < y.m ? y.m : x.m;
    const T of_x = defined_exp(x.m - finite_base(sum.m));
    const T of_y = defined_exp(y.m - finite_base(sum.m));
    sum.l = x.l * of_x + y.l * of_y;
    for (std::size_t e = 0; e < x.o.size(); ++e) {
      // No sum is -0, so that a leaf of zeros counts the same as one that is absent.
      sum.o.push_back((x.o[e] + T{0}) * of_x + (y.o[e] + T{0}) * of_y);
    }
    return sum;
  }
};

/// One head of one element of the batch.
template <typename T>
class Head {
 public:
  Head(const ReferenceContext& c, std::size_t first, std::int64_t batch, std::int64_t head)
      : c_(c), s_(sizes_of(c)), batch_(batch), head_(head), window_(key_window(c.attributes)) {
    more_ = attention_operands(c.attributes, first);
    scale_ = static_cast<T>(c.attributes.get<double>("scale"));
    if (more_.lengths != 0) {
      const std::int64_t length = c.operands[more_.lengths]->data<std::int32_t>()[at(batch)];
      num_keys_ = std::clamp<std::int64_t>(length, 0, s_.keys);
    } else {
      num_keys_ = s_.keys;
    }
    dropout_ = drop_rule(c.attributes);
    if (!dropout_) return;
    const auto words = c.operands[more_.dropout_keys]->data<std::uint32_t>();
    dropout_key_ = {words[at(2 * batch)], words[at(2 * batch + 1)]};
  }

  static AttentionSizes sizes_of(const ReferenceContext& c) {
    return attention_sizes({c.operands[0]->type(), c.operands[1]->type(), c.operands[2]->type()});
  }
  const AttentionSizes& sizes() const { return s_; }
  /// From now on, the key at position j lies in row j + rows.
  void move_keys(std::int64_t rows) { moved_ = rows; }

  /// The position of the first feature of a query in arrays with `depth` features.
  std::size_t query_at(std::int64_t i, std::int64_t depth) const {
    return at(((batch_ * s_.queries + i) * s_.heads + head_) * depth);
  }
  /// The same for a key in arrays with all heads.
  std::size_t grad_at(std::int64_t j, std::int64_t depth) const {
    return at(((batch_ * s_.keys + j) * s_.heads + head_) * depth);
  }
  std::size_t key_at(std::int64_t j, std::int64_t depth) const {
    const std::int64_t head = head_ / s_.group();
    return at(((batch_ * s_.keys + j + moved_) * s_.key_heads + head) * depth);
  }
  PositionRange keys_of(std::int64_t i) const { return window_.keys_of(i, num_keys_); }
  bool sees(std::int64_t i, std::int64_t j) const {
    const PositionRange keys = keys_of(i);
    return j >= keys.first && j < keys.last;
  }

  T scaled_q(std::int64_t i, std::int64_t d) const {
    return data(0)[query_at(i, s_.depth) + at(d)] * scale_;
  }
  T score(std::int64_t i, std::int64_t j) const {
    T sum = 0;
    for (std::int64_t d = 0; d < s_.depth; ++d) {
      sum = std::fma(scaled_q(i, d), data(1)[key_at(j, s_.depth) + at(d)], sum);
    }
    return more_.bias == 0 ? sum : sum + bias(i, j);
  }
  T value(std::int64_t j, std::int64_t e) const {
    return data(2)[key_at(j, s_.value_depth) + at(e)];
  }
  T key(std::int64_t j, std::int64_t d) const { return data(1)[key_at(j, s_.depth) + at(d)]; }

  /// x after dropout of the share of key j.
  T dropped(T x, std::int64_t i, std::int64_t j) const {
    if (!dropout_) return x;
    const std::size_t counter = at((head_ * s_.queries + i) * s_.keys + j);
    return dropout_->keeps(random_bits(dropout_key_, counter)) ? x * static_cast<T>(dropout_->scale)
                                                               : T{0};
  }

  // With the operands of derivatives.
  T d_output(std::int64_t i, std::int64_t e) const {
    return data(3)[query_at(i, s_.value_depth) + at(e)];
  }
  T p(std::int64_t i, std::int64_t j) const {
    return defined_exp(score(i, j) - finite_base(data(4)[query_at(i, 1)]));
  }
  T ds(std::int64_t i, std::int64_t j) const {
    T dp = 0;
    for (std::int64_t e = 0; e < s_.value_depth; ++e) {
      dp = std::fma(d_output(i, e), value(j, e), dp);
    }
    return p(i, j) * (dropped(dp, i, j) - data(5)[query_at(i, 1)]);
  }
  T scale() const { return scale_; }

 private:
  std::span<const T> data(std::size_t i) const { return c_.operands[i]->data<T>(); }
  T bias(std::int64_t i, std::int64_t j) const {
    const Shape& shape = c_.operands[more_.bias]->type().shape;
    std::vector<std::int64_t> index;
    std::int64_t rest = batch_;
    for (std::size_t n = s_.batch.size(); n-- > 0; rest /= s_.batch[n]) {
      index.insert(index.begin(), rest % s_.batch[n]);
    }
    for (std::int64_t position : {head_, i, j}) index.push_back(position);
    for (std::size_t n = 0; n < index.size(); ++n) index[n] = shape[n] == 1 ? 0 : index[n];
    return data(more_.bias)[offset_of(row_major_strides(shape), index)];
  }

  const ReferenceContext& c_;
  AttentionSizes s_;
  std::int64_t batch_, head_;
  std::int64_t moved_ = 0;
  KeyWindow window_;
  AttentionOperands more_;
  T scale_;
  std::int64_t num_keys_;
  std::optional<DropRule> dropout_;
  KeyData dropout_key_;
};

template <typename T, typename Visit>
void for_each_head(const ReferenceContext& c, std::size_t first, Visit visit) {
  const AttentionSizes s = Head<T>::sizes_of(c);
  for (std::int64_t batch = 0; batch < num_elements(s.batch); ++batch) {
    for (std::int64_t head = 0; head < s.heads; ++head) visit(Head<T>(c, first, batch, head));
  }
}

template <typename T>
Partial<T> leaf_of(const Head<T>& head, std::int64_t i, const PositionRange& keys) {
  Partial<T> leaf;
  leaf.o.resize(at(head.sizes().value_depth));
  if (keys.empty()) return leaf;
  std::vector<T> scores;
  for (std::int64_t j = keys.first; j < keys.last; ++j) {
    scores.push_back(head.score(i, j));
    if (scores.back() > leaf.m) leaf.m = scores.back();
  }
  std::vector<Chain<T>> sums(leaf.o.size());
  for (std::int64_t j = keys.first; j < keys.last; ++j) {
    const T p = defined_exp(scores[at(j - keys.first)] - finite_base(leaf.m));
    leaf.l = leaf.l + p;
    const T kept = head.dropped(p, i, j);
    for (std::size_t e = 0; e < sums.size(); ++e) {
      sums[e].add(head.value(j, static_cast<std::int64_t>(e)), kept);
    }
  }
  for (std::size_t e = 0; e < sums.size(); ++e) leaf.o[e] = sums[e].value();
  return leaf;
}

/// The partial result of a query from the leaves in a range.
template <typename T>
Partial<T> partial_of(const Head<T>& head, std::int64_t i, const PositionRange& range) {
  const std::int64_t keys = head.sizes().keys;
  const std::int64_t leaves = num_key_leaves(keys);
  TreeSum<Partial<T>> tree;
  for (std::int64_t n = range.first; n < range.last; ++n) {
    const PositionRange leaf = {leaf_start(n, leaves, keys), leaf_start(n + 1, leaves, keys)};
    tree.push(leaf_of(head, i, overlap(leaf, head.keys_of(i))));
  }
  return tree.finish();
}

/// Writes o, where no sum is -0, and returns lse.
template <typename T>
T finished(const Partial<T>& all, std::span<T> output) {
  const T factor = T{1} / (all.l == 0 ? T{1} : all.l);
  for (std::size_t e = 0; e < all.o.size(); ++e) output[e] = (all.o[e] + T{0}) * factor;
  return finite_base(all.m) + defined_log(all.l);
}

template <typename T>
void attend(const Head<T>& head, std::int64_t i, std::span<T> output, std::span<T> lse) {
  const AttentionSizes& s = head.sizes();
  const Partial<T> all = partial_of(head, i, {0, num_key_leaves(s.keys)});
  const std::span<T> row = output.subspan(head.query_at(i, s.value_depth), all.o.size());
  lse[head.query_at(i, 1)] = finished(all, row);
}

/// Rows of partial results: o, m, l. None is -0, so that each value has one form.
template <typename T>
void store(const Partial<T>& partial, std::span<T> row) {
  for (std::size_t e = 0; e < partial.o.size(); ++e) row[e] = partial.o[e] + T{0};
  row[partial.o.size()] = partial.m + T{0};
  row[partial.o.size() + 1] = partial.l;
}

template <typename T>
Partial<T> load(std::span<const T> row) {
  Partial<T> partial;
  partial.o.assign(row.begin(), row.end() - kPartialFeatures);
  partial.m = row[partial.o.size()];
  partial.l = row[partial.o.size() + 1];
  return partial;
}

/// The partial results of each part of the keys for the queries that attend to it.
template <typename T>
void attend_parts(Head<T> head, const AttentionParts& parts, std::span<T> out) {
  const AttentionSizes& s = head.sizes();
  const std::int64_t leaves = num_key_leaves(s.keys) / parts.count;
  const std::int64_t queries = parts.is_paired() ? s.queries / parts.count : s.queries;
  const std::int64_t width = s.value_depth + kPartialFeatures;
  const std::int64_t rows = num_elements(s.batch) * s.queries * s.heads;
  for (std::int64_t part = 0; part < parts.count; ++part) {
    const std::int64_t source = parts.source(part);
    head.move_keys((part - source) * (s.keys / parts.count));
    const std::int64_t first = parts.is_paired() ? part * queries : 0;
    const std::size_t start = parts.is_paired() ? 0 : at(part * rows * width);
    for (std::int64_t i = first; i < first + queries; ++i) {
      store(partial_of(head, i, {source * leaves, (source + 1) * leaves}),
            out.subspan(start + head.query_at(i, width), at(width)));
    }
  }
}

template <typename T>
void add_dq(const Head<T>& head, std::int64_t i, std::span<T> dq) {
  const AttentionSizes& s = head.sizes();
  std::vector<Chain<T>> sums(at(s.depth));
  const PositionRange keys = head.keys_of(i);
  for (std::int64_t j = keys.first; j < keys.last; ++j) {
    const T ds = head.ds(i, j);
    for (std::int64_t d = 0; d < s.depth; ++d) sums[at(d)].add(head.key(j, d), ds);
  }
  for (std::int64_t d = 0; d < s.depth; ++d) {
    dq[head.query_at(i, s.depth) + at(d)] = sums[at(d)].value() * head.scale();
  }
}

template <typename T>
void add_dkv(const Head<T>& head, std::int64_t j, std::span<T> dk, std::span<T> dv) {
  const AttentionSizes& s = head.sizes();
  std::vector<Chain<T>> of_k(at(s.depth));
  std::vector<Chain<T>> of_v(at(s.value_depth));
  for (std::int64_t i = 0; i < s.queries; ++i) {
    if (!head.sees(i, j)) continue;
    const T ds = head.ds(i, j);
    const T p = head.dropped(head.p(i, j), i, j);
    for (std::int64_t d = 0; d < s.depth; ++d) of_k[at(d)].add(ds, head.scaled_q(i, d));
    for (std::int64_t e = 0; e < s.value_depth; ++e) of_v[at(e)].add(p, head.d_output(i, e));
  }
  for (std::int64_t d = 0; d < s.depth; ++d)
    dk[head.grad_at(j, s.depth) + at(d)] = of_k[at(d)].value();
  for (std::int64_t e = 0; e < s.value_depth; ++e) {
    dv[head.grad_at(j, s.value_depth) + at(e)] = of_v[at(e)].value();
  }
}

std::vector<HostArray> arrays_of(const std::vector<Type>& types) {
  return {types.begin(), types.end()};
}

/// The cotangents of all scores, in the order of the array: heads, queries, keys.
template <typename T>
void write_ds(const ReferenceContext& c, std::span<T> out) {
  std::size_t next = 0;
  for_each_head<T>(c, kAttentionGradOperands, [&](const Head<T>& head) {
    for (std::int64_t i = 0; i < head.sizes().queries; ++i) {
      for (std::int64_t j = 0; j < head.sizes().keys; ++j) {
        out[next++] = head.sees(i, j) ? head.ds(i, j) : T{0};
      }
    }
  });
}

}  // namespace

Reference attention_reference() {
  return [](const ReferenceContext& c) {
    std::vector<HostArray> results = arrays_of(c.results);
    Floats::visit(c.operands[0]->type().dtype, [&](auto zero) {
      using T = decltype(zero);
      for_each_head<T>(c, kAttentionOperands, [&](const Head<T>& head) {
        for (std::int64_t i = 0; i < head.sizes().queries; ++i) {
          attend(head, i, results[0].template data<T>(), results[1].template data<T>());
        }
      });
    });
    return results;
  };
}

Reference attention_parts_reference() {
  return [](const ReferenceContext& c) {
    std::vector<HostArray> results = arrays_of(c.results);
    Floats::visit(c.operands[0]->type().dtype, [&](auto zero) {
      using T = decltype(zero);
      for_each_head<T>(c, kAttentionOperands, [&](const Head<T>& head) {
        attend_parts(head, attention_parts(c.attributes), results[0].template data<T>());
      });
    });
    return results;
  };
}

Reference attention_join_reference() {
  return [](const ReferenceContext& c) {
    std::vector<HostArray> results = arrays_of(c.results);
    Floats::visit(c.results[0].dtype, [&](auto zero) {
      using T = decltype(zero);
      const std::span<T> out = results[0].template data<T>();
      const std::size_t width = at(c.results[0].shape.back());
      for (std::size_t row = 0; row < out.size(); row += width) {
        const auto operand = [&](std::size_t i) {
          return load<T>(c.operands[i]->data<T>().subspan(row, width));
        };
        store(operand(0) + operand(1), out.subspan(row, width));
      }
    });
    return results;
  };
}

Reference attention_finish_reference() {
  return [](const ReferenceContext& c) {
    std::vector<HostArray> results = arrays_of(c.results);
    Floats::visit(c.results[0].dtype, [&](auto zero) {
      using T = decltype(zero);
      const std::span<T> lse = results[1].template data<T>();
      const std::size_t depth = at(c.results[0].shape.back());
      const std::size_t width = depth + kPartialFeatures;
      for (std::size_t row = 0; row < lse.size(); ++row) {
        lse[row] = finished(load<T>(c.operands[0]->data<T>().subspan(row * width, width)),
                            results[0].template data<T>().subspan(row * depth, depth));
      }
    });
    return results;
  };
}

Reference attention_grad_reference(AttentionGradient kind) {
  return [kind](const ReferenceContext& c) {
    std::vector<HostArray> results = arrays_of(c.results);
    Floats::visit(c.operands[0]->type().dtype, [&](auto zero) {
      using T = decltype(zero);
      if (kind == AttentionGradient::bias) return write_ds<T>(c, results[0].template data<T>());
      const std::size_t of_k = kind == AttentionGradient::all ? 1 : 0;
      for_each_head<T>(c, kAttentionGradOperands, [&](const Head<T>& head) {
        if (kind != AttentionGradient::kv) {
          for (std::int64_t i = 0; i < head.sizes().queries; ++i) {
            add_dq(head, i, results[0].template data<T>());
          }
        }
        if (kind == AttentionGradient::q) return;
        for (std::int64_t j = 0; j < head.sizes().keys; ++j) {
          add_dkv(head, j, results[of_k].template data<T>(), results[of_k + 1].template data<T>());
        }
      });
    });
    return results;
  };
}

}  // namespace tessera::ops
